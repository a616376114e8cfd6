"""Formulas of Word (OMML) and Hangul (its equation script) as `$LaTeX$`, which the pages render.

A formula that is nested too deep, or longer than the pages render, becomes plain text, which can
still be searched.
"""

import re
from collections.abc import Callable, Iterator
from typing import Any

from documents.parsers.archive import get_local_name
from documents.parsers.docx.package import get_attribute, is_switched_on

MAX_FORMULA_CHARACTERS = 4_000
"""A longer formula is not rendered (`front/js/markdown_rules.js`)."""
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
"""From α to ω, in the order of Unicode."""
_GREEK_CAPITALS = {
    "Γ": "Gamma", "Δ": "Delta", "Θ": "Theta", "Λ": "Lambda", "Ξ": "Xi", "Π": "Pi", "Σ": "Sigma",
    "Υ": "Upsilon", "Φ": "Phi", "Ψ": "Psi", "Ω": "Omega",
}  # fmt: skip
_SPECIAL = re.compile(r"[\\{}$%#&_^~]")
_HANGUL = re.compile(r"[\u3131-\u318e\uac00-\ud7a3]")
_INVISIBLE = dict.fromkeys(range(0x2061, 0x2065))


def to_latex_text(text: str) -> str:
    """Upright text in a formula, with its spaces."""
    return f"\\text{{{_escape_signs(text)}}}" if text else ""


def _escape_signs(text: str) -> str:
    replacements = {"\\": "\\backslash ", "^": "\\hat{} ", "~": "\\sim "}
    return _SPECIAL.sub(lambda sign: replacements.get(sign[0], f"\\{sign[0]}"), text)


def _wrap_formula(latex: str, fallback: str) -> str:
    """The formula between dollar signs; `fallback` if it is too long, "" if it is empty."""
    latex = latex.strip()
    if len(latex) > MAX_FORMULA_CHARACTERS:
        return " ".join(fallback.split())
    return f"${latex}$" if latex else ""


def _format_environment(name: str, rows: list[str]) -> str:
    content = " \\\\ ".join(rows)
    return f"\\begin{{{name}}}{content}\\end{{{name}}}"


# Word

_ACCENTS = {
    "\u0302": "hat", "\u0303": "tilde", "\u0304": "bar", "\u0305": "overline",
    "\u0306": "breve", "\u0307": "dot", "\u0308": "ddot", "\u0300": "grave", "\u0301": "acute",
    "\u030c": "check", "\u20d7": "vec", "\u20d1": "vec", "\u20d6": "overleftarrow",
}  # fmt: skip
_BRACKETS = ("(", ")")
_TALL_CONTENT = re.compile(r"\\(?:frac|binom|begin|sum|prod|int|sqrt)\b|[_^]")
_MATH_SIGNS = str.maketrans({
    **{chr(ord("α") + at): f"\\{name} " for at, name in enumerate(_GREEK.split())},
    **{sign: f"\\{name} " for sign, name in _GREEK_CAPITALS.items()},
    "±": "\\pm ", "×": "\\times ", "÷": "\\div ", "⋅": "\\cdot ", "≤": "\\leq ", "≥": "\\geq ",
    "≠": "\\neq ", "≈": "\\approx ", "∞": "\\infty ", "∂": "\\partial ", "→": "\\to ",
    "∑": "\\sum", "∏": "\\prod", "∫": "\\int", "∈": "\\in ", "−": "-",
})  # fmt: skip


def format_word_equation(element: Any) -> str:
    """An `m:oMath` between dollar signs; its plain text where it is nested too deep."""
    plain_text = "".join(part.text or "" for part in element.iter("{*}t"))
    if _is_too_deep(element):
        return plain_text
    return _wrap_formula(_to_latex(element), plain_text)


def _is_too_deep(element: Any) -> bool:
    stack = [(element, 0)]
    while stack:
        current, depth = stack.pop()
        if depth > _MAX_ELEMENT_DEPTH:
            return True
        stack += [(child, depth + 1) for child in current]
    return False


def _to_latex(element: Any) -> str:
    """The LaTeX of all that is in an element, in order."""
    return "".join(_iterate_math(element)).strip()


