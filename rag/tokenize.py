"""Text to lexical terms: Korean morphemes and bigrams, stemmed Latin words, numbers and codes."""

import re
import unicodedata
from collections import Counter
from collections.abc import Iterator, Sequence

from rag import morphemes, particles, stems
from rag.errors import EngineUnavailable
from rag.words import words

MAX_TERM = 64
"""Longer terms (URLs, keys, one-word pages) are cut, so that no term fills an index entry."""
ASKING_WEIGHT = 0.35
"""What a word that mostly only asks ("방법", "explain") weighs: sometimes it is the subject."""

_INVISIBLE = re.compile(
    "[\u00ad\u200b-\u200f\u202a-\u202e\u2060-\u2064\u2066-\u2069\ufeff\U000e0000-\U000e007f]"
)
_HANGUL = re.compile("[가-힣]+")
_LATIN = re.compile(r"[a-zA-Z0-9À-ɏͰ-ϿЀ-ӿ]+(?:[-_./'’][a-zA-Z0-9À-ɏͰ-ϿЀ-ӿ]+)*")
_APOSTROPHE = re.compile("['’]")
_NUMBER = re.compile(r"\d{1,3}(?:,\d{3})+(?:\.\d+)?|\d+(?:\.\d+)*")
_CAMEL = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+|[^\x00-\x7f]+")
_OTHER = re.compile("[\u3040-\u30ff\u3400-\u9fff]+")
_NOUNS = frozenset(("NNG", "NNP", "NR", "XR"))
_CONTENT = _NOUNS | {"VV", "VA", "SH", "MAG", "XPN"}
_EMPTY_VERBS = words("empty_verbs.ko")
_ASKING = words("asking.ko") | {stems.stem(word) for word in words("asking.en")}
_STOP = words("stop.en")
_CLITICS = frozenset(("s", "t", "re", "ll", "ve", "d", "m"))


def normalise(text: str) -> str:
    """Compatibility forms folded, Hangul composed, invisible marks removed."""
    return _INVISIBLE.sub("", unicodedata.normalize("NFKC", text))


def terms(text: str) -> dict[str, int]:
    """The terms of one text with their counts."""
    return next(iter(terms_of_all([text])))


def terms_of_all(texts: Sequence[str]) -> Iterator[dict[str, int]]:
    """The terms of every text, in order; the batch is analysed together."""
    clean = [normalise(text) for text in texts]
    for text, korean in zip(clean, _korean_morphemes(clean), strict=True):
        counts = Counter(korean)
        counts.update(_bigrams(text))
        counts.update(_latin(text))
        counts.update(_numbers(text))
        counts.update(_ideographs(text))
        yield {term[:MAX_TERM]: count for term, count in counts.items()}


def query_terms(text: str) -> dict[str, float]:
    """The terms of a question with their weights.

    A term weighs its count; words that only ask ("알려줘", "explain") and bigrams of words without
    a content morpheme ("해야", "하나요") weigh little, unless there is nothing else.
    """
    everything = terms(text)
    subject = _query_terms(text, bigrams=True)
    if not subject:
        return {term: float(count) for term, count in everything.items()}
    asking = {
        term: count * ASKING_WEIGHT for term, count in everything.items() if term not in subject
    }
    return asking | subject


def subject_terms(text: str) -> set[str]:
    """What a question is about: its content words, no bigrams; empty where it only asks."""
    return set(_query_terms(text, bigrams=False))


def _query_terms(text: str, *, bigrams: bool) -> dict[str, float]:
    clean = normalise(text)
    found = morphemes_of(clean)
    counts = Counter(_content(found) if found is not None else _bare_words(clean))
    counts.update(_latin(clean))
    counts.update(_numbers(clean))
    counts.update(_ideographs(clean))
    if bigrams:
        counts.update(_bigrams(clean) if found is None else _content_bigrams(clean, found))
    return {term[:MAX_TERM]: float(n) for term, n in counts.items() if term not in _ASKING}


def morphemes_of(text: str) -> list[morphemes.Morpheme] | None:
    """The morphemes of one text; None where the analyser is not there."""
    if not _HANGUL.search(text):
        return []
    try:
        return next(morphemes.analyse([text]))
    except EngineUnavailable:
        return None


def _bare_words(text: str) -> list[str]:
    return [particles.strip(word) for word in _HANGUL.findall(text)]


def _content_bigrams(text: str, found: Sequence[morphemes.Morpheme]) -> Iterator[str]:
    """Bigrams of each Hangul word from its first content morpheme to its last."""
    kept = [item for item in found if _is_content(item) and item.form not in _ASKING]
    for word in _HANGUL.finditer(text):
        inside = [m for m in kept if m.start >= word.start() and m.end <= word.end()]
        if inside:
            yield from _pairs(text[inside[0].start : inside[-1].end])


def _korean_morphemes(texts: Sequence[str]) -> Iterator[list[str]]:
    if not any(_HANGUL.search(text) for text in texts):
        return iter([[] for _ in texts])
    try:
        return (_content(found) for found in list(morphemes.analyse(texts)))
    except EngineUnavailable:
        return (_bare_words(text) for text in texts)


def _content(found: Sequence[morphemes.Morpheme]) -> list[str]:
    return [item.form for item in found if _is_content(item)] + list(_compounds(found))


def _is_content(item: morphemes.Morpheme) -> bool:
    if item.tag in ("VV", "VA"):
        return item.form not in _EMPTY_VERBS
    return item.tag in _CONTENT


def _compounds(found: Sequence[morphemes.Morpheme]) -> Iterator[str]:
    """Nouns written together, as one term beside their parts."""
    run: list[morphemes.Morpheme] = []
    for item in found:
        joins = item.tag in _NOUNS or (item.tag == "XSN" and bool(run))
        if joins and (not run or run[-1].end == item.start):
            run.append(item)
            continue
        if len(run) > 1:
            yield "".join(part.form for part in run)
        run = [item] if item.tag in _NOUNS else []
    if len(run) > 1:
        yield "".join(part.form for part in run)


def _bigrams(text: str) -> Iterator[str]:
    for word in _HANGUL.findall(text):
        stem = particles.strip(word)
        yield from _pairs(stem)
        if len(stem) == 1 and len(word) > 1:
            # "나이" may be a noun or "나" with a particle: both readings count, so that "나이가"
            # finds either.
            yield from _pairs(word)


def _pairs(word: str) -> Iterator[str]:
    if len(word) == 1:
        yield word
    for start in range(len(word) - 1):
        yield word[start : start + 2]


def _latin(text: str) -> Iterator[str]:
    for match in _LATIN.findall(text):
        parts = re.split(r"[-_./'’]", match)
        if len(parts) > 1 and not _APOSTROPHE.search(match):
            yield match.lower()
        for part in parts:
            yield from _word(part)


def _word(word: str) -> Iterator[str]:
    lower = word.lower()
    if lower.isdigit() or lower in _STOP or lower in _CLITICS:
        return
    yield stems.stem(lower)
    pieces = _CAMEL.findall(word)
    if 1 < len(pieces) <= 5:
        yield from (
            stems.stem(piece.lower()) for piece in pieces if len(piece) > 1 and not piece.isdigit()
        )


def _numbers(text: str) -> Iterator[str]:
    for match in _NUMBER.findall(text):
        yield match.replace(",", "")


def _ideographs(text: str) -> Iterator[str]:
    for run in _OTHER.findall(text):
        yield from _pairs(run)
