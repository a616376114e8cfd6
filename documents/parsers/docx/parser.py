"""DOCX: the body becomes the page; headers and footers become its margins.

Paragraphs keep their equations as LaTeX; headings, lists, code and tables are recognised. Merged
cells keep their columns, tables within cells become lines, charts become tables of their values,
and diagrams become paragraphs.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby, takewhile
from pathlib import Path
from typing import Any

from documents.parsers.archive import get_local_name
from documents.parsers.base import ReadingContext
from documents.parsers.builder import PageBuilder
from documents.parsers.docx.package import (
    WordNumbering,
    WordPackage,
    WordStyles,
    get_attribute,
    is_switched_on,
    to_heading_level,
)
from documents.parsers.formulas import format_word_equation
from documents.parsers.pictures import PictureSieve
from documents.parsers.text import WINGDINGS_SIGNS
from rag.types import Page

DRAWING_ATTRIBUTES = {"chart": "id", "relIds": "dm"}
"""Elements that refer to a chart or diagram, with the attribute that holds the id."""
PICTURE_ATTRIBUTES = {"blip": "embed", "imagedata": "id"}
"""The same for pictures; only embedded ones have these attributes, or a part."""

SKIPPED_ELEMENTS = {
    *("del", "moveFrom", "Fallback", "instrText", "delText", "delInstrText"),
    *("pPr", "rPr", "sectPr", "tblPr", "tblGrid", "tcPr", "trPr", "sdtPr"),
}
"""Deleted text, fallback copies, field instructions and properties, which are not content."""
_SIGN_ELEMENTS = {
    "tab": "\t",
    "ptab": "\t",
    "br": "\n",
    "cr": "\n",
    "noBreakHyphen": "-",
}
_MONOSPACED = {
    *(
        "courier",
        "courier new",
        "consolas",
        "monaco",
        "menlo",
        "lucida console",
        "dejavu sans mono",
    ),
    *(
        "source code pro",
        "cascadia code",
        "cascadia mono",
        "d2coding",
        "나눔고딕코딩",
        "nanumgothiccoding",
    ),
}
TEXT_BOX = "txbxContent"
NOTE_KINDS = {"footnoteReference": "footnote", "endnoteReference": "endnote"}
_ANCHOR_NAMES = {*DRAWING_ATTRIBUTES, *PICTURE_ATTRIBUTES, *NOTE_KINDS}
_SYMBOL_SIGNS = {
    **dict(zip(range(0x41, 0x5B), "ΑΒΧΔΕΦΓΗΙϑΚΛΜΝΟΠΘΡΣΤΥςΩΞΨΖ", strict=True)),
    **dict(zip(range(0x61, 0x7B), "αβχδεφγηιϕκλμνοπθρστυϖωξψζ", strict=True)),
    0xA3: "≤", 0xA5: "∞", 0xAE: "→", 0xB0: "°", 0xB1: "±", 0xB3: "≥", 0xB4: "×", 0xB7: "•",
}  # fmt: skip


def read_paragraph_text(element: Any) -> str:
    """The text of a paragraph, without deletions, hidden text and text boxes."""
    return "".join(_iterate_text(element)).replace("\x00\x00", " ").replace("\x00", "")


def is_monospaced(paragraph: Any) -> bool:
    """Whether all runs of a paragraph are set in a monospaced font directly."""
    runs = [run for run in paragraph.iter("{*}r") if run.find("{*}t") is not None]
    fonts = (get_attribute(run.find("{*}rPr/{*}rFonts"), "ascii").lower() for run in runs)
    return bool(runs) and all(font in _MONOSPACED for font in fonts)


def iterate_anchors(element: Any) -> Iterator[Any]:
    """What is anchored to a paragraph, in order: text boxes, charts, pictures, note references.

    Anchors within a text box belong to the box. The fallback copy of a box is skipped.
    """
    for child in element:
        name = get_local_name(child)
        if name == TEXT_BOX or name in _ANCHOR_NAMES:
            yield child
        elif name not in SKIPPED_ELEMENTS:
            yield from iterate_anchors(child)


def iterate_text_boxes(element: Any) -> Iterator[Any]:
    """Text boxes of a paragraph."""
    return (anchor for anchor in iterate_anchors(element) if get_local_name(anchor) == TEXT_BOX)


def _iterate_text(element: Any) -> Iterator[str]:
    """The text in an element, in order. NUL marks both ends of an equation."""
    for child in element:
        name = get_local_name(child)
        if name == "t":
            yield (child.text or "") + "".join(comment.tail or "" for comment in child)
        elif name in _SIGN_ELEMENTS:
            yield _SIGN_ELEMENTS[name]
        elif name == "sym":
            yield _to_sign(child)
        elif name == "oMath":
            yield f"\x00{format_word_equation(child)}\x00"
        elif name not in SKIPPED_ELEMENTS and name != TEXT_BOX and not _is_hidden(child):
            yield from _iterate_text(child)


def _is_hidden(run: Any) -> bool:
    """Whether a run is hidden text."""
    return is_switched_on(run.find("{*}rPr/{*}vanish"))


def _to_sign(element: Any) -> str:
    """The Unicode character for a code of a symbol font, whose private use area starts at F000."""
    code = get_attribute(element, "char")
    value = int(code, 16) if re.fullmatch(r"[0-9A-Fa-f]{2,4}", code) else 0
    if 0x100 <= value < 0xE000:
        return chr(value)
    signs = _SYMBOL_SIGNS if get_attribute(element, "font") == "Symbol" else WINGDINGS_SIGNS
    return signs.get(value & 0xFF, "")


_CODE_SIGNS = re.compile(r"[{}<>=;]|\w\(|^\s{2,}\S")

_LETTER = re.compile(r"[^\W\d_]")

_MAX_HEADER_ROWS = 3
_MAX_COLUMNS = 64
"""Word itself has no more than 63."""

ReadLine = Callable[[Any], str]
"""The text of a paragraph, with its number."""


@dataclass(frozen=True, slots=True)
class WordReferences:
    """What the text of a document refers to."""

    styles: WordStyles = field(default_factory=WordStyles)
    numbering: WordNumbering = field(default_factory=WordNumbering)
    notes: Mapping[tuple[str, str], str] = field(default_factory=dict)
    related: Callable[[str], Any | None] = lambda _: None
    warn: Callable[[str], None] = lambda _: None
    picture: Callable[[str, int], None] = lambda _id, _at: None
    """Receives a picture by its id and its offset in the text."""


class BodyWriter:
    """Writes the content of an element into a builder."""

    def __init__(self, builder: PageBuilder, references: WordReferences) -> None:
        self._builder = builder
        self._references = references
        self._note_count = 0

    def add_blocks(self, container: Any) -> None:
        """Add all blocks, also those within content controls and insertions."""
        for may_be_code, elements in groupby(container, self._may_be_code):
            group = list(elements)
            if may_be_code and self._is_code(group):
                self._builder.add_code("\n".join(map(read_paragraph_text, group)))
            else:
                for element in group:
                    self._add_element(element)

    def _add_element(self, element: Any) -> None:
        name = get_local_name(element)
        if name == "p":
            self._add_paragraph(element)
        elif name == "tbl":
            rows = read_table_rows(element, self._read_cell_line)
            self._builder.add_table(rows, count_header_rows(element))
            for paragraph in iterate_cell_paragraphs(element):
                self._add_anchored(paragraph, in_cell=True)
        elif name == "altChunk":  # an embedded file of another format, which Word imports
            self._references.warn("part_skipped")
        elif name not in SKIPPED_ELEMENTS:
            self.add_blocks(element)

    def _may_be_code(self, element: Any) -> bool:
        is_code = self._references.styles.is_code
        return get_local_name(element) == "p" and (
            is_code(_get_style_id(element)) or is_monospaced(element)
        )

    def _is_code(self, group: Sequence[Any]) -> bool:
        """Whether it is code, by style or syntax: letters and circulars are monospaced, too."""
        is_code = self._references.styles.is_code
        return any(
            is_code(_get_style_id(paragraph)) or _CODE_SIGNS.search(read_paragraph_text(paragraph))
            for paragraph in group
        )

    def _add_paragraph(self, paragraph: Any) -> None:
        """Add a paragraph, heading or list item, then what is anchored to it."""
        text, level = read_paragraph_text(paragraph), self._get_heading_level(paragraph)
        label, depth = self._read_label(paragraph) if text.strip() else ("", 0)
        if level:
            self._builder.add_heading(level, label + text)
        elif label:
            self._builder.add_list_item(label + text.strip(), depth)
        else:
            self._builder.add_paragraph(text)
        self._add_anchored(paragraph)

    def _add_anchored(self, paragraph: Any, *, in_cell: bool = False) -> None:
        """Add what is anchored to a paragraph; text boxes in a cell are in its text already."""
        for anchor in iterate_anchors(paragraph):
            name = get_local_name(anchor)
            if name in DRAWING_ATTRIBUTES:
                self._add_drawing(get_attribute(anchor, DRAWING_ATTRIBUTES[name]))
            elif name in PICTURE_ATTRIBUTES:
                self._references.picture(
                    get_attribute(anchor, PICTURE_ATTRIBUTES[name]), self._builder.length
                )
            elif name in NOTE_KINDS:
                self._add_note(NOTE_KINDS[name], get_attribute(anchor, "id"))
            elif name == TEXT_BOX and not in_cell:
                self.add_blocks(anchor)

    def _add_drawing(self, relationship: str) -> None:
        root = self._references.related(relationship)
        if root is not None:
            add_drawing(self._builder, root)

    def _add_note(self, kind: str, identity: str) -> None:
        if text := self._references.notes.get((kind, identity), "").strip():
            self._note_count += 1
            self._builder.add_paragraph(f"{self._note_count}) {text}")

    def _read_cell_line(self, paragraph: Any) -> str:
        """The text of a cell's paragraph, with its label."""
        text = read_paragraph_text(paragraph).strip()
        return self._read_label(paragraph)[0] + text if text else ""

    def _read_label(self, paragraph: Any) -> tuple[str, int]:
        """A paragraph's list number and its depth in the list."""
        style = _get_style_id(paragraph)
        properties = paragraph.find("{*}pPr/{*}numPr")
        number = get_attribute(properties.find("{*}numId")) if properties is not None else ""
        depth = get_attribute(properties.find("{*}ilvl")) if properties is not None else ""
        if not number:
            number, depth, style = self._references.styles.get_numbering(style) or (
                "",
                depth,
                style,
            )
        numbering = self._references.numbering
        level = int(depth) if depth.isdecimal() else numbering.get_depth(number, style)
        return numbering.next_label(number, level) or "", level

    def _get_heading_level(self, paragraph: Any) -> int:
        """1..9 for headings, by the paragraph's outline level or else by its style; 0 for text."""
        outline = paragraph.find("{*}pPr/{*}outlineLvl")
        if outline is not None:
            return to_heading_level(get_attribute(outline))
        return self._references.styles.get_level(_get_style_id(paragraph))


