"""Where a sentence of a passage stands: its offsets in the document, its page, its boxes there."""

import re
from bisect import bisect_left, bisect_right
from itertools import accumulate

from rag.pages import Box
from rag.types import Evidence, Passage, Span

SLACK = 0.1
"""Share of a line by which a stretch may be guessed too far on either side."""
_LINE = re.compile(r"[^\n]*\S[^\n]*\n?")


def to_span(item: Evidence, start: int, end: int) -> Span:
    """The span from `start` to `end` of a piece of evidence, with the boxes that hold it."""
    passage, offset = item.passage, item.start - item.passage.start
    boxes = _find_boxes(passage, start + offset, end + offset)
    page = boxes[0].page if boxes else passage.page
    return Span(item.start + start, item.start + end, item.text[start:end], page, boxes)


def _find_boxes(passage: Passage, start: int, end: int) -> tuple[Box, ...]:
    """The boxes of a passage in which `start`..`end` of its text stand.

    Parsers give one box a printed line. Where the text has as many lines they are told by their
    number, else by the share of the letters before them: boxes are as wide as these together.
    """
    if len(passage.boxes) < 2:
        return passage.boxes
    lines = [line.span() for line in _LINE.finditer(passage.text)]
    if len(lines) == len(passage.boxes):
        pairs = zip(lines, passage.boxes, strict=True)
        return tuple(box for (first, last), box in pairs if first < end and start < last)
    widths = list(accumulate((box.x1 - box.x0 for box in passage.boxes), initial=0.0))
    letters = list(accumulate(map(_width, passage.text), initial=0))
    scale = widths[-1] / max(1, letters[-1])
    slack = SLACK * widths[-1] / len(passage.boxes)
    first = min(bisect_right(widths, letters[start] * scale + slack), len(passage.boxes)) - 1
    behind = bisect_left(widths, letters[end] * scale - slack)
    return passage.boxes[first : max(first + 1, behind)]


def _width(letter: str) -> int:
    """How wide a letter is printed beside a Latin one; bars and breaks are not printed."""
    return 0 if letter in "|\n" else 2 if letter >= "\u1100" else 1
