"""The text of a Word paragraph with its equations as LaTeX, and what hangs on it, like boxes."""

import re
from collections.abc import Iterator
from typing import Any

from documents.parsers.docx.package import get_attribute, is_on, local_name
from documents.parsers.formulas import format_word_equation

DRAWING_ATTRIBUTES = {"chart": "id", "relIds": "dm"}
"""Elements of a paragraph that name such a part, and in which attribute."""
PICTURE_ATTRIBUTES = {"blip": "embed", "imagedata": "id"}
"""The same for pictures; only those within the file have these attributes, or a part."""

SKIPPED_ELEMENTS = {
    *("del", "moveFrom", "Fallback", "instrText", "delText", "delInstrText"),
    *("pPr", "rPr", "sectPr", "tblPr", "tblGrid", "tcPr", "trPr", "sdtPr"),
}
"""Deleted text, second copies, orders to fields, properties: none of it is to be read."""
_SIGN_ELEMENTS = {
    "tab": "\t",
    "ptab": "\t",
    "br": "\n",
    "cr": "\n",
    "noBreakHyphen": "-",
}
_MONOSPACED = {
    *(
        "courier",
        "courier new",
        "consolas",
        "monaco",
        "menlo",
        "lucida console",
        "dejavu sans mono",
    ),
    *(
        "source code pro",
        "cascadia code",
        "cascadia mono",
        "d2coding",
        "나눔고딕코딩",
        "nanumgothiccoding",
    ),
}
TEXT_BOX = "txbxContent"
NOTE_KINDS = {"footnoteReference": "footnote", "endnoteReference": "endnote"}
_ANCHORED = {*DRAWING_ATTRIBUTES, *PICTURE_ATTRIBUTES, *NOTE_KINDS}
_WINGDINGS_SIGNS = {
    0xB7: "•", 0xA7: "▪", 0xD8: "➢", 0x76: "❖", 0x6C: "●", 0x6E: "■", 0x6F: "□", 0xA8: "□",
    0x71: "□", 0xFC: "✓", 0xFB: "✗", 0xFE: "☑", 0xFD: "☒", 0xE0: "→", 0xE8: "→", 0xF0: "⇨",
}  # fmt: skip
"""Signs that are text; the other pictures of the font have no meaning outside of it."""
_SYMBOL_SIGNS = {
    **dict(zip(range(0x41, 0x5B), "ΑΒΧΔΕΦΓΗΙϑΚΛΜΝΟΠΘΡΣΤΥςΩΞΨΖ", strict=True)),
    **dict(zip(range(0x61, 0x7B), "αβχδεφγηιϕκλμνοπθρστυϖωξψζ", strict=True)),
    0xA3: "≤", 0xA5: "∞", 0xAE: "→", 0xB0: "°", 0xB1: "±", 0xB3: "≥", 0xB4: "×", 0xB7: "•",
}  # fmt: skip


def read_paragraph_text(element: Any) -> str:
    """Text of the runs, insertions included, deletions, hidden text and text boxes not."""
    return "".join(_iterate_text(element)).replace("\x00\x00", " ").replace("\x00", "")


def is_monospaced(paragraph: Any) -> bool:
    """Whether all its text is in a typewriter font by itself."""
    runs = [run for run in paragraph.iter("{*}r") if run.find("{*}t") is not None]
    fonts = (get_attribute(run.find("{*}rPr/{*}rFonts"), "ascii").lower() for run in runs)
    return bool(runs) and all(font in _MONOSPACED for font in fonts)


def iterate_anchors(element: Any) -> Iterator[Any]:
    """What hangs on a paragraph, in order: text boxes, charts, pictures, references to notes.

    What is anchored in a text box is the box's. The old-style copy of a box is skipped.
    """
    for child in element:
        name = local_name(child)
        if name == TEXT_BOX or name in _ANCHORED:
            yield child
        elif name not in SKIPPED_ELEMENTS:
            yield from iterate_anchors(child)


def iterate_text_boxes(element: Any) -> Iterator[Any]:
    """Text boxes of a paragraph."""
    return (found for found in iterate_anchors(element) if local_name(found) == TEXT_BOX)


def _iterate_text(element: Any) -> Iterator[str]:
    """The text below an element, in order. NUL marks both ends of an equation."""
    for child in element:
        name = local_name(child)
        if name == "t":
            yield (child.text or "") + "".join(comment.tail or "" for comment in child)
        elif name in _SIGN_ELEMENTS:
            yield _SIGN_ELEMENTS[name]
        elif name == "sym":
            yield _to_sign(child)
        elif name == "oMath":
            yield f"\x00{format_word_equation(child)}\x00"
        elif name not in SKIPPED_ELEMENTS and name != TEXT_BOX and not _is_hidden(child):
            yield from _iterate_text(child)


def _is_hidden(run: Any) -> bool:
    """Whether a run is text that no reader of the document sees."""
    return is_on(run.find("{*}rPr/{*}vanish"))


def _to_sign(element: Any) -> str:
    """A character by its number in a symbol font, whose private area starts at F000."""
    code = get_attribute(element, "char")
    value = int(code, 16) if re.fullmatch(r"[0-9A-Fa-f]{2,4}", code) else 0
    if 0x100 <= value < 0xE000:
        return chr(value)
    signs = _SYMBOL_SIGNS if get_attribute(element, "font") == "Symbol" else _WINGDINGS_SIGNS
    return signs.get(value & 0xFF, "")
