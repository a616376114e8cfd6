"""Formulas in answers, for paper: found in Markdown as the page finds them, and as steps to draw.

Nothing of a formula is read as Typst: its LaTeX becomes steps for a stack, each of which takes the
last pieces drawn and leaves one. A formula that is not understood is shown as it was written.
"""

import re
import tomllib
import unicodedata
from collections.abc import Callable, Collection, Mapping
from html.entities import html5
from pathlib import Path
from typing import Any

from markdown_it import MarkdownIt
from markdown_it.rules_block import StateBlock
from markdown_it.rules_inline import StateInline

MAX_FORMULA_CHARACTERS = 4000
MAX_FORMULA_DEPTH = 12
"""Nesting of braces, commands and environments."""

Step = list[Any]
"""Name, number of pieces taken from the stack, then what else it needs."""


class FormulaUnreadable(ValueError):
    """It is no LaTeX, or uses more of it than is known here."""


# Where formulas stand: as in `front/js/markdown_rules.js`

_CLOSINGS = {"\\(": "\\)", "\\[": "\\]", "$$": "$$"}
_BLANK_LINE = re.compile(r"\n[ \t>]*\n")


def read_formulas(parser: MarkdownIt) -> None:
    r"""A plugin of markdown-it: `$…$`, `$$…$$`, `\(…\)` and `\[…\]`. Money is no formula."""
    parser.inline.ruler.before("escape", "formula", _read_inline_formula)
    parser.block.ruler.before(
        "fence",
        "formula",
        _read_formula_block,
        {"alt": ["paragraph", "reference", "blockquote", "list"]},
    )


def _read_inline_formula(state: StateInline, silent: bool) -> bool:
    opening = state.src[state.pos : state.pos + 2]
    closing = _CLOSINGS.get(opening, "")
    if not closing and opening[:1] != "$":
        return False
    length = 2 if closing else 1
    start = state.pos + length
    limit = min(state.posMax, start + MAX_FORMULA_CHARACTERS + length)
    end = (
        state.src.find(closing, start, limit) if closing else _find_dollar(state.src, start, limit)
    )
    content = state.src[start:end].strip() if end > start else ""
    if not content:
        return False
    if not silent:
        is_display = opening in ("$$", "\\[")
        state.push("formula_block" if is_display else "formula", "span", 0).content = content
    state.pos = end + length
    return True


def _find_dollar(source: str, start: int, limit: int) -> int:
    """The offset of the dollar sign that ends a formula; -1 for an amount of money."""
    if source[start : start + 1].isspace():
        return -1
    end = source.find("$", start, limit)
    while end != -1 and source[end - 1] == "\\":
        end = source.find("$", end + 1, limit)
    is_money = end != -1 and (source[end - 1].isspace() or source[end + 1 : end + 2].isdigit())
    return -1 if is_money else end


def _read_formula_block(state: StateBlock, first: int, last: int, silent: bool) -> bool:
    """A formula on lines of its own, which ends before a blank line."""
    start = state.bMarks[first] + state.tShift[first]
    opening = state.src[start : start + 2]
    closing = _CLOSINGS.get(opening, "") if opening != "\\(" else ""
    if not closing or state.sCount[first] - state.blkIndent >= 4:
        return False
    limit = start + 2 * MAX_FORMULA_CHARACTERS  # with the marks of a quotation
    end = state.src.find(closing, start + 2, limit)
    if end == -1 or _BLANK_LINE.search(state.src, start, end):
        return False
    parts: list[str] = []
    for number in range(first, last):
        begins = start + 2 if number == first else state.bMarks[number] + state.tShift[number]
        line_end = state.eMarks[number]
        parts.append(state.src[begins : min(end, line_end)])
        if end < line_end:
            break
    else:
        return False
    content = "\n".join(parts).strip()
    if state.src[end + 2 : line_end].strip() or not 0 < len(content) <= MAX_FORMULA_CHARACTERS:
        return False
    if not silent:
        token = state.push("formula_block", "p", 0)
        token.content, token.block, token.map = content, True, [first, number + 1]
        state.line = number + 1
    return True


# What they say

