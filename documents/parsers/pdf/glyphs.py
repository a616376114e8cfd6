"""PDFium's characters of a page and where they stand."""

import ctypes
import re
from array import array
from dataclasses import dataclass
from typing import Any

from documents.parsers.pdf.bulk import address_of, written
from documents.parsers.pdf.geometry import PageFrame

_SURROGATES = re.compile("[\ud800-\udfff]")
_MADE_UP = re.compile("(?<=[^\r\n]) ")

Sides = tuple[list[float], list[float]]
"""Near and far sides of each glyph, along one axis."""


@dataclass(frozen=True, slots=True)
class Glyphs:
    """Characters in PDFium's order and their sides, in fractions of the page as shown.

    `text` has one UTF-16 unit for each glyph, U+FFFE for a hyphen at the end of a line, and line
    ends where PDFium sees some. `em` takes a height to the width of as many points.
    """

    text: str
    x0: list[float]
    y0: list[float]
    x1: list[float]
    y1: list[float]
    em: float

    @property
    def sides(self) -> tuple[list[float], ...]:
        """x0, y0, x1, y1."""
        return self.x0, self.y0, self.x1, self.y1


def text_of(textpage: Any) -> str:
    """All characters of an open text page, one UTF-16 unit for each."""
    import pypdfium2.raw as pdfium

    count = textpage.count_chars()
    buffer = (ctypes.c_ushort * (count + 1))()
    if pdfium.FPDFText_GetText(textpage.raw, 0, count, buffer) != count + 1:
        # Characters without a meaning are missing there: one by one they are all counted.
        units = (pdfium.FPDFText_GetUnicode(textpage.raw, index) for index in range(count))
        return "".join(chr(unit) if unit < 0x10000 else "\ufffd" for unit in units)
    whole = memoryview(buffer).cast("B")[: count * 2].tobytes()
    text = whole.decode("utf-16-le", "surrogatepass")
    # Pairs are decoded to one character, which would no longer count as two glyphs.
    return text if len(text) == count else "".join(map(chr, buffer[:count]))


def glyphs(textpage: Any, text: str, frame: PageFrame) -> Glyphs:
    """The text of an open text page with the boxes that a selection of its glyphs would have."""
    sides = _boxes(textpage, len(text))
    across = sides[0::4], sides[2::4], frame.left, frame.width
    up = sides[3::4], sides[1::4], frame.bottom, frame.height
    if frame.turns == 0:
        x, y = _scaled(*across), _mirrored(*up)
    elif frame.turns == 1:
        x, y = _scaled(*up), _scaled(*across)
    elif frame.turns == 2:
        x, y = _mirrored(*across), _scaled(*up)
    else:
        x, y = _mirrored(*up), _mirrored(*across)
    found = Glyphs(text, x[0], y[0], x[1], y[1], frame.shown_height / frame.shown_width)
    _place_spaces(found)
    return found


def _boxes(textpage: Any, count: int) -> "array[float]":
    """Left, top, right and bottom of each glyph, in points of page space."""
    page = address_of(textpage.raw)
    return written(
        "FPDFText_GetLooseCharBox", "f", [page] * count, range(count), width=4, pointers=1
    )


def _scaled(near: "array[float]", far: "array[float]", origin: float, size: float) -> Sides:
    """Points as fractions."""
    factor = 1 / size
    return [(side - origin) * factor for side in near], [(side - origin) * factor for side in far]


def _mirrored(near: "array[float]", far: "array[float]", origin: float, size: float) -> Sides:
    """Points as fractions, seen from the other end."""
    factor = 1 / size
    return (
        [1 - (side - origin) * factor for side in far],
        [1 - (side - origin) * factor for side in near],
    )


def _place_spaces(found: Glyphs) -> None:
    """Give the spaces that PDFium made up, which are points, the place after the last glyph."""
    x0, x1 = found.x0, found.x1
    for match in _MADE_UP.finditer(found.text):
        index = match.start()
        if x0[index] == x1[index]:
            found.y0[index], found.y1[index] = found.y0[index - 1], found.y1[index - 1]
            x0[index] = x1[index] = min(x0[index], x1[index - 1])
