"""Equations of Word (OMML) as LaTeX: the notation that people type and models read."""

from collections.abc import Callable, Iterator
from typing import Any

from documents.parsers.docx.package import attribute, is_on, local

_ACCENTS = {
    "\u0302": "hat", "\u0303": "tilde", "\u0304": "bar", "\u0305": "overline",
    "\u0307": "dot", "\u0308": "ddot", "\u20d7": "vec",
}  # fmt: skip
_BRACKETS = ("(", ")")
_GREEK = (
    "alpha beta gamma delta epsilon zeta eta theta iota kappa lambda mu nu xi omicron pi rho "
    "varsigma sigma tau upsilon phi chi psi omega"
)
_SIGNS = str.maketrans({
    **{chr(ord("α") + at): f"\\{name} " for at, name in enumerate(_GREEK.split())},
    "Γ": "\\Gamma ", "Δ": "\\Delta ", "Θ": "\\Theta ", "Λ": "\\Lambda ", "Ξ": "\\Xi ",
    "Π": "\\Pi ", "Σ": "\\Sigma ", "Φ": "\\Phi ", "Ψ": "\\Psi ", "Ω": "\\Omega ",
    "±": "\\pm ", "×": "\\times ", "÷": "\\div ", "⋅": "\\cdot ", "≤": "\\leq ", "≥": "\\geq ",
    "≠": "\\neq ", "≈": "\\approx ", "∞": "\\infty ", "∂": "\\partial ", "→": "\\to ",
    "∑": "\\sum", "∏": "\\prod", "∫": "\\int", "∈": "\\in ", "−": "-",
})  # fmt: skip


def latex(element: Any) -> str:
    """What stands below an element, in order."""
    return "".join(_pieces(element)).strip()


def _pieces(element: Any) -> Iterator[str]:
    for child in element:
        name = local(child)
        if name == "t":
            yield (child.text or "").translate(_SIGNS)
        elif name in _FORMS:
            yield _FORMS[name](child)
        elif name not in {"del", "moveFrom", "rPr"} and not name.endswith("Pr"):
            yield from _pieces(child)


def _part(element: Any, name: str) -> str:
    """What stands in one part of a form; "" where the part is missing."""
    part = element.find(f"{{*}}{name}")
    return "" if part is None else latex(part)


def _property(element: Any, name: str) -> str:
    """A property of a form, as `chr` of an accent."""
    return attribute(element.find(f"{{*}}{local(element)}Pr/{{*}}{name}"))


def _grouped(text: str) -> str:
    """A base on which an exponent may stand: x, 10, (a+b), {a+b}."""
    bracketed = text.startswith("(") and text.find(")") == len(text) - 1
    return text if text.isalnum() or bracketed else f"{{{text}}}"


def _scripts(element: Any) -> str:
    """Index and exponent, as far as they are there."""
    below, above = _part(element, "sub"), _part(element, "sup")
    return (f"_{{{below}}}" if below else "") + (f"^{{{above}}}" if above else "")


def _fraction(element: Any) -> str:
    above, below = _part(element, "num"), _part(element, "den")
    kind = _property(element, "type")
    if kind in {"lin", "skw"}:
        return f"{_grouped(above)}/{_grouped(below)}"
    return f"\\{'binom' if kind == 'noBar' else 'frac'}{{{above}}}{{{below}}}"


def _root(element: Any) -> str:
    degree = _part(element, "deg")
    return f"\\sqrt{f'[{degree}]' if degree else ''}{{{_part(element, 'e')}}}"


def _large_operator(element: Any) -> str:
    """Sums and integrals; Word leaves the sign of an integral out."""
    sign = (_property(element, "chr") or "∫").translate(_SIGNS)
    return f"{sign}{_scripts(element)} {_part(element, 'e')}"


def _delimited(element: Any) -> str:
    """Brackets, whose absence is said by an empty value."""
    signs = []
    for name, usual in zip(("begChr", "endChr"), _BRACKETS, strict=True):
        sign = element.find(f"{{*}}dPr/{{*}}{name}")
        signs.append(usual if sign is None else attribute(sign))
    between = _property(element, "sepChr") or "|"
    return signs[0] + between.join(map(latex, element.findall("{*}e"))) + signs[1]


def _accent(element: Any) -> str:
    return f"\\{_ACCENTS.get(_property(element, 'chr'), 'hat')}{{{_part(element, 'e')}}}"


def _bar(element: Any) -> str:
    name = "overline" if _property(element, "pos") == "top" else "underline"
    return f"\\{name}{{{_part(element, 'e')}}}"


def _matrix(element: Any) -> str:
    rows = (" & ".join(map(latex, row.findall("{*}e"))) for row in element.findall("{*}mr"))
    return "\\begin{matrix}" + " \\\\ ".join(rows) + "\\end{matrix}"


def _rows(element: Any) -> str:
    """Equations below each other."""
    return " \\\\ ".join(map(latex, element.findall("{*}e")))


def _hidden(element: Any) -> str:
    """A phantom takes its room; its text is seen unless it says otherwise."""
    show = element.find("{*}phantPr/{*}show")
    return _part(element, "e") if show is None or is_on(show) else ""


_FORMS: dict[str, Callable[[Any], str]] = {
    "f": _fraction,
    "rad": _root,
    "nary": _large_operator,
    "d": _delimited,
    "acc": _accent,
    "bar": _bar,
    "m": _matrix,
    "eqArr": _rows,
    "phant": _hidden,
    "sSup": lambda one: _grouped(_part(one, "e")) + _scripts(one),
    "sSub": lambda one: _grouped(_part(one, "e")) + _scripts(one),
    "sSubSup": lambda one: _grouped(_part(one, "e")) + _scripts(one),
    "sPre": lambda one: "{}" + _scripts(one) + _part(one, "e"),
    "func": lambda one: f"{_part(one, 'fName')} {_part(one, 'e')}",
    "limLow": lambda one: f"{_part(one, 'e')}_{{{_part(one, 'lim')}}}",
    "limUpp": lambda one: f"{_part(one, 'e')}^{{{_part(one, 'lim')}}}",
}
