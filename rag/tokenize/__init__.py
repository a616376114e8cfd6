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
"""In characters; what is longer ("A사/B사/C사...") is a list and no word."""
MAX_REMEMBERED_SURFACES = 1 << 14

HANGUL = re.compile("[가-힣]+")
_BESIDES = re.compile("[^\\W_가-힣]")
_IDEOGRAPHS = re.compile("[\u3040-\u30ff\u3400-\u9fff\U00020000-\U0003ffff]+")
_LETTER = "[^\\W_가-힣\u3040-\u30ff\u3400-\u9fff\U00020000-\U0003ffff]"
_FOREIGN = re.compile(rf"{_LETTER}+(?:[-_./'’@&]{_LETTER}+)*(?:\+\+|#)?")
_MIXED = re.compile(rf"(?:{_LETTER}|[가-힣])+(?:[-_.,&](?:{_LETTER}|[가-힣])+)*")
_TAIL = re.compile("[가-힣]+$")
_CLITIC = re.compile("['’](?:s|t|re|ll|ve|d|m)$", re.IGNORECASE)
_JOINT = re.compile("[-_.'’&]")
_NUMBER = re.compile(r"\d{1,3}(?:,\d{3})+(?!\d)(?:\.\d+)?%?|\d+(?:\.\d+)*%?")
_DOTTED = re.compile(r"\d+(?:\.\d+)+")
_DIGIT = re.compile(r"\d")
_COMMA = re.compile(r"(?<=\d),(?=\d)")
_CAMEL = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
_ATTACHES = re.compile(r"[\w)\]}>%℃\"'’”」』》〉]$")
_STOP = load_words("stop.en")


class Surface(NamedTuple):
    """The terms of a written word: of its Hangul the pairs of syllables, and all others."""

    bigrams: tuple[str, ...]
    others: tuple[str, ...]


def read_surface(word: str) -> Surface:
    """The terms of a word between white space."""
    return _read_remembered(word) if len(word) <= MAX_REMEMBERED_CHARACTERS else _read(word)


def _read(word: str) -> Surface:
    if not _BESIDES.search(word):
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


_read_remembered = functools.lru_cache(maxsize=MAX_REMEMBERED_SURFACES)(_read)
"""Words come back often."""


def split_pairs(word: str) -> Iterator[str]:
    """The neighbouring letters of a word; a single letter as it is."""
    if len(word) == 1:
        yield word
    for start in range(len(word) - 1):
        yield word[start : start + 2]


def split_hangul(word: str) -> Iterator[str]:
    """The runs of Hangul, but for a particle that hangs on something else ("API를", "(갑)은")."""
    for run in HANGUL.finditer(word):
        if run[0] not in PARTICLES or not _ATTACHES.search(word[: run.start()]):
            yield run[0]


def _split_bigrams(word: str) -> Iterator[str]:
    """Pairs of syllables; a unit behind a number ("30일까지") is left to `_split_mixed`."""
    for run in HANGUL.finditer(word):
        before = word[: run.start()]
        if run[0] in PARTICLES and _ATTACHES.search(before):
            continue
        stem = strip_particle(run[0])
        if len(stem) > 1 or not before[-1:].isdigit():
            yield from split_pairs(stem)
        if len(stem) == 1 and len(run[0]) > 1:
            # "도로" may be a noun or "도" with a particle: both readings count, so that "도로가"
            # finds either.
            yield run[0][:2]


def _split_foreign(word: str) -> Iterator[str]:
    """Latin words and those of other scripts; what is joined by marks whole and in its parts."""
    for match in _FOREIGN.findall(word):
        if match[-1] in "+#":
            yield match.lower()
        pieces = re.split("[/@]", match.rstrip("+#"))
        if len(pieces) > 1:
            yield match.lower()
        for piece in pieces:
            yield from _split_joined(_CLITIC.sub("", piece))


def _split_joined(piece: str) -> Iterator[str]:
    parts = _JOINT.split(piece)
    if len(parts) > 1 and not _DOTTED.fullmatch(piece):
        yield piece.lower()
        if "-" in piece and _DIGIT.search(piece) and not piece[0].isdigit():
            yield "".join(parts).lower()  # "E-1234" is also written "E1234"
    for part in parts:
        yield from _split_single(part)


