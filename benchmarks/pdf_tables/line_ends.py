"""Korean words over line ends: how many are cut by a blank, how many are run together.

Statutes are set with lines that end within words and with lines that never do; some of these keep
their blank, which is then hidden. Of the real files the line ends are measured whose blank the file
tells: what the statistics say is held against it.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

from benchmarks import report
from benchmarks.pdf_tables.made import make_prose
from benchmarks.pdf_tables.truth import DATA
from documents.parsers import formats
from documents.parsers.base import Limits, ReadingContext
from documents.parsers.pdf import lines
from documents.parsers.pdf.parser import PdfParser

SETTINGS = [(True, 1, 10), (True, 2, 8), (False, 1, 10), (False, 2, 8)]
"""Whether lines break words, columns, points of the letters."""
TOLD = ("hwp/hancom_spec_pairs/*.pdf", "pdf/docling/normal_4pages.pdf")
Figures = dict[str, dict[str, float]]


def measure(folder: Path) -> Figures:
    """By file: line ends, and shares of words cut and of words run together there."""
    found: Figures = {}
    for breaks_words, columns, size in SETTINGS:
        path, text = make_prose(folder, breaks_words=breaks_words, columns=columns, size=size)
        found[path.stem] = _compare(path, text)
        with _hidden_blanks():
            found[f"{path.stem}, blanks hidden"] = _compare(path, text)
    for path in (path for pattern in TOLD for path in sorted(DATA.glob(pattern))):
        found[path.name] = _count_shown(path)
    return found


def show(found: Figures) -> None:
    """Print them."""
    columns = ("line ends", "of words whole", "words cut", "words run together")
    rows = [(name, *(figures.get(key, "-") for key in columns)) for name, figures in found.items()]
    report.table("Korean words over line ends", ("file", *columns), rows)


def _compare(path: Path, text: str) -> dict[str, float]:
    """Blanks of the pages as they are read against those of the text that was set."""
    true_blanks, letters = _blanks(text)
    ends = list(_line_ends(path, letters))
    apart = [end for end, _ in ends if end in true_blanks]
    within = [end for end, _ in ends if end not in true_blanks]
    blank = {end for end, is_blank in ends if is_blank}
    return {
        "line ends": len(ends),
        "of words whole": len(apart),
        "words cut": _share(sum(end in blank for end in within), len(within)),
        "words run together": _share(sum(end not in blank for end in apart), len(apart)),
    }


def _line_ends(path: Path, letters: str) -> Iterator[tuple[int, bool]]:
    """Places of line ends among the letters of a text, and whether a blank was read there."""
    seen = 0
    for page in _read(path):
        lines = sorted(page.lines, key=lambda line: line.start)
        kept = [index for index, letter in enumerate(page.text) if not letter.isspace()]
        number = {index: at for at, index in enumerate(kept)}
        for line, below in pairwise(lines):
            if line.y0 == below.y0 or not _is_hangul(
                page.text[line.end - 1] + page.text[below.start]
            ):
                continue
            place = seen + number[below.start]
            if letters[place : place + 1] == page.text[below.start]:
                yield place, below.start > line.end
        seen += len(kept)


def _blanks(text: str) -> tuple[set[int], str]:
    """Places before which a blank stands, counted in letters, and the letters."""
    places, letters = set(), list[str]()
    for letter in text:
        if letter.isspace():
            places.add(len(letters))
        else:
            letters.append(letter)
    return places, "".join(letters)


@contextmanager
def _hidden_blanks() -> Iterator[None]:
    """As if no line of a file ended in a blank."""
    original = lines.Wrapping.__init__

    def begin(self: lines.Wrapping, rows: Sequence[lines.TextRow], *args: Any, **more: Any) -> None:
        for row in rows:
            row.runs[-1].space_after = False
        original(self, rows, *args, **more)

    lines.Wrapping.__init__ = begin  # type: ignore[method-assign]
    try:
        yield
    finally:
        lines.Wrapping.__init__ = original  # type: ignore[method-assign]


def _count_shown(path: Path) -> dict[str, float]:
    """Line ends within words and between them as a real file tells, and as they are read."""
    ends: list[tuple[bool, bool]] = []
    original = lines.Wrapping.find_line_join

    def seam(self: lines.Wrapping, row: lines.TextRow, below: lines.TextRow) -> lines.LineJoin:
        last = row.runs[-1]
        if row.length >= 15 and _is_hangul(last.text[-1] + below.runs[0].text[0]):
            told, last.space_after = last.space_after, False
            if self._is_wrapped(row, below):
                goes_on = self._spacing.continues_word(row.text, below.text)
                ends.append((told, goes_on))
            last.space_after = told
        return original(self, row, below)

    lines.Wrapping.find_line_join = seam  # type: ignore[method-assign]
    try:
        list(_read(path))
    finally:
        lines.Wrapping.find_line_join = original  # type: ignore[method-assign]
    apart = [goes_on for told, goes_on in ends if told]
    within = [goes_on for told, goes_on in ends if not told]
    return {
        "line ends": len(ends),
        "of words whole": len(apart),
        "words cut": _share(len(within) - sum(within), len(within)),
        "words run together": _share(sum(apart), len(apart)),
    }


def _read(path: Path):  # type: ignore[no-untyped-def]
    context = ReadingContext(formats.PDF, Limits(recognised_pages=0), lambda *_: None)
    return PdfParser().parse(path, context)


def _share(part: int, whole: int) -> float:
    return round(part / max(whole, 1), 3)


def _is_hangul(letters: str) -> bool:
    return all("가" <= letter <= "힣" for letter in letters)
