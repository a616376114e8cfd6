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
from rag.tokenize import korean
from rag.tokenize.korean import PARTICLES, Morpheme, strip_particle
from rag.tokenize.text import find_words_across_lines, normalise_text

MAX_TERM_CHARACTERS = 64
"""Longer terms (URLs, keys, one-word pages) are cut, so that no term fills an index entry."""
MAX_MIXED_CHARACTERS = 24
"""What is longer ("A사/B사/C사...") is a list, not a word."""
MAX_CACHED_SURFACES = 1 << 14

HANGUL = re.compile("[가-힣]+")
_NON_HANGUL = re.compile("[^\\W_가-힣]")
_IDEOGRAPHS = re.compile("[\u3040-\u30ff\u3400-\u9fff\U00020000-\U0003ffff]+")
_LETTER = "[^\\W_가-힣\u3040-\u30ff\u3400-\u9fff\U00020000-\U0003ffff]"
_FOREIGN_WORD = re.compile(rf"{_LETTER}+(?:[-_./'’@&]{_LETTER}+)*(?:\+\+|#)?")
_MIXED_WORD = re.compile(rf"(?:{_LETTER}|[가-힣])+(?:[-_.,&](?:{_LETTER}|[가-힣])+)*")
_HANGUL_TAIL = re.compile("[가-힣]+$")
_CLITIC = re.compile("['’](?:s|t|re|ll|ve|d|m)$", re.IGNORECASE)
_JOINT = re.compile("[-_.'’&]")
_NUMBER = re.compile(r"\d{1,3}(?:,\d{3})+(?!\d)(?:\.\d+)?%?|\d+(?:\.\d+)*%?")
_DOTTED_NUMBER = re.compile(r"\d+(?:\.\d+)+")
_DIGIT = re.compile(r"\d")
_THOUSANDS_COMMA = re.compile(r"(?<=\d),(?=\d)")
_CAMEL_CASE_PART = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
_PARTICLE_HOST = re.compile(r"[\w)\]}>%℃\"'’”」』》〉]$")
_STOP_WORDS = load_words("stop.en")


class Surface(NamedTuple):
    """The terms of a word as written: bigrams of its Hangul syllables, and all others."""

    bigrams: tuple[str, ...]
    others: tuple[str, ...]


def read_surface(word: str) -> Surface:
    """The terms of a word, which contains no white space."""
    return (
        _read_surface_cached(word)
        if len(word) <= MAX_CACHED_CHARACTERS
        else _read_surface_uncached(word)
    )


def _read_surface_uncached(word: str) -> Surface:
    if not _NON_HANGUL.search(word):
        return Surface(tuple(_split_bigrams(word)), ())
    others = (
        *_split_foreign(word),
        *_split_numbers(word),
        *_split_ideographs(word),
        *_split_mixed(word),
    )
    return Surface(
        tuple(_split_bigrams(word)), tuple(term[:MAX_TERM_CHARACTERS] for term in others)
    )


_read_surface_cached = functools.lru_cache(maxsize=MAX_CACHED_SURFACES)(_read_surface_uncached)
"""Most words occur again and again."""


def split_pairs(word: str) -> Iterator[str]:
    """The pairs of neighbouring letters of a word; a single letter as it is."""
    if len(word) == 1:
        yield word
    for start in range(len(word) - 1):
        yield word[start : start + 2]


def split_hangul(word: str) -> Iterator[str]:
    """The runs of Hangul, except particles attached to something else ("API를", "(갑)은")."""
    for run in HANGUL.finditer(word):
        if run[0] not in PARTICLES or not _PARTICLE_HOST.search(word[: run.start()]):
            yield run[0]


def _split_bigrams(word: str) -> Iterator[str]:
    """Pairs of syllables; a unit after a number ("30일까지") is left to `_split_mixed`."""
    for run in HANGUL.finditer(word):
        before = word[: run.start()]
        if run[0] in PARTICLES and _PARTICLE_HOST.search(before):
            continue
        stem = strip_particle(run[0])
        if len(stem) > 1 or not before[-1:].isdigit():
            yield from split_pairs(stem)
        if len(stem) == 1 and len(run[0]) > 1:
            # "도로" may be a noun, or "도" with a particle. Both readings count, so that "도로가"
            # matches either.
            yield run[0][:2]


def _split_foreign(word: str) -> Iterator[str]:
    """Words in Latin and other scripts; words joined by marks are given whole and in parts."""
    for match in _FOREIGN_WORD.findall(word):
        if match[-1] in "+#":
            yield match.lower()
        parts = re.split("[/@]", match.rstrip("+#"))
        if len(parts) > 1:
            yield match.lower()
        for part in parts:
            yield from _split_joined(_CLITIC.sub("", part))


