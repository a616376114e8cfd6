"""Text to lexical terms: Korean morphemes and bigrams, stemmed Latin words, numbers and codes."""

import functools
import re
import unicodedata
from bisect import bisect_left
from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from rag import morphemes, particles, stems, surface
from rag.errors import EngineUnavailable
from rag.words import words

ASKING_WEIGHT = 0.35
"""What a word that mostly only asks ("방법", "explain") weighs: sometimes it is the subject."""
LATIN_WEIGHT = 1.5
"""What a Latin word in a Korean question weighs: mostly a name or a term of the field."""
LONGEST_WORD = 256
"""Characters without a space in between: what is longer costs the analyser too much."""
REMEMBERED = 1 << 15
"""Words whose terms are kept: most words of a text stood in those before."""
REMEMBERED_LENGTH = 32

_INVISIBLE = re.compile(
    "[\u00ad\u200b-\u200f\u202a-\u202e\u2060-\u2064\u2066-\u2069\ufeff\ud800-\udfff"
    "\U000e0000-\U000e007f]"
)
_SPACE = re.compile(r"\s")
_WORD = re.compile(r"\S+")
_PILE = re.compile(r"([^\w\s]{32})[^\w\s]+")
_ENDLESS = re.compile(rf"\b\w{{{LONGEST_WORD + 1},}}")
_LEADS = "ㄱㄲㄴㄷㄸㄹㅁㅂㅃㅅㅆㅇㅈㅉㅊㅋㅌㅍㅎ"
_TAILS = " ㄱㄲㄳㄴㄵㄶㄷㄹㄺㄻㄼㄽㄾㄿㅀㅁㅂㅄㅅㅆㅇㅈㅊㅋㅌㅍㅎ"
_JAMO = re.compile(rf"([{_LEADS}])([ㅏ-ㅣ])([{_TAILS[1:]}](?![ㅏ-ㅣ]))?")
_LATIN = re.compile("^[!-~]*[a-z][!-~]*$")
_NOUNS = frozenset(("NNG", "NNP", "NR", "XR"))
_VERBS = frozenset(("VV", "VA"))
_CONTENT = _NOUNS | _VERBS | {"MAG", "XPN"}
_EMPTY_VERBS = words("empty_verbs.ko")
_ASKING = words("asking.ko") | {stems.stem(word) for word in words("asking.en")}


def normalise(text: str) -> str:
    """Compatibility forms folded, Hangul composed, invisible marks and broken characters removed.

    Piles of marks are cut, as their composition takes the square of their number, and endless
    words get spaces.
    """
    text = _PILE.sub(r"\1", _JAMO.sub(_syllable, _INVISIBLE.sub("", text)))
    text = _INVISIBLE.sub("", unicodedata.normalize("NFKC", text))
    return _ENDLESS.sub(_spaced, text)


def terms(text: str) -> dict[str, int]:
    """The terms of one text with their counts."""
    return next(iter(terms_of_all([text])))


def terms_of_all(texts: Iterable[str]) -> Iterator[dict[str, int]]:
    """The terms of every text, in order."""
    for text in texts:
        yield Counter(_terms(normalise(text)))


def terms_with_leads(
    texts: Iterable[str], characters: int
) -> Iterator[tuple[dict[str, int], set[str]]]:
    """The terms of every text with their counts, and those of its first words.

    Those are the words that begin within so many characters of the normalised text.
    """
    for text in map(normalise, texts):
        space = _SPACE.search(text, characters)
        end = space.start() if space else len(text)
        lead = _terms(text[:end])
        yield Counter(lead + _terms(text[end:])), set(lead)


def query_terms(text: str) -> dict[str, float]:
    """The terms of a question with their weights.

    They are those that a text of the same words has, and those of the words where they stand here;
    what matters, the whole question decides. A term weighs its count, half where only one of both
    readings has it, Latin words in a Korean question more. Words that only ask ("알려줘",
    "explain") and bigrams of words without a content morpheme ("해야", "하나요") weigh little,
    unless there is nothing else.
    """
    clean = normalise(text)
    found = morphemes_of(clean)
    everything = Counter(_terms(clean))
    subject = _without_asking(
        (_subject(clean, found), 0.5),
        (_telling(clean, found), 0.5),
        (Counter(_content_bigrams(clean, found)), 1.0),
    )
    if not subject:
        return {term: float(count) for term, count in everything.items()}
    weights = {
        term: count * ASKING_WEIGHT for term, count in everything.items() if term not in subject
    }
    latin = LATIN_WEIGHT if surface.HANGUL.search(clean) else 1.0
    weights.update(
        (term, count * (latin if _LATIN.search(term) else 1.0)) for term, count in subject.items()
    )
    return weights


def subject_terms(text: str) -> set[str]:
    """What a question is about: its content words, no bigrams; empty where it only asks."""
    clean = normalise(text)
    return set(_without_asking((_subject(clean, morphemes_of(clean)), 1.0)))


def morphemes_of(text: str) -> Sequence[morphemes.Morpheme] | None:
    """The morphemes of one text; None where the analyser is not there."""
    if not surface.HANGUL.search(text):
        return ()
    try:
        return morphemes.analyse_question(text)
    except EngineUnavailable:
        return None


class _WordTerms(NamedTuple):
    """Of a word its content morphemes and compounds, and what `rag.surface` reads in it."""

    content: tuple[str, ...]
    written: tuple[str, ...]