def _iterate_math(element: Any) -> Iterator[str]:
    for child in element:
        name = get_local_name(child)
        if name == "t":
            yield _convert_run(child)
        elif name in _FORMS:
            yield _FORMS[name](child)
        elif name not in {"del", "moveFrom", "rPr"} and not name.endswith("Pr"):
            yield from _iterate_math(child)


def _convert_run(element: Any) -> str:
    """The text of a run: a function name, upright text, or symbols."""
    text = (element.text or "").translate(_INVISIBLE)
    if text.strip() in _FUNCTIONS:
        return f"\\{text.strip()} "
    is_plain = is_switched_on(element.getparent().find("{*}rPr/{*}nor"))
    if is_plain or _HANGUL.search(text):
        return to_latex_text(text)
    return _escape_signs(text).translate(_MATH_SIGNS)


def _read_part(element: Any, name: str) -> str:
    """The LaTeX of one part of a structure, such as `num` of a fraction; "" if it is missing."""
    part = element.find(f"{{*}}{name}")
    return "" if part is None else _to_latex(part)


def _get_property(element: Any, name: str) -> str:
    """A property of a structure, such as `chr` of an accent."""
    return get_attribute(element.find(f"{{*}}{get_local_name(element)}Pr/{{*}}{name}"))


def _group_base(text: str) -> str:
    """A base that can take an exponent, in braces if it needs them: x, 10, (a+b), {a+b}."""
    is_bracketed = text.startswith("(") and text.find(")") == len(text) - 1
    return text if text.isalnum() or is_bracketed else f"{{{text}}}"


def _convert_scripts(element: Any) -> str:
    """Subscript and superscript, each if present."""
    subscript, superscript = _read_part(element, "sub"), _read_part(element, "sup")
    return (f"_{{{subscript}}}" if subscript else "") + (
        f"^{{{superscript}}}" if superscript else ""
    )


def _convert_fraction(element: Any) -> str:
    numerator, denominator = _read_part(element, "num"), _read_part(element, "den")
    kind = _get_property(element, "type")
    if kind in {"lin", "skw"}:
        return f"{_group_base(numerator)}/{_group_base(denominator)}"
    return f"\\{'binom' if kind == 'noBar' else 'frac'}{{{numerator}}}{{{denominator}}}"


def _convert_root(element: Any) -> str:
    degree = _read_part(element, "deg")
    return f"\\sqrt{f'[{degree}]' if degree else ''}{{{_read_part(element, 'e')}}}"


def _convert_large_operator(element: Any) -> str:
    """Sums and integrals; Word omits the character of an integral."""
    sign = (_get_property(element, "chr") or "∫").translate(_MATH_SIGNS)
    return f"{sign}{_convert_scripts(element)} {_read_part(element, 'e')}"


def _convert_delimited(element: Any) -> str:
    """Content in brackets; an empty character means no bracket."""
    signs = []
    for name, default in zip(("begChr", "endChr"), _BRACKETS, strict=True):
        sign = element.find(f"{{*}}dPr/{{*}}{name}")
        signs.append(default if sign is None else get_attribute(sign))
    separator = _get_property(element, "sepChr") or "|"
    content = separator.join(map(_to_latex, element.findall("{*}e")))
    first, last = (f"\\{sign}" if sign in {"{", "}"} else sign for sign in signs)
    if _TALL_CONTENT.search(content) and (first or last):
        return f"\\left{first or '.'}{content}\\right{last or '.'}"
    return first + content + last


def _convert_accent(element: Any) -> str:
    return f"\\{_ACCENTS.get(_get_property(element, 'chr'), 'hat')}{{{_read_part(element, 'e')}}}"


def _convert_bar(element: Any) -> str:
    name = "overline" if _get_property(element, "pos") == "top" else "underline"
    return f"\\{name}{{{_read_part(element, 'e')}}}"


def _convert_brace(element: Any) -> str:
    """A brace over or under a term; Word omits the position of one below."""
    name = "overbrace" if _get_property(element, "pos") == "top" else "underbrace"
    return f"\\{name}{{{_read_part(element, 'e')}}}"


def _convert_matrix(element: Any) -> str:
    rows = (" & ".join(map(_to_latex, row.findall("{*}e"))) for row in element.findall("{*}mr"))
    return _format_environment("matrix", list(rows))


