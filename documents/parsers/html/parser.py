"""HTML: the main text of a page, saved on its own; nothing is fetched, nothing is run."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from documents.parsers.base import ReadingContext
from documents.parsers.builder import PageBuilder
from documents.parsers.errors import Corrupt
from documents.parsers.html.blocks import Blocks, is_shown
from documents.parsers.text import (
    clean_text,
    decode_file,
    has_encoding_mark,
    is_readable,
    read_text_file,
)
from rag.pages import Page

_HEAD = 4_096
"""Bytes in which a page says how it is encoded; browsers look at 1,024."""
_CHARSET = re.compile(
    rb"""(?:<meta\b[^<>]*\bcharset|<\?xml[^<>]*\bencoding)\s*=\s*["']?\s*([\w-]+)""", re.IGNORECASE
)
_CHARSETS = re.compile(
    r"utf-8|us-ascii|(?:windows|cp)-?\d+|iso-8859-\d+|koi8-[ru]|shift_jis|euc-jp|gb\w+|big5",
    re.IGNORECASE,
)
_KOREAN = re.compile(r"euc-?kr|ks_?c_?5601.*|(?:x-windows-|ms|cp)949|uhc", re.IGNORECASE)
_CLOSED = re.compile(
    r"<(script|style|title|textarea|iframe|div|span|a|p|td|th|li|i|b)\b([^<>]*)/>", re.IGNORECASE
)
"""Elements that XML may close at once; HTML takes all that follows for their content."""
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}")
_META = {
    "author": ("author", "article:author", "dc.creator", "dcterms.creator"),
    "date": ("article:published_time", "date", "dc.date", "dcterms.date", "dcterms.created"),
    "title": ("og:title", "dc.title", "dcterms.title"),
}
_TOO_DEEP = "Excessive depth"


class HtmlParser:
    """Reads .html, .htm and .xhtml: one page without a number."""

    def parse(self, path: Path, context: ReadingContext) -> Iterator[Page]:
        """The text of the page's main part; its headers and footers are margins."""
        document = _tree(_source(read_text_file(path, context), context))
        context.add_metadata(_metadata(document))
        body = document.find("body")
        if body is None:
            raise Corrupt(detail="no body")
        builder = PageBuilder(context)
        blocks = Blocks(builder, context)
        blocks.add(_main(body))
        yield builder.build_page(blocks.margins)


def _source(data: bytes, context: ReadingContext) -> str:
    """The decoded file, by its mark, by what it says of itself, or by its bytes."""
    declared = _CHARSET.search(data[:_HEAD])
    name = declared[1].decode("ascii", "replace") if declared else ""
    name = "cp949" if _KOREAN.fullmatch(name) else name
    text = ""
    if _CHARSETS.fullmatch(name) and not has_encoding_mark(data):
        try:
            text = data.decode(name)
        except (UnicodeDecodeError, LookupError):
            name = ""  # many pages say what they are not
    text = clean_text(text or decode_file(data, context))
    return _CLOSED.sub(r"<\1\2></\1>", text) if text.lstrip().startswith("<?xml") else text


def _tree(text: str) -> Any:
    """The parsed page. Raises Corrupt where it is nested beyond what libxml2 takes."""
    from lxml import etree, html

    parser = html.HTMLParser(
        encoding="utf-8", no_network=True, huge_tree=False, remove_comments=True, remove_pis=True
    )
    try:
        tree = html.document_fromstring(text.encode(), parser=parser)
    except etree.ParserError as error:
        raise Corrupt(detail="no HTML") from error
    if any(_TOO_DEEP in entry.message for entry in parser.error_log):
        raise Corrupt(detail="HTML nested too deep")
    return tree


def _main(body: Any) -> Any:
    """The one element that the page calls its main part, where it holds text; else the body."""
    found = [one for one in body.xpath(".//main | .//*[@role='main']") if is_shown(one)]
    return found[0] if len(found) == 1 and is_readable(found[0].text_content()) else body


def _metadata(document: Any) -> dict[str, str]:
    """Title, author and date from the head."""
    said = {
        (one.get("name") or one.get("property") or "").lower(): one.get("content") or ""
        for one in reversed(document.findall("head/meta"))
    }
    found = {
        key: next((said[name] for name in names if said.get(name, "").strip()), "")
        for key, names in _META.items()
    }
    title = " ".join((document.findtext("head/title") or "").split())
    date = _DATE.match(found["date"].strip())
    return {
        "title": title or found["title"],
        "author": found["author"],
        "date": date[0] if date else "",
    }
