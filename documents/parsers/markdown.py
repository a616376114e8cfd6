"""Markdown as text, with its headings and its front matter."""

import re
from collections.abc import Iterator
from pathlib import Path

from documents.parsers import kinds
from documents.parsers.base import Context
from documents.parsers.clean import clean
from documents.parsers.text import load
from rag.pages import Heading, Page

_FENCE = re.compile(r"^ {0,3}(`{3,}|~{3,})")
_ATX = re.compile(r"^ {0,3}(#{1,6})[ \t]+(.+?)[ \t]*(?:#+[ \t]*)?$")
_SETEXT = re.compile(r"^ {0,3}(=+|-+)[ \t]*$")
_PAIR = re.compile(r"^([^\s:#\-&*][^:\n]{0,60}?)\s*:(?:\s+(.*))?$")
_ITEM = re.compile(r"^\s*- +(?![^\s:]+:\s)(\S.*)$")
"""An item of a list, but not of a list of mappings."""
_MARKS = re.compile(r"[*`]|\[([^\]]*)\]\([^)]*\)")
_MOST_KEYS = 50


class MarkdownParser:
    """Reads .md: the whole file is one page; the text keeps its marks."""

    types = (kinds.MARKDOWN,)

    def parse(self, path: Path, context: Context) -> Iterator[Page]:
        """The text with headings; front matter goes to the metadata."""
        text = clean(load(path, context)).strip("\n")
        body = _front_matter_end(text)
        context.found(front_matter(text[:body]))
        found = tuple(headings(text, body))
        yield Page(None, text, found)


def _front_matter_end(text: str) -> int:
    """Where the body begins; 0 without front matter."""
    if not text.startswith("---\n"):
        return 0
    end = text.find("\n---\n", 3, 20_000)
    return end + len("\n---\n") if end > 0 else 0


def front_matter(text: str) -> dict[str, str]:
    """Keys and values of the first level, lists joined. Not YAML: no aliases, no bombs."""
    found: dict[str, str] = {}
    key = ""
    for line in text.split("\n"):
        if match := _PAIR.match(line):
            key, value = match[1].strip("\"' "), _scalar(match[2] or "")
            if value and len(found) < _MOST_KEYS:
                found[key] = value
        elif key and (match := _ITEM.match(line)) and len(found.get(key, "")) < 300:
            item = _scalar(match[1])
            found[key] = f"{found[key]}, {item}" if key in found else item
    return found


def _scalar(value: str) -> str:
    """A plain value without its quotes; anchors, aliases and empty collections are nothing."""
    value = value.strip()
    if value[:1] in {"&", "*", "!", "|", ">"} or value in {"[]", "{}", "null", "~"}:
        return ""
    return value.strip("\"'[]")[:300]


def headings(text: str, start: int = 0) -> Iterator[Heading]:
    """Headings outside of code fences, both kinds."""
    fence, previous, position = "", "", start
    for line in text[start:].split("\n"):
        opening, match = _FENCE.match(line), None
        if opening and (not fence or line.strip().startswith(fence)):
            fence = "" if fence else opening[1]
        elif not fence:
            if match := _ATX.match(line):
                yield Heading(position, len(match[1]), _title(match[2]))
            elif previous.strip() and previous[0] not in "|->#" and (under := _SETEXT.match(line)):
                level = 1 if under[1][0] == "=" else 2
                yield Heading(position - len(previous) - 1, level, _title(previous))
        previous = "" if match else line
        position += len(line) + 1


def _title(text: str) -> str:
    """A heading's words without marks."""
    return _MARKS.sub(lambda match: match[1] or "", text).strip()[:200]