def _get_style_id(paragraph: Any) -> str:
    """The id of the paragraph's style."""
    return get_attribute(paragraph.find("{*}pPr/{*}pStyle"))


class DocxParser:
    """Reads .docx; Word documents have no fixed pages, so there is one without a number."""

    def parse(self, path: Path, context: ReadingContext) -> Iterator[Page]:
        """The whole document as one page."""
        package = WordPackage(path, context)
        context.add_metadata(package.read_properties())
        styles, numbering = (
            WordStyles(package.list_styles()),
            WordNumbering(package.read_part("numbering.xml")),
        )
        basic_references = WordReferences(styles, numbering)
        sieve = PictureSieve(context)

        def add_picture(relationship: str, offset: int) -> None:
            if picture := package.find_picture(relationship):
                sieve.add_file(*picture, offset)

        references = WordReferences(
            styles,
            numbering,
            notes=_read_notes(package, basic_references, context),
            related=package.read_related_part,
            picture=add_picture,
            warn=context.warn,
        )
        builder = PageBuilder(context)
        BodyWriter(builder, references).add_blocks(package.read_body())
        yield builder.build_page(_read_margins(package, basic_references, context))


def _read_notes(
    package: WordPackage, references: WordReferences, context: ReadingContext
) -> dict[tuple[str, str], str]:
    """Footnotes and endnotes by kind and id."""
    notes = {}
    for kind in ("footnote", "endnote"):
        root = package.read_part(f"{kind}s.xml")
        for note in root if root is not None else ():
            if get_attribute(note, "type") in {"", "normal"}:
                notes[kind, get_attribute(note, "id")] = "\n".join(
                    _read_blocks(note, references, context)
                )
    return notes


