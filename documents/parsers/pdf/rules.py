"""The ruling lines of a PDF page, from what PDFium draws: strokes, thin bars, sides of boxes."""

from collections.abc import Iterator, Sequence
from itertools import islice, repeat
from typing import Any, NamedTuple

from documents.parsers.pdf.bulk import (
    FORM,
    IS_FORM,
    IS_PATH,
    PAGE,
    address_of,
    counted,
    matrix_of,
    objects,
    unwrapped,
    written,
)
from documents.parsers.pdf.matrix import Matrix

_THIN = 3.0
"""A drawn thing thinner than this, in points, is one line along its middle."""
_FLAT = 0.5
"""Ends of a line may differ by this much, in points, across its direction."""
_WHITE = 250
MOST_OBJECTS = 20_000
MOST_RULES = 4_000
_DEEPEST = 4
"""Forms within forms; deeper ones are not looked into."""
_LINE_TO = 0
"""FPDF_SEGMENT_LINETO."""


class TooManyRules(Exception):
    """A drawing, not a page with tables."""


class Rule(NamedTuple):
    """A line along an axis of page space, in points; its ends in rising order."""

    left: float
    bottom: float
    right: float
    top: float


Sides = tuple[float, float, float, float]
"""Left, bottom, right and top in page space."""

_SAME = Matrix()


def rules(page: Any) -> list[Rule]:
    """All ruling lines of an open page; raises TooManyRules."""
    lines = (rule for paths, matrix in _paths(page) for rule in _of_paths(paths, matrix))
    found = list(islice(lines, MOST_RULES + 1))
    if len(found) > MOST_RULES:
        raise TooManyRules
    return found


def _paths(page: Any) -> Iterator[tuple[list[int], Matrix]]:
    """Paths of the page and of each of its forms, with what takes them to page space."""
    seen, waiting = 0, [(address_of(page.raw), PAGE, _SAME, 0)]
    while waiting:
        holder, kind, matrix, depth = waiting.pop()
        seen += counted(holder, kind)
        if seen > MOST_OBJECTS:
            raise TooManyRules
        items = objects(holder, kind)
        if paths := [item for item, drawn in items if drawn == IS_PATH]:
            yield paths, matrix
        if depth < _DEEPEST:
            waiting += (
                (item, FORM, matrix_of(item).then(matrix), depth + 1)
                for item, drawn in items
                if drawn == IS_FORM
            )


def _of_paths(paths: Sequence[int], matrix: Matrix) -> Iterator[Rule]:
    """Lines of paths: a thin one itself, of others the straight strokes or the sides of a box."""
    drawn = _drawn(paths)
    for path, (left, bottom, right, top) in zip(drawn, _boxes(drawn, matrix), strict=True):
        wide, high = right - left >= _THIN, top - bottom >= _THIN
        if wide and high:
            yield from _straight(path, matrix)
        elif wide or high:
            yield _middle(left, bottom, right, top)


def _boxes(paths: Sequence[int], matrix: Matrix) -> Iterator[Sides]:
    """Left, bottom, right and top of each, in page space."""
    bounds = written("FPDFPageObj_GetBounds", "f", paths, width=4, pointers=4)
    boxes = zip(*(bounds[side::4] for side in range(4)), strict=True)
    if matrix is _SAME:
        return boxes
    return (_around(matrix.point(*box[:2]), matrix.point(*box[2:])) for box in boxes)


def _middle(left: float, bottom: float, right: float, top: float) -> Rule:
    """The line along a thin box."""
    if right - left > top - bottom:
        height = (bottom + top) / 2
        return Rule(left, height, right, height)
    place = (left + right) / 2
    return Rule(place, bottom, place, top)


def _drawn(paths: Sequence[int]) -> list[int]:
    """Those that leave ink: stroked, or filled with anything but white."""
    modes = written("FPDFPath_GetDrawMode", "i", paths, width=2, pointers=2)
    return [
        path
        for path, fill, stroke in zip(paths, modes[0::2], modes[1::2], strict=True)
        if stroke or (fill and _is_dark(path))
    ]


def _is_dark(path: int) -> bool:
    """Whether what fills it can be told from paper."""
    *ink, opaque = written("FPDFPageObj_GetFillColor", "I", [path], width=4, pointers=4)
    return bool(opaque > 0 and min(ink) < _WHITE)


def _straight(path: int, matrix: Matrix) -> Iterator[Rule]:
    """Its straight pieces along an axis."""
    count = unwrapped("FPDFPath_CountSegments")(path)
    if count > MOST_RULES:
        raise TooManyRules
    matrix = matrix_of(path).then(matrix)
    segments = list(map(unwrapped("FPDFPath_GetPathSegment"), repeat(path), range(count)))
    places = written("FPDFPathSegment_GetPoint", "f", segments, width=2, pointers=2)
    kinds = map(unwrapped("FPDFPathSegment_GetType"), segments)
    last = 0.0, 0.0
    for kind, x, y in zip(kinds, places[0::2], places[1::2], strict=True):
        point = matrix.point(x, y)
        if kind == _LINE_TO:
            left, bottom, right, top = _around(last, point)
            wide, high = right - left, top - bottom
            if min(wide, high) < _FLAT < max(wide, high):
                yield _middle(left, bottom, right, top)
        last = point


def _around(one: tuple[float, float], other: tuple[float, float]) -> Sides:
    """The box between two points."""
    (x0, y0), (x1, y1) = one, other
    return min(x0, x1), min(y0, y1), max(x0, x1), max(y0, y1)
