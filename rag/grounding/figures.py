"""Figures in a text with their units, however they are written: 1억 2천만 원 is 120,000,000원."""

import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from rag.words import phrases

_NUMBER = re.compile(r"(?<![\d.,])(?<![A-Za-z])(?:\d{1,3}(?:,\d{3})+(?!\d)|\d{1,18})(?:\.\d{1,9})?")
_SCALE = re.compile(
    r"[ ]?여?(?P<ko>[십백천]?[만억]|조(?=\s?(?:원|달러|\d))|[천백](?=[\s원명개달만억여]|$))"
    r"|[ -](?P<en>hundred|thousand|million|billion|trillion)\b",
    re.IGNORECASE,
)
_SCALES = {
    "십": 10.0,
    "백": 1e2,
    "천": 1e3,
    "만": 1e4,
    "억": 1e8,
    "조": 1e12,
    "hundred": 1e2,
    "thousand": 1e3,
    "million": 1e6,
    "billion": 1e9,
    "trillion": 1e12,
}
_SPELT_KO = re.compile(
    r"(?<![가-힣])(?P<native>한|두|세|네|다섯|여섯|일곱|여덟|아홉|열|스무)\s?"
    r"(?=가지|번|명|개|차례|달|시간|살|곳|대|사람|배|단계|종류)"
    r"|(?<![가-힣\d.,])(?P<sino>[일이삼사오육칠팔구십백천만억조]{2,16})(?=\s?원)"
)
_NATIVE = {
    "한": 1,
    "두": 2,
    "세": 3,
    "네": 4,
    "다섯": 5,
    "여섯": 6,
    "일곱": 7,
    "여덟": 8,
    "아홉": 9,
    "열": 10,
    "스무": 20,
}
_SINO = "영일이삼사오육칠팔구"
_SPELT_EN = re.compile(
    r"\b(two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|twenty|thirty|forty|fifty|"
    r"sixty|seventy|eighty|ninety)\b",
    re.IGNORECASE,
)
_ENGLISH = {
    "two": 2,
    "three": 3,
    "four": 4,
    "five": 5,
    "six": 6,
    "seven": 7,
    "eight": 8,
    "nine": 9,
    "ten": 10,
    "eleven": 11,
    "twelve": 12,
    "twenty": 20,
    "thirty": 30,
    "forty": 40,
    "fifty": 50,
    "sixty": 60,
    "seventy": 70,
    "eighty": 80,
    "ninety": 90,
}
_VAGUE = re.compile(
    r"(?:약|대략|거의|around|about|nearly|almost|roughly|approximately|some)\s?$", re.IGNORECASE
)
_VAGUE_BEHIND = re.compile(r"\s?(?:여|가량|정도|쯤|남짓)")
_CLOSE = 0.05
"""How far a figure that calls itself vague may be off."""
_EXACT = 1e-9
MOST_LOOSE = 500
"""Figures that one is compared with where it is rounded or vague."""
_AROUND = 18
_OPPOSED = {
    "ge": "gt le lt down",
    "gt": "ge le lt down",
    "le": "ge gt lt up",
    "lt": "ge gt le up",
    "up": "le lt down",
    "down": "ge gt up after",
    "after": "before down",
    "before": "after",
}


class Figure(NamedTuple):
    """A number in the base of its dimension; "" where no known unit follows.

    `raw` is the number as told, `bound` the kind of limit ("ge", "lt", ...), `places` its decimals.
    A `loose` one ("한 번") may be meant as none.
    """

    value: float
    dimension: str
    raw: float
    bound: str = ""
    vague: bool = False
    places: int = 0
    loose: bool = False


class _Part(NamedTuple):
    start: int
    end: int
    value: float
    scale: float
    places: int
    loose: bool = False


def read(text: str) -> list[Figure]:
    """The figures of a text in order; dates should be blanked before (`rag.grounding.dates`)."""
    return [_figure(text, part) for part in _joined(text, sorted(_parts(text)))]


class Known:
    """Figures to look others up in, without going through all of them."""

    def __init__(self, figures: Iterable[Figure]) -> None:
        self._exact: dict[tuple[str, float], list[Figure]] = {}
        self._loose: list[Figure] = []
        self._some: list[Figure] = []
        for figure in dict.fromkeys(figures):
            for key in {("", figure.raw), (figure.dimension, figure.value)}:
                self._exact.setdefault(key, []).append(figure)
            if figure.vague and len(self._loose) < MOST_LOOSE:
                self._loose.append(figure)
            if len(self._some) < MOST_LOOSE:
                self._some.append(figure)

    def same(self, figure: Figure) -> list[Figure]:
        """Those that are the same figure, whatever their bounds."""
        near = self._some if figure.vague or figure.places else self._loose
        others = self._exact.get((figure.dimension, figure.value), [])
        others = [*others, *self._exact.get(("", figure.raw), []), *near]
        return tells(figure, others)


def tells(figure: Figure, others: Iterable[Figure]) -> list[Figure]:
    """Those of the others that are the same figure, whatever their bounds."""
    return [other for other in others if _same(figure, other)]


