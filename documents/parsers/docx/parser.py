"""DOCX: the body in order into a builder; headers and footers stand beside it.

Paragraphs with their equations as LaTeX, headings, lists, code and tables; merged cells keep their
columns, tables in cells are lines, charts become tables of their figures and diagrams their words.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby, takewhile
from pathlib import Path
from typing import Any

from documents.parsers.base import ReadingContext
from documents.parsers.builder import PageBuilder
from documents.parsers.docx.package import (
    WordNumbering,
    WordPackage,
    WordStyles,
    get_attribute,
    get_local_name,
    is_switched_on,
    to_heading_level,
)
from documents.parsers.formulas import format_word_equation
from documents.parsers.pictures import PictureSieve
from documents.parsers.text import WINGDINGS_SIGNS
from rag.types import Page

DRAWING_ATTRIBUTES = {"chart": "id", "relIds": "dm"}
"""Elements of a paragraph that name such a part, and in which attribute."""
PICTURE_ATTRIBUTES = {"blip": "embed", "imagedata": "id"}
"""The same for pictures; only those within the file have these attributes, or a part."""

SKIPPED_ELEMENTS = {
    *("del", "moveFrom", "Fallback", "instrText", "delText", "delInstrText"),
    *("pPr", "rPr", "sectPr", "tblPr", "tblGrid", "tcPr", "trPr", "sdtPr"),
}
"""Deleted text, second copies, orders to fields, properties: none of it is to be read."""
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
_ANCHORED = {*DRAWING_ATTRIBUTES, *PICTURE_ATTRIBUTES, *NOTE_KINDS}
_SYMBOL_SIGNS = {
    **dict(zip(range(0x41, 0x5B), "ΑΒΧΔΕΦΓΗΙϑΚΛΜΝΟΠΘΡΣΤΥςΩΞΨΖ", strict=True)),
    **dict(zip(range(0x61, 0x7B), "αβχδεφγηιϕκλμνοπθρστυϖωξψζ", strict=True)),
    0xA3: "≤", 0xA5: "∞", 0xAE: "→", 0xB0: "°", 0xB1: "±", 0xB3: "≥", 0xB4: "×", 0xB7: "•",
}  # fmt: skip


def read_paragraph_text(element: Any) -> str:
    """Text of the runs, insertions included, deletions, hidden text and text boxes not."""
    return "".join(_iterate_text(element)).replace("\x00\x00", " ").replace("\x00", "")


def is_monospaced(paragraph: Any) -> bool:
    """Whether all its text is in a typewriter font by itself."""
    runs = [run for run in paragraph.iter("{*}r") if run.find("{*}t") is not None]
    fonts = (get_attribute(run.find("{*}rPr/{*}rFonts"), "ascii").lower() for run in runs)
    return bool(runs) and all(font in _MONOSPACED for font in fonts)


def iterate_anchors(element: Any) -> Iterator[Any]:
    """What hangs on a paragraph, in order: text boxes, charts, pictures, references to notes.

    What is anchored in a text box is the box's. The old-style copy of a box is skipped.
    """
    for child in element:
        name = get_local_name(child)
        if name == TEXT_BOX or name in _ANCHORED:
            yield child
        elif name not in SKIPPED_ELEMENTS:
            yield from iterate_anchors(child)


def iterate_text_boxes(element: Any) -> Iterator[Any]:
    """Text boxes of a paragraph."""
    return (found for found in iterate_anchors(element) if get_local_name(found) == TEXT_BOX)


def _iterate_text(element: Any) -> Iterator[str]:
    """The text below an element, in order. NUL marks both ends of an equation."""
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
    """Whether a run is text that no reader of the document sees."""
    return is_switched_on(run.find("{*}rPr/{*}vanish"))


def _to_sign(element: Any) -> str:
    """A character by its number in a symbol font, whose private area starts at F000."""
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
    """Puts what an element holds into a builder."""

    def __init__(self, builder: PageBuilder, surroundings: WordReferences) -> None:
        self._builder = builder
        self._surroundings = surroundings
        self._note_count = 0

    def add_blocks(self, container: Any) -> None:
        """Add all blocks; wrappers (content controls, insertions) are looked into."""
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
        elif name == "altChunk":  # a whole file of another format, which Word takes in on opening
            self._surroundings.warn("part_skipped")
        elif name not in SKIPPED_ELEMENTS:
            self.add_blocks(element)

    def _may_be_code(self, element: Any) -> bool:
        is_code = self._surroundings.styles.is_code
        return get_local_name(element) == "p" and (
            is_code(_get_style_id(element)) or is_monospaced(element)
        )

    def _is_code(self, group: Sequence[Any]) -> bool:
        """By its style, or by signs of code: letters and circulars are typewritten, too."""
        is_code = self._surroundings.styles.is_code
        return any(
            is_code(_get_style_id(one)) or _CODE_SIGNS.search(read_paragraph_text(one))
            for one in group
        )

    def _add_paragraph(self, paragraph: Any) -> None:
        """A paragraph, heading or item of a list, then what hangs on it."""
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
        """What hangs on a paragraph, right behind it; the boxes of a cell are lines of the cell."""
        for found in iterate_anchors(paragraph):
            name = get_local_name(found)
            if name in DRAWING_ATTRIBUTES:
                self._add_drawing(get_attribute(found, DRAWING_ATTRIBUTES[name]))
            elif name in PICTURE_ATTRIBUTES:
                self._surroundings.picture(
                    get_attribute(found, PICTURE_ATTRIBUTES[name]), self._builder.length
                )
            elif name in NOTE_KINDS:
                self._add_note(NOTE_KINDS[name], get_attribute(found, "id"))
            elif name == TEXT_BOX and not in_cell:
                self.add_blocks(found)

    def _add_drawing(self, relationship: str) -> None:
        root = self._surroundings.related(relationship)
        if root is not None:
            add_drawing(self._builder, root)

    def _add_note(self, kind: str, identity: str) -> None:
        if text := self._surroundings.notes.get((kind, identity), "").strip():
            self._note_count += 1
            self._builder.add_paragraph(f"{self._note_count}) {text}")

    def _read_cell_line(self, paragraph: Any) -> str:
        """A paragraph of a cell."""
        text = read_paragraph_text(paragraph).strip()
        return self._read_label(paragraph)[0] + text if text else ""

    def _read_label(self, paragraph: Any) -> tuple[str, int]:
        """A paragraph's list number and its depth in the list."""
        style = _get_style_id(paragraph)
        own = paragraph.find("{*}pPr/{*}numPr")
        number = get_attribute(own.find("{*}numId")) if own is not None else ""
        depth = get_attribute(own.find("{*}ilvl")) if own is not None else ""
        if not number:
            number, depth, style = self._surroundings.styles.get_numbering(style) or (
                "",
                depth,
                style,
            )
        numbering = self._surroundings.numbering
        at = int(depth) if depth.isdecimal() else numbering.get_depth(number, style)
        return numbering.next_label(number, at) or "", at

    def _get_heading_level(self, paragraph: Any) -> int:
        """1..9 for headings, by the paragraph's own outline level or by its style; else 0."""
        outline = paragraph.find("{*}pPr/{*}outlineLvl")
        if outline is not None:
            return to_heading_level(get_attribute(outline))
        return self._surroundings.styles.get_level(_get_style_id(paragraph))


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
        beside = WordReferences(styles, numbering)
        sieve = PictureSieve(context)

        def add_picture(relationship: str, at: int) -> None:
            if found := package.find_picture(relationship):
                sieve.add_file(*found, at)

        surroundings = WordReferences(
            styles,
            numbering,
            notes=_read_notes(package, beside, context),
            related=package.read_related_part,
            picture=add_picture,
            warn=context.warn,
        )
        builder = PageBuilder(context)
        BodyWriter(builder, surroundings).add_blocks(package.read_body())
        yield builder.build_page(_read_margins(package, beside, context))


