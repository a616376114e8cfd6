"""Walks WordprocessingML: blocks into a builder, runs into text."""

from collections.abc import Iterator, Mapping
from typing import Any

from documents.parsers.builder import PageBuilder

_SKIPPED = {"del", "moveFrom", "Fallback", "instrText", "delText", "pPr", "rPr", "sectPr", "tblPr"}
_BREAKS = {"tab": "\t", "br": "\n", "cr": "\n", "noBreakHyphen": "-", "ptab": "\t"}
_NOTE_MARKS = {"footnoteReference": "footnote", "endnoteReference": "endnote"}


def local(element: Any) -> str:
    """The element's name without its namespace; "" for comments and instructions."""
    tag = element.tag
    return tag.rpartition("}")[2] if isinstance(tag, str) else ""


class Blocks:
    """Puts the paragraphs, headings and tables of an element into a builder, in order."""

    def __init__(
        self,
        builder: PageBuilder,
        heading_levels: Mapping[str, int],
        notes: Mapping[tuple[str, str], str],
    ) -> None:
        self._builder = builder
        self._heading_levels = heading_levels
        self._notes = notes
        self._note_count = 0

    def add(self, container: Any) -> None:
        """Add all blocks; wrappers (content controls, insertions) are looked into."""
        for element in container:
            name = local(element)
            if name == "p":
                self._paragraph(element)
            elif name == "tbl":
                self._builder.table([list(_cells(row)) for row in _rows(element)])
                for note in _notes_in(element):
                    self._note(note)
            elif name not in _SKIPPED:
                self.add(element)

    def _paragraph(self, paragraph: Any) -> None:
        """A paragraph or heading, then what hangs on it: text boxes and notes."""
        text, level = paragraph_text(paragraph), self._heading_level(paragraph)
        if level:
            self._builder.heading(level, text)
        else:
            self._builder.paragraph(text)
        for box in _boxes(paragraph):
            self.add(box)
        for note in _notes_in(paragraph):
            self._note(note)

    def _heading_level(self, paragraph: Any) -> int:
        """1..9 for headings, by the paragraph's own outline level or by its style; else 0."""
        outline = paragraph.find("{*}pPr/{*}outlineLvl")
        if outline is not None:
            value = next((v for k, v in outline.attrib.items() if k.endswith("val")), "9")
            return int(value) + 1 if value.isdecimal() and int(value) < 9 else 0
        style = paragraph.find("{*}pPr/{*}pStyle")
        if style is None:
            return 0
        return self._heading_levels.get(next(iter(style.attrib.values()), ""), 0)

    def _note(self, reference: tuple[str, str]) -> None:
        """A footnote, right behind the paragraph that it explains."""
        if text := self._notes.get(reference, "").strip():
            self._note_count += 1
            self._builder.paragraph(f"{self._note_count}) {text}")


def paragraph_text(element: Any) -> str:
    """Text of the runs, insertions included, deletions and text boxes not."""
    return "".join(_pieces(element))


def _pieces(element: Any) -> Iterator[str]:
    """The text below an element, in order."""
    for child in element:
        name = local(child)
        if name == "t":
            yield child.text or ""
        elif name in _BREAKS:
            yield _BREAKS[name]
        elif name not in _SKIPPED and name != "txbxContent":
            yield from _pieces(child)


def _boxes(element: Any) -> Iterator[Any]:
    """Text boxes of a paragraph; the old-style copy of each (`Fallback`) is skipped."""
    for child in element:
        name = local(child)
        if name == "txbxContent":
            yield child
        elif name not in _SKIPPED:
            yield from _boxes(child)


def _notes_in(element: Any) -> Iterator[tuple[str, str]]:
    """References to notes, in order."""
    for mark in element.iter("{*}footnoteReference", "{*}endnoteReference"):
        identity = next((v for k, v in mark.attrib.items() if k.endswith("}id")), "")
        yield _NOTE_MARKS[local(mark)], identity


def _rows(table: Any) -> Iterator[Any]:
    """Rows of a table, deleted ones left out, wrappers looked into."""
    for child in table:
        name = local(child)
        if name == "tr":
            if child.find("{*}trPr/{*}del") is None:
                yield child
        elif name not in _SKIPPED:
            yield from _rows(child)


def _cells(row: Any) -> Iterator[str]:
    """Texts of a row's cells; a cell over n columns is followed by n - 1 empty ones."""
    for child in row:
        name = local(child)
        if name == "tc":
            yield "\n".join(_cell_lines(child))
            span = child.find("{*}tcPr/{*}gridSpan")
            value = next(iter(span.attrib.values()), "1") if span is not None else "1"
            yield from [""] * (min(int(value), 64) - 1 if value.isdecimal() else 0)
        elif name not in _SKIPPED:
            yield from _cells(child)


def _cell_lines(container: Any) -> Iterator[str]:
    """Lines of a cell; a table within it becomes lines, too."""
    for child in container:
        name = local(child)
        if name == "p":
            if text := paragraph_text(child).strip():
                yield text
            for box in _boxes(child):
                yield from _cell_lines(box)
        elif name == "tbl":
            for row in _rows(child):
                yield " ".join(cell for cell in _cells(row) if cell)
        elif name not in _SKIPPED and name != "tcPr":
            yield from _cell_lines(child)
