"""Text to lexical terms: Korean morphemes and bigrams, stemmed Latin words, numbers and codes."""

import re
import unicodedata
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Sequence

from rag import morphemes, particles, stems, surface
from rag.errors import EngineUnavailable
from rag.words import words

ASKING_WEIGHT = 0.35
"""What a word that mostly only asks ("방법", "explain") weighs: sometimes it is the subject."""
LATIN_WEIGHT = 1.5
"""What a Latin word in a Korean question weighs: mostly a name or a term of the field."""
LONGEST_WORD = 256
"""Characters without a space in between: what is longer costs the analyser too much."""

_INVISIBLE = re.compile(
    "[\u00ad\u200b-\u200f\u202a-\u202e\u2060-\u2064\u2066-\u2069\ufeff\ud800-\udfff"
    "\U000e0000-\U000e007f]"
)
_SPACE = re.compile(r"\s")
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


def terms_of_all(texts: Sequence[str]) -> Iterator[dict[str, int]]:
    """The terms of every text, in order; the batch is analysed together."""
    clean = [normalise(text) for text in texts]
    for text, found in zip(clean, _analysed(clean), strict=True):
        yield Counter(_terms(text, found))


def terms_with_leads(
    texts: Sequence[str], characters: int
) -> Iterator[tuple[dict[str, int], set[str]]]:
    """The terms of every text with their counts, and those of its first words.

    Those are the words that begin within so many characters of the normalised text.
    """
    clean = [normalise(text) for text in texts]
    for text, found in zip(clean, _analysed(clean), strict=True):
        space = _SPACE.search(text, characters)
        end = space.start() if space else len(text)
        inside = found and [item for item in found if item.end <= end]
        yield Counter(_terms(text, found)), set(_terms(text[:end], inside))


def query_terms(text: str) -> dict[str, float]:
    """The terms of a question with their weights.

    A term weighs its count, Latin words in a Korean question more. Words that only ask ("알려줘",
    "explain") and bigrams of words without a content morpheme ("해야", "하나요") weigh little,
    unless there is nothing else.
    """
    clean = normalise(text)
    found = morphemes_of(clean)
    everything = Counter(_terms(clean, found))
    subject = _subject(clean, found)
    subject.update(_content_bigrams(clean, found))
    subject = _without_asking(subject)
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
    return set(_without_asking(_subject(clean, morphemes_of(clean))))


def morphemes_of(text: str) -> Sequence[morphemes.Morpheme] | None:
    """The morphemes of one text; None where the analyser is not there."""
    if not surface.HANGUL.search(text):
        return ()
    try:
        return morphemes.analyse_question(text)
    except EngineUnavailable:
        return None


def _analysed(texts: Sequence[str]) -> Iterator[Sequence[morphemes.Morpheme] | None]:
    if not any(surface.HANGUL.search(text) for text in texts):
        return iter([()] * len(texts))
    try:
        return iter(morphemes.analyse(texts))
    except EngineUnavailable:
        return iter([None] * len(texts))


def _terms(text: str, found: Sequence[morphemes.Morpheme] | None) -> list[str]:
    all_terms = _words_of(text, found)
    for word in text.split():
        read = surface.read(word)
        all_terms += read.bigrams
        all_terms += read.others
    return all_terms


def _subject(text: str, found: Sequence[morphemes.Morpheme] | None) -> Counter[str]:
    counts = Counter(_words_of(text, found))
    for word in text.split():
        counts.update(surface.read(word).others)
    return counts


def _without_asking(counts: Counter[str]) -> Counter[str]:
    return Counter({term: count for term, count in counts.items() if term not in _ASKING})


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


def _content_bigrams(text: str, found: Sequence[morphemes.Morpheme] | None) -> Iterator[str]:
    """Bigrams of each Hangul word from its first content morpheme to its last."""
    if found is None:
        yield from (pair for word in text.split() for pair in surface.read(word).bigrams)
        return
    coming = deque(
        item for item in found if _is_content(item.form, item.tag) and item.form not in _ASKING
    )
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
