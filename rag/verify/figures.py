"""Dates, and figures with their units, however they are written.

1억 2천만 원 is 120,000,000원; 2024.3.5. is March 5, 2024.
"""

import math
import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from collections.abc import Set as AbstractSet
from typing import NamedTuple

from rag.lexicon import load_phrases

_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_NAME = (
    r"(?P<name>Jan(?:uary)?|Feb(?:ruary)?|Mar(?:ch)?|Apr(?:il)?|May|June?|July?|Aug(?:ust)?|"
    r"Sept?(?:ember)?|Oct(?:ober)?|Nov(?:ember)?|Dec(?:ember)?)\b\.?"
)
_YEAR, _MONTH = r"(?P<year>[12]\d{3})", r"(?P<month>1[0-2]|0?[1-9])"
_DAY, _TH = r"(?P<day>3[01]|[12]\d|0?[1-9])", r"(?:st|nd|rd|th)?"
_POINT = r"(?:\s?\.\s?|[-/])"
_DATES = tuple(
    re.compile(rf"(?<![\w.]){form}")
    for form in (
        rf"{_YEAR}\s?년(?!\s?간)(?:\s?{_MONTH}\s?월(?:\s?{_DAY}\s?일)?)?",
        rf"(?:{_YEAR}|['’‘](?P<short>\d\d)){_POINT}{_MONTH}{_POINT}{_DAY}(?!\d)\.?",
        rf"{_NAME} {_DAY}{_TH}\b(?:,? {_YEAR}\b)?",
        rf"{_DAY}{_TH} (?:of )?{_NAME}(?:,? {_YEAR}\b)?",
        rf"{_NAME},? {_YEAR}\b",
        rf"{_MONTH}\s?월\s?{_DAY}\s?일",
    )
)
_PIVOT = 70
"""'69 is 2069, '70 is 1970."""


class Date(NamedTuple):
    """Year, month and day; 0 where it is not told."""

    year: int
    month: int
    day: int


def read_dates(text: str) -> tuple[list[Date], str]:
    """The dates of a text, and the text with blanks in their places."""
    found: list[Date] = []

    def take(match: re.Match[str]) -> str:
        found.append(_to_date(match.groupdict()))
        return " " * len(match[0])

    for form in _DATES:
        text = form.sub(take, text)
    return found, text


def _to_date(parts: dict[str, str | None]) -> Date:
    year = int(parts.get("year") or 0)
    if short := parts.get("short"):
        year = int(short) + (1900 if int(short) >= _PIVOT else 2000)
    name = parts.get("name")
    month = _MONTHS.index(name[:3].lower()) + 1 if name else int(parts.get("month") or 0)
    return Date(year, month, int(parts.get("day") or 0))


def is_date_told(date: Date, told: Collection[Date], numbers: Collection[float]) -> bool:
    """Whether a date agrees with this one, and every part of it is a number told somewhere."""
    return all(part in numbers for part in date if part) and any(
        all(mine == its for mine, its in zip(date, other, strict=True) if mine and its)
        for other in told
        if other.month or not date.month
    )


def _read_numbers(name: str) -> dict[str, float]:
    """The words of a list with the number at the head of their line."""
    return {
        word: float(number)
        for number, *found in map(str.split, load_phrases(name))
        for word in found
    }


def _any_of(names: Iterable[str]) -> str:
    """Any of the names, the longest first; a Latin one ends with its word."""
    return "|".join(
        re.escape(name) + (r"\b" if name.isascii() and name[-1].isalnum() else "")
        for name in sorted(names, key=len, reverse=True)
    )


_NUMBER = r"(?:\d{1,3}(?:,\d{3})+(?!\d)|\d{1,18})(?:\.\d{1,9})?"
_SCALE = (
    r"(?:[ ]?여?(?:[십백천]?[만억]|[십백천](?=[\s\d원명개달만억여]|$)"
    r"|조(?=\s?(?:원|달러|[\d,.]+[백천]?[만억])))"
    r"|[ -](?:hundred|thousand|million|billion|trillion)\b)"
)
_COUNTERS = "가지|번|명|개|차례|달|시간|살|곳|대|사람|배|단계|종류"
_NUMBER_WORDS = _read_numbers("number_words")
_SCALES = _read_numbers("scales")
_FIGURE = re.compile(
    rf"(?<![\d.,A-Za-z]){_NUMBER}(?:{_SCALE}(?:[ ]?{_NUMBER}{_SCALE}?)*)?"
    rf"|(?<![가-힣])(?!한\s?[^\s명달시])(?:{_any_of(_NUMBER_WORDS)})(?=\s?(?:{_COUNTERS}))"
    rf"|\b(?:{_any_of(filter(str.isascii, _NUMBER_WORDS))}){_SCALE}?",
    re.IGNORECASE,
)
_PART = re.compile(
    rf"({_NUMBER}|{_any_of(_NUMBER_WORDS)})"
    rf"(?:[ -]?여?([십백천만억조]+|{_any_of(filter(str.isascii, _SCALES))}))?",
    re.IGNORECASE,
)
_AROUND = 18
_DOTTED = {ord("İ"): "I", ord("ı"): "i"}
"""Patterns that know no case take them for "i", which finds "mınutes"; tables do not."""


