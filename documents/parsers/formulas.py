"""Formulas of Word (OMML) and of Hangul (its equation script) as `$LaTeX$`, which the pages draw.

What is nested too deep or longer than the pages draw stays as its words: those can be searched.
"""

import re
from collections.abc import Callable, Iterator
from typing import Any

from documents.parsers.docx.package import get_attribute, get_local_name, is_switched_on

MAX_FORMULA_CHARACTERS = 4_000
"""A longer formula is not drawn (`front/js/markdown_rules.js`)."""
_MAX_ELEMENT_DEPTH = 120
_MAX_SCRIPT_DEPTH = 30

_FUNCTION_NAMES = """
    arccos arcsin arctan arg cos cosh cot coth csc deg det dim exp gcd hom inf ker lg lim ln log
    max min sec sin sinh sup tan tanh
"""
_FUNCTIONS = frozenset(_FUNCTION_NAMES.split())
_GREEK = (
    "alpha beta gamma delta epsilon zeta eta theta iota kappa lambda mu nu xi omicron pi rho "
    "varsigma sigma tau upsilon phi chi psi omega"
)
"""From α to ω, as Unicode has them."""
_GREEK_CAPITALS = {
    "Γ": "Gamma", "Δ": "Delta", "Θ": "Theta", "Λ": "Lambda", "Ξ": "Xi", "Π": "Pi", "Σ": "Sigma",
    "Υ": "Upsilon", "Φ": "Phi", "Ψ": "Psi", "Ω": "Omega",
}  # fmt: skip
_SPECIAL = re.compile(r"[\\{}$%#&_^~]")
_HANGUL = re.compile(r"[\u3131-\u318e\uac00-\ud7a3]")
_INVISIBLE = dict.fromkeys(range(0x2061, 0x2065))


def to_latex_text(words: str) -> str:
    """Words that stand upright in a formula, with their blanks."""
    return f"\\text{{{_escape_signs(words)}}}" if words else ""


def _escape_signs(words: str) -> str:
    signs = {"\\": "\\backslash ", "^": "\\hat{} ", "~": "\\sim "}
    return _SPECIAL.sub(lambda sign: signs.get(sign[0], f"\\{sign[0]}"), words)


def _wrap_formula(latex: str, words: str) -> str:
    """The formula between its signs; its words as they are where it is too long, "" of nothing."""
    latex = latex.strip()
    if len(latex) > MAX_FORMULA_CHARACTERS:
        return " ".join(words.split())
    return f"${latex}$" if latex else ""


def _write_environment(name: str, rows: list[str]) -> str:
    inside = " \\\\ ".join(rows)
    return f"\\begin{{{name}}}{inside}\\end{{{name}}}"


# Word

_ACCENTS = {
    "\u0302": "hat", "\u0303": "tilde", "\u0304": "bar", "\u0305": "overline",
    "\u0306": "breve", "\u0307": "dot", "\u0308": "ddot", "\u0300": "grave", "\u0301": "acute",
    "\u030c": "check", "\u20d7": "vec", "\u20d1": "vec", "\u20d6": "overleftarrow",
}  # fmt: skip
_BRACKETS = ("(", ")")
_TALL = re.compile(r"\\(?:frac|binom|begin|sum|prod|int|sqrt)\b|[_^]")
_MATH_SIGNS = str.maketrans({
    **{chr(ord("α") + at): f"\\{name} " for at, name in enumerate(_GREEK.split())},
    **{sign: f"\\{name} " for sign, name in _GREEK_CAPITALS.items()},
    "±": "\\pm ", "×": "\\times ", "÷": "\\div ", "⋅": "\\cdot ", "≤": "\\leq ", "≥": "\\geq ",
    "≠": "\\neq ", "≈": "\\approx ", "∞": "\\infty ", "∂": "\\partial ", "→": "\\to ",
    "∑": "\\sum", "∏": "\\prod", "∫": "\\int", "∈": "\\in ", "−": "-",
})  # fmt: skip


