"""What a sentence says: its words, figures, dates and names, and what it affirms and denies."""

import functools
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher

from rag import tokenize
from rag.errors import EngineUnavailable
from rag.lexicon import load_phrases, load_words
from rag.tokenize import surface
from rag.tokenize.korean import Morpheme, analyse_texts, strip_particle
from rag.tokenize.text import to_letters
from rag.verify.figures import Date, Figure, read_dates, read_figures
from rag.verify.sentences import MARKER

MAX_SENTENCE_CHARACTERS = 1000
"""Characters of a sentence that are looked at."""
MAX_WORDS = 120
"""Words of a sentence that are compared in their order."""
MIN_LIKE_SHARE = 0.6
"""Share of a sentence's words that must stand in the same order in the evidence."""
MAX_NAME_WORDS, MAX_THERE_WORDS = 5, 8
"""Words that a name may have, and that may stand for it in the evidence."""
_REACH = 4
"""Words behind an English "not" in which the denied one stands."""
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

Signs = Mapping[str, frozenset[bool]]
"""Of each word, by its stem, whether a sentence affirms it (True), denies it, or both.

A word that has an opposite stands there for its pair as well: affirmed where the first of the pair
is, denied where the second is.
"""


@dataclass(frozen=True, slots=True)
class ClaimWord:
    """A word as it is compared; `is_name`: it may be part of a name."""

    key: str
    is_name: bool


@dataclass(frozen=True, slots=True)
class SentenceFacts:
    """A sentence read. Its `terms` are pairs of syllables, Latin stems, and its numbers."""

    text: str
    terms: frozenset[str]
    dates: tuple[Date, ...]
    figures: tuple[Figure, ...]

    @property
    def language(self) -> str:
        """Korean ("ko") where it holds Hangul, else "en"."""
        return "ko" if surface.HANGUL.search(self.text) else "en"


@dataclass(frozen=True, slots=True)
class Details:
    """What of a sentence is compared word by word; only of those that tell the same matter."""

    names: tuple[str, ...]
    signs: Signs
    words: tuple[ClaimWord, ...]


def read_sentence(
    text: str, found: Sequence[Morpheme] | None = None, *, about: frozenset[str] = frozenset()
) -> SentenceFacts:
    """Read a sentence. `about` are the terms of what stands above it.

    Of the Hangul of one that is analysed only the nouns are terms.
    """
    dates, rest = read_dates(text)
    figures = read_figures(rest)
    terms = {f"{figure.value:.12g} {figure.dimension}" for figure in figures}
    terms.update(str(part) for date in dates for part in date if part)
    return SentenceFacts(
        text,
        about.union(terms, read_terms(text, found)),
        tuple(dict.fromkeys(dates)),
        tuple(dict.fromkeys(figures)),
    )


def read_terms(text: str, found: Sequence[Morpheme] | None = None) -> frozenset[str]:
    """The terms of a text's words: pairs of syllables and Latin stems."""
    terms: set[str] = set()
    for word in text.split():
        terms.update(
            term for term in surface.read_surface(word).others if not _NO_LATIN.search(term)
        )
    for word in _hangul_words(text, found):
        terms.update(surface.split_pairs(word))
    return frozenset(terms)


def _hangul_words(text: str, found: Sequence[Morpheme] | None) -> list[str]:
    if found is None:
        return surface.HANGUL.findall("".join(text.split()))
    nouns = (item.form for item in found if item.tag in _NOUNS)
    return [noun for noun in nouns if surface.HANGUL.fullmatch(noun) and len(noun) > 1]


def read_details(text: str, found: Sequence[Morpheme] | None) -> Details:
    """Read what is compared word by word."""
    found = found or ()
    return Details(
        tuple(read_names(text, found)), read_signs(text, found), tuple(read_words(text, found))
    )


def analyse_morphemes(texts: Sequence[str]) -> Sequence[Sequence[Morpheme] | None]:
    """The morphemes of every Korean text's beginning; None where the analyser is not there."""
    texts = [text[:MAX_SENTENCE_CHARACTERS] for text in texts]
    korean = [text for text in texts if surface.HANGUL.search(text)]
    try:
        found = iter(list(analyse_texts(korean)) if korean else ())
    except EngineUnavailable:
        return [None] * len(texts)
    return [next(found) if surface.HANGUL.search(text) else () for text in texts]


def to_plain(text: str) -> str:
    """The beginning of a sentence without markers and Markdown, normalised."""
    bare = _LINK.sub(r"\1", MARKER.sub(" ", text[:MAX_SENTENCE_CHARACTERS]))
    return tokenize.normalise(_MARKUP.sub("", bare).replace("|", " ").strip())


def read_weekdays(text: str) -> frozenset[int]:
    """The days of the week that a text names, Monday 0: 월요일, 3. 4.(월), Monday."""
    days = {name: day for names in (_DAYS, _ENGLISH_DAYS) for day, name in enumerate(names)}
    return frozenset(days[found[found.lastindex or 0]] for found in _WEEKDAY.finditer(text))


def read_names(text: str, found: Sequence[Morpheme]) -> list[str]:
    """The names of a sentence, each once, as they stand there."""
    if surface.HANGUL.search(text):
        names = [item.form for item in found if item.tag == "NNP"]
        names += _ORGANISATION.findall(text)
        names += (word for word in _LATIN_WORD.findall(text) if word.lower() not in _STOP)
    else:
        names = list(_capitalised(text))
    return [name for name in dict.fromkeys(names) if len(name) > 1]


def find_missing(names: Iterable[str], told: str) -> list[str]:
    """The names that are not in `told` (as `to_letters` writes it)."""
    return [name for name in names if to_letters(name).removesuffix("s") not in told]


