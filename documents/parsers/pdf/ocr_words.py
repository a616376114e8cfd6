"""Lines of a recognised page, from the table of words that tesseract gives (its TSV)."""

import csv
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from statistics import median
from typing import NamedTuple

from documents.parsers.clean import clean, readable
from documents.parsers.pdf.geometry import PageFrame, Rect, around
from documents.parsers.pdf.rows import Row
from documents.parsers.pdf.runs import Run

_COLUMNS = 12
_WORD_LEVEL = "5"
_LEAST_CONFIDENCE = 30.0
"""Of 100; words below are specks and pictures more often than words."""
_SPACE = 0.25
"""Em between two boxes from which a space stands there: it cuts Hangul words into syllables."""
_BY_CENTRES = 0.4
"""How much the distance of two syllables is that of their centres rather than their edges."""
_OPPOSITE = 2
"""Quarter turns."""


class Word(NamedTuple):
    """A word, or a syllable of one, in fractions of the picture; `line` tells its line apart."""

    line: tuple[str, ...]
    text: str
    confidence: float
    box: Rect


def words(table: str, width: int, height: int) -> Iterator[Word]:
    """Words of a picture of that many pixels, as far as they are sure enough."""
    for row in csv.reader(table.splitlines()[1:], delimiter="\t", quoting=csv.QUOTE_NONE):
        if len(row) != _COLUMNS or row[0] != _WORD_LEVEL:
            continue
        text, confidence = clean(row[-1]).strip(), float(row[10])
        if readable(text) and confidence >= _LEAST_CONFIDENCE:
            left, top, wide, high = map(int, row[6:10])
            box = Rect(left / width, top / height, (left + wide) / width, (top + high) / height)
            yield Word(tuple(row[1:5]), text, confidence, box)


def confidence(found: Sequence[Word]) -> float:
    """Mean of all characters, of 100; 0 without any."""
    characters = sum(len(word.text) for word in found)
    total = sum(word.confidence * len(word.text) for word in found)
    return total / characters if characters else 0.0


def rows(found: Iterable[Word], aspect: float, turns: int) -> list[Row]:
    """Lines of words, as they stand on the page.

    `aspect` is the picture's height by its width. `turns` are the quarters by which the picture
    was turned clockwise against the page.
    """
    lines = (list(line) for _, line in groupby(found, lambda word: word.line))
    return [_row(line, number, aspect, turns) for number, line in enumerate(lines)]


def _row(line: Sequence[Word], number: int, aspect: float, turns: int) -> Row:
    """One line; letters of a word share its width."""
    y0, y1 = median(word.box.y0 for word in line), median(word.box.y1 for word in line)
    text, edges = "", list[float]()
    for index, word in enumerate(line):
        if index and _is_space(line[index - 1], word, (y1 - y0) * aspect):
            edges.append(max(line[index - 1].box.x1, edges[-1]))
            text += " "
        start = max(word.box.x0, edges[-1]) if edges else word.box.x0
        step = (max(word.box.x1, start) - start) / len(word.text)
        edges += [start + step * place for place in range(len(word.text))]
        text += word.text
    edges.append(max(line[-1].box.x1, edges[-1]))
    run = Run(text, edges, Rect(edges[0], y0, edges[-1], y1), number)
    return _turned(run, turns, aspect)


def _turned(run: Run, turns: int, aspect: float) -> Row:
    """A line of a turned picture where it stands on the page."""
    if turns == 0:
        return Row([run], run.box, run.height, aspect)
    if turns == _OPPOSITE:
        run.edges, run.box = [1 - edge for edge in run.edges], _back(run.box, turns)
        return Row([run], run.box, run.height, aspect)
    runs = list[Run]()
    for place, letter in enumerate(run.text):
        box = _back(run.box._replace(x0=run.edges[place], x1=run.edges[place + 1]), turns)
        if letter.isspace() and runs:
            runs[-1].spaced = True
        else:
            runs.append(Run(letter, [box.x0, box.x1], box, run.row))
    box = around(each.box for each in runs)
    return Row(runs, box, max(each.height for each in runs), 1 / aspect, down=True)


def _back(box: Rect, turns: int) -> Rect:
    """A box of the turned picture on the page."""
    frame = PageFrame(0, 0, 1, 1, (4 - turns) % 4)
    return frame.shown(box.x0, 1 - box.y1, box.x1, 1 - box.y0)


def _is_space(word: Word, following: Word, em: float) -> bool:
    """Whether a space stands between two neighbours; `em` as a fraction of the width.

    Boxes of syllables are as wide as their ink, so their centres have a say too.
    """
    left, right = _is_hangul(word.text[-1]), _is_hangul(following.text[0])
    if not (left or right):
        return True
    gap = following.box.x0 - word.box.x1
    if left and right:
        centres = gap + (_width(word) + _width(following)) / 2
        gap += _BY_CENTRES * (centres - em - gap)
    return gap > _SPACE * em


def _width(word: Word) -> float:
    """Of one of its characters."""
    return (word.box.x1 - word.box.x0) / len(word.text)


def _is_hangul(character: str) -> bool:
    return "가" <= character <= "힣"