def _convert_rows(element: Any) -> str:
    """Equations in rows."""
    return _format_environment("aligned", list(map(_to_latex, element.findall("{*}e"))))


def _convert_phantom(element: Any) -> str:
    """A phantom reserves space; its content is visible unless it is switched off."""
    show = element.find("{*}phantPr/{*}show")
    return _read_part(element, "e") if show is None or is_switched_on(show) else ""


_FORMS: dict[str, Callable[[Any], str]] = {
    "f": _convert_fraction,
    "rad": _convert_root,
    "nary": _convert_large_operator,
    "d": _convert_delimited,
    "acc": _convert_accent,
    "bar": _convert_bar,
    "m": _convert_matrix,
    "eqArr": _convert_rows,
    "phant": _convert_phantom,
    "sSup": lambda one: _group_base(_read_part(one, "e")) + _convert_scripts(one),
    "sSub": lambda one: _group_base(_read_part(one, "e")) + _convert_scripts(one),
    "sSubSup": lambda one: _group_base(_read_part(one, "e")) + _convert_scripts(one),
    "sPre": lambda one: "{}" + _convert_scripts(one) + _read_part(one, "e"),
    "func": lambda one: f"{_read_part(one, 'fName')} {_read_part(one, 'e')}",
    "limLow": lambda one: f"{_read_part(one, 'e')}_{{{_read_part(one, 'lim')}}}",
    "groupChr": _convert_brace,
    "limUpp": lambda one: f"{_read_part(one, 'e')}^{{{_read_part(one, 'lim')}}}",
}


# Hangul