def _split_joined(word: str) -> Iterator[str]:
    parts = _JOINT.split(word)
    if len(parts) > 1 and not _DOTTED_NUMBER.fullmatch(word):
        yield word.lower()
        if "-" in word and _DIGIT.search(word) and not word[0].isdigit():
            yield "".join(parts).lower()  # "E-1234" is also written "E1234"
    for part in parts:
        yield from _split_single(part)


def _split_single(word: str) -> Iterator[str]:
    lower = word.lower()
    if lower.isdigit() or (lower in _STOP_WORDS and not (len(word) > 1 and word.isupper())):
        return
    yield stem_word(lower)
    if lower == word or not word.isascii():
        return
    pieces = _CAMEL_CASE_PART.findall(word)
    if 1 < len(pieces) <= 5:
        yield from (
            stem_word(piece.lower()) for piece in pieces if len(piece) > 1 and not piece.isdigit()
        )


def _split_numbers(word: str) -> Iterator[str]:
    """Numbers without thousands separators; dates and versions are given whole and in parts."""
    for match in _NUMBER.findall(word):
        number = match.replace(",", "")
        if number.endswith("%"):
            yield number
            number = number[:-1]
        yield number
        parts = number.split(".")
        if len(parts) > 2:
            yield from parts
        yield from (part[1] for part in parts if len(part) == 2 and part[0] == "0")


def _split_ideographs(word: str) -> Iterator[str]:
    for run in _IDEOGRAPHS.findall(word):
        yield from split_pairs(run)
        if 2 < len(run) <= MAX_MIXED_CHARACTERS:
            yield run


def _split_mixed(word: str) -> Iterator[str]:
    """Words that mix Hangul with other signs, without their particle: "2세대", "제2024-15호"."""
    if not HANGUL.search(word) or not _FOREIGN_WORD.search(word):
        return
    for match in _MIXED_WORD.findall(word):
        word_without_particle = _THOUSANDS_COMMA.sub("", _strip_trailing_particle(match))
        if (
            len(word_without_particle) <= MAX_MIXED_CHARACTERS
            and HANGUL.search(word_without_particle)
            and _FOREIGN_WORD.search(word_without_particle)
        ):
            yield word_without_particle.lower()


def _strip_trailing_particle(word: str) -> str:
    tail = _HANGUL_TAIL.search(word)
    if tail is None:
        return word
    rest = word[: tail.start()]
    return rest if tail[0] in PARTICLES else rest + strip_particle(tail[0])


_VOWELS = frozenset("aeiouy")


def stem_word(word: str) -> str:
    """The stem of a lower-case English word: without its plural or verb ending.

    "studies" and "study" have the same stem, as do "running", "runs" and "run".
    """
    word = to_singular(word)
    for ending in ("ing", "ed"):
        base = word.removesuffix(ending)
        if base != word and len(base) >= 3 and not _VOWELS.isdisjoint(base):
            return _strip_stem_ending(base)
    if len(word) > 3 and word.endswith("y"):
        return word[:-1] + "i"
    return word.removesuffix("e") if len(word) > 4 else word


def to_singular(word: str) -> str:
    """A lower-case English word without its plural ending."""
    if len(word) <= 3 or not word.endswith("s") or word.endswith(("ss", "us", "is")):
        return word
    if word.endswith("ies"):
        return word[:-3] + "y"
    if word.endswith(("sses", "shes", "ches", "xes", "zes")):
        return word[:-2]
    return word[:-1]


@functools.cache
def load_stems(name: str) -> frozenset[str]:
    """The stems of the words of a list of the lexicon."""
    return frozenset(map(stem_word, load_words(name)))


def _strip_stem_ending(base: str) -> str:
    if base[-1] == base[-2] and base[-1] not in "lsz":
        return base[:-1]
    if base.endswith("y"):
        return base[:-1] + "i"
    return base.removesuffix("e")


normalise = normalise_text
"""See `rag.tokenize.text.normalise_text`."""

ASKING_WEIGHT = 0.35
"""Weight of a word that mostly just asks ("방법", "explain") but is sometimes the subject."""
LATIN_WEIGHT = 1.5
"""Weight of a Latin word in a Korean question: it is mostly a name or a technical term."""
MAX_CACHED_WORDS = 1 << 15
"""Words whose terms are cached: most words of a text occurred in earlier ones."""
MAX_CACHED_CHARACTERS = 32

