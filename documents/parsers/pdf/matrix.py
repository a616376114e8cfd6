"""Affine maps of PDF."""

from typing import NamedTuple, Self


class Matrix(NamedTuple):
    """An affine map: x' = ax + cy + e, y' = bx + dy + f."""

    a: float = 1.0
    b: float = 0.0
    c: float = 0.0
    d: float = 1.0
    e: float = 0.0
    f: float = 0.0

    def then(self, other: Self) -> "Matrix":
        """This map, and the other after it."""
        return Matrix(
            self.a * other.a + self.b * other.c,
            self.a * other.b + self.b * other.d,
            self.c * other.a + self.d * other.c,
            self.c * other.b + self.d * other.d,
            self.e * other.a + self.f * other.c + other.e,
            self.e * other.b + self.f * other.d + other.f,
        )

    def point(self, x: float, y: float) -> tuple[float, float]:
        """Where a point goes."""
        return self.a * x + self.c * y + self.e, self.b * x + self.d * y + self.f

    @property
    def bounds(self) -> tuple[float, float, float, float]:
        """Left, bottom, right and top of the unit square's image."""
        xs = (self.e, self.e + self.a, self.e + self.c, self.e + self.a + self.c)
        ys = (self.f, self.f + self.b, self.f + self.d, self.f + self.b + self.d)
        return min(xs), min(ys), max(xs), max(ys)
