"""Reads what a sentence claims: words, figures, dates, names, and what it affirms and denies.

Dates and figures with units are recognised in every notation: 1억 2천만 원 is 120,000,000원,
열흘 is 10일, 2024.3.5. is March 5, 2024.
"""

import functools
import math
import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import NamedTuple

from rag import tokenize
from rag.errors import EngineUnavailable
from rag.lexicon import load_phrases, load_words
from rag.tokenize.korean import Morpheme, analyse_texts, strip_particle
from rag.tokenize.text import to_letters
from rag.verify.sentences import MARKER

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
    """Year, month and day; 0 for parts that are not given."""

    year: int
    month: int
    day: int


def read_dates(text: str) -> tuple[list[Date], str]:
    """The dates of a text, and the text with the dates blanked out."""
    dates: list[Date] = []

    def blank_date(match: re.Match[str]) -> str:
        dates.append(_to_date(match.groupdict()))
        return " " * len(match[0])

    for form in _DATES:
        text = form.sub(blank_date, text)
    return dates, text


def _to_date(parts: dict[str, str | None]) -> Date:
    year = int(parts.get("year") or 0)
    if short := parts.get("short"):
        year = int(short) + (1900 if int(short) >= _PIVOT else 2000)
    name = parts.get("name")
    month = _MONTHS.index(name[:3].lower()) + 1 if name else int(parts.get("month") or 0)
    return Date(year, month, int(parts.get("day") or 0))


def is_date_stated(date: Date, dates: Collection[Date], numbers: Collection[float]) -> bool:
    """Whether one of `dates` agrees with a date, and `numbers` contain each of its parts."""
    return all(part in numbers for part in date if part) and any(
        all(mine == its for mine, its in zip(date, other, strict=True) if mine and its)
        for other in dates
        if other.month or not date.month
    )


def _read_numbers(name: str) -> dict[str, float]:
    """The words of a list, each with the number at the start of its line."""
    return {
        word: float(number)
        for number, *words in map(str.split, load_phrases(name))
        for word in words
    }


def _join_alternatives(names: Iterable[str]) -> str:
    """A pattern for any of the names, longest first; Latin ones must end at a word boundary."""
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
_DAY_WORDS = _read_numbers("day_words")
_SCALES = _read_numbers("scales")
_FIGURE = re.compile(
    rf"(?<![\d.,A-Za-z]){_NUMBER}(?:{_SCALE}(?:[ ]?{_NUMBER}{_SCALE}?)*)?"
    rf"|(?<![가-힣])(?!한\s?[^\s명달시])(?:{_join_alternatives(_NUMBER_WORDS)})(?=\s?(?:{_COUNTERS}))"
    rf"|(?<![가-힣])(?P<days>{_join_alternatives(_DAY_WORDS)})(?!달)"
    rf"|\b(?:{_join_alternatives(filter(str.isascii, _NUMBER_WORDS))}){_SCALE}?",
    re.IGNORECASE,
)
_PART = re.compile(
    rf"({_NUMBER}|{_join_alternatives(_NUMBER_WORDS)})"
    rf"(?:[ -]?여?([십백천만억조]+|{_join_alternatives(filter(str.isascii, _SCALES))}))?",
    re.IGNORECASE,
)
_AROUND = 18
_DOTTED = {ord("İ"): "I", ord("ı"): "i"}
"""Case-insensitive patterns match these as "i" ("mınutes"), but table look-ups do not."""


class Figure(NamedTuple):
    """A number in the base unit of its `dimension`, which is "" if no known unit follows.

    `raw` is the number as written, `bound` the kind of limit ("ge", "lt", ...).
    """

    value: float
    dimension: str
    raw: float
    bound: str = ""


Known = Mapping[tuple[str | None, float], AbstractSet[str]]
"""The bounds of figures by dimension and value, by "" and raw number, and by None and value if they
have no dimension."""


def read_figures(text: str) -> list[Figure]:
    """The figures of a text in order; dates should be blanked out first."""
    text = text.translate(_DOTTED)
    return [_to_figure(text, match) for match in _FIGURE.finditer(text)]


