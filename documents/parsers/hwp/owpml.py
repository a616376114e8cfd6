"""HWPX: the parts of its package (OWPML, KS X 6101), read as blocks."""

import re
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from documents.parsers.archive import Archive, check_xml_part, get_local_name
from documents.parsers.base import Corrupt, Encrypted, ReadingContext
from documents.parsers.builder import format_hangul_number
from documents.parsers.formulas import format_hangul_equation
from documents.parsers.hwp.blocks import (
    HangulParser,
    HeadKind,
    HwpCell,
    HwpParagraph,
    HwpTable,
    HwpWriter,
    NumberingLevel,
    ParagraphHead,
    PictureAnchor,
    RunningText,
    TextFrame,
    find_note_mark,
    format_ruby,
)
from documents.parsers.pictures import PictureSieve

HEADER_PART = "Contents/header.xml"
PACKAGE_PART = "Contents/content.hpf"
_SECTION_PART = re.compile(r"^contents/section(\d+)\.xml$", re.IGNORECASE)
_HIDDEN_ELEMENTS = {"hiddenComment", "secPr", "shapeComment", "linesegarray"}
_CAPTIONED_ELEMENTS = {"btn", "checkBtn", "radioBtn"}
_CHARACTER_ELEMENTS = {
    "tab": "\t",
    "lineBreak": "\n",
    "nbSpace": " ",
    "fwSpace": " ",
    "hyphen": "-",
}


def find_children(element: Any, name: str) -> Iterator[Any]:
    """Children of that name."""
    return (child for child in element if get_local_name(child) == name)


def read_integer(element: Any, attribute: str, default: int = 0) -> int:
    """An attribute as an integer; the default if it is missing, invalid or absurdly large."""
    text = element.get(attribute, "")
    return int(text) if text.lstrip("-").isdecimal() and len(text) < 11 else default


def parse_part(archive: Archive, part: str) -> Any:
    """The root element of a part. Raises `Corrupt`."""
    from lxml import etree

    parser = etree.XMLParser(resolve_entities=False, no_network=True, huge_tree=False)
    try:
        for data in archive.read_chunks(part):
            parser.feed(data)
        return parser.close()
    except etree.XMLSyntaxError as error:
        raise Corrupt(detail=f"XMLSyntaxError in {part}") from error


class HwpxStyles:
    """The header's paragraph heads by style id, and numberings by id."""

    def __init__(self, root: Any | None) -> None:
        self.heads: dict[str, ParagraphHead] = {}
        self.numberings: dict[int, list[NumberingLevel]] = {}
        for element in root.iter() if root is not None else ():
            if get_local_name(element) == "paraPr":
                self._read_head(element)
            elif get_local_name(element) == "numbering":
                levels = sorted(
                    find_children(element, "paraHead"), key=lambda head: read_integer(head, "level")
                )
                self.numberings[read_integer(element, "id")] = list(map(_read_level, levels))

    def _read_head(self, properties: Any) -> None:
        heading = next(
            (child for child in properties.iter() if get_local_name(child) == "heading"), None
        )
        kind = heading.get("type", "").lower() if heading is not None else ""
        if kind in set(HeadKind):
            level, list_id = read_integer(heading, "level"), read_integer(heading, "idRef")
            self.heads[properties.get("id", "")] = ParagraphHead(
                HeadKind(kind), max(level, 0), list_id
            )


def _read_level(head: Any) -> NumberingLevel:
    return NumberingLevel(
        head.text or "", head.get("numFormat", "DIGIT"), read_integer(head, "start", 1)
    )


def list_sections(archive: Archive) -> list[str]:
    """Names of the parts with text, in order."""
    sections = {
        match[0]: int(match[1]) for part in archive.names if (match := _SECTION_PART.match(part))
    }
    if not sections:
        raise Corrupt(detail="no section")
    return sorted(sections, key=sections.__getitem__)


def map_parts(archive: Archive) -> dict[str, str]:
    """Ids that sections refer to -> names of parts."""
    if PACKAGE_PART not in archive:
        return {}
    items = (
        item for item in parse_part(archive, PACKAGE_PART).iter() if get_local_name(item) == "item"
    )
    return {item.get("id", ""): item.get("href", "") for item in items}