class _Reader:
    """Reads the terms of words, each analysed alone, and remembers them. Thread-safe.

    So a word has the same terms in every text and question, and what comes back, which is most of
    a text, costs nothing. The analyser is None where there is none.
    """

    def __init__(self, analyser: Any) -> None:
        self._analyser = analyser
        self._remembered = functools.lru_cache(maxsize=REMEMBERED)(self._read)

    def read(self, word: str) -> _WordTerms:
        """The terms of a word between blanks."""
        return self._remembered(word) if len(word) <= REMEMBERED_LENGTH else self._read(word)

    def _read(self, word: str) -> _WordTerms:
        found: Sequence[morphemes.Morpheme] | None = ()
        if surface.HANGUL.search(word):
            found = morphemes.alone(self._analyser, word) if self._analyser else None
        written = surface.read(word)
        return _WordTerms(tuple(_words_of(word, found)), written.bigrams + written.others)


@functools.lru_cache(maxsize=2)
def _reader_with(analyser: Any) -> _Reader:
    """One for the analyser in use and one for texts without Hangul, which load none."""
    return _Reader(analyser)


def _reader(text: str) -> _Reader:
    """What reads the words of this text."""
    if not surface.HANGUL.search(text):
        return _reader_with(None)
    try:
        return _reader_with(morphemes.in_use())
    except EngineUnavailable:
        return _reader_with(None)


def _terms(text: str) -> list[str]:
    read = _reader(text).read
    found: list[str] = []
    for word in text.split():
        content, written = read(word)
        found += content
        found += written
    return found


def _telling(text: str, found: Sequence[morphemes.Morpheme] | None) -> Counter[str]:
    """The content terms of those words that hold a content morpheme where they stand here.

    "시" alone is a city or a poem, in "제출 시" it only says when; "상한" alone may be what has
    gone bad, in "여비의 상한" it is the most.
    """
    if found is None:
        return _subject(text, None)
    read = _reader(text).read
    starts = sorted(item.start for item in found if _tells(item))
    counts: Counter[str] = Counter()
    for word in _WORD.finditer(text):
        counts.update(surface.read(word[0]).others)
        at = bisect_left(starts, word.start())
        if at < len(starts) and starts[at] < word.end():
            counts.update(read(word[0]).content)
    return counts


def _subject(text: str, found: Sequence[morphemes.Morpheme] | None) -> Counter[str]:
    counts = Counter(_words_of(text, found))
    for word in text.split():
        counts.update(surface.read(word).others)
    return counts


def _without_asking(*weighed: tuple[Counter[str], float]) -> dict[str, float]:
    """The sums of counts by their weights, but for the words that only ask."""
    found: dict[str, float] = defaultdict(float)
    for counts, weight in weighed:
        for term in counts.keys() - _ASKING:
            found[term] += weight * counts[term]
    return found


def _words_of(text: str, found: Sequence[morphemes.Morpheme] | None) -> list[str]:
    """The content morphemes and compounds; without the analyser the words without particles."""
    if found is None:
        return [particles.strip(run) for word in text.split() for run in surface.hangul(word)]
    return _content(found)


def _content(found: Iterable[morphemes.Morpheme]) -> list[str]:
    """Content morphemes, and nouns written together also as one term."""
    kept: list[str] = []
    compound: list[str] = []
    last = -1
    for form, tag, start, end in found:
        noun = tag in _NOUNS
        if _is_content(form, tag):
            kept += _term(form)
        if compound and start == last and (noun or tag == "XSN"):
            compound.append(form)
        else:
            if compound:
                kept += _whole(compound)
            compound = [form] if noun else []
        last = end
    return kept + _whole(compound)


def _term(form: str) -> list[str]:
    """Words without Hangul are read by their letters (`rag.surface`)."""
    return [] if form.isascii() else [form.lower()[: surface.MAX_TERM]]


def _whole(compound: Sequence[str]) -> list[str]:
    return _term("".join(compound)) if len(compound) > 1 else []


def _is_content(form: str, tag: str) -> bool:
    return tag in _CONTENT and (tag not in _VERBS or form not in _EMPTY_VERBS)


def _tells(item: morphemes.Morpheme) -> bool:
    return _is_content(item.form, item.tag) and item.form not in _ASKING


def _content_bigrams(text: str, found: Sequence[morphemes.Morpheme] | None) -> Iterator[str]:
    """Bigrams of each Hangul word from its first content morpheme to its last."""
    if found is None:
        yield from (pair for word in text.split() for pair in surface.read(word).bigrams)
        return
    coming = deque(item for item in found if _tells(item))
    for word in surface.HANGUL.finditer(text):
        inside = []
        while coming and coming[0].start < word.end():
            item = coming.popleft()
            if word.start() <= item.start and item.end <= word.end():
                inside.append(item)
        if inside:
            yield from surface.pairs(text[inside[0].start : inside[-1].end])


def _syllable(jamo: re.Match[str]) -> str:
    """Letters typed one by one (U+3131 ff.) as the syllable they spell."""
    lead, vowel, tail = jamo.groups(default=" ")
    code = _LEADS.index(lead) * 21 + ord(vowel) - ord("ㅏ")
    return chr(ord("가") + code * 28 + _TAILS.index(tail))


def _spaced(word: re.Match[str]) -> str:
    parts = range(0, len(word[0]), LONGEST_WORD)
    return " ".join(word[0][start : start + LONGEST_WORD] for start in parts)