def to_known(figures: Iterable[Figure]) -> Known:
    """An index of figures for `find_bounds`."""
    bounds_by_key: dict[tuple[str | None, float], set[str]] = defaultdict(set)
    for figure in figures:
        for key in (("", figure.raw), (figure.dimension or None, figure.value)):
            bounds_by_key[key].add(figure.bound)
    return bounds_by_key


def find_bounds(figure: Figure, known: Known) -> set[str]:
    """The bounds of the figures equal to this one; empty if there is none."""
    keys = [(figure.dimension, figure.value), (None, figure.raw)]
    return {
        bound for key in (keys if figure.dimension else keys[:1]) for bound in known.get(key, ())
    }


def is_bound_opposed(figure: Figure, bounds: AbstractSet[str]) -> bool:
    """Whether all these bounds contradict the figure's: 30일 이상 is not 30일 이하."""
    return bool(bounds) and bounds <= _OPPOSED.get(figure.bound, frozenset())


def _to_figure(text: str, match: re.Match[str]) -> Figure:
    text_before = text[max(0, match.start() - _AROUND) : match.start()]
    if days := match["days"]:
        raw, end = _DAY_WORDS[days], match.end()
        dimension, factor = _UNITS["일"]
    else:
        raw = round(_sum_scales(_PART.findall(match[0])), 9)
        unit = _UNIT.match(text, match.end())
        end = unit.end() if unit else match.end()
        dimension, factor = (
            _UNITS[unit[1].lower()] if unit else (_SIGNS.get(text_before[-1:], ""), 1.0)
        )
    limit = _BOUND_BEHIND.match(text, end) or _BOUND_BEFORE.search(text_before)
    bound = _BOUNDS[limit[1].lower()] if limit else ""
    return Figure(round(raw * factor, 9), dimension, raw, bound)


def _sum_scales(parts: Iterable[tuple[str, str]]) -> float:
    """The value of numbers with scales: 3천 5백만 is 3,500 times 10,000.

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
"""Every notation of a unit with its dimension and its size in the base unit."""
_BOUNDS, _OPPOSED = {}, {}
for _kind, _opposed, _names in (line.split(" | ") for line in load_phrases("bounds")):
    _BOUNDS.update(dict.fromkeys(_names.split(","), _kind))
    _OPPOSED[_kind] = frozenset(_opposed.split())
_UNIT = re.compile(
    rf"(?:여|가량|정도)?[ -]?({_join_alternatives(_UNITS)})(?!의\s?\d)", re.IGNORECASE
)
_BOUND_BEHIND = re.compile(
    rf"\s?(?:[을를]\s)?({_join_alternatives(n for n in _BOUNDS if not n.isascii())})", re.IGNORECASE
)
_BOUND_BEFORE = re.compile(
    rf"\b({_join_alternatives(_BOUNDS)})\s?(?:of )?(?:\w{{1,6}} )?[$₩€]?$", re.IGNORECASE
)


MAX_SENTENCE_CHARACTERS = 1000
"""Characters of a sentence that are read."""
MAX_WORDS = 120
"""Words of a sentence that are compared in order."""
MIN_LIKE_SHARE = 0.6
"""Share of a sentence's words that must occur in the same order in the evidence."""
MAX_NAME_WORDS, MAX_THERE_WORDS = 5, 8
"""Most words of a name, and most words in its place in the evidence."""
_REACH = 4
"""Words after an English "not" among which it negates one."""
_LINK = re.compile(r"!?\[([^\[\]\n]{0,200})\]\([^()\s]{0,400}\)")
_MARKUP = re.compile(r"\*{1,3}|`+|~~|^[#>\s]+|__")
_NO_LATIN = re.compile(r"^\d|[가-힣]")
_DAYS = ("월", "화", "수", "목", "금", "토", "일")
_ENGLISH_DAYS = ("Mon", "Tues", "Wednes", "Thurs", "Fri", "Satur", "Sun")
_WEEKDAY = re.compile(
    rf"([{''.join(_DAYS)}])요일|(?<=[\d일.])\s?\(([{''.join(_DAYS)}])\)"
    rf"|\b({'|'.join(_ENGLISH_DAYS)})day"
)
_EDGES = re.compile(r"^[\W_]+|[\W_]+$")
_ORGANISATION = re.compile(rf"[가-힣]{{2,12}}?(?:{'|'.join(load_words('organisations.ko'))})")
_LATIN_WORD = re.compile(r"[A-Za-z][A-Za-z0-9]*(?:[-.&+#'’][A-Za-z0-9]+)*")
_ENGLISH_TOKEN = re.compile(r"[A-Za-z]+(?:['’][A-Za-z]+)?|[.,;:!?()]")
_NOUNS = frozenset(("NNG", "NNP", "XR"))
_VERBS = frozenset(("VV", "VA"))
_ACTS = _VERBS | {"VX", "VCN", "XSV", "XSA", "MAG", "MAJ", "NP", "NNB", "MM"}
_NAMING = _NOUNS | {"NR", "SL", "SH"}
_DENYING = frozenset(("않", "못하", "말", "아니하"))
_PREFIXES = frozenset(("불", "비", "미", "무", "부"))
_STOP = load_words("stop.en")
_CALENDAR = load_words("calendar.en")
_NEGATORS = load_words("negators.en")