def format_word_equation(element: Any) -> str:
    """An `m:oMath` between dollar signs; its bare words where it is nested too deep."""
    words = "".join(part.text or "" for part in element.iter("{*}t"))
    if _is_too_deep(element):
        return words
    return _wrap_formula(_to_latex(element), words)


def _is_too_deep(element: Any) -> bool:
    waiting = [(element, 0)]
    while waiting:
        one, depth = waiting.pop()
        if depth > _MAX_ELEMENT_DEPTH:
            return True
        waiting += [(child, depth + 1) for child in one]
    return False


def _to_latex(element: Any) -> str:
    """The content below an element, in order."""
    return "".join(_iterate_math(element)).strip()


def _iterate_math(element: Any) -> Iterator[str]:
    for child in element:
        name = get_local_name(child)
        if name == "t":
            yield _write_run(child)
        elif name in _FORMS:
            yield _FORMS[name](child)
        elif name not in {"del", "moveFrom", "rPr"} and not name.endswith("Pr"):
            yield from _iterate_math(child)


def _write_run(element: Any) -> str:
    """The text of a run: a function's name, words as words, all else as signs."""
    text = (element.text or "").translate(_INVISIBLE)
    if text.strip() in _FUNCTIONS:
        return f"\\{text.strip()} "
    is_plain = is_switched_on(element.getparent().find("{*}rPr/{*}nor"))
    if is_plain or _HANGUL.search(text):
        return to_latex_text(text)
    return _escape_signs(text).translate(_MATH_SIGNS)


def _read_part(element: Any, name: str) -> str:
    """The content of one part of an equation's form; "" if the part is missing."""
    part = element.find(f"{{*}}{name}")
    return "" if part is None else _to_latex(part)


def _get_property(element: Any, name: str) -> str:
    """A property of a form, as `chr` of an accent."""
    return get_attribute(element.find(f"{{*}}{get_local_name(element)}Pr/{{*}}{name}"))


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
    inside = between.join(map(_to_latex, element.findall("{*}e")))
    first, last = (f"\\{sign}" if sign in {"{", "}"} else sign for sign in signs)
    if _TALL.search(inside) and (first or last):
        return f"\\left{first or '.'}{inside}\\right{last or '.'}"
    return first + inside + last


def _write_accent(element: Any) -> str:
    return f"\\{_ACCENTS.get(_get_property(element, 'chr'), 'hat')}{{{_read_part(element, 'e')}}}"


def _write_bar(element: Any) -> str:
    name = "overline" if _get_property(element, "pos") == "top" else "underline"
    return f"\\{name}{{{_read_part(element, 'e')}}}"


def _write_brace(element: Any) -> str:
    """A brace over or under a term; Word leaves out the one under it."""
    name = "overbrace" if _get_property(element, "pos") == "top" else "underbrace"
    return f"\\{name}{{{_read_part(element, 'e')}}}"


def _write_matrix(element: Any) -> str:
    rows = (" & ".join(map(_to_latex, row.findall("{*}e"))) for row in element.findall("{*}mr"))
    return _write_environment("matrix", list(rows))


def _write_rows(element: Any) -> str:
    """Equations below each other."""
    return _write_environment("aligned", list(map(_to_latex, element.findall("{*}e"))))


def _write_phantom(element: Any) -> str:
    """A phantom takes its room; its text is seen unless it says otherwise."""
    show = element.find("{*}phantPr/{*}show")
    return _read_part(element, "e") if show is None or is_switched_on(show) else ""


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
    "groupChr": _write_brace,
    "limUpp": lambda one: f"{_read_part(one, 'e')}^{{{_read_part(one, 'lim')}}}",
}


# Hangul