def _read_margins(
    package: WordPackage, references: WordReferences, context: ReadingContext
) -> Sequence[str]:
    """Paragraphs of all headers and footers, each once, without those that have no letters."""
    texts: dict[str, None] = {}
    for kind in ("header", "footer"):
        for root in package.iterate_parts(kind):
            texts |= dict.fromkeys(_read_blocks(root, references, context))
    return [text for text in texts if _LETTER.search(text)]


def _read_blocks(root: Any, references: WordReferences, context: ReadingContext) -> list[str]:
    """The blocks of a note, header or footer."""
    builder = PageBuilder(context)
    BodyWriter(builder, references).add_blocks(root)
    return builder.build_page().text.split("\n\n")


def read_table_rows(table: Any, read_line: ReadLine) -> list[list[str]]:
    """The cell texts of each row; "" for the rest of a merged cell."""
    return [list(_read_row(row, read_line)) for row in _iterate_rows(table)]


def count_header_rows(table: Any) -> int:
    """How many rows are headers: those that Word repeats on each page, else the first.

    Rows into which cells of the first row are merged are headers, too.
    """
    rows = list(_iterate_rows(table))
    repeated_rows = takewhile(lambda row: is_switched_on(row.find("{*}trPr/{*}tblHeader")), rows)
    merged_rows = takewhile(_continues_above, rows[1:])
    row_span = 1 + sum(1 for _ in merged_rows)
    return sum(1 for _ in repeated_rows) or (row_span if row_span <= _MAX_HEADER_ROWS else 1)


