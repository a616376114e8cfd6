"""Markdown: its text, its front matter, and the offsets of headings, lists, tables and code.

markdown-it finds the blocks; `benchmarks/fidelity/markup.py` checks them against expected ones.
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

_FRONT_MATTER_PAIR = re.compile(r"^([^\s:#\-&*][^:\n]{0,60}?)\s*:(?:\s+(.*))?$")
_FRONT_MATTER_ITEM = re.compile(r"^\s*- +(?![^\s:]+:\s)(\S.*)$")
"""A list item that is not a mapping."""
_FRONT_MATTER_LINE = re.compile(rf"\s|#|-(?:\s|$)|$|{_FRONT_MATTER_PAIR.pattern[1:]}")
"""How a line of front matter may begin; tells it from prose between two rules."""
_FRONT_MATTER_BLOCK = re.compile(r"[|>][-+0-9]*$")
"""Announces a value in the indented lines below (a YAML block scalar)."""
_MAX_FRONT_MATTER_CHARACTERS = 20_000
_MAX_VALUE_CHARACTERS = 300
_MAX_KEYS = 50

_LISTS = {"bullet_list_open", "ordered_list_open"}
_LIST_ENDS = {"bullet_list_close", "ordered_list_close"}
MAX_STRUCTURED_CHARACTERS, MAX_STRUCTURED_LINES = 2_000_000, 200_000
"""A line costs markdown-it up to 0.04 ms and 2 kB, so the worst texts take 10 seconds."""
_MAX_TITLE_CHARACTERS = 200
_MAX_TITLE_SOURCE_CHARACTERS = 5 * _MAX_TITLE_CHARACTERS


class MarkdownParser:
    """Reads .md: the whole file is one page; the text keeps its markup."""

    def parse(self, path: Path, context: ReadingContext) -> Iterator[Page]:
        """The text with headings and regions; front matter becomes metadata.

        A file with nothing but front matter keeps it as its text, too.
        """
        text = clean_text(decode_file(read_text_file(path, context), context)).strip("\n")
        end = _find_front_matter_end(text)
        context.add_metadata(read_front_matter(text[:end]))
        text = text[end:].strip("\n") or text
        headings, regions = find_blocks(text)
        yield Page(None, text, tuple(headings), regions=tuple(regions))


def _find_front_matter_end(text: str) -> int:
    """The offset of the body; 0 without front matter."""
    if not text.startswith("---\n"):
        return 0
    end = f"{text[:_MAX_FRONT_MATTER_CHARACTERS]}\n".find("\n---\n", 3)
    lines = text[len("---\n") : end].split("\n") if end > 0 else []
    if not any(map(_FRONT_MATTER_PAIR.match, lines)) or not all(
        map(_FRONT_MATTER_LINE.match, lines)
    ):
        return 0
    return min(end + len("\n---\n"), len(text))


def read_front_matter(text: str) -> dict[str, str]:
    """Top-level keys and values, with lists and blocks joined. Not a YAML parser: no aliases."""
    fields: dict[str, str] = {}
    key, in_block = "", False
    for line in text.split("\n"):
        if match := _FRONT_MATTER_PAIR.match(line):
            key, value = match[1].strip("\"' "), _read_scalar(match[2] or "")
            in_block = bool(_FRONT_MATTER_BLOCK.match(match[2] or ""))
            if value and len(fields) < _MAX_KEYS:
                fields[key] = value
        elif in_block and line[:1].isspace() and len(fields) < _MAX_KEYS:
            fields[key] = f"{fields.get(key, '')} {line.strip()}".strip()[:_MAX_VALUE_CHARACTERS]
        elif (
            key
            and (match := _FRONT_MATTER_ITEM.match(line))
            and len(fields.get(key, "")) < _MAX_VALUE_CHARACTERS
        ):
            item = _read_scalar(match[1])
            fields[key] = f"{fields[key]}, {item}" if key in fields else item
    return fields


def _read_scalar(value: str) -> str:
    """A plain value without its quotes; "" for anchors, aliases and empty collections."""
    value = value.strip()
    if value[:1] in {"&", "*", "!", "|", ">"} or value in {"[]", "{}", "null", "~"}:
        return ""
    return value.strip("\"'[]")[:_MAX_VALUE_CHARACTERS]


def find_blocks(text: str) -> tuple[list[Heading], list[Region]]:
    """The headings and regions of a text.

    A region covers whole lines: fenced code, tables, and lists with all that their items contain;
    code or a table within a list splits it. Headings in quotations and list items are not counted.
    Indented code is text: authors of Korean documents indent by four spaces for layout. In a text
    longer than `MAX_STRUCTURED_CHARACTERS` or `MAX_STRUCTURED_LINES` only the beginning has blocks.
    """
    return _BlockFinder(text).find()


class _BlockFinder:
    """Converts markdown-it's tokens, which give line numbers, to offsets."""

    def __init__(self, text: str) -> None:
        self._lines = text[:MAX_STRUCTURED_CHARACTERS].split("\n")[:MAX_STRUCTURED_LINES]
        self._starts = [0]
        for line in self._lines:
            self._starts.append(self._starts[-1] + len(line) + 1)
        self._headings: list[Heading] = []
        self._regions: list[Region] = []
        self._open_list: range | None = None
        """The lines of the outermost list that are not in a region yet."""
        self._open_list_level = 0

    def find(self) -> tuple[list[Heading], list[Region]]:
        """The headings and the regions, each in order."""
        tokens = _make_block_parser().parse("\n".join(self._lines))
        for token, following in zip(tokens, [*tokens[1:], None], strict=True):
            if token.map:
                lines = range(*token.map)
                if token.type == "heading_open" and following and not token.level:
                    self._add_heading(lines.start, int(token.tag[1]), following.content)
                elif token.type in _LISTS and self._open_list is None:
                    self._open_list, self._open_list_level = lines, token.level
                elif token.type == "fence":
                    self._add_block(Kind.CODE, lines)
                elif token.type == "table_open":
                    self._add_block(Kind.TABLE, lines, header_lines=2)
            elif token.type in _LIST_ENDS and token.level == self._open_list_level:
                self._end_list()
        return self._headings, self._regions

    def _add_heading(self, line: int, level: int, source: str) -> None:
        if title := _read_title(source):
            self._headings.append(Heading(self._starts[line], level, title))

    def _add_block(self, kind: Kind, lines: range, header_lines: int = 0) -> None:
        """Add code or a table, after the part of a list that precedes it."""
        if self._open_list is not None:
            self._add_list(range(self._open_list.start, lines.start))
            self._open_list = range(lines.stop, max(lines.stop, self._open_list.stop))
        self._add_region(kind, lines, header_lines)

    def _end_list(self) -> None:
        if self._open_list is not None:
            self._add_list(self._open_list)
        self._open_list = None

    def _add_list(self, lines: range) -> None:
        """Add a part of a list without the blank lines around it."""
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
        """The offset where the line before this one ends, without its newline."""
        return self._starts[line] - 1


