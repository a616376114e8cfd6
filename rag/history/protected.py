"""What no summary may lose: medication, allergies, diagnoses; amounts, dates, codes."""

import functools
import itertools
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from rag import prompts, sentences, tokenize
from rag.neutral import neutralise
from rag.words import words

KEPT = 2000
"""Characters of what is put back, at most."""
MOST = 400
"""Items that are looked at; texts can hold endless tables."""
FACT = 160
"""Characters of a sentence kept for a protected word."""
CONTEXT = 80
"""Characters kept around an amount, date or code."""
HELD = 0.75
"""Share of a sentence's terms that a summary must hold to tell it."""
_NUMBER = r"\d[\d,.]{0,20}"
_MONTH = (
    r"(?:Jan(?:uary)?|Feb(?:ruary)?|Mar(?:ch)?|Apr(?:il)?|May|June?|July?|Aug(?:ust)?|"
    r"Sept?(?:ember)?|Oct(?:ober)?|Nov(?:ember)?|Dec(?:ember)?)\.?"
)
DOSE = re.compile(rf"{_NUMBER}\s?(?:mg|mcg|µg|㎍|㎎|IU|밀리그램)(?![A-Za-z])", re.IGNORECASE)
FIGURE = re.compile(
    rf"(?:[$€£¥₩]|(?:USD|EUR|KRW|GBP)\s){_NUMBER}(?:\s?(?:million|billion|thousand|[kKmM]\b))?|"
    rf"(?:{_NUMBER}\s?[조억만천백]\s?){{1,4}}(?:{_NUMBER}\s?)?[조억만천백]{{0,2}}\s?(?:원|달러|유로|엔|명|개|건)|"
    rf"{_NUMBER}\s?(?:원|달러|유로|엔|위안|dollars?|euros?|won\b|percent|퍼센트|%)|"
    r"\d{4}\s?(?:년|[-./])\s?\d{1,2}\s?(?:월|[-./])(?:\s?\d{1,2}일?)?|"
    r"\d{1,2}월\s?\d{1,2}일|\d{4}년|"
    rf"\b{_MONTH}\s\d{{1,2}}(?:st|nd|rd|th)?(?:,?\s\d{{4}})?|"
    rf"\b\d{{1,2}}(?:st|nd|rd|th)?\s{_MONTH}(?:\s\d{{4}})?|"
    r"(?<![A-Za-z0-9-])[A-Z]{1,6}[-_]?\d[A-Za-z0-9_-]{1,30}|"
    r"(?<![\d-])\d{2,6}-\d{2,6}(?:-\d{2,6})?(?![\d-])"
)
"""An amount, date or code as it is written, in Korean or English."""
_SPACE = re.compile(r"\s+")
_LOOSE = re.compile(r"[\s,]+")


@dataclass(frozen=True, slots=True)
class Item:
    """A thing to keep: the `key` that tells it, in its `text`; grave ones come first.

    `own`: the user said it, which outranks what an answer took from documents.
    """

    key: str
    text: str
    grave: bool
    own: bool

    @property
    def line(self) -> str:
        """As it is put back: the user's words in quotes."""
        return f"- “{self.text}”" if self.own else f"- {self.text}"


def items(own: Iterable[str], others: Iterable[str], terms: Sequence[str]) -> list[Item]:
    """What is to be kept of the user's own texts and of others, none twice, grave ones first.

    Otherwise in the order of the texts. `terms` are the protected words; empty: those of
    `rag/words/protected.txt`.
    """
    wanted = _matcher(tuple(terms))
    found = dict.fromkeys(
        item
        for texts, is_own in ((own, True), (others, False))
        for item in itertools.islice(_of_texts(texts, wanted, own=is_own), MOST)
    )
    return sorted(found, key=lambda item: not item.grave)


def holds(summary: str, item: Item) -> bool:
    """True when the summary tells the item."""
    return _Told(summary).holds(item)


def put_back(summary: str, found: Sequence[Item], language: str) -> str:
    """The summary, followed by those of `found` that it does not tell, within `KEPT` characters."""
    told = _Told(summary)
    kept: list[str] = []
    room = KEPT
    for item in found:
        if len(item.line) < room and not told.holds(item):
            kept.append(item.line)
            told.add(item.line)
            room -= len(item.line) + 1
    if not kept:
        return summary
    return "\n".join([summary, prompts.text("protected", language), *kept]).strip()


class _Told:
    """What a summary tells, read once."""

    def __init__(self, text: str) -> None:
        self._plain, self._loose, self._terms = "", "", set[str]()
        self.add(text)

    def add(self, text: str) -> None:
        self._plain += f"\n{text.casefold()}"
        self._loose += f"\n{_loose(text)}"
        self._terms |= tokenize.terms(text).keys()

    def holds(self, item: Item) -> bool:
        if not item.grave:
            return bool(re.search(rf"(?<![\d.]){re.escape(_loose(item.key))}", self._loose))
        if item.key.casefold() not in self._plain:
            return False
        wanted = tokenize.terms(item.text).keys()
        return len(wanted & self._terms) >= HELD * len(wanted)


def split(text: str) -> tuple[str, list[str], list[str]]:
    """A summary, and what had been put back into it: the user's own words, and the others."""
    for language in ("ko", "en"):
        body, mark, rest = text.partition(prompts.text("protected", language))
        if mark:
            lines = [part.removeprefix("- ") for part in rest.strip().splitlines()]
            own = [part.strip("“”") for part in lines if part.startswith("“")]
            return body.strip(), own, [part for part in lines if not part.startswith("“")]
    return text, [], []


def _of_texts(texts: Iterable[str], terms: re.Pattern[str], *, own: bool) -> Iterator[Item]:
    for sentence in (part for text in texts for part in sentences.split(neutralise(text))):
        for match in itertools.chain(terms.finditer(sentence), DOSE.finditer(sentence)):
            yield Item(match.group(), _around(sentence, match, FACT), grave=True, own=own)
        for match in FIGURE.finditer(sentence):
            text = _around(sentence, match, CONTEXT)
            yield Item(match.group().strip(), text, grave=False, own=own)


def _around(sentence: str, match: re.Match[str], length: int) -> str:
    """At most `length` characters of the sentence with the match in them, cut between words."""
    if len(sentence) <= length:
        return sentence
    start = max(0, min(match.start() - length // 2, len(sentence) - length))
    piece = sentence[start : max(start + length, match.end())]
    if start and (head := piece.find(" ")) >= 0 and start + head < match.start():
        piece = piece[head + 1 :]
    return _SPACE.sub(" ", piece).strip()


def _loose(text: str) -> str:
    return _LOOSE.sub("", text).casefold()


@functools.lru_cache(maxsize=8)
def _matcher(terms: tuple[str, ...]) -> re.Pattern[str]:
    """Words of Latin letters begin where a word begins; Korean ones may stand inside of one."""
    chosen = [term for term in terms if term.strip()] or sorted(words("protected"))
    parts = (rf"\b{re.escape(one)}\w*" if one.isascii() else re.escape(one) for one in chosen)
    return re.compile("|".join(parts), re.IGNORECASE)