Polarities = Mapping[str, frozenset[bool]]
"""For the stem of each word, whether a sentence affirms it (True), denies it (False), or both.

A word with an opposite also adds an entry for the pair: affirmed if it is the first of the pair,
denied if it is the second.
"""


@dataclass(frozen=True, slots=True)
class ClaimWord:
    """A word as it is compared; `is_name`: it may be part of a name."""

    key: str
    is_name: bool


@dataclass(frozen=True, slots=True)
class SentenceFacts:
    """A sentence as read; its `terms` are pairs of syllables, Latin stems and numbers."""

    text: str
    terms: frozenset[str]
    dates: tuple[Date, ...]
    figures: tuple[Figure, ...]

    @property
    def language(self) -> str:
        """Korean ("ko") if it contains Hangul, else "en"."""
        return "ko" if tokenize.HANGUL.search(self.text) else "en"


@dataclass(frozen=True, slots=True)
class Details:
    """What is compared word by word, only with the units closest to a sentence."""

    names: tuple[str, ...]
    polarities: Polarities
    words: tuple[ClaimWord, ...]


def read_sentence(
    text: str, morphemes: Sequence[Morpheme] | None = None, *, about: frozenset[str] = frozenset()
) -> SentenceFacts:
    """Read a sentence. `about` are the terms of its title and document.

    With `morphemes`, only nouns count as Korean terms.
    """
    dates, rest = read_dates(text)
    figures = read_figures(rest)
    terms = {f"{figure.value:.12g} {figure.dimension}" for figure in figures}
    terms.update(str(part) for date in dates for part in date if part)
    return SentenceFacts(
        text,
        about.union(terms, read_terms(text, morphemes)),
        tuple(dict.fromkeys(dates)),
        tuple(dict.fromkeys(figures)),
    )


def read_terms(text: str, morphemes: Sequence[Morpheme] | None = None) -> frozenset[str]:
    """The terms of a text's words: pairs of syllables and Latin stems."""
    terms: set[str] = set()
    for word in text.split():
        terms.update(
            term for term in tokenize.read_surface(word).others if not _NO_LATIN.search(term)
        )
    for word in _find_hangul_words(text, morphemes):
        terms.update(tokenize.split_pairs(word))
    return frozenset(terms)


def _find_hangul_words(text: str, morphemes: Sequence[Morpheme] | None) -> list[str]:
    if morphemes is None:
        return tokenize.HANGUL.findall("".join(text.split()))
    nouns = (item.form for item in morphemes if item.tag in _NOUNS)
    return [noun for noun in nouns if tokenize.HANGUL.fullmatch(noun) and len(noun) > 1]


def read_details(text: str, morphemes: Sequence[Morpheme] | None) -> Details:
    """Read what is compared word by word."""
    morphemes = morphemes or ()
    return Details(
        tuple(read_names(text, morphemes)),
        read_polarities(text, morphemes),
        tuple(read_words(text, morphemes)),
    )


