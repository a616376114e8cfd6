"""Whether a Korean word goes on over the end of a line, where the file itself does not say.

Justified Hangul breaks anywhere, also within words. Some producers keep the blank where a line ends
between two words; of the others' lines only their letters can tell. Two statistics are added up,
as logarithms of odds: what letters stand before and after the ends of words in Korean statutes
(`spacing.json`, made by `benchmarks/pdf_tables/train_spacing.py`), and whether this document writes
the two letters of the break together or apart elsewhere.
"""

import json
import re
from collections import Counter
from collections.abc import Iterable
from functools import cache
from math import log
from pathlib import Path

WEIGHTS = Path(__file__).with_suffix(".json")
LEAST_ODDS = 1.0
"""Logarithm of the odds from which a word is taken to go on."""
_LEAST_ODDS_OF_CELL = 3.0
"""The same in a cell, whose lines may be items of a list."""
_LEAST_LINE_ENDS = 6
"""Line ends of a document before they say how it breaks its lines."""
_LEAST_SHARE = 0.5
"""Of line ends where a word seems to go on: some .7 where lines break within words, else .2."""
_UNSEEN = 0.5
"""Added to counts of letters written together and apart, so that none is impossible."""
_TOGETHER = re.compile("(?=([가-힣]{2}))")
_APART = re.compile("(?=([가-힣]) ([가-힣]))")
_END = re.compile("[가-힣]+$")
_START = re.compile("[가-힣]+")


class WordSpacing:
    """What one document shows of how it writes words, as far as it is read."""

    def __init__(self) -> None:
        self._together: Counter[str] = Counter()
        self._apart: Counter[str] = Counter()
        self._ends = 0
        self._broken = 0

    def add_lines(self, lines: Iterable[str]) -> None:
        """Count the letters of lines."""
        for line in lines:
            self._together.update(_TOGETHER.findall(line))
            self._apart.update(map("".join, _APART.findall(line)))

    def add_line_end(self, line: str, following: str) -> None:
        """Count the end of a full line, both sides of which are Hangul."""
        self._ends += 1
        self._broken += self.measure_odds(line, following) >= LEAST_ODDS

    @property
    def breaks_words(self) -> bool:
        """Whether lines of this document end within words."""
        return self._ends >= _LEAST_LINE_ENDS and self._broken >= _LEAST_SHARE * self._ends

    def goes_on(
        self, line: str, following: str, *, shows_blanks: bool = False, in_cell: bool = False
    ) -> bool:
        """Whether the last word of a full line goes on in the following one.

        Both sides are Hangul, and the line ends without a blank; `shows_blanks` says that others
        nearby end with one. Some producers drop it where they stretch a line, so that this alone
        proves nothing in a document whose lines end between words.
        """
        if self.breaks_words and shows_blanks:
            return True
        if not (self.breaks_words or shows_blanks):
            return False
        least = _LEAST_ODDS_OF_CELL if in_cell else LEAST_ODDS
        return self.measure_odds(line, following) >= least

    def measure_odds(self, line: str, following: str) -> float:
        """Logarithm of the odds that the word goes on; both sides are Hangul."""
        weights = load_weights()
        pair = line[-1] + following[0]
        known = sum(weights.get(feature, 0.0) for feature in features_of(line, following))
        seen = log((self._together[pair] + _UNSEEN) / (self._apart[pair] + _UNSEEN))
        return weights["_"] + known + seen


def features_of(line: str, following: str) -> list[str]:
    """What the weights know of the two sides: letters, pairs, lengths of the parts of the word."""
    before, after = _END.search(line), _START.match(following)
    left, right = (before[0] if before else ""), (after[0] if after else "")
    return [
        f"L{left[-1:]}",
        f"R{right[:1]}",
        f"M{left[-1:]}{right[:1]}",
        f"l{left[-2:]}" if len(left) > 1 else f"l^{left}",
        f"r{right[:2]}" if len(right) > 1 else f"r{right}$",
        f"n{min(len(left), 5)}",
        f"m{min(len(right), 5)}",
    ]


@cache
def load_weights() -> dict[str, float]:
    """Weights by feature; "_" is the one that always counts."""
    weights: dict[str, float] = json.loads(WEIGHTS.read_text(encoding="utf-8"))
    return weights
