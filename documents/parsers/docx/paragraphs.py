"""The text of a Word paragraph with its equations as LaTeX, and what hangs on it, like boxes."""

import re
from collections.abc import Callable, Iterator
from typing import Any

from documents.parsers.docx.package import get_attribute, is_on, local_name

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

_ACCENTS = {
    "\u0302": "hat", "\u0303": "tilde", "\u0304": "bar", "\u0305": "overline",
    "\u0307": "dot", "\u0308": "ddot", "\u20d7": "vec",
}  # fmt: skip
_BRACKETS = ("(", ")")
_GREEK = (
    "alpha beta gamma delta epsilon zeta eta theta iota kappa lambda mu nu xi omicron pi rho "
    "varsigma sigma tau upsilon phi chi psi omega"
)
_MATH_SIGNS = str.maketrans({
    **{chr(ord("α") + at): f"\\{name} " for at, name in enumerate(_GREEK.split())},
    "Γ": "\\Gamma ", "Δ": "\\Delta ", "Θ": "\\Theta ", "Λ": "\\Lambda ", "Ξ": "\\Xi ",
    "Π": "\\Pi ", "Σ": "\\Sigma ", "Φ": "\\Phi ", "Ψ": "\\Psi ", "Ω": "\\Omega ",
    "±": "\\pm ", "×": "\\times ", "÷": "\\div ", "⋅": "\\cdot ", "≤": "\\leq ", "≥": "\\geq ",
    "≠": "\\neq ", "≈": "\\approx ", "∞": "\\infty ", "∂": "\\partial ", "→": "\\to ",
    "∑": "\\sum", "∏": "\\prod", "∫": "\\int", "∈": "\\in ", "−": "-",
})  # fmt: skip


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
            yield f"\x00${to_latex(child)}$\x00"
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


def to_latex(element: Any) -> str:
    """The content below an element, in order."""
    return "".join(_iterate_math(element)).strip()


def _iterate_math(element: Any) -> Iterator[str]:
    for child in element:
        name = local_name(child)
        if name == "t":
            yield (child.text or "").translate(_MATH_SIGNS)
        elif name in _FORMS:
            yield _FORMS[name](child)
        elif name not in {"del", "moveFrom", "rPr"} and not name.endswith("Pr"):
            yield from _iterate_math(child)


def _read_part(element: Any, name: str) -> str:
    """The content of one part of an equation's form; "" if the part is missing."""
    part = element.find(f"{{*}}{name}")
    return "" if part is None else to_latex(part)


def _get_property(element: Any, name: str) -> str:
    """A property of a form, as `chr` of an accent."""
    return get_attribute(element.find(f"{{*}}{local_name(element)}Pr/{{*}}{name}"))


def _group_base(text: str) -> str:
    """A base that can have an exponent: x, 10, (a+b), {a+b}."""
    bracketed = text.startswith("(") and text.find(")") == len(text) - 1
    return text if text.isalnum() or bracketed else f"{{{text}}}"


def _write_scripts(element: Any) -> str:
    """Index and exponent, as far as they are there."""
    below, above = _read_part(element, "sub"), _read_part(element, "sup")
    return (f"_{{{below}}}" if below else "") + (f"^{{{above}}}" if above else "")


def _write_fraction(element: Any) -> str:
    above, below = _read_part(element, "num"), _read_part(element, "den")
    kind = _get_property(element, "type")
    if kind in {"lin", "skw"}:
        return f"{_group_base(above)}/{_group_base(below)}"
    return f"\\{'binom' if kind == 'noBar' else 'frac'}{{{above}}}{{{below}}}"


def _write_root(element: Any) -> str:
    degree = _read_part(element, "deg")
    return f"\\sqrt{f'[{degree}]' if degree else ''}{{{_read_part(element, 'e')}}}"


def _write_large_operator(element: Any) -> str:
    """Sums and integrals; Word leaves the sign of an integral out."""
    sign = (_get_property(element, "chr") or "∫").translate(_MATH_SIGNS)
    return f"{sign}{_write_scripts(element)} {_read_part(element, 'e')}"


def _write_delimited(element: Any) -> str:
    """Brackets; an empty value means none."""
    signs = []
    for name, usual in zip(("begChr", "endChr"), _BRACKETS, strict=True):
        sign = element.find(f"{{*}}dPr/{{*}}{name}")
        signs.append(usual if sign is None else get_attribute(sign))
    between = _get_property(element, "sepChr") or "|"
    return signs[0] + between.join(map(to_latex, element.findall("{*}e"))) + signs[1]


def _write_accent(element: Any) -> str:
    return f"\\{_ACCENTS.get(_get_property(element, 'chr'), 'hat')}{{{_read_part(element, 'e')}}}"


def _write_bar(element: Any) -> str:
    name = "overline" if _get_property(element, "pos") == "top" else "underline"
    return f"\\{name}{{{_read_part(element, 'e')}}}"


def _write_matrix(element: Any) -> str:
    rows = (" & ".join(map(to_latex, row.findall("{*}e"))) for row in element.findall("{*}mr"))
    return "\\begin{matrix}" + " \\\\ ".join(rows) + "\\end{matrix}"


def _write_rows(element: Any) -> str:
    """Equations below each other."""
    return " \\\\ ".join(map(to_latex, element.findall("{*}e")))


def _write_phantom(element: Any) -> str:
    """A phantom takes its room; its text is seen unless it says otherwise."""
    show = element.find("{*}phantPr/{*}show")
    return _read_part(element, "e") if show is None or is_on(show) else ""


_FORMS: dict[str, Callable[[Any], str]] = {
    "f": _write_fraction,
    "rad": _write_root,
    "nary": _write_large_operator,
    "d": _write_delimited,
    "acc": _write_accent,
    "bar": _write_bar,
    "m": _write_matrix,
    "eqArr": _write_rows,
    "phant": _write_phantom,
    "sSup": lambda one: _group_base(_read_part(one, "e")) + _write_scripts(one),
    "sSub": lambda one: _group_base(_read_part(one, "e")) + _write_scripts(one),
    "sSubSup": lambda one: _group_base(_read_part(one, "e")) + _write_scripts(one),
    "sPre": lambda one: "{}" + _write_scripts(one) + _read_part(one, "e"),
    "func": lambda one: f"{_read_part(one, 'fName')} {_read_part(one, 'e')}",
    "limLow": lambda one: f"{_read_part(one, 'e')}_{{{_read_part(one, 'lim')}}}",
    "limUpp": lambda one: f"{_read_part(one, 'e')}^{{{_read_part(one, 'lim')}}}",
}