def analyse_morphemes(texts: Sequence[str]) -> Sequence[Sequence[Morpheme] | None]:
    """The morphemes of the beginnings of Korean texts; all None without the analyser."""
    texts = [text[:MAX_SENTENCE_CHARACTERS] for text in texts]
    korean = [text for text in texts if tokenize.HANGUL.search(text)]
    try:
        morphemes = iter(list(analyse_texts(korean)) if korean else ())
    except EngineUnavailable:
        return [None] * len(texts)
    return [next(morphemes) if tokenize.HANGUL.search(text) else () for text in texts]


def to_plain(text: str) -> str:
    """The beginning of a sentence without markers and Markdown, normalised."""
    bare = _LINK.sub(r"\1", MARKER.sub(" ", text[:MAX_SENTENCE_CHARACTERS]))
    return tokenize.normalise(_MARKUP.sub("", bare).replace("|", " ").strip())


def read_weekdays(text: str) -> frozenset[int]:
    """The days of the week that a text names, Monday 0: 월요일, 3. 4.(월), Monday."""
    days = {name: day for names in (_DAYS, _ENGLISH_DAYS) for day, name in enumerate(names)}
    return frozenset(days[match[match.lastindex or 0]] for match in _WEEKDAY.finditer(text))


def read_names(text: str, morphemes: Sequence[Morpheme]) -> list[str]:
    """The distinct names of a sentence as it spells them."""
    if tokenize.HANGUL.search(text):
        names = [item.form for item in morphemes if item.tag == "NNP"]
        names += _ORGANISATION.findall(text)
        names += (word for word in _LATIN_WORD.findall(text) if word.lower() not in _STOP)
    else:
        names = list(_find_capitalised(text))
    return [name for name in dict.fromkeys(names) if len(name) > 1]


def find_missing(names: Iterable[str], letters: str) -> list[str]:
    """The names that are not in `letters` (as `to_letters` writes it)."""
    return [name for name in names if to_letters(name).removesuffix("s") not in letters]


def _find_capitalised(text: str) -> Iterator[str]:
    """The capitalised words of an English sentence, except an ordinary first word."""
    first = True
    for match in _LATIN_WORD.finditer(text):
        word = re.sub(r"['’]s?$", "", match[0])
        named = word[0].isupper() and len(word) > 1 and word.lower() not in _STOP | _CALENDAR
        if named and (not first or word[1:].lower() != word[1:]):
            yield word
        first = text[match.end() : match.end() + 1] in (":", "—")


def read_polarities(text: str, morphemes: Sequence[Morpheme]) -> Polarities:
    """What a sentence affirms and denies."""
    korean = bool(tokenize.HANGUL.search(text))
    words = list(_read_korean_polarities(morphemes) if korean else _read_english_polarities(text))
    pairs = _load_opposites("ko" if korean else "en")
    words += [
        (pair[0], affirmed is pair[1]) for word, affirmed in words if (pair := pairs.get(word))
    ]
    return merge_polarities([{word: frozenset([affirmed])} for word, affirmed in words])


def merge_polarities(several: Iterable[Polarities]) -> Polarities:
    """The polarities of several sentences combined."""
    merged: dict[str, frozenset[bool]] = defaultdict(frozenset)
    for polarities in several:
        for word, of_word in polarities.items():
            merged[word] |= of_word
    return merged


def is_polarity_reversed(mine: Polarities, its: Polarities) -> bool:
    """Whether a word in both has a polarity in `mine` that it lacks in `its`."""
    return any(of_word - its.get(word, of_word) for word, of_word in mine.items())


