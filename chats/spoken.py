"""An answer as a voice says it: its words, without marks, markers, code and addresses."""

import re
from collections.abc import Iterator, Sequence
from functools import cache

from markdown_it import MarkdownIt
from markdown_it.token import Token

_MARKER = re.compile(r"[ \t]*\[\d{1,4}(?:\s*,\s*\d{1,4})*\]")
_ADDRESS = re.compile(r"https?://(?:www\.)?([^\s/?#]+)\S*")
_END = (".", "!", "?", "。", "…", ":", ";", ",")
_SENTENCE = re.compile(r"(?<=[.!?。…])\s|\n")


def spoken(markdown: str) -> str:
    """The words, a paragraph, heading, item or row of a table a line, each with an end.

    A row names its columns ("Kind: annual, days: 15."), an address is its host, code is left out.
    Empty where nothing is to be said.
    """
    lines = (_line(words) for words in _blocks(_parser().parse(markdown)))
    return "\n".join(filter(None, lines))


def pieces(text: str, longest: int) -> Iterator[str]:
    """Stretches of at most `longest` characters that end with a sentence, or at least a word."""
    while len(text) > longest:
        head = text[: longest + 1]
        ends = [match.start() for match in _SENTENCE.finditer(head)]
        end = ends[-1] if ends else head.rfind(" ")
        end = end if end > 0 else longest
        yield text[:end].strip()
        text = text[end:].strip()
    if text:
        yield text


@cache
def _parser() -> MarkdownIt:
    return MarkdownIt("commonmark").enable(["table", "strikethrough"])


def _blocks(tokens: Sequence[Token]) -> Iterator[str]:
    """What each block says; the cells of a row are one block."""
    head: list[str] = []
    row: list[str] = []
    cell = in_head = False
    for token in tokens:
        match token.type:
            case "thead_open" | "thead_close":
                in_head = token.nesting > 0
            case "tr_open":
                row = []
            case "th_open" | "td_open" | "th_close" | "td_close":
                cell = token.nesting > 0
            case "tr_close" if in_head:
                head = row
            case "tr_close":
                yield _row(head, row)
            case "inline" if cell:
                row.append(_words(token))
            case "inline":
                yield _words(token)


def _row(head: Sequence[str], cells: Sequence[str]) -> str:
    named = zip(head, cells, strict=False)
    return ", ".join(f"{name}: {cell}" if name else cell for name, cell in named if cell)


def _words(inline: Token) -> str:
    return "".join(map(_said, inline.children or ()))


def _said(token: Token) -> str:
    """A picture is what its text says, HTML is nothing."""
    if token.type in {"softbreak", "hardbreak"}:
        return " "
    return token.content if token.type in {"text", "code_inline", "image"} else ""


def _line(words: str) -> str:
    words = " ".join(_ADDRESS.sub(r"\1", _MARKER.sub("", words)).split())
    if not any(map(str.isalnum, words)):
        return ""
    return words if words.endswith(_END) else f"{words}."