def _split_single(word: str) -> Iterator[str]:
    lower = word.lower()
    if lower.isdigit() or (lower in _STOP and not (len(word) > 1 and word.isupper())):
        return
    yield stem_word(lower)
    if lower == word or not word.isascii():
        return
    pieces = _CAMEL.findall(word)
    if 1 < len(pieces) <= 5:
        yield from (
            stem_word(piece.lower()) for piece in pieces if len(piece) > 1 and not piece.isdigit()
        )


def _split_numbers(word: str) -> Iterator[str]:
    """Numbers without thousands separators; dates and versions whole and in their parts."""
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
    """Words of Hangul and other signs whole, without their particle: "2세대", "제2024-15호"."""
    if not HANGUL.search(word) or not _FOREIGN.search(word):
        return
    for match in _MIXED.findall(word):
        whole = _COMMA.sub("", _strip_tail_particle(match))
        if len(whole) <= MAX_MIXED_CHARACTERS and HANGUL.search(whole) and _FOREIGN.search(whole):
            yield whole.lower()


def _strip_tail_particle(match: str) -> str:
    tail = _TAIL.search(match)
    if tail is None:
        return match
    rest = match[: tail.start()]
    return rest if tail[0] in PARTICLES else rest + strip_particle(tail[0])


_VOWELS = frozenset("aeiouy")