def _continues_above(row: Any) -> bool:
    """Whether a cell of the row above reaches into this one."""
    merges = row.findall("{*}tc/{*}tcPr/{*}vMerge")
    return any(get_attribute(merge) != "restart" for merge in merges)


def iterate_cell_paragraphs(container: Any) -> Iterator[Any]:
    """All paragraphs of the cells, also those of nested tables."""
    for child in container:
        if get_local_name(child) == "p":
            yield child
        elif get_local_name(child) not in SKIPPED_ELEMENTS:
            yield from iterate_cell_paragraphs(child)


def _iterate_rows(table: Any) -> Iterator[Any]:
    """Rows of a table except deleted ones, also those within wrappers."""
    for child in table:
        name = get_local_name(child)
        if name == "tr":
            if child.find("{*}trPr/{*}del") is None:
                yield child
        elif name not in SKIPPED_ELEMENTS:
            yield from _iterate_rows(child)


def _read_row(row: Any, read_line: ReadLine) -> Iterator[str]:
    """The texts of a row by grid column; columns skipped at its start are "", too."""
    yield from [""] * _read_count(row.find("{*}trPr/{*}gridBefore"), 0)
    yield from _read_filled_cells(row, read_line)


def _read_filled_cells(row: Any, read_line: ReadLine) -> Iterator[str]:
    for child in row:
        name = get_local_name(child)
        if name == "tc":
            merge = child.find("{*}tcPr/{*}vMerge")
            continues = merge is not None and get_attribute(merge) != "restart"
            yield "" if continues else "\n".join(_read_cell_lines(child, read_line))
            yield from [""] * (_read_count(child.find("{*}tcPr/{*}gridSpan"), 1) - 1)
        elif name not in SKIPPED_ELEMENTS:
            yield from _read_filled_cells(child, read_line)


def _read_count(element: Any | None, default: int) -> int:
    """A number of columns, at most `_MAX_COLUMNS`; `default` if it is missing or invalid."""
    value = get_attribute(element)
    return min(int(value), _MAX_COLUMNS) if value.isdecimal() and len(value) < 10 else default


def _read_cell_lines(container: Any, read_line: ReadLine) -> Iterator[str]:
    """The lines of a cell; each row of a nested table is one line."""
    for child in container:
        name = get_local_name(child)
        if name == "p":
            if text := read_line(child).strip():
                yield text
            for box in iterate_text_boxes(child):
                yield from _read_cell_lines(box, read_line)
        elif name == "tbl":
            for row in read_table_rows(child, read_line):
                yield " ".join(cell for cell in row if cell)
        elif name not in SKIPPED_ELEMENTS:
            yield from _read_cell_lines(child, read_line)


def add_drawing(builder: PageBuilder, root: Any) -> None:
    """Add a chart as a table of its values, a diagram as paragraphs."""
    if get_local_name(root) == "chartSpace":
        builder.add_paragraph(_read_words(root.find("{*}chart/{*}title")))
        rows = list(_read_figures(root))
        if rows:
            builder.add_table(rows)
    else:
        for point in root.iter("{*}pt"):
            builder.add_paragraph(_read_words(point.find("{*}t")))


def _read_figures(chart: Any) -> Iterator[list[str]]:
    """A row with the names of the series, then one for each category, from the cached values."""
    series = list(chart.iter("{*}ser"))
    categories = _read_points(series[0], "cat", "xVal") if series else {}
    columns = [_read_points(item, "val", "yVal") for item in series]
    if not any(columns):
        return
    yield ["", *(" ".join(_read_points(item, "tx").values()) for item in series)]
    for index in sorted({index for column in columns for index in column} | set(categories)):
        yield [categories.get(index, ""), *(column.get(index, "") for column in columns)]


def _read_points(series: Any, *names: str) -> dict[int, str]:
    """Index -> value of a series' points, from the first of these parts that exists."""
    source = next((part for name in names for part in series.findall(f"{{*}}{name}")), None)
    points = source.iter("{*}pt") if source is not None else ()
    values = {point.get("idx", "0"): point.findtext("{*}v") or "" for point in points}
    return {
        int(index): _format_figure(value)
        for index, value in values.items()
        if index.isdecimal() and len(index) < 10
    }


def _format_figure(text: str) -> str:
    """A number as Excel shows it: it stores 4.4 as 4.4000000000000004."""
    try:
        return f"{float(text):.15g}"
    except ValueError:
        return text


def _read_words(element: Any | None) -> str:
    """The text of the DrawingML paragraphs in an element."""
    paragraphs = element.iter("{*}p") if element is not None else ()
    return "\n".join(
        "".join(text.text or "" for text in paragraph.iter("{*}t")) for paragraph in paragraphs
    )