@cache
def _make_block_parser() -> MarkdownIt:
    """markdown-it without inline rules, which take most of its time: only lines are needed."""
    parser = MarkdownIt("commonmark").enable("table")
    parser.core.ruler.enableOnly(["normalize", "block"])
    return parser


@cache
def _make_inline_parser() -> MarkdownIt:
    return MarkdownIt("commonmark").use(let_stars_close_before_hangul)


def _read_title(source: str) -> str:
    """The plain text of a heading's Markdown."""
    tokens = (
        _make_inline_parser().parseInline(source[:_MAX_TITLE_SOURCE_CHARACTERS])[0].children or []
    )
    texts = (" " if token.type.endswith("break") else token.content for token in tokens)
    return " ".join("".join(texts).split())[:_MAX_TITLE_CHARACTERS]


def let_stars_close_before_hangul(parser: MarkdownIt) -> None:
    """A plugin of markdown-it: stars also close between punctuation and Hangul, as in **50%**를.

    CommonMark does not close emphasis between punctuation and a letter, because most languages have
    a space there; Korean attaches particles to the word. After an opening bracket or quotation mark
    stars still only open. Answers on the page follow the same rule: `front/js/emphasis.js`.
    """
    parser.inline.ruler.at("emphasis", _tokenize_stars)


def _tokenize_stars(state: StateInline, silent: bool) -> bool:
    start = state.pos
    if not emphasis.tokenize(state, silent):
        return False
    if state.src[start] == "*" and _is_closing_sign(state.src[start - 1 : start]):
        following = state.src[state.pos : state.pos + 1]
        for delimiter in state.delimiters[start - state.pos :] if "가" <= following <= "힣" else ():
            delimiter.close = True
    return True


def _is_closing_sign(character: str) -> bool:
    """Whether a character is punctuation other than opening; "" is not."""
    category = unicodedata.category(character) if character else "Z"
    return category[0] not in "ZLNC" and category not in {"Ps", "Pi"} and character not in "<*_"
