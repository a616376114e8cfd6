"""Text to lexical terms: Korean morphemes and bigrams, stemmed Latin words, numbers and codes."""

import functools
import re
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from operator import attrgetter
from typing import Any, NamedTuple

from rag.errors import EngineUnavailable
from rag.lexicon import load_words
from rag.tokenize import korean, surface
from rag.tokenize.korean import Morpheme
from rag.tokenize.text import find_words_across_lines, normalise_text

normalise = normalise_text
"""One form of a text; see `rag.tokenize.text`."""

ASKING_WEIGHT = 0.35
"""What a word that mostly only asks ("방법", "explain") weighs: sometimes it is the subject."""
LATIN_WEIGHT = 1.5
"""What a Latin word in a Korean question weighs: mostly a name or a term of the field."""
MAX_REMEMBERED_WORDS = 1 << 15
"""Words whose terms are kept: most words of a text stood in those before."""
MAX_REMEMBERED_CHARACTERS = 32

_SPACE = re.compile(r"\s")
_WORD = re.compile(r"\S+")
_LATIN = re.compile("^[!-~]*[a-z][!-~]*$")
_NOUNS = frozenset(("NNG", "NNP", "NR", "XR"))
_VERBS = frozenset(("VV", "VA"))
_CONTENT = _NOUNS | _VERBS | {"MAG", "XPN"}
_EMPTY_VERBS = load_words("empty_verbs.ko")
ASKING = load_words("asking.ko") | surface.read_stems("asking.en")
"""Words that mostly only ask, English ones by their stems."""


def count_terms(text: str) -> dict[str, int]:
    """The terms of one text with their counts."""
    return next(iter(count_terms_of_all([text])))


def count_terms_of_all(texts: Iterable[str]) -> Iterator[dict[str, int]]:
    """The terms of every text, in order."""
    for text in map(normalise, texts):
        yield Counter(_terms(text) + _across_lines(text))


def count_terms_and_leads(
    texts: Iterable[str], characters: int
) -> Iterator[tuple[dict[str, int], set[str]]]:
    """The terms of every text with their counts, and those of its first words.

    Those are the words that begin within so many characters of the normalised text.
    """
    for text in map(normalise, texts):
        space = _SPACE.search(text, characters)
        end = space.start() if space else len(text)
        lead = _terms(text[:end])
        yield Counter(lead + _terms(text[end:]) + _across_lines(text)), set(lead)


def weigh_query_terms(text: str) -> dict[str, float]:
    """The terms of a question with their weights.

    They are those that a text of the same words has, and those of the words where they stand here;
    what matters, the whole question decides. A term weighs its count, half where only one of both
    readings has it, Latin words in a Korean question more. Words that only ask ("알려줘",
    "explain") and bigrams of words without a content morpheme ("해야", "하나요") weigh little,
    unless there is nothing else.
    """
    clean = normalise(text)
    found = analyse_morphemes(clean)
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


def find_subject_terms(text: str) -> set[str]:
    """What a question is about: its content words, no bigrams; empty where it only asks."""
    clean = normalise(text)
    return set(_without_asking((_subject(clean, analyse_morphemes(clean)), 1.0)))


def analyse_morphemes(text: str) -> Sequence[Morpheme] | None:
    """The morphemes of one text; None where the analyser is not there."""
    if not surface.HANGUL.search(text):
        return ()
    try:
        return korean.analyse_question(text)
    except EngineUnavailable:
        return None


class _WordTerms(NamedTuple):
    """A word: content morphemes, compounds, and what `rag.tokenize.surface` reads in it."""

    content: tuple[str, ...]
    written: tuple[str, ...]


@functools.lru_cache(maxsize=2)
def _reader_with(analyser: Any) -> Callable[[str], _WordTerms]:
    """What reads the terms of words between blanks, each analysed alone, and remembers them.

    So a word has the same terms in every text and question, and what comes back, which is most of
    a text, costs nothing. One for the analyser in use and one for texts without Hangul, which load
    none (None).
    """

    def read(word: str) -> _WordTerms:
        found: Sequence[Morpheme] | None = ()
        if surface.HANGUL.search(word):
            found = korean.analyse_word(analyser, word) if analyser else None
        written = surface.read_surface(word)
        return _WordTerms(tuple(_words_of(word, found)), written.bigrams + written.others)

    remembered = functools.lru_cache(maxsize=MAX_REMEMBERED_WORDS)(read)
    return lambda word: remembered(word) if len(word) <= MAX_REMEMBERED_CHARACTERS else read(word)