def read_properties(archive: Archive) -> dict[str, str]:
    """Title, author and date of the package."""
    if PACKAGE_PART not in archive:
        return {}
    fields: dict[str, str] = {}
    for element in parse_part(archive, PACKAGE_PART).iter():
        if get_local_name(element) == "title":
            fields["title"] = element.text or ""
        elif get_local_name(element) == "meta":
            fields.setdefault(element.get("name", ""), element.text or "")
    return {
        "title": fields.get("title", ""),
        "author": fields.get("creator", ""),
        "date": fields.get("CreatedDate", "")[:10],
    }


class HwpxSection:
    """The paragraphs of one part with text."""

    def __init__(self, root: Any, heads: Mapping[str, ParagraphHead]) -> None:
        self._root = root
        self._heads = heads
        section_properties = next(
            (element for element in root.iter() if get_local_name(element) == "secPr"), None
        )
        self._outline = (
            read_integer(section_properties, "outlineShapeIDRef")
            if section_properties is not None
            else 0
        )

    def iterate_paragraphs(self) -> Iterator[HwpParagraph]:
        """In order."""
        return map(self._read_paragraph, find_children(self._root, "p"))

    def _read_paragraph(self, element: Any) -> HwpParagraph:
        paragraph = HwpParagraph(head=self._find_head(element))
        parts: list[str] = []
        deleted = False
        for run in find_children(element, "run"):
            for child in run:
                if get_local_name(child) == "t":
                    deleted = _add_text(child, parts, deleted=deleted)
                elif not deleted:
                    self._add_object(child, parts, paragraph)
        paragraph.text = "".join(parts)
        return paragraph

    def _find_head(self, element: Any) -> ParagraphHead | None:
        head = self._heads.get(element.get("paraPrIDRef", ""))
        if head and head.kind is HeadKind.OUTLINE:
            return ParagraphHead(head.kind, head.level, self._outline)
        return head

    def _add_object(self, element: Any, parts: list[str], paragraph: HwpParagraph) -> None:
        """Add the text of an object to the line, or anchor its content to the paragraph."""
        kind = get_local_name(element)
        if kind == "tbl":
            paragraph.anchored.append(self._read_table(element))
        elif kind == "ctrl":
            for control in element:
                self._add_control(control, parts, paragraph)
        elif kind == "textart":
            paragraph.anchored.append(TextFrame([HwpParagraph(element.get("text", ""))]))
        elif kind not in _HIDDEN_ELEMENTS:
            parts.append(_read_inline(element, kind))
            self._add_shape(element, paragraph)

    def _add_control(self, element: Any, parts: list[str], paragraph: HwpParagraph) -> None:
        kind = get_local_name(element)
        if kind in {"footNote", "endNote"}:
            blocks = self._read_lists(element)
            parts.append(find_note_mark(blocks))
            paragraph.anchored.append(TextFrame(blocks))
        elif kind in {"header", "footer"}:
            paragraph.anchored.append(RunningText(self._read_lists(element)))
        elif kind == "autoNum" and element.get("numType") != "PAGE":
            parts.append(_format_auto_number(element))

    def _add_shape(self, element: Any, paragraph: HwpParagraph) -> None:
        """Anchor a drawing: its text, pictures and shapes, then its caption."""
        for child in element:
            if get_local_name(child) == "drawText":
                paragraph.anchored.append(TextFrame(self._read_lists(child)))
            elif get_local_name(child) == "img" and child.get("binaryItemIDRef"):
                paragraph.anchored.append(PictureAnchor(child.get("binaryItemIDRef")))
            elif get_local_name(child) not in _HIDDEN_ELEMENTS | {"caption"} and len(child):
                self._add_shape(child, paragraph)
        self._add_captions(element, paragraph)

    def _add_captions(self, element: Any, paragraph: HwpParagraph) -> None:
        for caption in find_children(element, "caption"):
            paragraph.anchored.append(TextFrame(self._read_lists(caption)))

    def _read_lists(self, element: Any) -> list[HwpParagraph]:
        """The paragraphs of all lists of an element."""
        return [
            self._read_paragraph(child)
            for sublist in find_children(element, "subList")
            for child in find_children(sublist, "p")
        ]

    def _read_table(self, element: Any) -> HwpTable:
        cells, header_rows = [], 0
        for row_index, row in enumerate(find_children(element, "tr")):
            cells_of_row = list(find_children(row, "tc"))
            is_header = bool(cells_of_row) and all(
                cell.get("header") == "1" for cell in cells_of_row
            )
            header_rows += is_header and header_rows == row_index
            cells += [
                self._read_cell(cell, row_index, column_index)
                for column_index, cell in enumerate(cells_of_row)
            ]
        captions = [
            line
            for caption in find_children(element, "caption")
            for line in self._read_lists(caption)
        ]
        return HwpTable(cells, captions, max(header_rows, 1))

    def _read_cell(self, element: Any, row: int, column: int) -> HwpCell:
        address = next(find_children(element, "cellAddr"), None)
        span = next(find_children(element, "cellSpan"), None)
        if address is not None:
            row, column = (
                read_integer(address, "rowAddr", row),
                read_integer(address, "colAddr", column),
            )
        rows, columns = (
            (read_integer(span, "rowSpan", 1), read_integer(span, "colSpan", 1))
            if span is not None
            else (1, 1)
        )
        return HwpCell(max(row, 0), max(column, 0), rows, columns, self._read_lists(element))