_TOKEN = re.compile(
    r'"[^"]*"|[A-Za-z]+|[\d.]+[A-Za-z]*|[가-힣ㄱ-ㆎ]+|<->|->|<-|<=|>=|!=|==|\+-|-\+|<<|>>|\s+|.'
)
_NAMES = """
    times div cdot pm mp le leq ge geq ne neq approx equiv cong simeq sim propto infty partial
    nabla triangle angle therefore because in notin ni subset supset subseteq supseteq cup cap
    emptyset forall exists wedge vee oplus otimes odot circ bullet star dagger ddagger ell hbar
    aleph prime cdots ldots vdots ddots sum prod coprod int oint uparrow downarrow
    leftrightarrow rightarrow leftarrow mapsto vartheta varpi varphi lceil rceil lfloor rfloor
"""
_OTHER_NAMES = """
    plusminus=pm minusplus=mp inf=infty infinity=infty dint=iint tint=iiint exist=exists
    rarrow=rightarrow larrow=leftarrow lrarrow=leftrightarrow union=cup inter=cap
    dotsaxis=cdots dotslow=ldots dotsvert=vdots dotsdiag=ddots imag=Im real=Re
"""
_COMMANDS = {
    **{name: name for name in (*_NAMES.split(), *_GREEK.split())},
    **dict(pair.split("=") for pair in _OTHER_NAMES.split()),
    **{name: name for name in _FUNCTIONS},
    **{name.upper(): name for name in _GREEK_CAPITALS.values()},
}
"""Words of the script and what LaTeX calls them; Greek capitals are written in capitals."""
_SIGNS = {
    "<->": "\\leftrightarrow ", "->": "\\to ", "<-": "\\leftarrow ", "<=": "\\leq ",
    ">=": "\\geq ", "!=": "\\neq ", "==": "\\equiv ", "+-": "\\pm ", "-+": "\\mp ",
    "deg": "^{\\circ}", "<<": "\\ll ", ">>": "\\gg ", "`": "\\,", "~": "\\;",
}  # fmt: skip
_ABOVE_TERMS = {
    **{name: name for name in ("vec", "bar", "hat", "tilde", "dot", "ddot", "acute", "grave")},
    "check": "check",
    "dyad": "overleftrightarrow",
    "arch": "overparen",
    "sqrt": "sqrt",
    "under": "underline",
    "rm": "mathrm",
    "bold": "mathbf",
    "it": "mathit",
}
_GRIDS = {
    "matrix": "matrix",
    "pmatrix": "pmatrix",
    "bmatrix": "bmatrix",
    "dmatrix": "vmatrix",
    "cases": "cases",
    "pile": "matrix",
    "lpile": "matrix",
    "rpile": "matrix",
    "eqalign": "aligned",
}
_DELIMITERS = {
    **{sign: sign for sign in "()[]|.<>/"},
    "{": "\\{",
    "}": "\\}",
    "lceil": "\\lceil",
    "rceil": "\\rceil",
    "lfloor": "\\lfloor",
    "rfloor": "\\rfloor",
}
_INFIXES = {"over": "\\frac{%s}{%s}", "atop": "{%s \\atop %s}", "choose": "\\binom{%s}{%s}"}


class _UnreadableScript(Exception):
    """The script does not add up, or is nested too deep."""


def format_hangul_equation(script: str) -> str:
    """An equation of Hangul between dollar signs; the script as it is where it cannot be read."""
    words = " ".join(script.split())
    if len(words) > MAX_FORMULA_CHARACTERS:
        return words
    try:
        return _wrap_formula(_HangulScript(words).write(), words)
    except _UnreadableScript:
        return words


