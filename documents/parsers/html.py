"""HTML: the main text of a page, saved on its own; nothing is fetched, nothing is run.

What a reader of the page sees goes into a builder, in order. Tables become rows of texts; cells
over several columns or rows hold their text once.
"""

import re
from collections.abc import Callable, Iterator
from itertools import takewhile
from pathlib import Path
from typing import Any

from documents.parsers.base import Corrupt, ReadingContext
from documents.parsers.builder import PageBuilder, format_number
from documents.parsers.text import (
    clean_text,
    decode_file,
    has_encoding_mark,
    is_readable,
    read_text_file,
)
from rag.types import Page

_HEAD_BYTES = 4_096
"""Bytes in which a page says how it is encoded; browsers look at 1,024."""
_CHARSET = re.compile(
    rb"""(?:<meta\b[^<>]*\bcharset|<\?xml[^<>]*\bencoding)\s*=\s*["']?\s*([\w-]+)""", re.IGNORECASE
)
_SAFE_CHARSETS = re.compile(
    r"utf-8|us-ascii|(?:windows|cp)-?\d+|iso-8859-\d+|koi8-[ru]|shift_jis|euc-jp|gb\w+|big5",
    re.IGNORECASE,
)
_KOREAN_CHARSETS = re.compile(r"euc-?kr|ks_?c_?5601.*|(?:x-windows-|ms|cp)949|uhc", re.IGNORECASE)
_CLOSED = re.compile(
    r"<(script|style|title|textarea|iframe|div|span|a|p|td|th|li|i|b)\b([^<>]*)/>", re.IGNORECASE
)
"""Elements that XML may close at once; HTML takes all that follows for their content."""
_ISO_DATE = re.compile(r"\d{4}-\d{2}-\d{2}")
_META_NAMES = {
    "author": ("author", "article:author", "dc.creator", "dcterms.creator"),
    "date": ("article:published_time", "date", "dc.date", "dcterms.date", "dcterms.created"),
    "title": ("og:title", "dc.title", "dcterms.title"),
}
_TOO_DEEP = "Excessive depth"

_SKIPPED_TAGS = {
    *("head", "script", "style", "noscript", "template", "nav", "iframe", "object", "embed", "svg"),
    *("canvas", "audio", "video", "button", "select", "textarea", "input", "datalist", "dialog"),
    *("rp", "annotation", "annotation-xml", "map", "frameset"),
}
_SKIPPED_ROLES = {"navigation", "search", "menu", "menubar", "dialog", "alertdialog"}
_HIDDEN = re.compile(r"display\s*:\s*none|visibility\s*:\s*hidden", re.IGNORECASE)
_HEADING_TAGS = {"h1", "h2", "h3", "h4", "h5", "h6"}
_BLOCK_TAGS = {
    *("address", "article", "aside", "blockquote", "body", "center", "details", "div", "dl"),
    *("fieldset", "figcaption", "figure", "footer", "form", "header", "hr", "legend", "main"),
    *("ol", "p", "section", "summary", "ul", "caption", "tbody", "thead", "tfoot", "tr", "td"),
    *("th", "table", "option", "li", "dt", "dd", "pre", *_HEADING_TAGS),
}
_SECTION_TAGS = {"main", "article", "section", "aside", "blockquote"}
_NUMBER_FORMS = {"a": "lowerLetter", "A": "upperLetter", "i": "lowerRoman", "I": "upperRoman"}
_SPACE = re.compile(r"[ \t\n\f]+")
_PILCROW = "¶"
"""Programs that write manuals hang it on each heading, as a link to it."""

_MAX_COLUMNS = 200
"""Beyond these, cells are no longer merged: each merged cell costs its empty places."""
_MAX_HEADER_ROWS = 3
_ALL_ROWS = 1 << 30
_LAYOUT_ROLES = {"presentation", "none"}


class HtmlParser:
    """Reads .html, .htm and .xhtml: one page without a number."""

    def parse(self, path: Path, context: ReadingContext) -> Iterator[Page]:
        """The text of the page's main part; its headers and footers are margins."""
        document = _parse_tree(_decode_source(read_text_file(path, context), context))
        context.add_metadata(_read_head(document))
        body = document.find("body")
        if body is None:
            raise Corrupt(detail="no body")
        builder = PageBuilder(context)
        blocks = HtmlWriter(builder, context)
        blocks.add_content(_find_main(body))
        yield builder.build_page(blocks.margins)


