"""The characters of a page and the runs they form: clean NFC text with each character's edges."""

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

_GENERATED_SPACE = re.compile("(?<=[^\r\n]) ")

AxisSides = tuple[list[float], list[float]]
"""Near and far sides of each glyph, along one axis."""


@dataclass(frozen=True, slots=True)
class Glyphs:
    """Characters in PDFium's order and their sides, in fractions of the page as displayed.

    `text` has one UTF-16 unit for each glyph, U+FFFE for a hyphen at the end of a line, and line
    ends where PDFium sees some. `aspect` is the page's height by its width: times a height, it
    gives the width of as many points.
    """

    text: str
    x0: list[float]
    y0: list[float]
    x1: list[float]
    y1: list[float]
    aspect: float

    @property
    def sides(self) -> tuple[list[float], ...]:
        """x0, y0, x1, y1."""
        return self.x0, self.y0, self.x1, self.y1


def read_glyphs(textpage: Any, text: str, frame: PageFrame) -> Glyphs:
    """The glyphs of an open text page, with the boxes that selecting them would highlight."""
    sides = read_boxes(textpage, len(text))
    horizontal = sides[0::4], sides[2::4], frame.left, frame.width
    vertical = sides[3::4], sides[1::4], frame.bottom, frame.height
    if frame.turns == 0:
        x, y = _scale_sides(*horizontal), _mirror_sides(*vertical)
    elif frame.turns == 1:
        x, y = _scale_sides(*vertical), _scale_sides(*horizontal)
    elif frame.turns == 2:
        x, y = _mirror_sides(*horizontal), _scale_sides(*vertical)
    else:
        x, y = _mirror_sides(*vertical), _mirror_sides(*horizontal)
    glyphs = Glyphs(text, x[0], y[0], x[1], y[1], frame.shown_height / frame.shown_width)
    _place_generated_spaces(glyphs)
    return glyphs


def _scale_sides(
    near: "array[float]", far: "array[float]", origin: float, size: float
) -> AxisSides:
    """Convert points to fractions of a size."""
    factor = 1 / size
    return [(side - origin) * factor for side in near], [(side - origin) * factor for side in far]


def _mirror_sides(
    near: "array[float]", far: "array[float]", origin: float, size: float
) -> AxisSides:
    """Convert points to fractions of a size, counted from the other end."""
    factor = 1 / size
    return (
        [1 - (side - origin) * factor for side in far],
        [1 - (side - origin) * factor for side in near],
    )


def _place_generated_spaces(glyphs: Glyphs) -> None:
    """Move spaces that PDFium inserted, whose boxes are points, to the end of the glyph before."""
    x0, x1 = glyphs.x0, glyphs.x1
    for match in _GENERATED_SPACE.finditer(glyphs.text):
        index = match.start()
        if x0[index] == x1[index]:
            glyphs.y0[index], glyphs.y1[index] = glyphs.y0[index - 1], glyphs.y1[index - 1]
            x0[index] = x1[index] = min(x0[index], x1[index - 1])


_LINE = re.compile("[^\r\n]+")
_SPECIAL_CHARACTER = re.compile(
    "[\x00-\x1f\x7f-\x9f\xad\u0590-\u08ff\u200b-\u200f\u202a-\u202e\u2060-\u206f\u2028\u2029"
    "\ud800-\udfff\ufb00-\ufdff\ufe70-\ufeff\ufffe\uffff]"
)
"""Characters that are dropped, split or composed, or run from right to left."""
_MEANINGLESS_CHARACTERS = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\ue000-\uf8ff\ufffd]+|[\udb80-\udbff][\udc00-\udfff]"
)
_MAX_MEANINGLESS_SHARE = 0.2
"""With a larger share of meaningless characters, a font counts as having no Unicode map."""
_LIGATURES = range(0xFB00, 0xFB07)
RIGHT_TO_LEFT = re.compile("[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufefc]")
HYPHEN = "\ufffe"
"""PDFium's marker for a hyphen at the end of a line, within a word."""
_SOFT_HYPHEN_AT_END = re.compile("\xad(?=\\s*$)")
_MAX_GAP_EMS = 1.2
"""Ems between two glyphs of a run; a wider gap, as between two columns, splits it."""
_MIN_ADVANCE = 0.3
"""How far text must advance sideways for each step up or down; less is text on its side."""
_MIN_BACKWARD_STEP = 0.01
"""Share of the page's width by which text must go back to count as a new run."""

