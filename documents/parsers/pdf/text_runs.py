"""The characters of a page and the runs that they make: clean NFC text with its edges."""

import re
import unicodedata
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter, lt, sub
from typing import Any

from documents.parsers.pdf.geometry import PageFrame, Rect, find_bounding_box
from documents.parsers.pdf.pdfium import read_boxes
from documents.parsers.text import clean_text, is_kept

_MADE_UP = re.compile("(?<=[^\r\n]) ")

AxisSides = tuple[list[float], list[float]]
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


def read_glyphs(textpage: Any, text: str, frame: PageFrame) -> Glyphs:
    """The text of an open text page with the boxes that a selection of its glyphs would have."""
    sides = read_boxes(textpage, len(text))
    across = sides[0::4], sides[2::4], frame.left, frame.width
    up = sides[3::4], sides[1::4], frame.bottom, frame.height
    if frame.turns == 0:
        x, y = _scale_sides(*across), _mirror_sides(*up)
    elif frame.turns == 1:
        x, y = _scale_sides(*up), _scale_sides(*across)
    elif frame.turns == 2:
        x, y = _mirror_sides(*across), _scale_sides(*up)
    else:
        x, y = _mirror_sides(*up), _mirror_sides(*across)
    found = Glyphs(text, x[0], y[0], x[1], y[1], frame.shown_height / frame.shown_width)
    _place_spaces(found)
    return found


def _scale_sides(
    near: "array[float]", far: "array[float]", origin: float, size: float
) -> AxisSides:
    """Points as fractions."""
    factor = 1 / size
    return [(side - origin) * factor for side in near], [(side - origin) * factor for side in far]


def _mirror_sides(
    near: "array[float]", far: "array[float]", origin: float, size: float
) -> AxisSides:
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


_BROKEN_OFF = re.compile("[^\r\n]+")
_SPECIAL = re.compile(
    "[\x00-\x1f\x7f-\x9f\xad\u0590-\u08ff\u200b-\u200f\u202a-\u202e\u2060-\u206f\u2028\u2029"
    "\ud800-\udfff\ufb00-\ufdff\ufe70-\ufeff\ufffe\uffff]"
)
"""Characters to drop, to split, to put together, or that run to the left."""
_MEANINGLESS = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\ue000-\uf8ff\ufffd]+|[\udb80-\udbff][\udc00-\udfff]"
)
_CODED_SHARE = 0.2
"""Share of meaningless characters from which a font counts as having no Unicode map."""
_LIGATURES = range(0xFB00, 0xFB07)
RIGHT_TO_LEFT = re.compile("[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufefc]")
HYPHEN = "\ufffe"
"""PDFium's sign for a hyphen where a line ends within a word."""
_SOFT_AT_END = re.compile("\xad(?=\\s*$)")
_GAP = 1.2
"""Ems between two glyphs from which they are two runs, as in two columns."""
_UPRIGHT = 0.3
"""How far text must go aside for each step up or down not to be text on its side."""
_BACK = 0.01
"""Share of the page's width by which text must go back to be elsewhere."""

Sides = tuple[float, float, float, float]
"""A `Rect` that need not be one, as making them for all characters takes time."""
Mark = tuple[str, Rect | None]
"""A character and its box; None for one that PDFium made up."""


@dataclass(slots=True)
class TextRun:
    """Text without a jump. `edges[i]` is where character i begins, the last one where it all ends.

    `row` counts PDFium's own lines. `led` and `spaced` say that white space stood before or after.
    """

    text: str
    edges: list[float]
    box: Rect
    row: int
    led: bool = False
    spaced: bool = False

    @property
    def height(self) -> float:
        """In fractions of the page's height."""
        return self.box.y1 - self.box.y0

    def cut(self, start: int, end: int) -> "TextRun":
        """Some of its characters as a run of their own, without the spaces at the ends."""
        inner = self.text[start:end]
        text = inner.strip()
        if len(text) == len(self.text):
            return self
        led, spaced = inner[:1].isspace(), inner[-1:].isspace()
        led, spaced = (
            led or (start == 0 and self.led),
            spaced or (end == len(self.text) and self.spaced),
        )
        start += len(inner) - len(inner.lstrip())
        edges = self.edges[start : start + len(text) + 1]
        box = self.box._replace(x0=min(edges), x1=max(edges))
        return TextRun(text, edges, box, self.row, led, spaced)


_FIGURE_BEFORE = re.compile(r"^\s*\d{1,3}\)?(?=[^\W\d_])", re.MULTILINE)
_FIGURE_BEHIND = re.compile(r"(?:(?<=[A-Za-z]{3})|(?<=[.,;:!?)”’]))\d{1,3}(?![\w.,%]*\d)(?!\w)")
"""A figure that may be that of a footnote. Shorter words are units: m² and km². Korean keeps its
particle behind the figure, and the analyser tells the two apart."""
_RAISED = 0.12
"""Part of a letter's height by which the figure of a footnote stands above the line."""
_SMALLER = 0.9
"""Part of a letter's height that such a figure has at most."""


