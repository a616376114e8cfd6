"""Checks that every embedder's vectors pass before anyone uses them."""

import math
from collections.abc import Sequence

from rag.errors import EmbedderFailed


def unit_vectors(
    vectors: Sequence[Sequence[float]], *, count: int, dimensions: int
) -> list[list[float]]:
    """The vectors at length 1.

    Raises `EmbedderFailed` on a wrong count or width, NaN, or a zero vector.

    `dimensions` 0 takes the width of the first vector.
    """
    if len(vectors) != count:
        raise EmbedderFailed(f"{count} texts gave {len(vectors)} vectors", reason="count")
    width = dimensions or (len(vectors[0]) if vectors else 0)
    return [_unit(vector, width) for vector in vectors]


def _unit(vector: Sequence[float], width: int) -> list[float]:
    if len(vector) != width or not width:
        raise EmbedderFailed(f"a vector of {len(vector)} instead of {width}", reason="dimensions")
    length = math.sqrt(math.fsum(value * value for value in vector))
    if not math.isfinite(length) or length == 0:
        raise EmbedderFailed("a vector that is zero or not finite", reason="values")
    return [value / length for value in vector]