Sides = tuple[float, float, float, float]
"""A `Rect`, or its four numbers: creating a `Rect` for every character takes time."""
BoxedCharacter = tuple[str, Rect | None]
"""A character and its box; None for one that PDFium inserted."""


@dataclass(slots=True)
class TextRun:
    """Text without a jump. `edges[i]` is where character i begins; the last is where the run ends.

    `line_number` counts the lines of PDFium, or of text recognition. `space_before` and
    `space_after` tell whether white space was stripped there.
    """

    text: str
    edges: list[float]
    box: Rect
    line_number: int
    space_before: bool = False
    space_after: bool = False

    @property
    def height(self) -> float:
        """In fractions of the page's height."""
        return self.box.y1 - self.box.y0

    def cut(self, start: int, end: int) -> "TextRun":
        """A run of some of its characters, without the spaces at the ends."""
        inner = self.text[start:end]
        text = inner.strip()
        if len(text) == len(self.text):
            return self
        space_before, space_after = inner[:1].isspace(), inner[-1:].isspace()
        space_before, space_after = (
            space_before or (start == 0 and self.space_before),
            space_after or (end == len(self.text) and self.space_after),
        )
        start += len(inner) - len(inner.lstrip())
        edges = self.edges[start : start + len(text) + 1]
        box = self.box._replace(x0=min(edges), x1=max(edges))
        return TextRun(text, edges, box, self.line_number, space_before, space_after)


_LEADING_NOTE_NUMBER = re.compile(r"^\s*\d{1,3}\)?(?=[^\W\d_])", re.MULTILINE)
_TRAILING_NOTE_NUMBER = re.compile(
    r"(?:(?<=[A-Za-z]{3})|(?<=[.,;:!?)”’]))\d{1,3}(?![\w.,%]*\d)(?!\w)"
)
"""Digits that may be the number of a footnote. After shorter words they are exponents: m², km².
In Korean a particle may follow the number; the morphological analyser separates it."""
_MIN_RISE = 0.12
"""Share of a letter's height by which the number of a footnote is above the line."""
_MAX_NOTE_NUMBER_HEIGHT = 0.9
"""Share of a letter's height that such a number has at most."""


def split_runs(glyphs: Glyphs) -> Iterator[TextRun]:
    """The runs of a page in PDFium's order."""
    is_composed = unicodedata.is_normalized("NFC", glyphs.text)
    follows_blank = False
    for line_number, match in enumerate(_LINE.finditer(glyphs.text)):
        start, end = match.span()
        runs = []
        for first, last, is_apart in _split_at_note_numbers(glyphs, start, end):
            if not is_composed or _SPECIAL_CHARACTER.search(glyphs.text, first, last):
                parts = _split_special_characters(glyphs, first, last, line_number)
            elif _is_continuous(glyphs, first, last):
                parts = [_make_plain_run(glyphs, first, last, line_number)]
            else:
                parts = _split_at_gaps(glyphs, first, last, line_number)
            if parts:
                parts[0].space_before |= is_apart
            runs += parts
        for run in runs:
            stripped = run.cut(0, len(run.text))
            if stripped.text:
                stripped.space_before |= follows_blank
                follows_blank = False
                yield stripped
            else:
                follows_blank = True


def _split_at_note_numbers(glyphs: Glyphs, start: int, end: int) -> Iterator[tuple[int, int, bool]]:
    """Split a line so that the numbers of footnotes are words of their own.

    Yields start, end and whether the part must be separated from the one before it.
    """
    first, is_apart = start, False
    text = glyphs.text
    if number := _LEADING_NOTE_NUMBER.match(text[start:end]):
        position = start + number.end()
        if _is_raised(glyphs, position - 1, position):
            yield first, position, False
            first, is_apart = position, True
    for number in _TRAILING_NOTE_NUMBER.finditer(text, first, end):
        position = number.start()
        if position > first and _is_raised(glyphs, position, position - 1):
            yield first, position, is_apart
            yield position, number.end(), True
            first, is_apart = number.end(), False
    if first < end:
        yield first, end, is_apart


