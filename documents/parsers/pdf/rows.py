"""Lines of a page as the eye sees them, put together from runs of text."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise

from documents.parsers.pdf.geometry import Rect, around
from documents.parsers.pdf.runs import Run

_TO_THE_LEFT = re.compile("[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufefc]")
_LEVEL = 0.5
"""Share of the lower height that must overlap for two runs to stand on one line."""
_OVERLAP = 0.3
"""Ems by which neighbours on a line may overlap."""
_NEAR = 3.0
"""Ems within which runs stand on one line though PDFium saw a line end between them."""
_WORDS_APART = 1.5
"""Line heights between two words that run up or down on one line."""
_SPACE = 0.2
"""Ems between two runs that are a space."""


@dataclass(slots=True)
class Row:
    """Runs on one line (or one below the other, in text that runs down), in reading order.

    `height` is that of its highest run, in fractions of the page's height.
    """

    runs: list[Run]
    box: Rect
    height: float
    em: float
    down: bool = False

    @property
    def text(self) -> str:
        """Its words."""
        return "".join(space + run.text for space, run in self.spaced_runs())

    @property
    def length(self) -> int:
        """Characters, without the spaces between runs."""
        return sum(len(run.text) for run in self.runs)

    def spaced_runs(self) -> Iterator[tuple[str, Run]]:
        """Its runs, each with the space before it or none."""
        yield "", self.runs[0]
        for run, following in pairwise(self.runs):
            yield " " if _is_space_between(run, following, self.em) else "", following

    @property
    def upright(self) -> bool:
        """Whether its text runs to the right or, in scripts that do so, to the left."""
        if self.down:
            return False
        turned = sum(
            len(run.text)
            for run in self.runs
            if _backward(run) and not _TO_THE_LEFT.search(run.text)
        )
        return turned * 2 <= self.length


def rows(runs: Iterable[Run], em: float) -> list[Row]:
    """Neighbours in PDFium's order that stand on one line, as rows."""
    found: list[Row] = []
    for run in runs:
        if found and _continues(found[-1], run, em):
            row = found[-1]
            row.runs.append(run)
            row.box, row.height = around((row.box, run.box)), max(row.height, run.height)
        else:
            found.append(Row([run], run.box, run.height, em))
    for row in found:
        if len(row.runs) > 1 and not row.down and not any(map(_backward, row.runs)):
            row.runs.sort(key=lambda run: run.box.x0)
    return found


def _is_space_between(run: Run, following: Run, em: float) -> bool:
    """Whether a space stands between two runs of a row."""
    if run.spaced or following.led:
        return True
    one, other = run.box, following.box
    return max(other.x0 - one.x1, one.x0 - other.x1) > _SPACE * run.height * em


def _continues(row: Row, run: Run, em: float) -> bool:
    """Whether a run stands on the line of a row, or goes on with text that runs up or down."""
    last, box = row.runs[-1], run.box
    if (row.down or len(row.runs) == 1) and _follows_down(last, run, em):
        row.down = True
        return True
    if row.down:
        return False
    width = min(last.height, run.height) * em
    level = min(last.box.y1, box.y1) - max(last.box.y0, box.y0)
    gap = max(box.x0 - row.box.x1, row.box.x0 - box.x1)
    if level < _LEVEL * min(last.height, run.height) or gap < -_OVERLAP * width:
        return False
    return run.row == last.row or gap < _NEAR * width


def _follows_down(last: Run, run: Run, em: float) -> bool:
    """Whether two characters stand one above the other in the same line of PDFium's."""
    if run.row != last.row or max(len(run.text), len(last.text)) > 1:
        return False
    one, other = last.box, run.box
    # On its side, a letter is as wide as its line is high.
    widths = one.x1 - one.x0, other.x1 - other.x0
    shared = min(one.x1, other.x1) - max(one.x0, other.x0)
    gap = max(other.y0 - one.y1, one.y0 - other.y1)
    return shared > 0.5 * min(widths) and gap * em < _WORDS_APART * max(widths)


def _backward(run: Run) -> bool:
    """Whether its characters go to the left."""
    return run.edges[-1] < run.edges[0]