_SPACE = re.compile(r"\s")
_WORD = re.compile(r"\S+")
_LATIN_TERM = re.compile("^[!-~]*[a-z][!-~]*$")
_NOUN_TAGS = frozenset(("NNG", "NNP", "NR", "XR"))
_VERB_TAGS = frozenset(("VV", "VA"))
_CONTENT_TAGS = _NOUN_TAGS | _VERB_TAGS | {"MAG", "XPN"}
_EMPTY_VERBS = load_words("empty_verbs.ko")
ASKING_WORDS = load_words("asking.ko") | load_stems("asking.en")
"""Words that mostly just ask; English ones are stems."""


def count_terms(text: str) -> dict[str, int]:
    """The terms of one text with their counts."""
    return next(iter(count_terms_per_text([text])))


def count_terms_per_text(texts: Iterable[str]) -> Iterator[dict[str, int]]:
    """The terms of every text, in order."""
    for text in map(normalise, texts):
        yield Counter(_list_terms(text) + _list_terms_across_lines(text))


def count_terms_and_leads(
    texts: Iterable[str], characters: int
) -> Iterator[tuple[dict[str, int], set[str]]]:
    """The terms of every text with their counts, and the set of terms of its first words.

    First words are those that begin within `characters` of the normalised text.
    """
    for text in map(normalise, texts):
        space = _SPACE.search(text, characters)
        end = space.start() if space else len(text)
        lead = _list_terms(text[:end])
        yield Counter(lead + _list_terms(text[end:]) + _list_terms_across_lines(text)), set(lead)


def weigh_query_terms(text: str) -> dict[str, float]:
    """The terms of a question with their weights.

    Its words are read twice: analysed in the context of the whole question, and each alone, as
    texts are indexed. A term weighs its count, or half of it if only one reading has it; Latin
    words in a Korean question weigh more. Words that only ask ("알려줘", "explain") and bigrams of
    words without a content morpheme ("해야", "하나요") weigh little, unless there is nothing else.
    """
    normalised = normalise(text)
    morphemes = analyse_morphemes(normalised)
    all_terms = Counter(_list_terms(normalised))
    subject_terms = _sum_without_asking(
        (_count_subject_terms(normalised, morphemes), 0.5),
        (_count_contextual_terms(normalised, morphemes), 0.5),
        (Counter(_list_content_bigrams(normalised, morphemes)), 1.0),
    )
    if not subject_terms:
        return {term: float(count) for term, count in all_terms.items()}
    weights = {
        term: count * ASKING_WEIGHT
        for term, count in all_terms.items()
        if term not in subject_terms
    }
    latin_weight = LATIN_WEIGHT if HANGUL.search(normalised) else 1.0
    weights.update(
        (term, count * (latin_weight if _LATIN_TERM.search(term) else 1.0))
        for term, count in subject_terms.items()
    )
    return weights


def find_subject_terms(text: str) -> set[str]:
    """What a question is about: its content words, without bigrams; empty if it only asks."""
    normalised = normalise(text)
    return set(
        _sum_without_asking((_count_subject_terms(normalised, analyse_morphemes(normalised)), 1.0))
    )


def analyse_morphemes(text: str) -> Sequence[Morpheme] | None:
    """The morphemes of one text; None if the analyser cannot be loaded."""
    if not HANGUL.search(text):
        return ()
    try:
        return korean.analyse_question(text)
    except EngineUnavailable:
        return None


class _WordTerms(NamedTuple):
    """The terms of a word: `content` morphemes and compounds, and those of its `written` form."""

    content: tuple[str, ...]
    written: tuple[str, ...]


@functools.lru_cache(maxsize=2)
def _make_word_reader(analyser: Any) -> Callable[[str], _WordTerms]:
    """A function that reads the terms of single words and caches them.

    Each word is analysed alone, so that it has the same terms in every text and question, and
    repeated words, which are most of a text, cost nothing. One reader is kept for the analyser in
    use, and one without (None) for texts without Hangul, which need not load it.
    """

    def read(word: str) -> _WordTerms:
        morphemes: Sequence[Morpheme] | None = ()
        if HANGUL.search(word):
            morphemes = korean.analyse_word(analyser, word) if analyser else None
        written = read_surface(word)
        return _WordTerms(tuple(_list_words(word, morphemes)), written.bigrams + written.others)

    remembered = functools.lru_cache(maxsize=MAX_CACHED_WORDS)(read)
    return lambda word: remembered(word) if len(word) <= MAX_CACHED_CHARACTERS else read(word)


def _get_word_reader(text: str) -> Callable[[str], _WordTerms]:
    """The reader for the words of this text."""
    try:
        return _make_word_reader(korean.get_analyser() if HANGUL.search(text) else None)
    except EngineUnavailable:
        return _make_word_reader(None)


