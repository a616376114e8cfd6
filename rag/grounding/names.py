"""Names that a sentence gives: people, places, organisations, laws, titles, Latin words."""

import functools
import re
from collections.abc import Iterator, Mapping, Sequence

from rag.morphemes import Morpheme
from rag.query import laws
from rag.words import phrases, words

_QUOTED = re.compile(
    r"[「『《〈]([^「」『』《》〈〉\n]{2,40})[」』》〉]|[“\"]([^“”\"\n]{2,16})[”\"]"
)
_LATIN = re.compile(r"[A-Za-z][A-Za-z0-9]*(?:[-.&+#'’][A-Za-z0-9]+)*")
_LONG = re.compile(r"[^\W_]{2,}")
_HANGUL = re.compile(r"[가-힣]")
_NO_WORD = re.compile(r"[\W_]+")
_ORGANISATION = re.compile(rf"[가-힣]{{2,12}}?(?:{'|'.join(words('organisations.ko'))})")
_CALENDAR = frozenset(
    (
        *("january", "february", "march", "april", "may", "june", "july", "august", "september"),
        *("october", "november", "december", "monday", "tuesday", "wednesday", "thursday"),
        *("friday", "saturday", "sunday", "jan", "feb", "aug", "sept", "sep", "oct", "nov", "dec"),
    )
)
_WEEKDAY = re.compile(
    r"[월화수목금토일]요일|\b(?:mon|tues|wednes|thurs|fri|satur|sun)day", re.IGNORECASE
)
_STOP = words("stop.en")
_LONG_ENOUGH, _PREFIX = 6, 5


def bare(text: str) -> str:
    """Letters and digits alone, in small letters, as names are looked for."""
    return _NO_WORD.sub("", text).casefold()


def read(text: str, found: Sequence[Morpheme] | None) -> list[str]:
    """The names of a sentence, each once, as they stand there."""
    names = [
        word for match in _QUOTED.finditer(text) for word in _LONG.findall(match[1] or match[2])
    ]
    if _HANGUL.search(text):
        names += [item.form for item in found or () if item.tag == "NNP" and len(item.form) > 1]
        names += [match[0] for match in _ORGANISATION.finditer(text)]
        names += laws.named(_QUOTED.sub(",", text))
        names += _latin(text)
    else:
        names += _capitalised(text)
    return [name for name in dict.fromkeys(names) if bare(name)]


def weekdays(text: str) -> set[str]:
    """The days of the week in a text, as `bare` writes them."""
    return {match[0].lower() for match in _WEEKDAY.finditer(text)}


def missing(names: Sequence[str], told: str) -> list[str]:
    """The names that are not in `told` (as `bare` writes it), under no other name either."""
    return [name for name in names if not _told(bare(name), told)]


def _told(name: str, told: str) -> bool:
    if name in told or any(other in told for other in _aliases().get(name, ())):
        return True
    if not name.isascii():
        return False
    base = name.removesuffix("s")
    return base in told or (len(base) >= _LONG_ENOUGH and base[:_PREFIX] in told)


def _latin(text: str) -> Iterator[str]:
    """The Latin words of a Korean sentence; one in brackets only glosses the word before it."""
    for match in _LATIN.finditer(text):
        glossed = text[max(0, match.start() - 1) : match.start()] == "("
        if len(match[0]) > 1 and not glossed and match[0].lower() not in _STOP:
            yield match[0]


def _capitalised(text: str) -> Iterator[str]:
    """The capitalised words of an English sentence but for its first, which always is."""
    first = True
    for match in _LATIN.finditer(text):
        word = re.sub(r"['’]s?$", "", match[0])
        named = word[0].isupper() and len(word) > 1 and word.lower() not in _STOP | _CALENDAR
        if named and (not first or word[1:].lower() != word[1:]):
            yield word
        first = text[match.end() : match.end() + 1] in (":", "—")


@functools.cache
def _aliases() -> Mapping[str, frozenset[str]]:
    found: dict[str, frozenset[str]] = {}
    for line in phrases("same_names"):
        names = frozenset(line.split())
        found.update(dict.fromkeys(names, names))
    return found
