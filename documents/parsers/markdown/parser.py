"""Markdown as text, with its headings, regions and front matter."""

import re
from collections.abc import Iterator
from pathlib import Path

from documents.parsers.base import ReadingContext
from documents.parsers.markdown.blocks import Blocks
from documents.parsers.text import clean_text, decode_file, read_text_file
from rag.pages import Page

_PAIR = re.compile(r"^([^\s:#\-&*][^:\n]{0,60}?)\s*:(?:\s+(.*))?$")
_ITEM = re.compile(r"^\s*- +(?![^\s:]+:\s)(\S.*)$")
"""An item of a list, but not of a list of mappings."""
_MOST_KEYS = 50


class MarkdownParser:
    """Reads .md: the whole file is one page; the text keeps its marks."""

    def parse(self, path: Path, context: ReadingContext) -> Iterator[Page]:
        """The text with headings and regions; front matter goes to the metadata."""
        text = clean_text(decode_file(read_text_file(path, context), context)).strip("\n")
        body = _front_matter_end(text)
        context.add_metadata(front_matter(text[:body]))
        blocks = Blocks(text, body)
        yield Page(None, text, tuple(blocks.headings), regions=tuple(blocks.regions))


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
