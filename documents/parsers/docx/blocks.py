"""Walks WordprocessingML: paragraphs, headings, lists, code and tables into a builder, in order."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

from documents.parsers.builder import PageBuilder
from documents.parsers.docx import drawings, table
from documents.parsers.docx.drawings import PICTURES, REFERENCES
from documents.parsers.docx.numbering import Numbering
from documents.parsers.docx.package import attribute, local
from documents.parsers.docx.styles import Styles, outline_level
from documents.parsers.docx.text import (
    BOX,
    NOTE_MARKS,
    SKIPPED,
    anchored,
    is_monospaced,
    paragraph_text,
)

_CODE = re.compile(r"[{}<>=;]|\w\(|^\s{2,}\S")


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What the text of a document refers to."""

    styles: Styles = field(default_factory=Styles)
    numbering: Numbering = field(default_factory=Numbering)
    notes: Mapping[tuple[str, str], str] = field(default_factory=dict)
    related: Callable[[str], Any | None] = lambda _: None
    warn: Callable[[str], None] = lambda _: None
    picture: Callable[[str, int], None] = lambda _id, _at: None
    """Takes a picture by its id and where it stands in the text."""


class Blocks:
    """Puts what an element holds into a builder."""

    def __init__(self, builder: PageBuilder, surroundings: Surroundings) -> None:
        self._builder = builder
        self._surroundings = surroundings
        self._note_count = 0

    def add(self, container: Any) -> None:
        """Add all blocks; wrappers (content controls, insertions) are looked into."""
        for may_be_code, elements in groupby(container, self._may_be_code):
            group = list(elements)
            if may_be_code and self._is_code(group):
                self._builder.add_code("\n".join(map(paragraph_text, group)))
            else:
                for element in group:
                    self._add(element)

    def _add(self, element: Any) -> None:
        name = local(element)
        if name == "p":
            self._paragraph(element)
        elif name == "tbl":
            rows = table.rows(element, self._line)
            self._builder.add_table(rows, table.header_rows(element))
            for paragraph in table.paragraphs(element):
                self._hang(paragraph, in_cell=True)
        elif name == "altChunk":  # a whole file of another format, which Word takes in on opening
            self._surroundings.warn("part_skipped")
        elif name not in SKIPPED:
            self.add(element)

    def _may_be_code(self, element: Any) -> bool:
        is_code = self._surroundings.styles.is_code
        return local(element) == "p" and (is_code(_style(element)) or is_monospaced(element))

    def _is_code(self, group: Sequence[Any]) -> bool:
        """By its style, or by signs of code: letters and circulars are typewritten, too."""
        is_code = self._surroundings.styles.is_code
        return any(is_code(_style(one)) or _CODE.search(paragraph_text(one)) for one in group)

    def _paragraph(self, paragraph: Any) -> None:
        """A paragraph, heading or item of a list, then what hangs on it."""
        text, level = paragraph_text(paragraph), self._heading_level(paragraph)
        label, depth = self._label(paragraph) if text.strip() else ("", 0)
        if level:
            self._builder.add_heading(level, label + text)
        elif label:
            self._builder.add_list_item(label + text.strip(), depth)
        else:
            self._builder.add_paragraph(text)
        self._hang(paragraph)

    def _hang(self, paragraph: Any, *, in_cell: bool = False) -> None:
        """What hangs on a paragraph, right behind it; the boxes of a cell are lines of the cell."""
        for found in anchored(paragraph):
            name = local(found)
            if name in REFERENCES:
                self._drawing(attribute(found, REFERENCES[name]))
            elif name in PICTURES:
                self._surroundings.picture(attribute(found, PICTURES[name]), self._builder.length)
            elif name in NOTE_MARKS:
                self._note(NOTE_MARKS[name], attribute(found, "id"))
            elif name == BOX and not in_cell:
                self.add(found)

    def _drawing(self, relationship: str) -> None:
        root = self._surroundings.related(relationship)
        if root is not None:
            drawings.add(self._builder, root)

    def _note(self, kind: str, identity: str) -> None:
        if text := self._surroundings.notes.get((kind, identity), "").strip():
            self._note_count += 1
            self._builder.add_paragraph(f"{self._note_count}) {text}")

    def _line(self, paragraph: Any) -> str:
        """A paragraph of a cell."""
        text = paragraph_text(paragraph).strip()
        return self._label(paragraph)[0] + text if text else ""

    def _label(self, paragraph: Any) -> tuple[str, int]:
        """What numbering puts before a paragraph, and how deep in its list it stands."""
        style = _style(paragraph)
        own = paragraph.find("{*}pPr/{*}numPr")
        number = attribute(own.find("{*}numId")) if own is not None else ""
        depth = attribute(own.find("{*}ilvl")) if own is not None else ""
        if not number:
            number, depth, style = self._surroundings.styles.numbering(style) or ("", depth, style)
        numbering = self._surroundings.numbering
        at = int(depth) if depth.isdecimal() else numbering.depth(number, style)
        return numbering.label(number, at) or "", at

    def _heading_level(self, paragraph: Any) -> int:
        """1..9 for headings, by the paragraph's own outline level or by its style; else 0."""
        outline = paragraph.find("{*}pPr/{*}outlineLvl")
        if outline is not None:
            return outline_level(attribute(outline))
        return self._surroundings.styles.level(_style(paragraph))


def _style(paragraph: Any) -> str:
    """The id of the paragraph's style."""
    return attribute(paragraph.find("{*}pPr/{*}pStyle"))