class _HangulScript:
    """Writes a script as LaTeX, term by term."""

    def __init__(self, script: str) -> None:
        self._pieces = _TOKEN.findall(script)
        self._at = 0
        self._depth = 0

    def write(self) -> str:
        """The whole script, on as many lines as it has."""
        rows = self._write_rows("")
        if len(rows) == 1:
            return rows[0]
        return _write_environment("aligned", rows)

    def _peek(self) -> str:
        """The next piece that is no blank; "" at the end."""
        while self._at < len(self._pieces) and self._pieces[self._at].isspace():
            self._at += 1
        return self._pieces[self._at] if self._at < len(self._pieces) else ""

    def _take(self) -> str:
        piece = self._peek()
        self._at += 1
        return piece

    def _write_rows(self, end: str) -> list[str]:
        """Rows apart by `#`, their cells by `&`, up to the piece that ends them, which is taken."""
        self._depth += 1
        if self._depth > _MAX_SCRIPT_DEPTH:
            raise _UnreadableScript
        rows, terms = [], list[str]()
        while (piece := self._peek()).lower() != end:
            if not piece or piece == "}" or piece.lower() == "right":
                raise _UnreadableScript
            if piece == "#":
                self._take()
                rows.append("".join(terms).strip())
                terms = []
            elif piece == "&":
                self._take()
                terms.append(" & " if self._depth > 1 else " ")
            elif piece.lower() in _INFIXES:
                self._take()
                above = _strip_group(terms.pop().strip()) if terms else ""
                terms.append(_INFIXES[piece.lower()] % (above, self._write_term(bare=True)))
            else:
                terms.append(self._write_term())
        self._take()
        self._depth -= 1
        return [*rows, "".join(terms).strip()]

    def _write_term(self, *, bare: bool = False) -> str:
        """One term with its index and exponent; `bare`: a group without its braces."""
        piece = self._peek()
        if not piece or piece in {"}", "&", "#"}:
            return ""
        self._depth += 1
        if self._depth > _MAX_SCRIPT_DEPTH:
            raise _UnreadableScript
        term = "" if piece in {"^", "_"} else self._write_base()
        if bare and self._peek() not in {"^", "_"}:
            term = _strip_group(term)
        while (sign := self._peek().lower()) in {"^", "_", "sup", "sub"}:
            self._take()
            sign = {"sup": "^", "sub": "_"}.get(sign, sign)
            term += f"{sign}{{{self._write_script()}}}"
        self._depth -= 1
        return term

    def _write_script(self) -> str:
        """What stands high or low: one base, so that `a_1^2` has both."""
        has_base = self._peek() not in {"", "}", "&", "#"}
        return _strip_group(self._write_base()) if has_base else ""

    def _write_base(self) -> str:
        piece = self._take()
        word = piece.lower()
        if piece == "{":
            rows = self._write_rows("}")
            return f"{{{rows[0] if len(rows) == 1 else _write_environment('matrix', rows)}}}"
        if word in _GRIDS and self._peek() == "{":
            self._take()
            return _write_environment(_GRIDS[word], self._write_rows("}"))
        if word in _ABOVE_TERMS:
            return f"\\{_ABOVE_TERMS[word]}{{{self._write_term(bare=True)}}}"
        if word in {"left", "root"}:
            return self._write_delimited() if word == "left" else self._write_root()
        return _write_piece(piece)

    def _write_delimited(self) -> str:
        """`left ( … right )`; the side of a dot has none."""
        first = self._take().lower()
        rows = self._write_rows("right")
        last = self._take().lower()
        if not {first, last} <= _DELIMITERS.keys():
            raise _UnreadableScript
        inside = rows[0] if len(rows) == 1 else _write_environment("matrix", rows)
        return f"\\left{_DELIMITERS[first]} {inside} \\right{_DELIMITERS[last]}"

    def _write_root(self) -> str:
        degree = self._write_term(bare=True)
        if self._peek().lower() != "of":
            return f"\\sqrt{{{degree}}}"
        self._take()
        return f"\\sqrt[{degree}]{{{self._write_term(bare=True)}}}"


def _write_piece(piece: str) -> str:
    """A word or sign that takes no other."""
    if sign := _SIGNS.get(piece.lower()):
        return sign
    if command := _COMMANDS.get(piece) or _COMMANDS.get(piece.lower()):
        return f"\\{command} "
    if piece[0] == '"' or _HANGUL.match(piece):
        return to_latex_text(piece.strip('"'))
    return _escape_signs(piece)


def _strip_group(latex: str) -> str:
    """Without the pair of braces that holds all of it."""
    depth = 0
    for at, sign in enumerate(latex):
        if at and latex[at - 1] == "\\":
            continue
        depth += (sign == "{") - (sign == "}")
        if depth == 0:
            return latex[1:-1] if sign == "}" and at == len(latex) - 1 else latex
    return latex
