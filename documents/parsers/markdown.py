"""Markdown as text, what its front matter says, and where its headings, lists and tables stand.

markdown-it finds the blocks; `benchmarks/fidelity/markup.py` holds them against what people expect.
"""

import re
import unicodedata
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from markdown_it import MarkdownIt
from markdown_it.rules_inline import StateInline, emphasis

from documents.parsers.base import ReadingContext
from documents.parsers.text import clean_text, decode_file, read_text_file
from rag.types import Heading, Kind, Page, Region

_MATTER_PAIR = re.compile(r"^([^\s:#\-&*][^:\n]{0,60}?)\s*:(?:\s+(.*))?$")
_MATTER_ITEM = re.compile(r"^\s*- +(?![^\s:]+:\s)(\S.*)$")
"""An item of a list, but not of a list of mappings."""
_MATTER_LINE = re.compile(rf"\s|#|-(?:\s|$)|$|{_MATTER_PAIR.pattern[1:]}")
"""What a line of front matter begins with; prose between two rules is none."""
_MATTER_BLOCK = re.compile(r"[|>][-+0-9]*$")
"""In place of a value that stands in the indented lines below."""
_MAX_MATTER_CHARACTERS = 20_000
_MAX_VALUE_CHARACTERS = 300
_MAX_KEYS = 50

_LISTS = {"bullet_list_open", "ordered_list_open"}
_LIST_ENDS = {"bullet_list_close", "ordered_list_close"}
MAX_STRUCTURED_CHARACTERS, MAX_STRUCTURED_LINES = 2_000_000, 200_000
"""A line costs markdown-it up to 0.04 ms and 2 kB, so that the unluckiest texts take 10 seconds."""
_MAX_TITLE_CHARACTERS = 200
_MAX_MARKED_CHARACTERS = 5 * _MAX_TITLE_CHARACTERS


class MarkdownParser:
    """Reads .md: the whole file is one page; the text keeps its marks."""

    def parse(self, path: Path, context: ReadingContext) -> Iterator[Page]:
        """The text with headings and regions; front matter goes to the metadata instead.

        A file that has nothing else keeps it as its text, too.
        """
        text = clean_text(decode_file(read_text_file(path, context), context)).strip("\n")
        end = _find_front_matter_end(text)
        context.add_metadata(read_front_matter(text[:end]))
        text = text[end:].strip("\n") or text
        headings, regions = find_blocks(text)
        yield Page(None, text, tuple(headings), regions=tuple(regions))


def _find_front_matter_end(text: str) -> int:
    """Where the body begins; 0 without front matter."""
    if not text.startswith("---\n"):
        return 0
    end = f"{text[:_MAX_MATTER_CHARACTERS]}\n".find("\n---\n", 3)
    lines = text[len("---\n") : end].split("\n") if end > 0 else []
    if not any(map(_MATTER_PAIR.match, lines)) or not all(map(_MATTER_LINE.match, lines)):
        return 0
    return min(end + len("\n---\n"), len(text))


def read_front_matter(text: str) -> dict[str, str]:
    """Keys and values of the first level, lists and lines joined. Not YAML: no aliases or bombs."""
    found: dict[str, str] = {}
    key, in_block = "", False
    for line in text.split("\n"):
        if match := _MATTER_PAIR.match(line):
            key, value = match[1].strip("\"' "), _read_scalar(match[2] or "")
            in_block = bool(_MATTER_BLOCK.match(match[2] or ""))
            if value and len(found) < _MAX_KEYS:
                found[key] = value
        elif in_block and line[:1].isspace() and len(found) < _MAX_KEYS:
            found[key] = f"{found.get(key, '')} {line.strip()}".strip()[:_MAX_VALUE_CHARACTERS]
        elif (
            key
            and (match := _MATTER_ITEM.match(line))
            and len(found.get(key, "")) < _MAX_VALUE_CHARACTERS
        ):
            item = _read_scalar(match[1])
            found[key] = f"{found[key]}, {item}" if key in found else item
    return found


def _read_scalar(value: str) -> str:
    """A plain value without its quotes; anchors, aliases and empty collections are nothing."""
    value = value.strip()
    if value[:1] in {"&", "*", "!", "|", ">"} or value in {"[]", "{}", "null", "~"}:
        return ""
    return value.strip("\"'[]")[:_MAX_VALUE_CHARACTERS]


def find_blocks(text: str) -> tuple[list[Heading], list[Region]]:
    """The headings and regions of a text.

    A region is of whole lines: code between fences, tables, and lists with all that stands in
    their items; code and tables part the list that they stand in. What is headed within a
    quotation or an item heads nothing of the document. Code that is only indented is text: in
    Korean documents four spaces are a layout of the author's own. Of a text with more than
    `MAX_STRUCTURED_CHARACTERS` or `MAX_STRUCTURED_LINES` only its beginning has blocks.
    """
    return _BlockFinder(text).find()