def _read_inline(element: Any, kind: str) -> str:
    """The inline text of an object; "" for drawings."""

    def join_texts(name: str) -> str:
        return "".join(part.text or "" for part in find_children(element, name))

    if kind == "equation":
        return f" {format_hangul_equation(join_texts('script'))} "
    if kind == "dutmal":
        return format_ruby(join_texts("mainText"), join_texts("subText"))
    if kind == "compose":
        return str(element.get("composeText", ""))
    if kind == "edit":
        return join_texts("text")
    return str(element.get("caption", "")) if kind in _CAPTIONED_ELEMENTS else ""


def _add_text(element: Any, parts: list[str], *, deleted: bool) -> bool:
    """Add the text of a `t` without tracked deletions; returns whether a deletion is still open."""
    if not deleted:
        parts.append(element.text or "")
    for child in element:
        kind = get_local_name(child)
        deleted = {"deleteBegin": True, "deleteEnd": False}.get(kind, deleted)
        if not deleted:
            parts.append(_CHARACTER_ELEMENTS.get(kind, "") + (child.tail or ""))
    return deleted


def _format_auto_number(element: Any) -> str:
    """An automatic number as displayed."""
    style = next(find_children(element, "autoNumFormat"), None)
    value = read_integer(element, "num")
    if style is None:
        return str(value)
    number = style.get("userChar") or format_hangul_number(value, style.get("type", "DIGIT"))
    return f"{style.get('prefixChar', '')}{number}{style.get('suffixChar', '')}"


class HwpxParser(HangulParser):
    """Reads .hwpx. Encryption and unsafe XML are checked before anything else."""

    def write_document(self, path: Path, context: ReadingContext, writer: HwpWriter) -> None:
        """Write the sections of the package."""
        archive = Archive(path, context.limits)
        check_hwpx(archive)
        context.add_metadata(read_properties(archive))
        styles = HwpxStyles(parse_part(archive, HEADER_PART) if HEADER_PART in archive else None)
        writer.start_numbering(styles.numberings)
        for part in list_sections(archive):
            writer.write(HwpxSection(parse_part(archive, part), styles.heads).iterate_paragraphs())
        sieve, parts = PictureSieve(context), map_parts(archive)
        for picture_id, offset in writer.pictures:
            sieve.add_file(
                picture_id, partial(archive.read_part, parts.get(picture_id, picture_id)), offset
            )


def check_hwpx(archive: Archive) -> None:
    """Refuse encryption, document types, and XML that inflates to too much.

    Pictures are not inflated here: each is checked when it is loaded.
    """
    manifest = "META-INF/manifest.xml"
    if manifest in archive and b"encryption-data" in archive.read_part(manifest):
        raise Encrypted(lock="password")
    for name in archive.names:
        if name.lower().endswith((".xml", ".hpf", ".rdf")):
            check_xml_part(archive, name)