def _decode_source(data: bytes, context: ReadingContext) -> str:
    """The decoded file, by its mark, by what it says of itself, or by its bytes."""
    declared = _CHARSET.search(data[:_HEAD_BYTES])
    name = declared[1].decode("ascii", "replace") if declared else ""
    name = "cp949" if _KOREAN_CHARSETS.fullmatch(name) else name
    text = ""
    if _SAFE_CHARSETS.fullmatch(name) and not has_encoding_mark(data):
        try:
            text = data.decode(name)
        except (UnicodeDecodeError, LookupError):
            name = ""  # many pages say what they are not
    text = clean_text(text or decode_file(data, context))
    return _CLOSED.sub(r"<\1\2></\1>", text) if text.lstrip().startswith("<?xml") else text


def _parse_tree(text: str) -> Any:
    """The parsed page. Raises Corrupt if it is nested deeper than libxml2 accepts."""
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


def _find_main(body: Any) -> Any:
    """The page's single main element if it contains text; else the body."""
    found = [one for one in body.xpath(".//main | .//*[@role='main']") if is_shown(one)]
    return found[0] if len(found) == 1 and is_readable(found[0].text_content()) else body


def _read_head(document: Any) -> dict[str, str]:
    """Title, author and date from the head."""
    said = {
        (one.get("name") or one.get("property") or "").lower(): one.get("content") or ""
        for one in reversed(document.findall("head/meta"))
    }
    found = {
        key: next((said[name] for name in names if said.get(name, "").strip()), "")
        for key, names in _META_NAMES.items()
    }
    title = " ".join((document.findtext("head/title") or "").split())
    date = _ISO_DATE.match(found["date"].strip())
    return {
        "title": title or found["title"],
        "author": found["author"],
        "date": date[0] if date else "",
    }


def is_shown(element: Any) -> bool:
    """Whether it is text of the page: neither hidden nor a way around in it."""
    return not (
        element.tag in _SKIPPED_TAGS
        or element.get("hidden") is not None
        or element.get("aria-hidden") == "true"
        or element.get("role") in _SKIPPED_ROLES
        or _HIDDEN.search(element.get("style") or "")
    )


class HtmlWriter:
    """Puts the blocks of an element into a builder; `margins` are headers and footers."""

    def __init__(self, builder: PageBuilder, context: ReadingContext) -> None:
        self.margins: list[str] = []
        self._builder = builder
        self._context = context
        self._line: list[str] = []
        self._depth = -1
        self._label = ""

    def add_content(self, element: Any) -> None:
        """Add the content of an element."""
        self._add_inside(element)
        self._end_line()

    def _add_inside(self, element: Any) -> None:
        """The element's text and elements, in order."""
        self._add_text(element.text)
        for child in element:
            if isinstance(child.tag, str) and is_shown(child):
                self._add_element(child)
            self._add_text(child.tail)

    def _add_element(self, element: Any) -> None:
        if element.tag == "br":
            self._line.append("\n")
        elif element.tag in _BLOCK_TAGS:
            self._end_line()
            self._add_block(element)
            self._end_line()
        else:
            self._add_inside(element)

    def _add_block(self, element: Any) -> None:
        """Add a block by its kind; one without a kind adds its content."""
        tag = element.tag
        if tag in _HEADING_TAGS:
            title = " ".join(self._read_text(element).split()).removesuffix(_PILCROW)
            self._builder.add_heading(int(tag[1]), title)
        elif tag == "pre":
            for line_end in element.iter("br"):
                line_end.text = "\n"
            self._builder.add_code(element.text_content())
        elif tag in {"ul", "ol", "dl"}:
            self._add_list(element)
        elif tag == "table" and is_data_table(element):
            self._add_table(element)
        elif tag in {"header", "footer"} and _is_margin(element):
            if text := self._read_text(element):
                self.margins.append(text)
        else:
            self._add_inside(element)

    def _add_list(self, element: Any) -> None:
        """Items with marks or numbers; terms have none, and what explains them stands deeper."""
        items = [one for one in element if one.tag in {"li", "dt", "dd"}]
        step = -1 if element.get("reversed") is not None else 1
        number = _to_integer(element.get("start"), 1 if step > 0 else len(items))
        form = _NUMBER_FORMS.get(element.get("type") or "", "decimal")
        self._depth += 1
        for child in element:
            if child.tag == "li" and is_shown(child):
                number = _to_integer(child.get("value"), number)
                label = f"{format_number(number, form)}. " if element.tag == "ol" else "- "
                self._add_item(child, label)
                number += step
            elif child.tag in {"dt", "dd"} and is_shown(child):
                self._depth += child.tag == "dd"
                self._add_item(child, "")
                self._depth -= child.tag == "dd"
            elif isinstance(child.tag, str) and is_shown(child):
                self._add_element(child)
        self._end_line()
        self._depth -= 1
        if self._depth < 0:
            self._builder.end_list()

    def _add_item(self, element: Any, label: str) -> None:
        """An item; its label goes before its first line."""
        self._end_line()
        self._label = label
        self._add_inside(element)
        self._end_line()
        self._label = ""

    def _add_table(self, element: Any) -> None:
        """A table, behind its caption."""
        for caption in element.findall("caption"):
            self._builder.add_paragraph(self._read_text(caption))
        self._builder.add_table(
            read_table_rows(element, self._read_text), count_header_rows(element)
        )

    def _read_text(self, element: Any) -> str:
        """The text of an element outside the page's blocks."""
        if not len(element):
            return " ".join((element.text or "").split())
        builder = PageBuilder(self._context)
        HtmlWriter(builder, self._context).add_content(element)
        return builder.build_page().text.replace("\n\n", "\n")

    def _add_text(self, text: str | None) -> None:
        if text:
            self._line.append(_SPACE.sub(" ", text))

    def _end_line(self) -> None:
        """What has been gathered, as a paragraph or as an item of a list."""
        lines = "".join(self._line).split("\n")
        self._line = []
        text = "\n".join(line for line in (" ".join(line.split()) for line in lines) if line)
        if not text:
            return
        if self._depth < 0:
            self._builder.add_paragraph(text)
        else:
            self._builder.add_list_item(self._label + text, self._depth)
            self._label = ""