def _list_terms(text: str) -> list[str]:
    read_word = _get_word_reader(text)
    terms: list[str] = []
    for word in text.split():
        content, written = read_word(word)
        terms += content
        terms += written
    return terms


def _list_terms_across_lines(text: str) -> list[str]:
    """The further terms of words at line ends, if they continued in the next line."""
    terms: list[str] = []
    for as_two, as_one in find_words_across_lines(text):
        known_terms = {*_list_terms(as_two)}
        terms += (term for term in dict.fromkeys(_list_terms(as_one)) if term not in known_terms)
    return terms


def _count_contextual_terms(text: str, morphemes: Sequence[Morpheme] | None) -> Counter[str]:
    """The content terms of those words that contain a content morpheme in this context.

    "시" alone is a city or a poem, in "제출 시" it only means "when"; "상한" alone may be "gone
    bad", in "여비의 상한" it is a maximum.
    """
    if morphemes is None:
        return _count_subject_terms(text, None)
    read_word = _get_word_reader(text)
    subject_morphemes = [morpheme for morpheme in morphemes if _is_subject_morpheme(morpheme)]
    counts: Counter[str] = Counter()
    for word in _WORD.finditer(text):
        counts.update(read_surface(word[0]).others)
        if _slice_starting_within(subject_morphemes, *word.span()):
            counts.update(read_word(word[0]).content)
    return counts


def _count_subject_terms(text: str, morphemes: Sequence[Morpheme] | None) -> Counter[str]:
    counts = Counter(_list_words(text, morphemes))
    for word in text.split():
        counts.update(read_surface(word).others)
    return counts


def _sum_without_asking(*weighted_counts: tuple[Counter[str], float]) -> dict[str, float]:
    """The weighted sums of counts, without the words that only ask."""
    sums: dict[str, float] = defaultdict(float)
    for counts, weight in weighted_counts:
        for term in counts.keys() - ASKING_WORDS:
            sums[term] += weight * counts[term]
    return sums


def _list_words(text: str, morphemes: Sequence[Morpheme] | None) -> list[str]:
    """The content morphemes and compounds; without the analyser, words without their particles."""
    if morphemes is None:
        return [korean.strip_particle(run) for word in text.split() for run in split_hangul(word)]
    return _list_content_terms(morphemes)


def _list_content_terms(morphemes: Iterable[Morpheme]) -> list[str]:
    """Content morphemes; nouns written together are one term as well."""
    terms: list[str] = []
    compound: list[str] = []
    last_end = -1
    for form, tag, start, end in morphemes:
        is_noun = tag in _NOUN_TAGS
        if _is_content_morpheme(form, tag):
            terms += _to_terms(form)
        if compound and start == last_end and (is_noun or tag == "XSN"):
            compound.append(form)
        else:
            if compound:
                terms += _join_compound(compound)
            compound = [form] if is_noun else []
        last_end = end
    return terms + _join_compound(compound)


def _to_terms(form: str) -> list[str]:
    """The form as a term; none for ASCII words, whose terms `read_surface` gives."""
    return [] if form.isascii() else [form.lower()[:MAX_TERM_CHARACTERS]]


def _join_compound(compound: Sequence[str]) -> list[str]:
    return _to_terms("".join(compound)) if len(compound) > 1 else []


def _is_content_morpheme(form: str, tag: str) -> bool:
    return tag in _CONTENT_TAGS and (tag not in _VERB_TAGS or form not in _EMPTY_VERBS)


def _is_subject_morpheme(morpheme: Morpheme) -> bool:
    return _is_content_morpheme(morpheme.form, morpheme.tag) and morpheme.form not in ASKING_WORDS


def _list_content_bigrams(text: str, morphemes: Sequence[Morpheme] | None) -> Iterator[str]:
    """Bigrams of each Hangul word from its first content morpheme to its last."""
    if morphemes is None:
        yield from (pair for word in text.split() for pair in read_surface(word).bigrams)
        return
    subject_morphemes = [morpheme for morpheme in morphemes if _is_subject_morpheme(morpheme)]
    for word in HANGUL.finditer(text):
        morphemes_inside = [
            morpheme
            for morpheme in _slice_starting_within(subject_morphemes, *word.span())
            if morpheme.end <= word.end()
        ]
        if morphemes_inside:
            yield from split_pairs(text[morphemes_inside[0].start : morphemes_inside[-1].end])


def _slice_starting_within(
    morphemes: Sequence[Morpheme], start: int, end: int
) -> Sequence[Morpheme]:
    """The morphemes, which are in text order, that start within `start:end`."""
    get_start = attrgetter("start")
    return morphemes[
        bisect_left(morphemes, start, key=get_start) : bisect_left(morphemes, end, key=get_start)
    ]