def opposed(figure: Figure, same: Iterable[Figure]) -> bool:
    """Whether all equal figures are bounded the other way: 30일 이상 is not 30일 이하."""
    bounds = {other.bound for other in same}
    return bool(bounds) and bounds <= set(_OPPOSED.get(figure.bound, "").split())


def _same(mine: Figure, other: Figure) -> bool:
    if mine.dimension and other.dimension:
        if mine.dimension != other.dimension:
            return False
        left, right = mine.value, other.value
    else:
        left, right = mine.raw, other.raw
    tolerance = _CLOSE if mine.vague or other.vague else _EXACT
    close = abs(left - right) <= tolerance * max(abs(left), abs(right))
    return close or (mine.places > 0 and round(right, mine.places) == left)


def _parts(text: str) -> Iterator[_Part]:
    for match in _NUMBER.finditer(text):
        number = match[0].replace(",", "")
        scale, end = _scale(text, match.end())
        places = len(number.partition(".")[2]) if scale == 1 else 0
        yield _Part(match.start(), end, float(number) * scale, scale, places)
    for match in _SPELT_KO.finditer(text):
        value = float(_NATIVE[match["native"]]) if match["native"] else _sino(match["sino"])
        yield _Part(match.start(), match.end(), value, 1, 0, match["native"] == "한")
    for match in _SPELT_EN.finditer(text):
        scale, end = _scale(text, match.end())
        yield _Part(match.start(), end, _ENGLISH[match[0].lower()] * scale, scale, 0)


def _scale(text: str, position: int) -> tuple[float, int]:
    match = _SCALE.match(text, position)
    if not match:
        return 1.0, position
    if match["en"]:
        return _SCALES[match["en"].lower()], match.end()
    value = 1.0
    for letter in match["ko"]:
        value *= _SCALES[letter]
    return value, match.end()


def _joined(text: str, parts: list[_Part]) -> Iterator[_Part]:
    """1억 2천만 is one figure: each part on a smaller scale than the one before."""
    held: _Part | None = None
    for part in parts:
        near = held and text[held.end : part.start] in ("", " ")
        if held and near and held.scale > part.scale and held.scale >= 1e3:
            held = _Part(held.start, part.end, held.value + part.value, part.scale, 0)
            continue
        if held:
            yield held
        held = part
    if held:
        yield held


def _figure(text: str, part: _Part) -> Figure:
    before = text[max(0, part.start - _AROUND) : part.start]
    loose = _VAGUE_BEHIND.match(text, part.end)
    position = loose.end() if loose else part.end
    unit = _UNIT.match(text, position)
    dimension, factor = _FACTORS[unit[1].lower()] if unit else ("", 1.0)
    end = unit.end() if unit else position
    if not unit and before.endswith(("$", "₩", "€")):
        dimension = {"$": "달러", "₩": "원", "€": "유로"}[before[-1]]
    vague = bool(loose or _VAGUE.search(before) or _VAGUE_BEHIND.match(text, end))
    bound = _bound(before, text[end : end + _AROUND])
    return Figure(part.value * factor, dimension, part.value, bound, vague, part.places, part.loose)


def _bound(before: str, behind: str) -> str:
    match = _BOUND_BEHIND.match(behind) or _BOUND_BEFORE.search(before)
    return _BOUNDS[match[1].lower()] if match else ""


def _sino(word: str) -> float:
    total = group = digit = 0.0
    for letter in word:
        if letter in "십백천":
            group += (digit or 1) * _SCALES[letter]
            digit = 0
        elif letter in "만억조":
            total += ((group + digit) or 1) * _SCALES[letter]
            group = digit = 0
        else:
            digit = _SINO.index(letter)
    return total + group + digit


def _units() -> dict[str, tuple[str, float]]:
    """Each way to write a unit with its dimension and its size in it."""
    found: dict[str, tuple[str, float]] = {}
    for line in phrases("units"):
        dimension, factor, *names = line.split()
        found.update(dict.fromkeys(names, (dimension, float(factor))))
    return found


def _bounds() -> dict[str, str]:
    found: dict[str, str] = {}
    for line in phrases("bounds"):
        kind, _, names = line.partition(" ")
        found.update(dict.fromkeys((name.strip() for name in names.split(",")), kind))
    return found


def _any(names: Iterable[str]) -> str:
    """Any of the names, the longest first; a Latin one ends with its word."""
    ordered = sorted(names, key=len, reverse=True)
    return "|".join(
        re.escape(name) + (r"\b" if name.isascii() and name[-1].isalnum() else "")
        for name in ordered
    )


_FACTORS = _units()
_BOUNDS = _bounds()
_UNIT = re.compile(rf"[ -]?({_any(_FACTORS)})(?!의\s?\d)", re.IGNORECASE)
_BOUND_BEHIND = re.compile(
    rf"\s?(?:[을를]\s)?({_any(n for n in _BOUNDS if not n.isascii())})", re.IGNORECASE
)
_BOUND_BEFORE = re.compile(rf"\b({_any(_BOUNDS)})\s?(?:of )?(?:\w{{1,6}} )?[$₩€]?$", re.IGNORECASE)
