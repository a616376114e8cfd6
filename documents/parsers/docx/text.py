"""The text of a Word paragraph, and what hangs on it: boxes, notes, drawings."""

import re
from collections.abc import Iterator
from typing import Any

from documents.parsers.docx.drawings import PICTURES, REFERENCES
from documents.parsers.docx.math import latex
from documents.parsers.docx.package import attribute, is_on, local

SKIPPED = {
    *("del", "moveFrom", "Fallback", "instrText", "delText", "delInstrText"),
    *("pPr", "rPr", "sectPr", "tblPr", "tblGrid", "tcPr", "trPr", "sdtPr"),
}
"""Deleted text, second copies, orders to fields, properties: none of it is to be read."""
_SIGNS = {
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
BOX = "txbxContent"
NOTE_MARKS = {"footnoteReference": "footnote", "endnoteReference": "endnote"}
_ANCHORED = {*REFERENCES, *PICTURES, *NOTE_MARKS}
_WINGDINGS = {
    0xB7: "•", 0xA7: "▪", 0xD8: "➢", 0x76: "❖", 0x6C: "●", 0x6E: "■", 0x6F: "□", 0xA8: "□",
    0x71: "□", 0xFC: "✓", 0xFB: "✗", 0xFE: "☑", 0xFD: "☒", 0xE0: "→", 0xE8: "→", 0xF0: "⇨",
}  # fmt: skip
"""Signs that are text; the other pictures of the font have no meaning outside of it."""
_SYMBOL = {
    **dict(zip(range(0x41, 0x5B), "ΑΒΧΔΕΦΓΗΙϑΚΛΜΝΟΠΘΡΣΤΥςΩΞΨΖ", strict=True)),
    **dict(zip(range(0x61, 0x7B), "αβχδεφγηιϕκλμνοπθρστυϖωξψζ", strict=True)),
    0xA3: "≤", 0xA5: "∞", 0xAE: "→", 0xB0: "°", 0xB1: "±", 0xB3: "≥", 0xB4: "×", 0xB7: "•",
}  # fmt: skip


def paragraph_text(element: Any) -> str:
    """Text of the runs, insertions included, deletions, hidden text and text boxes not."""
    return "".join(_pieces(element)).replace("\x00\x00", " ").replace("\x00", "")


def is_monospaced(paragraph: Any) -> bool:
    """Whether all its text is in a typewriter font by itself."""
    runs = [run for run in paragraph.iter("{*}r") if run.find("{*}t") is not None]
    fonts = (attribute(run.find("{*}rPr/{*}rFonts"), "ascii").lower() for run in runs)
    return bool(runs) and all(font in _MONOSPACED for font in fonts)


def anchored(element: Any) -> Iterator[Any]:
    """What hangs on a paragraph, in order: text boxes, charts, pictures, references to notes.

    What is anchored in a text box is the box's. The old-style copy of a box is skipped.
    """
    for child in element:
        name = local(child)
        if name == BOX or name in _ANCHORED:
            yield child
        elif name not in SKIPPED:
            yield from anchored(child)


def boxes(element: Any) -> Iterator[Any]:
    """Text boxes of a paragraph."""
    return (found for found in anchored(element) if local(found) == BOX)


def _pieces(element: Any) -> Iterator[str]:
    """The text below an element, in order. NUL marks both ends of an equation."""
    for child in element:
        name = local(child)
        if name == "t":
            yield (child.text or "") + "".join(comment.tail or "" for comment in child)
        elif name in _SIGNS:
            yield _SIGNS[name]
        elif name == "sym":
            yield _symbol(child)
        elif name == "oMath":
            yield f"\x00${latex(child)}$\x00"
        elif name not in SKIPPED and name != BOX and not _hidden(child):
            yield from _pieces(child)


def _hidden(run: Any) -> bool:
    """Whether a run is text that no reader of the document sees."""
    return is_on(run.find("{*}rPr/{*}vanish"))


def _symbol(element: Any) -> str:
    """A character by its number in a font of signs; those stand in a private area from F000."""
    code = attribute(element, "char")
    value = int(code, 16) if re.fullmatch(r"[0-9A-Fa-f]{2,4}", code) else 0
    if 0x100 <= value < 0xE000:
        return chr(value)
    signs = _SYMBOL if attribute(element, "font") == "Symbol" else _WINGDINGS
    return signs.get(value & 0xFF, "")
