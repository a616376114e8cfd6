"""Dates in a text, however they are written."""

import re
from collections.abc import Collection
from typing import NamedTuple

_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_NAME = (
    r"(?P<name>Jan(?:uary)?|Feb(?:ruary)?|Mar(?:ch)?|Apr(?:il)?|May|June?|July?|Aug(?:ust)?|"
    r"Sept?(?:ember)?|Oct(?:ober)?|Nov(?:ember)?|Dec(?:ember)?)\b\.?"
)
_YEAR, _MONTH, _DAY = (
    *(r"(?P<year>[12]\d{3})", r"(?P<month>1[0-2]|0?[1-9])"),
    r"(?P<day>3[01]|[12]\d|0?[1-9])",
)
_TH, _NO_DIGIT = r"(?:st|nd|rd|th)?", r"(?!\d)"
_FORMS = tuple(
    re.compile(rf"(?<![\w.]){form}")
    for form in (
        rf"{_YEAR}\s?년\s?{_MONTH}\s?월\s?{_DAY}\s?일",
        rf"{_YEAR}\s?[.]\s?{_MONTH}\s?[.]\s?{_DAY}{_NO_DIGIT}\.?",
        rf"{_YEAR}-{_MONTH}-{_DAY}{_NO_DIGIT}",
        rf"{_YEAR}/{_MONTH}/{_DAY}{_NO_DIGIT}",
        rf"['’‘](?P<year>\d\d)\s?[.]\s?{_MONTH}\s?[.]\s?{_DAY}{_NO_DIGIT}\.?",
        rf"{_NAME} {_DAY}{_TH}\b,? {_YEAR}\b",
        rf"{_DAY}{_TH} (?:of )?{_NAME},? {_YEAR}\b",
        rf"{_YEAR}\s?년\s?{_MONTH}\s?월",
        rf"{_NAME},? {_YEAR}\b",
        rf"{_NAME} {_DAY}{_TH}\b",
        rf"{_DAY}{_TH} (?:of )?{_NAME}",
        rf"{_MONTH}\s?월\s?{_DAY}\s?일",
        rf"{_YEAR}\s?년(?!\s?간)",
    )
)
_UNTIL = re.compile(
    r"\s?(?:[~∼–-]|에서|and|to|부터)\s?(?P<day>3[01]|[12]\d|0?[1-9])\s?(?:일|\b(?!\s?[월.:,%]))"
)
_CENTURY = 100
_PIVOT = 70
"""'69 is 2069, '70 is 1970."""


class Date(NamedTuple):
    """Year, month and day; 0 where it is not told."""

    year: int
    month: int
    day: int


def read(text: str) -> tuple[list[Date], str]:
    """The dates of a text, and the text with blanks in their places."""
    found: list[Date] = []
    for form in _FORMS:
        places = []
        for match in form.finditer(text):
            date = _date(match)
            until = _UNTIL.match(text, match.end()) if date.day else None
            found.append(date)
            if until:
                found.append(date._replace(day=int(until["day"])))
            places.append((match.start(), until.end() if until else match.end()))
        text = _blanked(text, places)
    return found, text


def agrees(date: Date, told: Collection[Date], numbers: Collection[float]) -> bool:
    """Whether dates tell this one; a year of its own may stand elsewhere, also as a number."""
    for other in told:
        pairs = zip(date, other, strict=True)
        if all(mine == its for mine, its in pairs if mine and its) and _as_fine(date, other):
            return not date.year or bool(other.year) or _year_known(date.year, told, numbers)
    return not date.month and date.year in numbers


def _as_fine(date: Date, other: Date) -> bool:
    """Whether the other tells month and day where this one does."""
    if not date.month:
        return bool(other.year)
    return bool(other.month) and (bool(other.day) or not date.day)


def _year_known(year: int, told: Collection[Date], numbers: Collection[float]) -> bool:
    return year in numbers or any(other.year == year for other in told)


def _date(match: re.Match[str]) -> Date:
    parts = match.groupdict()
    year = int(parts.get("year") or 0)
    if 0 < year < _CENTURY:
        year += 1900 if year >= _PIVOT else 2000
    name = parts.get("name")
    month = _MONTHS.index(name[:3].lower()) + 1 if name else int(parts.get("month") or 0)
    return Date(year, month, int(parts.get("day") or 0))


def _blanked(text: str, places: list[tuple[int, int]]) -> str:
    parts, position = [], 0
    for start, end in places:
        parts += [text[position:start], " " * (end - start)]
        position = max(end, position)
    return "".join([*parts, text[position:]])
