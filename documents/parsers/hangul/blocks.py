"""What a Hangul document consists of, whichever of its two formats it came in."""

import re
from dataclasses import dataclass, field
from enum import StrEnum


class HeadKind(StrEnum):
    """What stands before a paragraph."""

    OUTLINE = "outline"
    NUMBER = "number"
    BULLET = "bullet"


@dataclass(frozen=True, slots=True)
class Head:
    """The head of a paragraph: `level` from 0, `list_id` names its numbering or bullet."""

    kind: HeadKind
    level: int
    list_id: int


@dataclass(slots=True)
class Paragraph:
    """A paragraph; `anchored` are the tables, frames and notes that hang on it, in order."""

    text: str = ""
    head: Head | None = None
    anchored: "list[Block]" = field(default_factory=list)


@dataclass(slots=True)
class Cell:
    """A cell by its place in the grid."""

    row: int
    column: int
    row_span: int
    column_span: int
    blocks: "list[Paragraph]"


@dataclass(slots=True)
class Table:
    """A table with its caption."""

    cells: list[Cell]
    caption: list[Paragraph] = field(default_factory=list)
    header_rows: int = 1


@dataclass(slots=True)
class Frame:
    """Text that stands beside the flow: a text box, the caption of a picture, a note."""

    blocks: list[Paragraph]


@dataclass(slots=True)
class Margin:
    """A running header or footer, or the master page."""

    blocks: list[Paragraph]


@dataclass(slots=True)
class Image:
    """A picture by the name of its part."""

    part: str


Block = Table | Frame | Margin | Image


def mark_of(note: list[Paragraph]) -> str:
    """The number that a note begins with, for the place that it belongs to."""
    match = re.match(r"\s*(\S{1,6}?\))", note[0].text) if note else None
    return match[1] if match else ""


def with_ruby(word: str, above: str) -> str:
    """A word with what is written above it."""
    return f"{word}({above})" if above else word