def _reader(text: str) -> Callable[[str], _WordTerms]:
    """What reads the words of this text."""
    try:
        return _reader_with(korean.get_analyser() if surface.HANGUL.search(text) else None)
    except EngineUnavailable:
        return _reader_with(None)


def _terms(text: str) -> list[str]:
    read = _reader(text)
    found: list[str] = []
    for word in text.split():
        content, written = read(word)
        found += content
        found += written
    return found


def _across_lines(text: str) -> list[str]:
    """What the words at line ends would say besides if they went on in the next line."""
    found: list[str] = []
    for apart, whole in find_words_across_lines(text):
        known = {*_terms(apart)}
        found += (term for term in dict.fromkeys(_terms(whole)) if term not in known)
    return found


def _telling(text: str, found: Sequence[Morpheme] | None) -> Counter[str]:
    """The content terms of those words that hold a content morpheme where they stand here.

    "시" alone is a city or a poem, in "제출 시" it only says when; "상한" alone may be what has
    gone bad, in "여비의 상한" it is the most.
    """
    if found is None:
        return _subject(text, None)
    read = _reader(text)
    telling = [item for item in found if _tells(item)]
    counts: Counter[str] = Counter()
    for word in _WORD.finditer(text):
        counts.update(surface.read_surface(word[0]).others)
        if _begun_within(telling, *word.span()):
            counts.update(read(word[0]).content)
    return counts


def _subject(text: str, found: Sequence[Morpheme] | None) -> Counter[str]:
    counts = Counter(_words_of(text, found))
    for word in text.split():
        counts.update(surface.read_surface(word).others)
    return counts


def _without_asking(*weighed: tuple[Counter[str], float]) -> dict[str, float]:
    """The sums of counts by their weights, but for the words that only ask."""
    found: dict[str, float] = defaultdict(float)
    for counts, weight in weighed:
        for term in counts.keys() - ASKING:
            found[term] += weight * counts[term]
    return found


def _words_of(text: str, found: Sequence[Morpheme] | None) -> list[str]:
    """The content morphemes and compounds; without the analyser the words without particles."""
    if found is None:
        return [
            korean.strip_particle(run)
            for word in text.split()
            for run in surface.split_hangul(word)
        ]
    return _content(found)


def _content(found: Iterable[Morpheme]) -> list[str]:
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
    """Words without Hangul are read by their letters (`rag.tokenize.surface`)."""
    return [] if form.isascii() else [form.lower()[: surface.MAX_TERM_CHARACTERS]]


def _whole(compound: Sequence[str]) -> list[str]:
    return _term("".join(compound)) if len(compound) > 1 else []


def _is_content(form: str, tag: str) -> bool:
    return tag in _CONTENT and (tag not in _VERBS or form not in _EMPTY_VERBS)


def _tells(item: Morpheme) -> bool:
    return _is_content(item.form, item.tag) and item.form not in ASKING


def _content_bigrams(text: str, found: Sequence[Morpheme] | None) -> Iterator[str]:
    """Bigrams of each Hangul word from its first content morpheme to its last."""
    if found is None:
        yield from (pair for word in text.split() for pair in surface.read_surface(word).bigrams)
        return
    telling = [item for item in found if _tells(item)]
    for word in surface.HANGUL.finditer(text):
        inside = [one for one in _begun_within(telling, *word.span()) if one.end <= word.end()]
        if inside:
            yield from surface.split_pairs(text[inside[0].start : inside[-1].end])


def _begun_within(items: Sequence[Morpheme], start: int, end: int) -> Sequence[Morpheme]:
    """Those that begin within a stretch of the text; `items` are in its order."""
    begins = attrgetter("start")
    return items[bisect_left(items, start, key=begins) : bisect_left(items, end, key=begins)]