def _read_notes(
    package: WordPackage, beside: WordReferences, context: ReadingContext
) -> dict[tuple[str, str], str]:
    """Footnotes and endnotes by kind and id."""
    found = {}
    for kind in ("footnote", "endnote"):
        root = package.read_part(f"{kind}s.xml")
        for note in root if root is not None else ():
            if get_attribute(note, "type") in {"", "normal"}:
                found[kind, get_attribute(note, "id")] = "\n".join(
                    _read_blocks(note, beside, context)
                )
    return found


def _read_margins(
    package: WordPackage, beside: WordReferences, context: ReadingContext
) -> Sequence[str]:
    """Paragraphs of all headers and footers, each once; page numbers alone are nothing."""
    found: dict[str, None] = {}
    for kind in ("header", "footer"):
        for root in package.iterate_parts(kind):
            found |= dict.fromkeys(_read_blocks(root, beside, context))
    return [text for text in found if _LETTER.search(text)]


def _read_blocks(root: Any, beside: WordReferences, context: ReadingContext) -> list[str]:
    """The blocks of a part that is no body."""
    builder = PageBuilder(context)
    BodyWriter(builder, beside).add_blocks(root)
    return builder.build_page().text.split("\n\n")


def read_table_rows(table: Any, read: ReadLine) -> list[list[str]]:
    """The texts of all cells from left to right; "" for the rest of a merged cell."""
    return [list(_read_row(row, read)) for row in _iterate_rows(table)]


def count_header_rows(table: Any) -> int:
    """How many rows are headers: those that Word repeats on each page, else the first.

    Cells of the first row that reach down make those rows headers, too.
    """
    rows = list(_iterate_rows(table))
    repeated = takewhile(lambda row: is_switched_on(row.find("{*}trPr/{*}tblHeader")), rows)
    merged = takewhile(_continues_above, rows[1:])
    reached = 1 + sum(1 for _ in merged)
    return sum(1 for _ in repeated) or (reached if reached <= _MAX_HEADER_ROWS else 1)


