"""Coordinates: PDF page space (points, origin bottom left, before /Rotate) and page fractions."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple, Self

_STEPS_PER_SIDE = 100_000
"""Steps along a page's side to which fractions are rounded: far finer than a pixel."""


class Rect(NamedTuple):
    """A box in fractions of the page as displayed; origin at the top left."""

    x0: float
    y0: float
    x1: float
    y1: float


@dataclass(frozen=True, slots=True)
class PageFrame:
    """The visible part of a page (crop box within media box), in points of page space.

    `turns` are the quarter turns clockwise with which it is displayed.
    """

    left: float
    bottom: float
    width: float
    height: float
    turns: int

    @property
    def shown_width(self) -> float:
        """Width as displayed, in points."""
        return self.height if self.turns % 2 else self.width

    @property
    def shown_height(self) -> float:
        """Height as displayed, in points."""
        return self.width if self.turns % 2 else self.height

    def to_view(self, left: float, bottom: float, right: float, top: float) -> Rect:
        """Convert a box of page space to fractions of the displayed page, unclipped."""
        u0, u1 = (left - self.left) / self.width, (right - self.left) / self.width
        v0, v1 = (bottom - self.bottom) / self.height, (top - self.bottom) / self.height
        if self.turns == 0:
            return Rect(u0, 1 - v1, u1, 1 - v0)
        if self.turns == 1:
            return Rect(v0, u0, v1, u1)
        if self.turns == 2:
            return Rect(1 - u1, v0, 1 - u0, v1)
        return Rect(1 - v1, 1 - u1, 1 - v0, 1 - u0)


def find_bounding_box(boxes: Iterable[Rect]) -> Rect:
    """The smallest box around all of these. Raises ValueError without any."""
    x0, y0, x1, y1 = zip(*boxes, strict=True)
    return Rect(min(x0), min(y0), max(x1), max(y1))


def clip(value: float) -> float:
    """Limit a fraction to 0..1 and round it."""
    return int(min(max(value, 0.0), 1.0) * _STEPS_PER_SIDE + 0.5) / _STEPS_PER_SIDE


def clip_all(values: Iterable[float], box: Rect) -> tuple[float, ...]:
    """Clip all x positions along a box. Called for every line, so it must be fast."""
    if box.x0 < 0 or box.x1 > 1:
        return tuple(map(clip, values))
    # a third of the time that round() takes
    return tuple([int(value * _STEPS_PER_SIDE + 0.5) / _STEPS_PER_SIDE for value in values])


class Matrix(NamedTuple):
    """An affine map: x' = ax + cy + e, y' = bx + dy + f."""

    a: float = 1.0
    b: float = 0.0
    c: float = 0.0
    d: float = 1.0
    e: float = 0.0
    f: float = 0.0

    def compose(self, other: Self) -> "Matrix":
        """The map that applies this one first, then the other."""
        return Matrix(
            self.a * other.a + self.b * other.c,
            self.a * other.b + self.b * other.d,
            self.c * other.a + self.d * other.c,
            self.c * other.b + self.d * other.d,
            self.e * other.a + self.f * other.c + other.e,
            self.e * other.b + self.f * other.d + other.f,
        )

    def transform(self, x: float, y: float) -> tuple[float, float]:
        """Map a point."""
        return self.a * x + self.c * y + self.e, self.b * x + self.d * y + self.f

    @property
    def bounds(self) -> tuple[float, float, float, float]:
        """Left, bottom, right and top of the unit square's image."""
        xs = (self.e, self.e + self.a, self.e + self.c, self.e + self.a + self.c)
        ys = (self.f, self.f + self.b, self.f + self.d, self.f + self.b + self.d)
        return min(xs), min(ys), max(xs), max(ys)