class Figure(NamedTuple):
    """A number in the base of its dimension; "" where no known unit follows.

    `raw` is the number as told, `bound` the kind of limit ("ge", "lt", ...).
    """

    value: float
    dimension: str
    raw: float
    bound: str = ""


Known = Mapping[tuple[str | None, float], AbstractSet[str]]
"""The bounds of figures by their dimension and value, by "" and their number, and by None and their
number where they have no dimension."""


def read_figures(text: str) -> list[Figure]:
    """The figures of a text in order; dates should be blanked before."""
    text = text.translate(_DOTTED)
    return [_to_figure(text, match) for match in _FIGURE.finditer(text)]


def to_known(figures: Iterable[Figure]) -> Known:
    """Figures to look others up in."""
    known: dict[tuple[str | None, float], set[str]] = defaultdict(set)
    for one in figures:
        for key in (("", one.raw), (one.dimension or None, one.value)):
            known[key].add(one.bound)
    return known


def find_bounds(figure: Figure, known: Known) -> set[str]:
    """The bounds of the figures that are the same as this one; empty where there is none."""
    keys = [(figure.dimension, figure.value), (None, figure.raw)]
    return {
        bound for key in (keys if figure.dimension else keys[:1]) for bound in known.get(key, ())
    }


def is_bound_opposed(figure: Figure, bounds: AbstractSet[str]) -> bool:
    """Whether all these bounds are the other way: 30일 이상 is not 30일 이하."""
    return bool(bounds) and bounds <= _OPPOSED.get(figure.bound, frozenset())


def _to_figure(text: str, match: re.Match[str]) -> Figure:
    raw = round(_add_up(_PART.findall(match[0])), 9)
    before = text[max(0, match.start() - _AROUND) : match.start()]
    unit = _UNIT.match(text, match.end())
    end = unit.end() if unit else match.end()
    dimension, factor = _UNITS[unit[1].lower()] if unit else (_SIGNS.get(before[-1:], ""), 1.0)
    limit = _BOUND_BEHIND.match(text, end) or _BOUND_BEFORE.search(before)
    bound = _BOUNDS[limit[1].lower()] if limit else ""
    return Figure(round(raw * factor, 9), dimension, raw, bound)


def _add_up(parts: Iterable[tuple[str, str]]) -> float:
    """The number that numbers with their scales tell: 3천 5백만 is 3,500 times 10,000.

    십, 백 and 천 count within the 만, 억 or 조 that follows.
    """
    total = section = 0.0
    for number, scale in parts:
        value = float(_NUMBER_WORDS.get(number.lower()) or number.replace(",", ""))
        if scale.isascii():
            section += value * _SCALES.get(scale.lower(), 1.0)
            continue
        section += value * math.prod(_SCALES[sign] for sign in scale if sign in "십백천")
        large = [_SCALES[sign] for sign in scale if sign in "만억조"]
        if large:
            total, section = total + section * math.prod(large), 0.0
    return total + section


_SIGNS = {"$": "달러", "₩": "원", "€": "유로"}
_UNITS = {
    name: (dimension, float(factor))
    for dimension, factor, *names in map(str.split, load_phrases("units"))
    for name in names
}
"""Each way to write a unit with its dimension and its size in it."""
_BOUNDS, _OPPOSED = {}, {}
for _kind, _opposed, _names in (line.split(" | ") for line in load_phrases("bounds")):
    _BOUNDS.update(dict.fromkeys(_names.split(","), _kind))
    _OPPOSED[_kind] = frozenset(_opposed.split())
_UNIT = re.compile(rf"(?:여|가량|정도)?[ -]?({_any_of(_UNITS)})(?!의\s?\d)", re.IGNORECASE)
_BOUND_BEHIND = re.compile(
    rf"\s?(?:[을를]\s)?({_any_of(n for n in _BOUNDS if not n.isascii())})", re.IGNORECASE
)
_BOUND_BEFORE = re.compile(
    rf"\b({_any_of(_BOUNDS)})\s?(?:of )?(?:\w{{1,6}} )?[$₩€]?$", re.IGNORECASE
)
