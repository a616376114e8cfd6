"""From PDF page space (points, origin bottom left, before /Rotate) to fractions as shown."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

_PARTS = 100_000
"""Of a page's side: far less than a pixel."""


class Rect(NamedTuple):
    """A box in fractions of the page as shown; origin at the top left."""

    x0: float
    y0: float
    x1: float
    y1: float


@dataclass(frozen=True, slots=True)
class PageFrame:
    """The visible part of a page (crop box within media box) and its quarter turns clockwise."""

    left: float
    bottom: float
    width: float
    height: float
    turns: int

    @classmethod
    def of(cls, page: Any) -> Self:
        """The frame of an open PDFium page."""
        import ctypes

        import pypdfium2.raw as pdfium

        box = pdfium.FS_RECTF()
        pdfium.FPDF_GetPageBoundingBox(page.raw, ctypes.byref(box))
        width, height = box.right - box.left, box.top - box.bottom
        return cls(box.left, box.bottom, width or 1.0, height or 1.0, page.get_rotation() // 90 % 4)

    @property
    def shown_width(self) -> float:
        """In points, after the turns."""
        return self.height if self.turns % 2 else self.width

    @property
    def shown_height(self) -> float:
        """In points, after the turns."""
        return self.width if self.turns % 2 else self.height

    def shown(self, left: float, bottom: float, right: float, top: float) -> Rect:
        """Where a box of page space stands; not yet clipped to the page."""
        u0, u1 = (left - self.left) / self.width, (right - self.left) / self.width
        v0, v1 = (bottom - self.bottom) / self.height, (top - self.bottom) / self.height
        if self.turns == 0:
            return Rect(u0, 1 - v1, u1, 1 - v0)
        if self.turns == 1:
            return Rect(v0, u0, v1, u1)
        if self.turns == 2:
            return Rect(1 - u1, v0, 1 - u0, v1)
        return Rect(1 - v1, 1 - u1, 1 - v0, 1 - u0)


def around(boxes: Iterable[Rect]) -> Rect:
    """The smallest box that holds them all; at least one."""
    x0, y0, x1, y1 = zip(*boxes, strict=True)
    return Rect(min(x0), min(y0), max(x1), max(y1))


def clipped(value: float) -> float:
    """Into 0..1, in parts of the page."""
    return int(min(max(value, 0.0), 1.0) * _PARTS + 0.5) / _PARTS


def clipped_all(values: Iterable[float], box: Rect) -> tuple[float, ...]:
    """Places along a box, each of them clipped. Called for every character."""
    if box.x0 < 0 or box.x1 > 1:
        return tuple(map(clipped, values))
    # A third of the time that round takes.
    return tuple([int(value * _PARTS + 0.5) / _PARTS for value in values])