_SYMBOL = re.compile(
    r'"[^"]*"|[A-Za-z]+|[\d.]+[A-Za-z]*|[가-힣ㄱ-ㆎ]+|<->|->|<-|<=|>=|!=|==|\+-|-\+|<<|>>|\s+|.'
)
_SAME_NAMES = """
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
    **{name: name for name in (*_SAME_NAMES.split(), *_GREEK.split())},
    **dict(pair.split("=") for pair in _OTHER_NAMES.split()),
    **{name: name for name in _FUNCTIONS},
    **{name.upper(): name for name in _GREEK_CAPITALS.values()},
}
"""Words of the script and their LaTeX commands; Greek capitals are in upper case."""
_SIGNS = {
    "<->": "\\leftrightarrow ", "->": "\\to ", "<-": "\\leftarrow ", "<=": "\\leq ",
    ">=": "\\geq ", "!=": "\\neq ", "==": "\\equiv ", "+-": "\\pm ", "-+": "\\mp ",
    "deg": "^{\\circ}", "<<": "\\ll ", ">>": "\\gg ", "`": "\\,", "~": "\\;",
}  # fmt: skip
_PREFIX_COMMANDS = {
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
_ENVIRONMENTS = {
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


class _ScriptError(Exception):
    """The script is malformed, or nested too deep."""


def format_hangul_equation(script: str) -> str:
    """An equation of Hangul between dollar signs; the script itself if it cannot be parsed."""
    flat_script = " ".join(script.split())
    if len(flat_script) > MAX_FORMULA_CHARACTERS:
        return flat_script
    try:
        return _wrap_formula(_HangulScript(flat_script).write(), flat_script)
    except _ScriptError:
        return flat_script


class _HangulScript:
    """Converts a script to LaTeX, term by term."""

    def __init__(self, script: str) -> None:
        self._symbols = _SYMBOL.findall(script)
        self._position = 0
        self._depth = 0

    def write(self) -> str:
        """The whole script as LaTeX; several rows are aligned. Raises `_ScriptError`."""
        rows = self._convert_rows("")
        if len(rows) == 1:
            return rows[0]
        return _format_environment("aligned", rows)

    def _peek(self) -> str:
        """The next symbol that is not white space; "" at the end."""
        while self._position < len(self._symbols) and self._symbols[self._position].isspace():
            self._position += 1
        return self._symbols[self._position] if self._position < len(self._symbols) else ""

    def _take(self) -> str:
        symbol = self._peek()
        self._position += 1
        return symbol

    def _convert_rows(self, closing: str) -> list[str]:
        """Rows separated by `#`, their cells by `&`, up to and including the closing symbol."""
        self._depth += 1
        if self._depth > _MAX_SCRIPT_DEPTH:
            raise _ScriptError
        rows, terms = [], list[str]()
        while (symbol := self._peek()).lower() != closing:
            if not symbol or symbol == "}" or symbol.lower() == "right":
                raise _ScriptError
            if symbol == "#":
                self._take()
                rows.append("".join(terms).strip())
                terms = []
            elif symbol == "&":
                self._take()
                terms.append(" & " if self._depth > 1 else " ")
            elif symbol.lower() in _INFIXES:
                self._take()
                numerator = _strip_group(terms.pop().strip()) if terms else ""
                terms.append(
                    _INFIXES[symbol.lower()] % (numerator, self._convert_term(strip_braces=True))
                )
            else:
                terms.append(self._convert_term())
        self._take()
        self._depth -= 1
        return [*rows, "".join(terms).strip()]

    def _convert_term(self, *, strip_braces: bool = False) -> str:
        """One term with its subscript and superscript; a lone group may lose its braces."""
        symbol = self._peek()
        if not symbol or symbol in {"}", "&", "#"}:
            return ""
        self._depth += 1
        if self._depth > _MAX_SCRIPT_DEPTH:
            raise _ScriptError
        term = "" if symbol in {"^", "_"} else self._convert_base()
        if strip_braces and self._peek() not in {"^", "_"}:
            term = _strip_group(term)
        while (sign := self._peek().lower()) in {"^", "_", "sup", "sub"}:
            self._take()
            sign = {"sup": "^", "sub": "_"}.get(sign, sign)
            term += f"{sign}{{{self._convert_script()}}}"
        self._depth -= 1
        return term

    def _convert_script(self) -> str:
        """The content of a subscript or superscript: one base, so that `a_1^2` has both."""
        has_base = self._peek() not in {"", "}", "&", "#"}
        return _strip_group(self._convert_base()) if has_base else ""

    def _convert_base(self) -> str:
        symbol = self._take()
        word = symbol.lower()
        if symbol == "{":
            rows = self._convert_rows("}")
            return f"{{{rows[0] if len(rows) == 1 else _format_environment('matrix', rows)}}}"
        if word in _ENVIRONMENTS and self._peek() == "{":
            self._take()
            return _format_environment(_ENVIRONMENTS[word], self._convert_rows("}"))
        if word in _PREFIX_COMMANDS:
            return f"\\{_PREFIX_COMMANDS[word]}{{{self._convert_term(strip_braces=True)}}}"
        if word in {"left", "root"}:
            return self._convert_delimited() if word == "left" else self._convert_root()
        return _convert_symbol(symbol)

    def _convert_delimited(self) -> str:
        """`left ( … right )`; a dot stands for no delimiter."""
        opening = self._take().lower()
        rows = self._convert_rows("right")
        closing = self._take().lower()
        if not {opening, closing} <= _DELIMITERS.keys():
            raise _ScriptError
        content = rows[0] if len(rows) == 1 else _format_environment("matrix", rows)
        return f"\\left{_DELIMITERS[opening]} {content} \\right{_DELIMITERS[closing]}"

    def _convert_root(self) -> str:
        degree = self._convert_term(strip_braces=True)
        if self._peek().lower() != "of":
            return f"\\sqrt{{{degree}}}"
        self._take()
        return f"\\sqrt[{degree}]{{{self._convert_term(strip_braces=True)}}}"


def _convert_symbol(symbol: str) -> str:
    """A word or sign without arguments."""
    if sign := _SIGNS.get(symbol.lower()):
        return sign
    if command := _COMMANDS.get(symbol) or _COMMANDS.get(symbol.lower()):
        return f"\\{command} "
    if symbol[0] == '"' or _HANGUL.match(symbol):
        return to_latex_text(symbol.strip('"'))
    return _escape_signs(symbol)


def _strip_group(latex: str) -> str:
    """The LaTeX without a pair of braces around all of it."""
    depth = 0
    for index, character in enumerate(latex):
        if index and latex[index - 1] == "\\":
            continue
        depth += (character == "{") - (character == "}")
        if depth == 0:
            return latex[1:-1] if character == "}" and index == len(latex) - 1 else latex
    return latex