def split_runs(glyphs: Glyphs) -> Iterator[TextRun]:
    """The runs of a page in PDFium's order."""
    composed = unicodedata.is_normalized("NFC", glyphs.text)
    gap = False
    for row, match in enumerate(_BROKEN_OFF.finditer(glyphs.text)):
        start, end = match.span()
        found = []
        for first, last, is_apart in _split_at_raised_figures(glyphs, start, end):
            if not composed or _SPECIAL.search(glyphs.text, first, last):
                part = _split_special(glyphs, first, last, row)
            elif _is_even(glyphs, first, last):
                part = [_make_plain_run(glyphs, first, last, row)]
            else:
                part = _split_uneven(glyphs, first, last, row)
            if part:
                part[0].led |= is_apart
            found += part
        for run in found:
            stripped = run.cut(0, len(run.text))
            if stripped.text:
                stripped.led |= gap
                gap = False
                yield stripped
            else:
                gap = True


def _split_at_raised_figures(
    glyphs: Glyphs, start: int, end: int
) -> Iterator[tuple[int, int, bool]]:
    """A row in parts, so that the figures of footnotes are words of their own; whether one is."""
    first, is_apart = start, False
    text = glyphs.text
    if figure := _FIGURE_BEFORE.match(text[start:end]):
        at = start + figure.end()
        if _is_raised(glyphs, at - 1, at):
            yield first, at, False
            first, is_apart = at, True
    for figure in _FIGURE_BEHIND.finditer(text, first, end):
        at = figure.start()
        if at > first and _is_raised(glyphs, at, at - 1):
            yield first, at, is_apart
            yield at, figure.end(), True
            first, is_apart = figure.end(), False
    if first < end:
        yield first, end, is_apart


def _is_raised(glyphs: Glyphs, figure: int, letter: int) -> bool:
    """Whether a glyph is smaller than its neighbour and stands above the line of that."""
    height = glyphs.y1[letter] - glyphs.y0[letter]
    return (
        glyphs.y1[figure] < glyphs.y1[letter] - _RAISED * height
        and glyphs.y1[figure] - glyphs.y0[figure] < _SMALLER * height
    )


def to_plain_text(text: str) -> str:
    """The text of a page as PDFium breaks it, without places."""
    rows = ("".join(_iterate_kept(row)).replace(HYPHEN, "-").strip() for row in text.splitlines())
    return clean_text("\n".join(filter(None, rows)))


def is_coded(text: str) -> bool:
    """Whether it is glyph codes rather than words: controls, private use, replacement marks."""
    strange = sum(map(len, _MEANINGLESS.findall(text)))
    return strange > max(len(text) * _CODED_SHARE, 3)


def _is_even(glyphs: Glyphs, start: int, end: int) -> bool:
    """Whether the glyphs follow each other to the right on one line, without a gap."""
    left, right = glyphs.x0[start:end], glyphs.x1[start:end]
    low, high = min(glyphs.y1[start:end]), max(glyphs.y0[start:end])
    if high >= low or not all(map(lt, left, left[1:])):
        return False
    widest = max(map(sub, left[1:], right), default=0.0)
    return widest < (low - high) * glyphs.em * _GAP


def _make_plain_run(glyphs: Glyphs, start: int, end: int, row: int) -> TextRun:
    """Glyphs as they are, from the left to the right."""
    edges = glyphs.x0[start:end]
    edges.append(glyphs.x1[end - 1])
    y0, y1 = min(glyphs.y0[start:end]), max(glyphs.y1[start:end])
    return TextRun(glyphs.text[start:end], edges, Rect(edges[0], y0, edges[-1], y1), row)


def _split_uneven(glyphs: Glyphs, start: int, end: int, row: int) -> list[TextRun]:
    """Plain glyphs with jumps between them."""
    found, first, last = [], start, None
    reach = glyphs.em * _GAP
    boxes = zip(*(side[start:end] for side in glyphs.sides), strict=True)
    for index, box in enumerate(boxes, start):
        if last is None:
            last = box
            continue
        left, top, right, bottom = last
        x0, y0, x1, y1 = box
        if y0 == top < bottom == y1 and left < x0 <= x1 and x0 - right <= (bottom - top) * reach:
            pass  # as most glyphs do: a quick look instead of a long one
        elif _is_jump(last, box, glyphs.em):
            found.append(_make_plain_run(glyphs, first, index, row))
            first = index
        elif left >= x0 and x0 < x1 and left < right:
            return _split_special(glyphs, start, end, row)
        last = box
    return [*found, _make_plain_run(glyphs, first, end, row)]


