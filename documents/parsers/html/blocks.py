"""Walks the elements of a page: what a reader of it sees goes into a builder, in order."""

import re
from typing import Any

from documents.parsers.base import ReadingContext
from documents.parsers.builder import PageBuilder
from documents.parsers.html import table
from documents.parsers.numerals import format_number

_SKIPPED = {
    *("head", "script", "style", "noscript", "template", "nav", "iframe", "object", "embed", "svg"),
    *("canvas", "audio", "video", "button", "select", "textarea", "input", "datalist", "dialog"),
    *("rp", "annotation", "annotation-xml", "map", "frameset"),
}
_SKIPPED_ROLES = {"navigation", "search", "menu", "menubar", "dialog", "alertdialog"}
_HIDDEN = re.compile(r"display\s*:\s*none|visibility\s*:\s*hidden", re.IGNORECASE)
_HEADINGS = {"h1", "h2", "h3", "h4", "h5", "h6"}
_BLOCKS = {
    *("address", "article", "aside", "blockquote", "body", "center", "details", "div", "dl"),
    *("fieldset", "figcaption", "figure", "footer", "form", "header", "hr", "legend", "main"),
    *("ol", "p", "section", "summary", "ul", "caption", "tbody", "thead", "tfoot", "tr", "td"),
    *("th", "table", "option", "li", "dt", "dd", "pre", *_HEADINGS),
}
_SECTIONS = {"main", "article", "section", "aside", "blockquote"}
_FORMS = {"a": "lowerLetter", "A": "upperLetter", "i": "lowerRoman", "I": "upperRoman"}
_SPACE = re.compile(r"[ \t\n\f]+")
_PILCROW = "¶"
"""Programs that write manuals hang it on each heading, as a link to it."""


def is_shown(element: Any) -> bool:
    """Whether it is text of the page: neither hidden nor a way around in it."""
    return not (
        element.tag in _SKIPPED
        or element.get("hidden") is not None
        or element.get("aria-hidden") == "true"
        or element.get("role") in _SKIPPED_ROLES
        or _HIDDEN.search(element.get("style") or "")
    )


class Blocks:
    """Puts the blocks of an element into a builder; `margins` are headers and footers."""

    def __init__(self, builder: PageBuilder, context: ReadingContext) -> None:
        self.margins: list[str] = []
        self._builder = builder
        self._context = context
        self._line: list[str] = []
        self._depth = -1
        self._label = ""

    def add(self, element: Any) -> None:
        """Add all that stands in an element."""
        self._inside(element)
        self._end_line()

    def _inside(self, element: Any) -> None:
        """The element's text and elements, in order."""
        self._text(element.text)
        for child in element:
            if isinstance(child.tag, str) and is_shown(child):
                self._element(child)
            self._text(child.tail)

    def _element(self, element: Any) -> None:
        if element.tag == "br":
            self._line.append("\n")
        elif element.tag in _BLOCKS:
            self._end_line()
            self._block(element)
            self._end_line()
        else:
            self._inside(element)

    def _block(self, element: Any) -> None:
        """A block, by its kind; one without a kind of its own is what stands in it."""
        tag = element.tag
        if tag in _HEADINGS:
            title = " ".join(self._apart(element).split()).removesuffix(_PILCROW)
            self._builder.add_heading(int(tag[1]), title)
        elif tag == "pre":
            for line_end in element.iter("br"):
                line_end.text = "\n"
            self._builder.add_code(element.text_content())
        elif tag in {"ul", "ol", "dl"}:
            self._list(element)
        elif tag == "table" and table.holds_data(element):
            self._table(element)
        elif tag in {"header", "footer"} and _is_margin(element):
            if text := self._apart(element):
                self.margins.append(text)
        else:
            self._inside(element)

    def _list(self, element: Any) -> None:
        """Items with marks or numbers; terms have none, and what explains them stands deeper."""
        items = [one for one in element if one.tag in {"li", "dt", "dd"}]
        step = -1 if element.get("reversed") is not None else 1
        number = _whole(element.get("start"), 1 if step > 0 else len(items))
        form = _FORMS.get(element.get("type") or "", "decimal")
        self._depth += 1
        for child in element:
            if child.tag == "li" and is_shown(child):
                number = _whole(child.get("value"), number)
                label = f"{format_number(number, form)}. " if element.tag == "ol" else "- "
                self._item(child, label)
                number += step
            elif child.tag in {"dt", "dd"} and is_shown(child):
                self._depth += child.tag == "dd"
                self._item(child, "")
                self._depth -= child.tag == "dd"
            elif isinstance(child.tag, str) and is_shown(child):
                self._element(child)
        self._end_line()
        self._depth -= 1
        if self._depth < 0:
            self._builder.end_list()

    def _item(self, element: Any, label: str) -> None:
        """An item; its label goes before its first line."""
        self._end_line()
        self._label = label
        self._inside(element)
        self._end_line()
        self._label = ""

    def _table(self, element: Any) -> None:
        """A table, behind its caption."""
        for caption in element.findall("caption"):
            self._builder.add_paragraph(self._apart(caption))
        self._builder.add_table(table.rows(element, self._apart), table.header_rows(element))

    def _apart(self, element: Any) -> str:
        """The text of an element that stands in no block of this page."""
        if not len(element):
            return " ".join((element.text or "").split())
        builder = PageBuilder(self._context)
        Blocks(builder, self._context).add(element)
        return builder.build_page().text.replace("\n\n", "\n")

    def _text(self, text: str | None) -> None:
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
    sections = (one.tag in _SECTIONS for one in element.iterancestors())
    return not any(sections) and not any(True for _ in element.iter("h1"))


def _whole(value: str | None, usual: int) -> int:
    """A number of the page; `usual` where it gives none, or one beyond reason."""
    return int(value) if value and value.isdecimal() and len(value) < 10 else usual
