"""What stands on the pages of a document, as parsed."""

from dataclasses import dataclass
from enum import StrEnum


class Kind(StrEnum):
    """What a stretch of a document is."""

    TEXT = "text"
    TABLE = "table"
    LIST = "list"
    CODE = "code"
    PICTURE = "picture"
    """What a vision model read in a picture of the page."""
    RECOGNISED = "recognised"
    """What text recognition (OCR) read on a page without text of its own."""


@dataclass(frozen=True, slots=True)
class Box:
    """A rectangle on a page, in fractions of the page as shown; origin at the top left."""

    page: int
    x0: float
    y0: float
    x1: float
    y1: float


@dataclass(frozen=True, slots=True)
class Line:
    """Where a line of a page's text stands, in page fractions.

    `edges[i]`..`edges[i + 1]` spans character `start + i`.
    `start`/`end` are offsets in the page's text; `len(edges) == end - start + 1`.
    """

    start: int
    end: int
    y0: float
    y1: float
    edges: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Heading:
    """A heading of a page, from offset `start` of its text to the next of its level or above."""

    start: int
    level: int
    title: str


@dataclass(frozen=True, slots=True)
class Region:
    """A stretch of a page's text that is more than plain text; regions do not overlap.

    `header_end` is where the header rows of a table end, 0 where it has none. `box` is where a
    picture stands on the page; all other text has its `Line`s.
    """

    start: int
    end: int
    kind: Kind
    header_end: int = 0
    box: Box | None = None


@dataclass(frozen=True, slots=True)
class Page:
    """A page as parsed. `number` counts from 1; None where the format has no pages.

    `margins` are its running header and footer, which are no part of `text`.
    """

    number: int | None
    text: str
    headings: tuple[Heading, ...] = ()
    lines: tuple[Line, ...] = ()
    regions: tuple[Region, ...] = ()
    margins: tuple[str, ...] = ()