def _is_raised(glyphs: Glyphs, number: int, letter: int) -> bool:
    """Whether the glyph of a number is smaller than the letter beside it, and higher up."""
    height = glyphs.y1[letter] - glyphs.y0[letter]
    return (
        glyphs.y1[number] < glyphs.y1[letter] - _MIN_RISE * height
        and glyphs.y1[number] - glyphs.y0[number] < _MAX_NOTE_NUMBER_HEIGHT * height
    )


def to_plain_text(text: str) -> str:
    """The text of a page with PDFium's line breaks, without positions."""
    lines = (
        "".join(_iterate_kept_characters(line)).replace(HYPHEN, "-").strip()
        for line in text.splitlines()
    )
    return clean_text("\n".join(filter(None, lines)))


def is_coded(text: str) -> bool:
    """Whether it is glyph codes, not words: controls, private use, replacement characters."""
    meaningless_count = sum(map(len, _MEANINGLESS_CHARACTERS.findall(text)))
    return meaningless_count > max(len(text) * _MAX_MEANINGLESS_SHARE, 3)


def _is_continuous(glyphs: Glyphs, start: int, end: int) -> bool:
    """Whether the glyphs follow each other from left to right on one line, without a gap."""
    left, right = glyphs.x0[start:end], glyphs.x1[start:end]
    low, high = min(glyphs.y1[start:end]), max(glyphs.y0[start:end])
    if high >= low or not all(map(lt, left, left[1:])):
        return False
    widest = max(map(sub, left[1:], right), default=0.0)
    return widest < (low - high) * glyphs.aspect * _MAX_GAP_EMS


def _make_plain_run(glyphs: Glyphs, start: int, end: int, line_number: int) -> TextRun:
    """A run of glyphs that need no treatment, from left to right."""
    edges = glyphs.x0[start:end]
    edges.append(glyphs.x1[end - 1])
    y0, y1 = min(glyphs.y0[start:end]), max(glyphs.y1[start:end])
    return TextRun(glyphs.text[start:end], edges, Rect(edges[0], y0, edges[-1], y1), line_number)


def _split_at_gaps(glyphs: Glyphs, start: int, end: int, line_number: int) -> list[TextRun]:
    """Split glyphs without special characters where the text jumps."""
    runs, first, last = [], start, None
    max_gap = glyphs.aspect * _MAX_GAP_EMS
    boxes = zip(*(side[start:end] for side in glyphs.sides), strict=True)
    for index, box in enumerate(boxes, start):
        if last is None:
            last = box
            continue
        left, top, right, bottom = last
        x0, y0, x1, y1 = box
        if y0 == top < bottom == y1 and left < x0 <= x1 and x0 - right <= (bottom - top) * max_gap:
            pass  # true of most glyphs, and faster than `_is_jump`
        elif _is_jump(last, box, glyphs.aspect):
            runs.append(_make_plain_run(glyphs, first, index, line_number))
            first = index
        elif left >= x0 and x0 < x1 and left < right:
            return _split_special_characters(glyphs, start, end, line_number)
        last = box
    return [*runs, _make_plain_run(glyphs, first, end, line_number)]


def _split_special_characters(
    glyphs: Glyphs, start: int, end: int, line_number: int
) -> list[TextRun]:
    """Split glyphs that must be examined one by one."""
    return [
        _make_run(characters, line_number)
        for characters in _split_at_jumps(_list_boxed_characters(glyphs, start, end), glyphs.aspect)
    ]


def _list_boxed_characters(glyphs: Glyphs, start: int, end: int) -> list[BoxedCharacter]:
    """Characters of a line with their boxes; ligatures as letters, surrogates as one character."""
    text = _SOFT_HYPHEN_AT_END.sub(HYPHEN, glyphs.text[start:end])
    rects = map(Rect, *(side[start:end] for side in glyphs.sides))
    boxes = [rect if rect.x1 > rect.x0 or rect.y1 > rect.y0 else None for rect in rects]
    characters: list[BoxedCharacter] = []
    # Characters that share a box are one glyph: a ligature that the file maps to letters.
    for box, group in groupby(zip(text, boxes, strict=True), itemgetter(1)):
        letters = "".join(character for character, _ in group)
        if box is None:
            characters += [(letter, None) for letter in _iterate_kept_characters(letters)]
        else:
            characters += _divide_box(letters, box)
    return characters