_TOKEN = re.compile(r"\\[A-Za-z]+\*?|\\.|\d+(?:[.,]\d+)*|[가-힣]+|\s+|.", re.DOTALL)
_LATEX = tomllib.loads((Path(__file__).parents[1] / "printing/latex.toml").read_text("utf-8"))
_FRACTIONS: Mapping[str, str] = _LATEX["fractions"]
_STYLES: Mapping[str, str] = _LATEX["styles"]
_ACCENTS: Mapping[str, str] = _LATEX["accents"]
_SPACES: Mapping[str, float] = _LATEX["spaces"]
_DELIMITERS: Mapping[str, tuple[str, str]] = _LATEX["delimiters"]
_SYMBOLS: Mapping[str, str] = _LATEX["symbols"]
_FUNCTIONS, _WITH_LIMITS, _WORDS, _LINES, _ALIGNED, _UNSEEN = (
    frozenset(_LATEX[name].split())
    for name in ("functions", "with_limits", "words", "lines", "aligned", "unseen")
)


def parse_formula(latex: str) -> list[Step]:
    """The steps that draw a formula. Raises `FormulaUnreadable`."""
    reader = _FormulaReader(_TOKEN.findall(latex))
    reader.read_lines(("",), 0)
    return reader.steps


class _FormulaReader:
    """Reads tokens from left to right; each reading leaves exactly one more piece on the stack."""

    def __init__(self, tokens: list[str]) -> None:
        self.tokens, self.at, self.steps = [*tokens, ""], 0, list[Step]()

    def peek(self) -> str:
        return self.tokens[self.at]

    def take(self) -> str:
        mark = self.tokens[self.at]
        if not mark:
            raise FormulaUnreadable
        self.at += 1
        return mark

    def skip_blanks(self) -> None:
        while self.peek().isspace():
            self.at += 1

    def expect(self, wanted: str) -> None:
        self.skip_blanks()
        if self.take() != wanted:
            raise FormulaUnreadable

    def read_row(self, ends: Collection[str], depth: int) -> None:
        """Everything up to one of these tokens."""
        if depth > MAX_FORMULA_DEPTH:
            raise FormulaUnreadable
        count = 0
        self.skip_blanks()
        while self.peek() not in ends:
            count += self.read_item(depth)
            self.skip_blanks()
        self.steps.append(["row", count])

    def read_item(self, depth: int) -> int:
        """A piece with its scripts; returns 0 if the mark shows nothing, else 1."""
        if self.peek() in ("_", "^"):
            self.steps.append(["row", 0])  # a script of nothing
        elif not self.read_piece(depth):
            return 0
        self.skip_blanks()
        places: list[str] = []
        while (sign := self.peek()) in ("_", "^", "'"):
            self.at += 1
            if sign == "'":
                self.steps += [["symbol", 0, "′"], ["row", 2]]
            else:
                places.append("b" if sign == "_" else "t")
                self.read_argument(depth)
            self.skip_blanks()
        if len(set(places)) < len(places):
            raise FormulaUnreadable
        if places:
            self.steps.append(["attach", 1 + len(places), *places])
        return 1

    def read_argument(self, depth: int) -> None:
        """What belongs to a command or a script: a group, or a single sign."""
        self.skip_blanks()
        mark = self.peek()
        if mark[:1].isdigit() and len(mark) > 1:  # x^12 is x²2
            self.tokens[self.at : self.at + 1] = [mark[0], mark[1:]]
        if not self.read_piece(depth):
            raise FormulaUnreadable

    def read_group(self, depth: int) -> None:
        self.expect("{")
        self.read_row(("}",), depth + 1)
        self.take()

    def read_words(self) -> str:
        """The text of a group as it stands."""
        self.expect("{")
        words, depth = "", 1
        while (mark := self.take()) != "}" or depth > 1:
            depth += (mark == "{") - (mark == "}")
            words += mark.removeprefix("\\") if len(mark) == 2 else mark
        return words.replace("{", "").replace("}", "")

    def read_piece(self, depth: int) -> bool:
        """One piece without scripts; False if the mark shows nothing."""
        mark = self.peek()
        if mark == "{":
            self.read_group(depth)
            return True
        self.take()
        if mark in ("}", "&", "\\\\"):
            raise FormulaUnreadable
        if mark.startswith("\\"):
            return self.read_command(mark[1:], depth)
        if mark == "~":
            self.steps.append(["space", 0, 0.25])
        elif mark[0].isdigit() or "가" <= mark[0] <= "힣":
            self.steps.append(["words", 0, mark])
        else:
            self.add_symbol({"-": "−", "*": "∗"}.get(mark, mark))
        return True

    def add_symbol(self, sign: str) -> None:
        if len(sign) != 1 or unicodedata.category(sign)[0] in "MCZ":
            raise FormulaUnreadable
        self.steps.append(["symbol", 0, sign])

    def read_command(self, name: str, depth: int) -> bool:
        if name in _UNSEEN:
            return False
        read = self.find_reading(name)
        if read is not None:
            if depth >= MAX_FORMULA_DEPTH:
                raise FormulaUnreadable
            read(name, depth + 1)
        elif name in _SPACES:
            self.steps.append(["space", 0, _SPACES[name]])
        elif name in _FUNCTIONS | _WITH_LIMITS:
            self.steps.append(["operator", 0, name, name in _WITH_LIMITS])
        else:
            self.add_symbol(_find_symbol(name))
        return True

    def find_reading(self, name: str) -> Callable[[str, int], None] | None:
        """How a command with arguments is read."""
        for names, read in (
            (_FRACTIONS, self.read_fraction),
            (("sqrt",), self.read_root),
            (_STYLES, self.read_style),
            (_ACCENTS, self.read_accent),
            (_LINES, self.read_line),
            (_WORDS, self.read_text),
            (("operatorname", "operatorname*"), self.read_operator),
            (("left",), self.read_fence),
            (("begin",), self.read_environment),
            (("tag",), self.read_tag),
        ):
            if name in names:
                return read
        return None

    def read_fraction(self, name: str, depth: int) -> None:
        self.read_argument(depth)
        self.read_argument(depth)
        self.steps.append([_FRACTIONS[name], 2])

    def read_root(self, _name: str, depth: int) -> None:
        self.skip_blanks()
        has_index = self.peek() == "["
        if has_index:
            self.take()
            self.read_row(("]",), depth)
            self.take()
        self.read_argument(depth)
        self.steps.append(["root", 2] if has_index else ["sqrt", 1])

    def read_style(self, name: str, depth: int) -> None:
        self.read_argument(depth)
        self.steps.append(["style", 1, _STYLES[name]])

    def read_accent(self, name: str, depth: int) -> None:
        self.read_argument(depth)
        self.steps.append(["accent", 1, _ACCENTS[name]])

    def read_line(self, name: str, depth: int) -> None:
        self.read_argument(depth)
        self.steps.append([name, 1])

    def read_text(self, _name: str, _depth: int) -> None:
        self.steps.append(["words", 0, self.read_words()])

    def read_operator(self, _name: str, _depth: int) -> None:
        self.steps.append(["operator", 0, self.read_words(), False])

    def read_tag(self, _name: str, _depth: int) -> None:
        self.steps += [["space", 0, 2.0], ["words", 0, f"({self.read_words()})"], ["row", 2]]

    def read_delimiter(self) -> str:
        self.skip_blanks()
        mark = self.take()
        sign = _find_symbol(mark[1:]) if mark.startswith("\\") else mark
        if sign != "." and (len(sign) != 1 or unicodedata.category(sign)[0] not in "PS"):
            raise FormulaUnreadable
        return "" if sign == "." else sign

    def read_fence(self, _name: str, depth: int) -> None:
        opening = self.read_delimiter()
        self.read_row(("\\right",), depth)
        self.take()
        self.steps.append(["fence", 1, opening, self.read_delimiter()])

    def read_environment(self, _name: str, depth: int) -> None:
        name = self.read_words()
        if name in _ALIGNED:
            self.read_lines(("\\end",), depth)
        elif name in _DELIMITERS:
            if name == "array":
                self.read_words()  # how its columns are aligned
            rows = self.read_cells(("\\end",), depth)
            width = max(rows)
            if min(rows) < width:
                raise FormulaUnreadable
            self.steps.append(["matrix", sum(rows), width, *_DELIMITERS[name]])
        else:
            raise FormulaUnreadable
        self.take()
        if self.read_words() != name:
            raise FormulaUnreadable

    def read_lines(self, ends: Collection[str], depth: int) -> None:
        rows = self.read_cells(ends, depth)
        self.steps.append(["lines", sum(rows), *rows])

    def read_cells(self, ends: Collection[str], depth: int) -> list[int]:
        """Cells up to one of these tokens; the numbers of cells in each row."""
        rows = [0]
        while True:
            self.read_row(("&", "\\\\", *ends), depth)
            rows[-1] += 1
            if self.peek() in ends:
                return rows
            if self.take() == "\\\\":
                self.skip_blanks()
                if self.peek() in ends:
                    return rows
                rows.append(0)


def _find_symbol(name: str) -> str:
    """The character of a command; names of LaTeX and of HTML are mostly the same."""
    sign = _SYMBOLS.get(name, html5.get(f"{name};", ""))
    return sign or (name if len(name) == 1 else "")