def _is_margin(element: Any) -> bool:
    """Whether a header or footer is the page's own, and not the heading of its text."""
    sections = (one.tag in _SECTION_TAGS for one in element.iterancestors())
    return not any(sections) and not any(True for _ in element.iter("h1"))


def _to_integer(value: str | None, usual: int) -> int:
    """A number of the page; `usual` where it gives none, or one beyond reason."""
    return int(value) if value and value.isdecimal() and len(value) < 10 else usual


def is_data_table(table: Any) -> bool:
    """Whether it is a table and not a way to place things: those hold tables themselves."""
    inner = any(one is not table for one in table.iter("table"))
    return not inner and table.get("role") not in _LAYOUT_ROLES


def read_table_rows(table: Any, text: Callable[[Any], str]) -> list[list[str]]:
    """The texts of all cells from left to right; "" for the rest of a merged cell."""
    reaching: dict[int, int] = {}
    return [list(_read_row(row, reaching, text)) for row in table.iter("tr")]


def count_header_rows(table: Any) -> int:
    """How many rows are headers: what the page says, or the first with what it reaches into."""
    listed = list(table.iter("tr"))
    heads = sum(1 for row in listed if row.getparent().tag == "thead")
    named = sum(
        1
        for _ in takewhile(lambda row: all(one.tag == "th" for one in _iterate_cells(row)), listed)
    )
    if heads or named:
        return max(heads, named if named < len(listed) else 0, 1)
    reach = max(
        (_read_span(cell, "rowspan") for row in listed[:1] for cell in _iterate_cells(row)),
        default=1,
    )
    return reach if reach <= _MAX_HEADER_ROWS else 1


def _read_row(row: Any, reaching: dict[int, int], text: Callable[[Any], str]) -> Iterator[str]:
    """One row; `reaching` counts for each column how many rows a cell above still takes."""
    column = 0
    for cell in _iterate_cells(row):
        while reaching.get(column):
            reaching[column] -= 1
            column += 1
            yield ""
        width, height = _read_span(cell, "colspan"), _read_span(cell, "rowspan")
        if column + width > _MAX_COLUMNS:
            width, height = 1, 1
        for at in range(width):
            reaching[column + at] = height - 1
            yield "" if at else text(cell)
        column += width
    while reaching.get(column):
        reaching[column] -= 1
        column += 1
        yield ""


def _iterate_cells(row: Any) -> Iterator[Any]:
    yield from row.iterchildren("td", "th")


def _read_span(cell: Any, name: str) -> int:
    """Over how many columns or rows a cell goes; 0 rows are all that follow."""
    value = cell.get(name) or "1"
    number = int(value) if value.isdecimal() and len(value) < 10 else 1
    return number or (_ALL_ROWS if name == "rowspan" else 1)