def _divide_box(letters: str, box: Rect) -> Iterator[BoxedCharacter]:
    """Divide the box of one glyph between its letters, side by side."""
    is_leftward = bool(RIGHT_TO_LEFT.search(letters))
    # PDFium reverses the letters of a line that runs to the left, even within a glyph.
    kept = "".join(_iterate_kept_characters(letters[::-1] if is_leftward else letters))
    width = (box.x1 - box.x0) / max(len(kept), 1)
    for index, letter in enumerate(kept):
        position = len(kept) - 1 - index if is_leftward else index
        yield letter, box._replace(x0=box.x0 + position * width, x1=box.x0 + (position + 1) * width)


def _iterate_kept_characters(text: str) -> Iterator[str]:
    """The characters that cleaned text keeps; tabs are spaces, ligatures are letters."""
    for character in text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "ignore"):
        if character == HYPHEN:
            yield character
        elif character == "\t":
            yield " "
        elif ord(character) in _LIGATURES:
            yield unicodedata.normalize("NFKC", character)
        elif is_kept(character):
            yield character


def _split_at_jumps(
    characters: list[BoxedCharacter], aspect: float
) -> Iterator[list[BoxedCharacter]]:
    """Split characters where the text jumps; each part is in NFC."""
    start, last = 0, None
    for index, (_, box) in enumerate(characters):
        if box is None:
            continue
        if last is not None and _is_jump(last, box, aspect):
            yield _compose_characters(characters[start:index])
            start = index
        last = box
    if last is not None:
        yield _compose_characters(characters[start:])


def _is_jump(last: Sides, box: Sides, aspect: float) -> bool:
    """Whether text continues elsewhere: at another height, back to the left, or across a gap."""
    left, top, right, bottom = last
    x0, y0, x1, y1 = box
    return (
        y0 >= bottom
        or y1 <= top
        or x0 - right > (bottom - top) * aspect * _MAX_GAP_EMS
        or x1 < left - _MIN_BACKWARD_STEP
        or abs(x0 + x1 - left - right) < abs(y0 + y1 - top - bottom) * aspect * _MIN_ADVANCE
    )


def _compose_characters(characters: list[BoxedCharacter]) -> list[BoxedCharacter]:
    """Compose to NFC: parts of a syllable or letter become one character with a common box."""
    if unicodedata.is_normalized("NFC", "".join(character for character, _ in characters)):
        return characters
    result: list[BoxedCharacter] = []
    cluster: list[BoxedCharacter] = []
    for character in characters:
        if cluster and not _is_joining(character[0]):
            result += _merge_cluster(cluster)
            cluster = []
        cluster.append(character)
    return [*result, *_merge_cluster(cluster)]


def _is_joining(character: str) -> bool:
    """Whether a character belongs to the one before it (accents, vowels and finals of Hangul)."""
    return unicodedata.combining(character) > 0 or "\u1160" <= character <= "\u11ff"


def _merge_cluster(cluster: Sequence[BoxedCharacter]) -> Iterator[BoxedCharacter]:
    """Compose a cluster to NFC; every character gets the box of the whole."""
    boxes = [box for _, box in cluster if box is not None]
    for character in unicodedata.normalize("NFC", "".join(character for character, _ in cluster)):
        yield character, find_bounding_box(boxes) if boxes else None


def _make_run(characters: list[BoxedCharacter], line_number: int) -> TextRun:
    """The run of these characters, at least one of which has a box."""
    boxes = [box for _, box in characters if box is not None]
    # In text that runs to the left (upside down, Hebrew), edges are right sides of characters.
    near, far = (2, 0) if boxes[-1].x0 < boxes[0].x0 else (0, 2)
    edges, edge = [], boxes[0][near]
    for _, box in characters:
        edges.append(box[near] if box is not None else edge)
        edge = box[far] if box is not None else edge
    text = "".join(character for character, _ in characters)
    return TextRun(text, [*edges, edge], find_bounding_box(boxes), line_number)
