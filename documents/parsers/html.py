"""HTML: the main text of a saved page. Nothing is fetched, no script is run.

What a reader of the page sees goes into a builder, in order. Tables become rows of texts; a merged
cell has its text once.
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
"""Bytes searched for a declared encoding; browsers search 1,024."""
_CHARSET = re.compile(
    rb"""(?:<meta\b[^<>]*\bcharset|<\?xml[^<>]*\bencoding)\s*=\s*["']?\s*([\w-]+)""", re.IGNORECASE
)
_SAFE_CHARSETS = re.compile(
    r"utf-8|us-ascii|(?:windows|cp)-?\d+|iso-8859-\d+|koi8-[ru]|shift_jis|euc-jp|gb\w+|big5",
    re.IGNORECASE,
)
_KOREAN_CHARSETS = re.compile(r"euc-?kr|ks_?c_?5601.*|(?:x-windows-|ms|cp)949|uhc", re.IGNORECASE)
_SELF_CLOSED_TAG = re.compile(
    r"<(script|style|title|textarea|iframe|div|span|a|p|td|th|li|i|b)\b([^<>]*)/>", re.IGNORECASE
)
"""Self-closing elements of XHTML; an HTML parser would take all that follows for their content."""
_ISO_DATE = re.compile(r"\d{4}-\d{2}-\d{2}")
_META_NAMES = {
    "author": ("author", "article:author", "dc.creator", "dcterms.creator"),
    "date": ("article:published_time", "date", "dc.date", "dcterms.date", "dcterms.created"),
    "title": ("og:title", "dc.title", "dcterms.title"),
}
_DEPTH_MESSAGE = "Excessive depth"

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
"""Documentation generators append it to headings as a permalink."""

_MAX_COLUMNS = 200
"""Cells beyond are not expanded: each merged cell costs memory for its empty places."""
_MAX_HEADER_ROWS = 3
_REMAINING_ROWS = 1 << 30
_LAYOUT_ROLES = {"presentation", "none"}


class HtmlParser:
    """Reads .html, .htm and .xhtml: one page without a number."""

    def parse(self, path: Path, context: ReadingContext) -> Iterator[Page]:
        """Parse the page's main part; its header and footer become margins."""
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
    """Decode the file by its byte order mark, its declared encoding, or its bytes."""
    match = _CHARSET.search(data[:_HEAD_BYTES])
    charset = match[1].decode("ascii", "replace") if match else ""
    charset = "cp949" if _KOREAN_CHARSETS.fullmatch(charset) else charset
    text = ""
    if _SAFE_CHARSETS.fullmatch(charset) and not has_encoding_mark(data):
        try:
            text = data.decode(charset)
        except (UnicodeDecodeError, LookupError):
            charset = ""  # many pages declare a wrong encoding
    text = clean_text(text or decode_file(data, context))
    return _SELF_CLOSED_TAG.sub(r"<\1\2></\1>", text) if text.lstrip().startswith("<?xml") else text


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
    if any(_DEPTH_MESSAGE in entry.message for entry in parser.error_log):
        raise Corrupt(detail="HTML nested too deep")
    return tree


def _find_main(body: Any) -> Any:
    """The page's single main element if it contains text; else the body."""
    mains = [element for element in body.xpath(".//main | .//*[@role='main']") if is_shown(element)]
    return mains[0] if len(mains) == 1 and is_readable(mains[0].text_content()) else body


def _read_head(document: Any) -> dict[str, str]:
    """Title, author and date from the head."""
    meta_values = {
        (element.get("name") or element.get("property") or "").lower(): element.get("content") or ""
        for element in reversed(document.findall("head/meta"))
    }
    fields = {
        key: next((meta_values[name] for name in names if meta_values.get(name, "").strip()), "")
        for key, names in _META_NAMES.items()
    }
    title = " ".join((document.findtext("head/title") or "").split())
    date = _ISO_DATE.match(fields["date"].strip())
    return {
        "title": title or fields["title"],
        "author": fields["author"],
        "date": date[0] if date else "",
    }


def is_shown(element: Any) -> bool:
    """Whether it is content of the page: neither hidden nor navigation."""
    return not (
        element.tag in _SKIPPED_TAGS
        or element.get("hidden") is not None
        or element.get("aria-hidden") == "true"
        or element.get("role") in _SKIPPED_ROLES
        or _HIDDEN.search(element.get("style") or "")
    )