class _BlockFinder:
    """Makes places of markdown-it's tokens, which say lines."""

    def __init__(self, text: str) -> None:
        self._lines = text[:MAX_STRUCTURED_CHARACTERS].split("\n")[:MAX_STRUCTURED_LINES]
        self._starts = [0]
        for line in self._lines:
            self._starts.append(self._starts[-1] + len(line) + 1)
        self._headings: list[Heading] = []
        self._regions: list[Region] = []
        self._list: range | None = None
        """The lines of the outermost list that are no region yet."""
        self._list_level = 0

    def find(self) -> tuple[list[Heading], list[Region]]:
        """Headings and regions, each in order."""
        tokens = _make_block_parser().parse("\n".join(self._lines))
        for token, behind in zip(tokens, [*tokens[1:], None], strict=True):
            if token.map:
                lines = range(*token.map)
                if token.type == "heading_open" and behind and not token.level:
                    self._add_heading(lines.start, int(token.tag[1]), behind.content)
                elif token.type in _LISTS and self._list is None:
                    self._list, self._list_level = lines, token.level
                elif token.type == "fence":
                    self._add_block(Kind.CODE, lines)
                elif token.type == "table_open":
                    self._add_block(Kind.TABLE, lines, header_lines=2)
            elif token.type in _LIST_ENDS and token.level == self._list_level:
                self._end_list()
        return self._headings, self._regions

    def _add_heading(self, line: int, level: int, marked: str) -> None:
        if title := _read_title(marked):
            self._headings.append(Heading(self._starts[line], level, title))

    def _add_block(self, kind: Kind, lines: range, header_lines: int = 0) -> None:
        """Code or a table, behind the part of a list before it."""
        if self._list is not None:
            self._add_list(range(self._list.start, lines.start))
            self._list = range(lines.stop, max(lines.stop, self._list.stop))
        self._add_region(kind, lines, header_lines)

    def _end_list(self) -> None:
        if self._list is not None:
            self._add_list(self._list)
        self._list = None

    def _add_list(self, lines: range) -> None:
        """A part of a list without the blank lines around it."""
        first, end = lines.start, lines.stop
        while first < end and not self._is_filled(end - 1):
            end -= 1
        while first < end and not self._is_filled(first):
            first += 1
        if first < end:
            self._add_region(Kind.LIST, range(first, end))

    def _is_filled(self, line: int) -> bool:
        return bool(self._lines[line].strip(" \t>"))

    def _add_region(self, kind: Kind, lines: range, header_lines: int = 0) -> None:
        header_end = self._find_end(lines.start + header_lines) if header_lines else 0
        self._regions.append(
            Region(self._starts[lines.start], self._find_end(lines.stop), kind, header_end)
        )

    def _find_end(self, line: int) -> int:
        """Where the lines before this one end, their last line end not included."""
        return self._starts[line] - 1


@cache
def _make_block_parser() -> MarkdownIt:
    """markdown-it without its inline rules: places are needed, and they take most of its time."""
    parser = MarkdownIt("commonmark").enable("table")
    parser.core.ruler.enableOnly(["normalize", "block"])
    return parser


@cache
def _make_inline_parser() -> MarkdownIt:
    return MarkdownIt("commonmark").use(let_stars_close_before_hangul)


def _read_title(marked: str) -> str:
    """A title without its marks."""
    pieces = _make_inline_parser().parseInline(marked[:_MAX_MARKED_CHARACTERS])[0].children or []
    texts = (" " if piece.type.endswith("break") else piece.content for piece in pieces)
    return " ".join("".join(texts).split())[:_MAX_TITLE_CHARACTERS]


def let_stars_close_before_hangul(parser: MarkdownIt) -> None:
    """A plugin of markdown-it: stars also close between a sign and Hangul, as in **50%**를.

    CommonMark lets no mark close between a sign and a letter, since languages with spaces have a
    blank there; Korean hangs particles onto the word. Behind an opening bracket or quotation mark
    they still only open. The page reads answers by the same rule: `front/js/emphasis.js`.
    """
    parser.inline.ruler.at("emphasis", _tokenize_stars)


def _tokenize_stars(state: StateInline, silent: bool) -> bool:
    start = state.pos
    if not emphasis.tokenize(state, silent):
        return False
    if state.src[start] == "*" and _is_closing_sign(state.src[start - 1 : start]):
        behind = state.src[state.pos : state.pos + 1]
        for mark in state.delimiters[start - state.pos :] if "가" <= behind <= "힣" else ():
            mark.close = True
    return True


def _is_closing_sign(sign: str) -> bool:
    """Whether a character (or none) is a sign other than an opening one."""
    kind = unicodedata.category(sign) if sign else "Z"
    return kind[0] not in "ZLNC" and kind not in {"Ps", "Pi"} and sign not in "<*_"
