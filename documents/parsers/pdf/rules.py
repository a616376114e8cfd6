"""The ruling lines of a PDF page, from what PDFium draws: strokes, thin bars, sides of boxes."""

import ctypes
from collections.abc import Iterator
from typing import Any, NamedTuple

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


class TooManyRules(Exception):
    """A drawing, not a page with tables."""


class Rule(NamedTuple):
    """A line along an axis of page space, in points; its ends in rising order."""

    left: float
    bottom: float
    right: float
    top: float


_SAME = Matrix()


def rules(page: Any) -> list[Rule]:
    """All ruling lines of an open page; raises TooManyRules."""
    found: list[Rule] = []
    for path, matrix in _paths(page):
        found += _of_path(path, matrix)
        if len(found) > MOST_RULES:
            raise TooManyRules
    return found


def _paths(page: Any) -> Iterator[tuple[Any, Matrix]]:
    """Paths of the page and of its forms, each with what takes it to page space."""
    import pypdfium2.raw as pdfium

    type_of, seen = pdfium.FPDFPageObj_GetType, 0
    waiting = [(page.raw, pdfium.FPDFPage_GetObject, pdfium.FPDFPage_CountObjects, _SAME, 0)]
    while waiting:
        holder, get, count, matrix, depth = waiting.pop()
        number = max(count(holder), 0)
        seen += number
        if seen > MOST_OBJECTS:
            raise TooManyRules
        for index in range(number):
            item = get(holder, index)
            kind = type_of(item)
            if kind == pdfium.FPDF_PAGEOBJ_PATH:
                yield item, matrix
            elif kind == pdfium.FPDF_PAGEOBJ_FORM and depth < _DEEPEST:
                inner = _matrix(item).then(matrix)
                inside = (pdfium.FPDFFormObj_GetObject, pdfium.FPDFFormObj_CountObjects)
                waiting.append((item, *inside, inner, depth + 1))


def _of_path(path: Any, matrix: Matrix) -> list[Rule]:
    """Lines of one path: itself when thin, else its straight strokes or the sides of its box."""
    if not _is_drawn(path):
        return []
    box = _bounds(path, matrix)
    wide, high = box.right - box.left, box.top - box.bottom
    if min(wide, high) < _THIN:
        return [] if max(wide, high) < _THIN else [_middle(box)]
    return list(_straight(path, _matrix(path).then(matrix)))


def _middle(box: Rule) -> Rule:
    """The line along a thin box."""
    if box.right - box.left > box.top - box.bottom:
        height = (box.bottom + box.top) / 2
        return Rule(box.left, height, box.right, height)
    place = (box.left + box.right) / 2
    return Rule(place, box.bottom, place, box.top)


def _is_drawn(path: Any) -> bool:
    """Whether it leaves ink: stroked, or filled with anything but white."""
    import pypdfium2.raw as pdfium

    fill, stroke = ctypes.c_int(), ctypes.c_int()
    pdfium.FPDFPath_GetDrawMode(path, ctypes.byref(fill), ctypes.byref(stroke))
    if stroke.value or not fill.value:
        return bool(stroke.value)
    colours = [ctypes.c_uint() for _ in range(4)]
    pdfium.FPDFPageObj_GetFillColor(path, *map(ctypes.byref, colours))
    *ink, opaque = (colour.value for colour in colours)
    return opaque > 0 and min(ink) < _WHITE


def _bounds(path: Any, matrix: Matrix) -> Rule:
    """Its bounding box in page space."""
    import pypdfium2.raw as pdfium

    sides = [ctypes.c_float() for _ in range(4)]
    pdfium.FPDFPageObj_GetBounds(path, *map(ctypes.byref, sides))
    left, bottom, right, top = (side.value for side in sides)
    if matrix is _SAME:
        return Rule(left, bottom, right, top)
    return _spanned(matrix.point(left, bottom), matrix.point(right, top))


def _straight(path: Any, matrix: Matrix) -> Iterator[Rule]:
    """Its straight pieces along an axis."""
    import pypdfium2.raw as pdfium

    count = pdfium.FPDFPath_CountSegments(path)
    if count > MOST_RULES:
        raise TooManyRules
    x, y, last = ctypes.c_float(), ctypes.c_float(), (0.0, 0.0)
    for index in range(count):
        segment = pdfium.FPDFPath_GetPathSegment(path, index)
        pdfium.FPDFPathSegment_GetPoint(segment, ctypes.byref(x), ctypes.byref(y))
        point = matrix.point(x.value, y.value)
        if pdfium.FPDFPathSegment_GetType(segment) == pdfium.FPDF_SEGMENT_LINETO:
            rule = _spanned(last, point)
            across = min(rule.right - rule.left, rule.top - rule.bottom)
            if across < _FLAT and max(rule.right - rule.left, rule.top - rule.bottom) > _FLAT:
                yield _middle(rule)
        last = point


def _spanned(one: tuple[float, float], other: tuple[float, float]) -> Rule:
    """The box between two points."""
    (x0, x1), (y0, y1) = sorted((one[0], other[0])), sorted((one[1], other[1]))
    return Rule(x0, y0, x1, y1)


def _matrix(item: Any) -> Matrix:
    """What takes an object's own space to that of its holder."""
    import pypdfium2.raw as pdfium

    raw = pdfium.FS_MATRIX()
    if not pdfium.FPDFPageObj_GetMatrix(item, ctypes.byref(raw)):
        return _SAME
    return Matrix(raw.a, raw.b, raw.c, raw.d, raw.e, raw.f)