def _read_korean_polarities(morphemes: Sequence[Morpheme]) -> list[tuple[str, bool]]:
    """Nouns, verbs and adjectives, each with whether it is affirmed.

    않, 못하, 아니, 수 없 negate what they follow.
    """
    words: list[tuple[str, bool]] = []
    pairs = _load_opposites("ko")
    denied = False  # by "불", "미" before a noun
    for previous, item in zip((None, *morphemes), morphemes, strict=False):
        previous_form = previous.form if previous else ""
        if item.tag == "XPN":
            denied = item.form in _PREFIXES
        elif (
            item.tag == "VCN"
            or (item.tag == "VX" and item.form in _DENYING)
            or (item.form, previous_form) in (("아니", "지"), ("없", "수"))
        ):
            words[-1:] = [(word, not affirmed) for word, affirmed in words[-1:]]
        elif item.form in pairs or (item.tag in _NOUNS | _VERBS and len(item.form) > 1):
            words.append((item.form, not denied))
            denied = False
    return words


def _read_english_polarities(text: str) -> list[tuple[str, bool]]:
    """Content words, each with whether it is affirmed; "not" negates the next one."""
    words: list[tuple[str, bool]] = []
    reach = 0
    for match in _ENGLISH_TOKEN.finditer(text):
        word = match[0].lower().replace("’", "").replace("'", "")
        stem = tokenize.stem_word(word)
        if not word.isalpha():
            reach = 0
        elif word in _NEGATORS:
            reach = _REACH
        elif stem in _load_opposites("en") or (word not in _STOP and len(word) > 2):
            words.append((stem, reach == 0))
            reach = 0
        else:
            reach = max(0, reach - 1)
    return words


@functools.cache
def _load_opposites(language: str) -> Mapping[str, tuple[str, bool]]:
    """For each word with an opposite, its pair and whether it is on the first side."""
    opposites: dict[str, tuple[str, bool]] = {}
    for line in load_phrases(f"opposites.{language}"):
        left, _, right = line.partition(" | ")
        for side, names in ((True, left), (False, right)):
            opposites.update((tokenize.stem_word(word), (line, side)) for word in names.split())
    return opposites


def read_words(text: str, morphemes: Sequence[Morpheme]) -> list[ClaimWord]:
    """The words of a sentence in order, without particles."""
    acting = {item.start for item in morphemes if item.tag in _ACTS}
    nouns = {item.start for item in morphemes if item.tag in _NAMING}
    hangul = bool(tokenize.HANGUL.search(text))
    words: list[ClaimWord] = []
    for match in re.finditer(r"\S+", text):
        bare = _EDGES.sub("", match[0])
        key = to_letters(strip_particle(bare) if tokenize.HANGUL.search(bare) else bare)
        if not key or len(words) == MAX_WORDS:
            continue
        place = range(match.start(), match.end())
        noun = acting.isdisjoint(place) and not nouns.isdisjoint(place)
        named = noun if hangul else bare[0].isupper() and bool(words)
        words.append(ClaimWord(key, named and not any(map(str.isdigit, bare))))
    return words


def is_name_swapped(mine: Sequence[ClaimWord], its: Sequence[ClaimWord]) -> bool:
    """Whether a sentence has one name where the evidence has another."""
    own_keys, other_keys = [word.key for word in mine], [word.key for word in its]
    blocks = SequenceMatcher(None, own_keys, other_keys, autojunk=False).get_matching_blocks()
    if sum(block.size for block in blocks) < MIN_LIKE_SHARE * len(own_keys):
        return False
    own_text, other_text = "".join(own_keys), "".join(other_keys)
    own_end = other_end = 0
    for a, b, size in blocks:
        own_words, other_words = mine[own_end:a], its[other_end:b]
        own_end, other_end = a + size, b + size
        if not size or len(own_words) > MAX_NAME_WORDS or len(other_words) > MAX_THERE_WORDS:
            continue
        is_foreign_name = any(not _is_word_in(other_text, one) for one in _list_names(own_words))
        if is_foreign_name and any(
            not _is_word_in(own_text, one) for one in _list_names(other_words)
        ):
            return True
    return False


def _list_names(words: Sequence[ClaimWord]) -> list[str]:
    return [word.key for word in words if word.is_name and len(word.key) > 1]


def _is_word_in(text: str, key: str) -> bool:
    """Whether a text contains a word or half of it: names get split and shortened."""
    if key.isascii():
        return key in text
    pairs = list(tokenize.split_pairs(key))
    return 2 * sum(pair in text for pair in pairs) >= len(pairs)