def _continues_above(row: Any) -> bool:
    """Whether a cell of the row above reaches into this one."""
    merges = row.findall("{*}tc/{*}tcPr/{*}vMerge")
    return any(get_attribute(merge) != "restart" for merge in merges)


def iterate_cell_paragraphs(container: Any) -> Iterator[Any]:
    """All paragraphs of the cells, those of tables within them included."""
    for child in container:
        if get_local_name(child) == "p":
            yield child
        elif get_local_name(child) not in SKIPPED_ELEMENTS:
            yield from iterate_cell_paragraphs(child)


def _iterate_rows(table: Any) -> Iterator[Any]:
    """Rows of a table, deleted ones left out, wrappers looked into."""
    for child in table:
        name = get_local_name(child)
        if name == "tr":
            if child.find("{*}trPr/{*}del") is None:
                yield child
        elif name not in SKIPPED_ELEMENTS:
            yield from _iterate_rows(child)


def _read_row(row: Any, read: ReadLine) -> Iterator[str]:
    """Texts of a row by columns of the grid; what a row leaves free at its left is empty, too."""
    yield from [""] * _read_count(row.find("{*}trPr/{*}gridBefore"), 0)
    yield from _read_filled_cells(row, read)


def _read_filled_cells(row: Any, read: ReadLine) -> Iterator[str]:
    for child in row:
        name = get_local_name(child)
        if name == "tc":
            merge = child.find("{*}tcPr/{*}vMerge")
            goes_on = merge is not None and get_attribute(merge) != "restart"
            yield "" if goes_on else "\n".join(_read_cell_lines(child, read))
            yield from [""] * (_read_count(child.find("{*}tcPr/{*}gridSpan"), 1) - 1)
        elif name not in SKIPPED_ELEMENTS:
            yield from _read_filled_cells(child, read)


def _read_count(element: Any | None, usual: int) -> int:
    """How many columns; `usual` where the file does not say."""
    value = get_attribute(element)
    return min(int(value), _MAX_COLUMNS) if value.isdecimal() and len(value) < 10 else usual


def _read_cell_lines(container: Any, read: ReadLine) -> Iterator[str]:
    """Lines of a cell; a table within it has one for each row."""
    for child in container:
        name = get_local_name(child)
        if name == "p":
            if text := read(child).strip():
                yield text
            for box in iterate_text_boxes(child):
                yield from _read_cell_lines(box, read)
        elif name == "tbl":
            for row in read_table_rows(child, read):
                yield " ".join(cell for cell in row if cell)
        elif name not in SKIPPED_ELEMENTS:
            yield from _read_cell_lines(child, read)


def add_drawing(builder: PageBuilder, root: Any) -> None:
    """Add a chart as a table of its figures, a diagram as its words."""
    if get_local_name(root) == "chartSpace":
        builder.add_paragraph(_read_words(root.find("{*}chart/{*}title")))
        rows = list(_read_figures(root))
        if rows:
            builder.add_table(rows)
    else:
        for point in root.iter("{*}pt"):
            builder.add_paragraph(_read_words(point.find("{*}t")))


def _read_figures(chart: Any) -> Iterator[list[str]]:
    """A row for the names of the series, then one for each category; as last saved."""
    series = list(chart.iter("{*}ser"))
    categories = _read_points(series[0], "cat", "xVal") if series else {}
    columns = [_read_points(one, "val", "yVal") for one in series]
    if not any(columns):
        return
    yield ["", *(" ".join(_read_points(one, "tx").values()) for one in series)]
    for at in sorted({at for column in columns for at in column} | set(categories)):
        yield [categories.get(at, ""), *(column.get(at, "") for column in columns)]


def _read_points(series: Any, *names: str) -> dict[int, str]:
    """Position -> value of the first of these parts of a series that is there."""
    found = next((part for name in names for part in series.findall(f"{{*}}{name}")), None)
    points = found.iter("{*}pt") if found is not None else ()
    values = {point.get("idx", "0"): point.findtext("{*}v") or "" for point in points}
    return {
        int(at): _format_figure(text)
        for at, text in values.items()
        if at.isdecimal() and len(at) < 10
    }


def _format_figure(text: str) -> str:
    """A number as Excel shows it: it stores 4.4 as 4.4000000000000004."""
    try:
        return f"{float(text):.15g}"
    except ValueError:
        return text


def _read_words(element: Any | None) -> str:
    """The paragraphs of DrawingML below an element."""
    paragraphs = element.iter("{*}p") if element is not None else ()
    return "\n".join("".join(text.text or "" for text in one.iter("{*}t")) for one in paragraphs)
