"""HWPX: the parts of its package (OWPML, KS X 6101) as blocks."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from documents.parsers.archive import Archive
from documents.parsers.errors import Corrupt
from documents.parsers.hangul import equations
from documents.parsers.hangul.blocks import (
    Cell,
    Frame,
    Head,
    HeadKind,
    Image,
    Margin,
    Paragraph,
    Table,
    mark_of,
    with_ruby,
)
from documents.parsers.hangul.numbering import Level
from documents.parsers.numerals import format_hangul_number

HEADER = "Contents/header.xml"
PACKAGE = "Contents/content.hpf"
_SECTION = re.compile(r"^contents/section(\d+)\.xml$", re.IGNORECASE)
_NOT_SHOWN = {"hiddenComment", "secPr", "shapeComment", "linesegarray"}
_CAPTIONED = {"btn", "checkBtn", "radioBtn"}
_SPACES = {"tab": "\t", "lineBreak": "\n", "nbSpace": " ", "fwSpace": " ", "hyphen": "-"}


def name(element: Any) -> str:
    """The local name of an element; "" for comments and the like."""
    tag = element.tag
    return tag.rpartition("}")[2] if isinstance(tag, str) else ""


def named(element: Any, wanted: str) -> Iterator[Any]:
    """Children of that name."""
    return (child for child in element if name(child) == wanted)


def integer(element: Any, attribute: str, default: int = 0) -> int:
    """An attribute as a whole number of modest size; the default where it is none."""
    text = element.get(attribute, "")
    return int(text) if text.lstrip("-").isdecimal() and len(text) < 11 else default


def tree(archive: Archive, part: str) -> Any:
    """The root element of a part. Raises `Corrupt`."""
    from lxml import etree

    parser = etree.XMLParser(resolve_entities=False, no_network=True, huge_tree=False)
    try:
        for data in archive.read_chunks(part):
            parser.feed(data)
        return parser.close()
    except etree.XMLSyntaxError as error:
        raise Corrupt(detail=f"XMLSyntaxError in {part}") from error


class Styles:
    """What the header says of paragraphs: their heads, and the numberings these count by."""

    def __init__(self, root: Any | None) -> None:
        self.heads: dict[str, Head] = {}
        self.numberings: dict[int, list[Level]] = {}
        for element in root.iter() if root is not None else ():
            if name(element) == "paraPr":
                self._head(element)
            elif name(element) == "numbering":
                levels = sorted(named(element, "paraHead"), key=lambda head: integer(head, "level"))
                self.numberings[integer(element, "id")] = list(map(_level, levels))

    def _head(self, properties: Any) -> None:
        heading = next((child for child in properties.iter() if name(child) == "heading"), None)
        kind = heading.get("type", "").lower() if heading is not None else ""
        if kind in set(HeadKind):
            level, key = integer(heading, "level"), integer(heading, "idRef")
            self.heads[properties.get("id", "")] = Head(HeadKind(kind), max(level, 0), key)


def _level(head: Any) -> Level:
    return Level(head.text or "", head.get("numFormat", "DIGIT"), integer(head, "start", 1))


def sections(archive: Archive) -> list[str]:
    """Names of the parts with text, in order."""
    found = {match[0]: int(match[1]) for part in archive.names if (match := _SECTION.match(part))}
    if not found:
        raise Corrupt(detail="no section")
    return sorted(found, key=found.__getitem__)


def parts(archive: Archive) -> dict[str, str]:
    """The names of the parts by the ids that sections call them by."""
    if PACKAGE not in archive:
        return {}
    items = (item for item in tree(archive, PACKAGE).iter() if name(item) == "item")
    return {item.get("id", ""): item.get("href", "") for item in items}


def properties(archive: Archive) -> dict[str, str]:
    """Title, author and date of the package."""
    if PACKAGE not in archive:
        return {}
    found: dict[str, str] = {}
    for element in tree(archive, PACKAGE).iter():
        if name(element) == "title":
            found["title"] = element.text or ""
        elif name(element) == "meta":
            found.setdefault(element.get("name", ""), element.text or "")
    return {
        "title": found.get("title", ""),
        "author": found.get("creator", ""),
        "date": found.get("CreatedDate", "")[:10],
    }


class Section:
    """The paragraphs of one part with text."""

    def __init__(self, root: Any, heads: Mapping[str, Head]) -> None:
        self._root = root
        self._heads = heads
        setup = next((element for element in root.iter() if name(element) == "secPr"), None)
        self._outline = integer(setup, "outlineShapeIDRef") if setup is not None else 0

    def paragraphs(self) -> Iterator[Paragraph]:
        """In order."""
        return map(self._paragraph, named(self._root, "p"))

    def _paragraph(self, element: Any) -> Paragraph:
        paragraph = Paragraph(head=self._head(element))
        parts: list[str] = []
        deleted = False
        for run in named(element, "run"):
            for child in run:
                if name(child) == "t":
                    deleted = _add_text(child, parts, deleted=deleted)
                elif not deleted:
                    self._add(child, parts, paragraph)
        paragraph.text = "".join(parts)
        return paragraph

    def _head(self, element: Any) -> Head | None:
        head = self._heads.get(element.get("paraPrIDRef", ""))
        if head and head.kind is HeadKind.OUTLINE:
            return Head(head.kind, head.level, self._outline)
        return head

    def _add(self, element: Any, parts: list[str], paragraph: Paragraph) -> None:
        """What stands in a run beside its text: into the line, or anchored to the paragraph."""
        kind = name(element)
        if kind == "tbl":
            paragraph.anchored.append(self._table(element))
        elif kind == "ctrl":
            for control in element:
                self._control(control, parts, paragraph)
        elif kind == "textart":
            paragraph.anchored.append(Frame([Paragraph(element.get("text", ""))]))
        elif kind not in _NOT_SHOWN:
            parts.append(_inline(element, kind))
            self._shape(element, paragraph)

    def _control(self, element: Any, parts: list[str], paragraph: Paragraph) -> None:
        kind = name(element)
        if kind in {"footNote", "endNote"}:
            blocks = self._lists(element)
            parts.append(mark_of(blocks))
            paragraph.anchored.append(Frame(blocks))
        elif kind in {"header", "footer"}:
            paragraph.anchored.append(Margin(self._lists(element)))
        elif kind == "autoNum" and element.get("numType") != "PAGE":
            parts.append(_auto_number(element))

    def _shape(self, element: Any, paragraph: Paragraph) -> None:
        """A drawing: its text, the pictures and shapes in it, its caption."""
        for child in element:
            if name(child) == "drawText":
                paragraph.anchored.append(Frame(self._lists(child)))
            elif name(child) == "img" and child.get("binaryItemIDRef"):
                paragraph.anchored.append(Image(child.get("binaryItemIDRef")))
            elif name(child) not in _NOT_SHOWN | {"caption"} and len(child):
                self._shape(child, paragraph)
        self._captions(element, paragraph)

    def _captions(self, element: Any, paragraph: Paragraph) -> None:
        for caption in named(element, "caption"):
            paragraph.anchored.append(Frame(self._lists(caption)))

    def _lists(self, element: Any) -> list[Paragraph]:
        """The paragraphs of all lists of an element."""
        return [
            self._paragraph(child)
            for inner in named(element, "subList")
            for child in named(inner, "p")
        ]

    def _table(self, element: Any) -> Table:
        cells, headers = [], 0
        for place, row in enumerate(named(element, "tr")):
            cells_of_row = list(named(row, "tc"))
            marked = bool(cells_of_row) and all(cell.get("header") == "1" for cell in cells_of_row)
            headers += marked and headers == place
            cells += [self._cell(cell, place, i) for i, cell in enumerate(cells_of_row)]
        captions = [line for caption in named(element, "caption") for line in self._lists(caption)]
        return Table(cells, captions, max(headers, 1))

    def _cell(self, element: Any, row: int, column: int) -> Cell:
        address = next(named(element, "cellAddr"), None)
        span = next(named(element, "cellSpan"), None)
        if address is not None:
            row, column = integer(address, "rowAddr", row), integer(address, "colAddr", column)
        rows, columns = (
            (integer(span, "rowSpan", 1), integer(span, "colSpan", 1))
            if span is not None
            else (1, 1)
        )
        return Cell(max(row, 0), max(column, 0), rows, columns, self._lists(element))


def _inline(element: Any, kind: str) -> str:
    """What an object says within the line; "" for drawings."""

    def texts(wanted: str) -> str:
        return "".join(part.text or "" for part in named(element, wanted))

    if kind == "equation":
        return f" {equations.text(texts('script'))} "
    if kind == "dutmal":
        return with_ruby(texts("mainText"), texts("subText"))
    if kind == "compose":
        return str(element.get("composeText", ""))
    if kind == "edit":
        return texts("text")
    return str(element.get("caption", "")) if kind in _CAPTIONED else ""


def _add_text(element: Any, parts: list[str], *, deleted: bool) -> bool:
    """The text of a `t` without what a tracked change deleted; says whether a deletion is open."""
    if not deleted:
        parts.append(element.text or "")
    for child in element:
        kind = name(child)
        deleted = {"deleteBegin": True, "deleteEnd": False}.get(kind, deleted)
        if not deleted:
            parts.append(_SPACES.get(kind, "") + (child.tail or ""))
    return deleted


def _auto_number(element: Any) -> str:
    """A counted number as it is shown."""
    style = next(named(element, "autoNumFormat"), None)
    value = integer(element, "num")
    if style is None:
        return str(value)
    shown = style.get("userChar") or format_hangul_number(value, style.get("type", "DIGIT"))
    return f"{style.get('prefixChar', '')}{shown}{style.get('suffixChar', '')}"