def stem_word(word: str) -> str:
    """The stem of a lower-case English word: without its plural or verb ending.

    "studies" and "study" meet, as do "running", "runs" and "run"; no different words do.
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
ASKING = load_words("asking.ko") | load_stems("asking.en")
"""Words that mostly only ask, English ones by their stems."""


def count_terms(text: str) -> dict[str, int]:
    """The terms of one text with their counts."""
    return next(iter(count_terms_of_all([text])))


def count_terms_of_all(texts: Iterable[str]) -> Iterator[dict[str, int]]:
    """The terms of every text, in order."""
    for text in map(normalise, texts):
        yield Counter(_list_terms(text) + _list_terms_across_lines(text))


def count_terms_and_leads(
    texts: Iterable[str], characters: int
) -> Iterator[tuple[dict[str, int], set[str]]]:
    """The terms of every text with their counts, and those of its first words.

    Those are the words that begin within so many characters of the normalised text.
    """
    for text in map(normalise, texts):
        space = _SPACE.search(text, characters)
        end = space.start() if space else len(text)
        lead = _list_terms(text[:end])
        yield Counter(lead + _list_terms(text[end:]) + _list_terms_across_lines(text)), set(lead)


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
    everything = Counter(_list_terms(clean))
    subject = _sum_without_asking(
        (_count_subject_terms(clean, found), 0.5),
        (_count_telling_terms(clean, found), 0.5),
        (Counter(_list_content_bigrams(clean, found)), 1.0),
    )
    if not subject:
        return {term: float(count) for term, count in everything.items()}
    weights = {
        term: count * ASKING_WEIGHT for term, count in everything.items() if term not in subject
    }
    latin = LATIN_WEIGHT if HANGUL.search(clean) else 1.0
    weights.update(
        (term, count * (latin if _LATIN.search(term) else 1.0)) for term, count in subject.items()
    )
    return weights


def find_subject_terms(text: str) -> set[str]:
    """What a question is about: its content words, no bigrams; empty where it only asks."""
    clean = normalise(text)
    return set(_sum_without_asking((_count_subject_terms(clean, analyse_morphemes(clean)), 1.0)))


def analyse_morphemes(text: str) -> Sequence[Morpheme] | None:
    """The morphemes of one text; None where the analyser is not there."""
    if not HANGUL.search(text):
        return ()
    try:
        return korean.analyse_question(text)
    except EngineUnavailable:
        return None


class _WordTerms(NamedTuple):
    """A word: content morphemes, compounds, and what `rag.tokenize` reads in it."""

    content: tuple[str, ...]
    written: tuple[str, ...]


@functools.lru_cache(maxsize=2)
def _make_reader(analyser: Any) -> Callable[[str], _WordTerms]:
    """What reads the terms of words between blanks, each analysed alone, and remembers them.

    So a word has the same terms in every text and question, and what comes back, which is most of
    a text, costs nothing. One for the analyser in use and one for texts without Hangul, which load
    none (None).
    """

    def read(word: str) -> _WordTerms:
        found: Sequence[Morpheme] | None = ()
        if HANGUL.search(word):
            found = korean.analyse_word(analyser, word) if analyser else None
        written = read_surface(word)
        return _WordTerms(tuple(_list_words(word, found)), written.bigrams + written.others)

    remembered = functools.lru_cache(maxsize=MAX_REMEMBERED_WORDS)(read)
    return lambda word: remembered(word) if len(word) <= MAX_REMEMBERED_CHARACTERS else read(word)


def _get_reader(text: str) -> Callable[[str], _WordTerms]:
    """What reads the words of this text."""
    try:
        return _make_reader(korean.get_analyser() if HANGUL.search(text) else None)
    except EngineUnavailable:
        return _make_reader(None)


def _list_terms(text: str) -> list[str]:
    read = _get_reader(text)
    found: list[str] = []
    for word in text.split():
        content, written = read(word)
        found += content
        found += written
    return found


def _list_terms_across_lines(text: str) -> list[str]:
    """What the words at line ends would say besides if they went on in the next line."""
    found: list[str] = []
    for apart, whole in find_words_across_lines(text):
        known = {*_list_terms(apart)}
        found += (term for term in dict.fromkeys(_list_terms(whole)) if term not in known)
    return found


def _count_telling_terms(text: str, found: Sequence[Morpheme] | None) -> Counter[str]:
    """The content terms of those words that hold a content morpheme where they stand here.

    "시" alone is a city or a poem, in "제출 시" it only says when; "상한" alone may be what has
    gone bad, in "여비의 상한" it is the most.
    """
    if found is None:
        return _count_subject_terms(text, None)
    read = _get_reader(text)
    telling = [item for item in found if _is_telling(item)]
    counts: Counter[str] = Counter()
    for word in _WORD.finditer(text):
        counts.update(read_surface(word[0]).others)
        if _slice_begun_within(telling, *word.span()):
            counts.update(read(word[0]).content)
    return counts


def _count_subject_terms(text: str, found: Sequence[Morpheme] | None) -> Counter[str]:
    counts = Counter(_list_words(text, found))
    for word in text.split():
        counts.update(read_surface(word).others)
    return counts


def _sum_without_asking(*weighed: tuple[Counter[str], float]) -> dict[str, float]:
    """The sums of counts by their weights, but for the words that only ask."""
    found: dict[str, float] = defaultdict(float)
    for counts, weight in weighed:
        for term in counts.keys() - ASKING:
            found[term] += weight * counts[term]
    return found


def _list_words(text: str, found: Sequence[Morpheme] | None) -> list[str]:
    """The content morphemes and compounds; without the analyser the words without particles."""
    if found is None:
        return [korean.strip_particle(run) for word in text.split() for run in split_hangul(word)]
    return _list_content_terms(found)


def _list_content_terms(found: Iterable[Morpheme]) -> list[str]:
    """Content morphemes, and nouns written together also as one term."""
    kept: list[str] = []
    compound: list[str] = []
    last = -1
    for form, tag, start, end in found:
        noun = tag in _NOUNS
        if _is_content(form, tag):
            kept += _to_terms(form)
        if compound and start == last and (noun or tag == "XSN"):
            compound.append(form)
        else:
            if compound:
                kept += _join_compound(compound)
            compound = [form] if noun else []
        last = end
    return kept + _join_compound(compound)


def _to_terms(form: str) -> list[str]:
    """Words without Hangul are read by their letters (`rag.tokenize`)."""
    return [] if form.isascii() else [form.lower()[:MAX_TERM_CHARACTERS]]


def _join_compound(compound: Sequence[str]) -> list[str]:
    return _to_terms("".join(compound)) if len(compound) > 1 else []


def _is_content(form: str, tag: str) -> bool:
    return tag in _CONTENT and (tag not in _VERBS or form not in _EMPTY_VERBS)


def _is_telling(item: Morpheme) -> bool:
    return _is_content(item.form, item.tag) and item.form not in ASKING


def _list_content_bigrams(text: str, found: Sequence[Morpheme] | None) -> Iterator[str]:
    """Bigrams of each Hangul word from its first content morpheme to its last."""
    if found is None:
        yield from (pair for word in text.split() for pair in read_surface(word).bigrams)
        return
    telling = [item for item in found if _is_telling(item)]
    for word in HANGUL.finditer(text):
        inside = [
            one for one in _slice_begun_within(telling, *word.span()) if one.end <= word.end()
        ]
        if inside:
            yield from split_pairs(text[inside[0].start : inside[-1].end])


def _slice_begun_within(items: Sequence[Morpheme], start: int, end: int) -> Sequence[Morpheme]:
    """Those that begin within a stretch of the text; `items` are in its order."""
    begins = attrgetter("start")
    return items[bisect_left(items, start, key=begins) : bisect_left(items, end, key=begins)]