def _split_special(glyphs: Glyphs, start: int, end: int, row: int) -> list[TextRun]:
    """Glyphs that must be looked at one by one."""
    return [
        _make_run(piece, row) for piece in _split_marks(_list_marks(glyphs, start, end), glyphs.em)
    ]


def _list_marks(glyphs: Glyphs, start: int, end: int) -> list[Mark]:
    """Characters of a row with their boxes; ligatures in letters, surrogates in pairs."""
    text = _SOFT_AT_END.sub(HYPHEN, glyphs.text[start:end])
    places = map(Rect, *(side[start:end] for side in glyphs.sides))
    boxes = [place if place.x1 > place.x0 or place.y1 > place.y0 else None for place in places]
    marks: list[Mark] = []
    # Characters that share a box are one glyph: a ligature, for which the file names letters.
    for box, group in groupby(zip(text, boxes, strict=True), itemgetter(1)):
        letters = "".join(character for character, _ in group)
        if box is None:
            marks += [(letter, None) for letter in _iterate_kept(letters)]
        else:
            marks += _share_box(letters, box)
    return marks


def _share_box(letters: str, box: Rect) -> Iterator[Mark]:
    """Letters of one glyph, side by side in its box."""
    leftward = bool(RIGHT_TO_LEFT.search(letters))
    # PDFium turns the letters of a line that runs to the left around, also within a glyph.
    kept = "".join(_iterate_kept(letters[::-1] if leftward else letters))
    width = (box.x1 - box.x0) / max(len(kept), 1)
    for index, letter in enumerate(kept):
        place = len(kept) - 1 - index if leftward else index
        yield letter, box._replace(x0=box.x0 + place * width, x1=box.x0 + (place + 1) * width)


def _iterate_kept(letters: str) -> Iterator[str]:
    """What text may hold of these letters."""
    for letter in letters.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "ignore"):
        if letter == HYPHEN:
            yield letter
        elif letter == "\t":
            yield " "
        elif ord(letter) in _LIGATURES:
            yield unicodedata.normalize("NFKC", letter)
        elif is_kept(letter):
            yield letter


def _split_marks(marks: list[Mark], em: float) -> Iterator[list[Mark]]:
    """Marks without a jump between them, in NFC."""
    start, last = 0, None
    for index, (_, box) in enumerate(marks):
        if box is None:
            continue
        if last is not None and _is_jump(last, box, em):
            yield _compose_marks(marks[start:index])
            start = index
        last = box
    if last is not None:
        yield _compose_marks(marks[start:])


def _is_jump(last: Sides, box: Sides, em: float) -> bool:
    """Whether text continues elsewhere: at another height, back to the left, or across a gap."""
    left, top, right, bottom = last
    x0, y0, x1, y1 = box
    return (
        y0 >= bottom
        or y1 <= top
        or x0 - right > (bottom - top) * em * _GAP
        or x1 < left - _BACK
        or abs(x0 + x1 - left - right) < abs(y0 + y1 - top - bottom) * em * _UPRIGHT
    )


def _compose_marks(marks: list[Mark]) -> list[Mark]:
    """The marks in NFC: parts of a syllable or letter become one mark with the box around them."""
    if unicodedata.is_normalized("NFC", "".join(mark for mark, _ in marks)):
        return marks
    result: list[Mark] = []
    cluster: list[Mark] = []
    for mark in marks:
        if cluster and not _is_joining(mark[0]):
            result += _merge_cluster(cluster)
            cluster = []
        cluster.append(mark)
    return [*result, *_merge_cluster(cluster)]


def _is_joining(character: str) -> bool:
    """Whether a character belongs to the one before it (accents, vowels and finals of Hangul)."""
    return unicodedata.combining(character) > 0 or "\u1160" <= character <= "\u11ff"


def _merge_cluster(cluster: Sequence[Mark]) -> Iterator[Mark]:
    """A cluster in NFC, every character with the box of the whole."""
    boxes = [box for _, box in cluster if box is not None]
    for character in unicodedata.normalize("NFC", "".join(mark for mark, _ in cluster)):
        yield character, find_bounding_box(boxes) if boxes else None


def _make_run(marks: list[Mark], row: int) -> TextRun:
    """The run of these marks, at least one of which has a box."""
    boxes = [box for _, box in marks if box is not None]
    # Text that runs to the left (upside down, Hebrew) has its characters' right sides as edges.
    near, far = (2, 0) if boxes[-1].x0 < boxes[0].x0 else (0, 2)
    edges, edge = [], boxes[0][near]
    for _, box in marks:
        edges.append(box[near] if box is not None else edge)
        edge = box[far] if box is not None else edge
    text = "".join(mark for mark, _ in marks)
    return TextRun(text, [*edges, edge], find_bounding_box(boxes), row)