class HtmlWriter:
    """Writes the blocks of an element into a builder; `margins` collects headers and footers."""

    def __init__(self, builder: PageBuilder, context: ReadingContext) -> None:
        self.margins: list[str] = []
        self._builder = builder
        self._context = context
        self._line_parts: list[str] = []
        self._depth = -1
        self._item_label = ""

    def add_content(self, element: Any) -> None:
        """Add the content of an element."""
        self._add_children(element)
        self._end_line()

    def _add_children(self, element: Any) -> None:
        """The element's text and elements, in order."""
        self._add_text(element.text)
        for child in element:
            if isinstance(child.tag, str) and is_shown(child):
                self._add_element(child)
            self._add_text(child.tail)

    def _add_element(self, element: Any) -> None:
        if element.tag == "br":
            self._line_parts.append("\n")
        elif element.tag in _BLOCK_TAGS:
            self._end_line()
            self._add_block(element)
            self._end_line()
        else:
            self._add_children(element)

    def _add_block(self, element: Any) -> None:
        """Add a block by its tag; other blocks add their content."""
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
            self._add_children(element)

    def _add_list(self, element: Any) -> None:
        """Add items with bullets or numbers; terms have none, their definitions are one deeper."""
        items = [item for item in element if item.tag in {"li", "dt", "dd"}]
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
        """Add an item, with the label before its first line."""
        self._end_line()
        self._item_label = label
        self._add_children(element)
        self._end_line()
        self._item_label = ""

    def _add_table(self, element: Any) -> None:
        """Add a table after its caption."""
        for caption in element.findall("caption"):
            self._builder.add_paragraph(self._read_text(caption))
        self._builder.add_table(
            read_table_rows(element, self._read_text), count_header_rows(element)
        )

    def _read_text(self, element: Any) -> str:
        """The text of an element, without adding it to the page."""
        if not len(element):
            return " ".join((element.text or "").split())
        builder = PageBuilder(self._context)
        HtmlWriter(builder, self._context).add_content(element)
        return builder.build_page().text.replace("\n\n", "\n")

    def _add_text(self, text: str | None) -> None:
        if text:
            self._line_parts.append(_SPACE.sub(" ", text))

    def _end_line(self) -> None:
        """Add the collected text as a paragraph or list item."""
        lines = "".join(self._line_parts).split("\n")
        self._line_parts = []
        text = "\n".join(line for line in (" ".join(line.split()) for line in lines) if line)
        if not text:
            return
        if self._depth < 0:
            self._builder.add_paragraph(text)
        else:
            self._builder.add_list_item(self._item_label + text, self._depth)
            self._item_label = ""


def _is_margin(element: Any) -> bool:
    """Whether a header or footer belongs to the page, not to an article in it."""
    sections = (ancestor.tag in _SECTION_TAGS for ancestor in element.iterancestors())
    return not any(sections) and not any(True for _ in element.iter("h1"))


def _to_integer(value: str | None, default: int) -> int:
    """An attribute as a number; `default` if it is missing, invalid or absurdly large."""
    return int(value) if value and value.isdecimal() and len(value) < 10 else default


def is_data_table(table: Any) -> bool:
    """Whether it holds data; tables used for layout have nested tables or say so by their role."""
    has_nested_table = any(element is not table for element in table.iter("table"))
    return not has_nested_table and table.get("role") not in _LAYOUT_ROLES


def read_table_rows(table: Any, read_text: Callable[[Any], str]) -> list[list[str]]:
    """The cell texts of each row; "" for the rest of a merged cell."""
    rows_to_skip: dict[int, int] = {}
    return [list(_read_row(row, rows_to_skip, read_text)) for row in table.iter("tr")]


def count_header_rows(table: Any) -> int:
    """How many rows are headers: as marked up, else the height of the first row's cells."""
    rows = list(table.iter("tr"))
    head_rows = sum(1 for row in rows if row.getparent().tag == "thead")
    leading_rows = sum(
        1
        for _ in takewhile(
            lambda row: all(header.tag == "th" for header in _iterate_cells(row)), rows
        )
    )
    if head_rows or leading_rows:
        return max(head_rows, leading_rows if leading_rows < len(rows) else 0, 1)
    first_row_height = max(
        (_read_span(cell, "rowspan") for row in rows[:1] for cell in _iterate_cells(row)),
        default=1,
    )
    return first_row_height if first_row_height <= _MAX_HEADER_ROWS else 1


def _read_row(
    row: Any, rows_to_skip: dict[int, int], read_text: Callable[[Any], str]
) -> Iterator[str]:
    """One row; `rows_to_skip` counts by column how many rows a cell from above still covers."""
    column = 0
    for cell in _iterate_cells(row):
        while rows_to_skip.get(column):
            rows_to_skip[column] -= 1
            column += 1
            yield ""
        width, height = _read_span(cell, "colspan"), _read_span(cell, "rowspan")
        if column + width > _MAX_COLUMNS:
            width, height = 1, 1
        for offset in range(width):
            rows_to_skip[column + offset] = height - 1
            yield "" if offset else read_text(cell)
        column += width
    while rows_to_skip.get(column):
        rows_to_skip[column] -= 1
        column += 1
        yield ""


def _iterate_cells(row: Any) -> Iterator[Any]:
    yield from row.iterchildren("td", "th")


def _read_span(cell: Any, name: str) -> int:
    """How many columns or rows a cell spans; a rowspan of 0 covers all rows that follow."""
    value = cell.get(name) or "1"
    number = int(value) if value.isdecimal() and len(value) < 10 else 1
    return number or (_REMAINING_ROWS if name == "rowspan" else 1)