def _capitalised(text: str) -> Iterator[str]:
    """The capitalised words of an English sentence but for its first, which always is."""
    first = True
    for match in _LATIN_WORD.finditer(text):
        word = re.sub(r"['’]s?$", "", match[0])
        named = word[0].isupper() and len(word) > 1 and word.lower() not in _STOP | _CALENDAR
        if named and (not first or word[1:].lower() != word[1:]):
            yield word
        first = text[match.end() : match.end() + 1] in (":", "—")


def read_signs(text: str, found: Sequence[Morpheme]) -> Signs:
    """What a sentence affirms and denies."""
    korean = bool(surface.HANGUL.search(text))
    signs = list(_korean_signs(found) if korean else _english_signs(text))
    pairs = _opposites("ko" if korean else "en")
    signs += [(pair[0], sign is pair[1]) for word, sign in signs if (pair := pairs.get(word))]
    return join_signs([{word: frozenset([sign])} for word, sign in signs])


def join_signs(several: Iterable[Signs]) -> Signs:
    """What several sentences say together."""
    together: dict[str, frozenset[bool]] = defaultdict(frozenset)
    for signs in several:
        for word, found in signs.items():
            together[word] |= found
    return together


def is_sign_turned(mine: Signs, its: Signs) -> bool:
    """Whether something has a sign in mine which it has not in the other."""
    return any(found - its.get(word, found) for word, found in mine.items())


def _korean_signs(found: Sequence[Morpheme]) -> list[tuple[str, bool]]:
    """The signs of nouns, verbs and adjectives; 않, 못하, 아니, 수 없 turn what they follow."""
    signs: list[tuple[str, bool]] = []
    pairs = _opposites("ko")
    denied = False  # by "불", "미" before a noun
    for before, item in zip((None, *found), found, strict=False):
        behind = before.form if before else ""
        if item.tag == "XPN":
            denied = item.form in _PREFIXES
        elif (
            item.tag == "VCN"
            or (item.tag == "VX" and item.form in _DENYING)
            or (item.form, behind) in (("아니", "지"), ("없", "수"))
        ):
            signs[-1:] = [(word, not sign) for word, sign in signs[-1:]]
        elif item.form in pairs or (item.tag in _NOUNS | _VERBS and len(item.form) > 1):
            signs.append((item.form, not denied))
            denied = False
    return signs


def _english_signs(text: str) -> list[tuple[str, bool]]:
    """The signs of words; "not" turns the next one that says something."""
    signs: list[tuple[str, bool]] = []
    reach = 0
    for match in _ENGLISH_TOKEN.finditer(text):
        word = match[0].lower().replace("’", "").replace("'", "")
        stem = surface.stem_word(word)
        if not word.isalpha():
            reach = 0
        elif word in _NEGATORS:
            reach = _REACH
        elif stem in _opposites("en") or (word not in _STOP and len(word) > 2):
            signs.append((stem, reach == 0))
            reach = 0
        else:
            reach = max(0, reach - 1)
    return signs


@functools.cache
def _opposites(language: str) -> Mapping[str, tuple[str, bool]]:
    """Each word that has an opposite: the name of its pair, and whether it is on the first side."""
    found: dict[str, tuple[str, bool]] = {}
    for line in load_phrases(f"opposites.{language}"):
        left, _, right = line.partition(" | ")
        for side, names in ((True, left), (False, right)):
            found.update((surface.stem_word(word), (line, side)) for word in names.split())
    return found


def read_words(text: str, found: Sequence[Morpheme]) -> list[ClaimWord]:
    """The words of a sentence in their order, without particles."""
    acting = {item.start for item in found if item.tag in _ACTS}
    nouns = {item.start for item in found if item.tag in _NAMING}
    hangul = bool(surface.HANGUL.search(text))
    read: list[ClaimWord] = []
    for match in re.finditer(r"\S+", text):
        bare = _EDGES.sub("", match[0])
        key = to_letters(strip_particle(bare) if surface.HANGUL.search(bare) else bare)
        if not key or len(read) == MAX_WORDS:
            continue
        place = range(match.start(), match.end())
        noun = acting.isdisjoint(place) and not nouns.isdisjoint(place)
        named = noun if hangul else bare[0].isupper() and bool(read)
        read.append(ClaimWord(key, named and not any(map(str.isdigit, bare))))
    return read


def is_name_swapped(mine: Sequence[ClaimWord], its: Sequence[ClaimWord]) -> bool:
    """Whether one place of a sentence names something else than the evidence does there."""
    own, other = [word.key for word in mine], [word.key for word in its]
    blocks = SequenceMatcher(None, own, other, autojunk=False).get_matching_blocks()
    if sum(block.size for block in blocks) < MIN_LIKE_SHARE * len(own):
        return False
    said, told = "".join(own), "".join(other)
    here = there = 0
    for a, b, size in blocks:
        left, right = mine[here:a], its[there:b]
        here, there = a + size, b + size
        if not size or len(left) > MAX_NAME_WORDS or len(right) > MAX_THERE_WORDS:
            continue
        strange = any(not _has(told, one) for one in _names_of(left))
        if strange and any(not _has(said, one) for one in _names_of(right)):
            return True
    return False


def _names_of(found: Sequence[ClaimWord]) -> list[str]:
    return [word.key for word in found if word.is_name and len(word.key) > 1]


def _has(text: str, key: str) -> bool:
    """Whether a word, or half of it, is part of a text: names are written apart and shortened."""
    if key.isascii():
        return key in text
    pairs = list(surface.split_pairs(key))
    return 2 * sum(pair in text for pair in pairs) >= len(pairs)
