"""What the last turns were about, in words that can be carried over to another question."""

import functools
import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from rag import particles, stems, surface, tokenize
from rag.conversation import Conversation, Turn
from rag.morphemes import Morpheme
from rag.query import anaphora, filters, laws
from rag.query.kinds import is_smalltalk
from rag.query.spoken import spoken
from rag.types import QuestionType
from rag.words import words as listed

TURNS = 4
"""The last turns that are looked at."""
CHARACTERS = 600
"""Of an earlier question."""
MOST = 6
"""Words that are carried over."""
TITLES = 8
"""Of the documents of earlier answers, that may stand in a question."""
SIDE = 0.5
"""What a word that names a side of something ("기한") says beside one that names the thing."""

_NOUNS = frozenset(("NNG", "NNP", "NR", "XR", "SL", "SH"))
_PARTS = _NOUNS | {"NNB", "SN", "XSN", "XPN"}
_ASKING = listed("asking.ko") | {stems.stem(word) for word in listed("asking.en")}
_RELATIONAL = listed("relational.ko") | {stems.stem(word) for word in listed("relational.en")}
_ARTICLE = re.compile(r"제\s?\d+조(?:의\s?\d+)?")
_WORD = re.compile(r"\S+")
_EDGES = re.compile(r"^[^\w]+|[^\w+#%]+$")


@dataclass(frozen=True, slots=True)
class Word:
    """A word that says what something is about: as it is shown, and its terms.

    `weight` is 1 for a word that names something, less for one that names a side of it ("기한").
    `document`: the name of a law or a document, `article` the number of an article.
    """

    shown: str
    terms: frozenset[str]
    weight: float = 1.0
    document: bool = False
    article: bool = False

    @property
    def name(self) -> bool:
        """Whether it names one thing."""
        marked = self.shown[:1].isupper() or any(sign.isdigit() for sign in self.shown)
        return self.document or self.article or marked


@dataclass(frozen=True, slots=True)
class Said:
    """A question of the conversation, in words; `rest` is its text without names of documents."""

    text: str
    rest: str
    words: tuple[Word, ...]
    refers: bool

    @property
    def weight(self) -> float:
        """How much it says by itself."""
        return sum(word.weight for word in self.words)


def read(text: str, titles: Iterable[str] = ()) -> Said:
    """A question in words. `titles` are names of documents that may stand in it."""
    return _read(text, tuple(titles))


def titles(conversation: Conversation) -> tuple[str, ...]:
    """The distinct names of the documents that the conversation is about."""
    remembered = [item.title for item in conversation.memory.documents]
    shown = [ref.title for turn in conversation.turns[-TURNS:] for ref in turn.doc_refs]
    named = [name for name in dict.fromkeys((*remembered, *shown)) if name.strip()]
    return tuple(name for name in named[:TITLES] if filters.distinct("title", name))


def before(conversation: Conversation) -> tuple[tuple[Turn, Said], ...]:
    """The last turns that matter, oldest first: back to one that stands alone."""
    names = titles(conversation)
    found: list[tuple[Turn, Said]] = []
    for turn in reversed(conversation.turns[-TURNS:]):
        if turn.question_type == QuestionType.RESET:
            break
        text = turn.user_text[:CHARACTERS].strip()
        if not text or is_smalltalk(text):
            continue
        said = read(text, names)
        found.insert(0, (turn, said))
        if _stands(turn, said):
            break
    return tuple(found)


def carried(own: Said, turns: Sequence[Said]) -> list[Word]:
    """The words of earlier questions that a question lacks, in the order of the conversation.

    Of a question that was a follow-up itself only the things count, and not the side of them that
    it asked for.
    """
    known = {term for word in own.words for term in word.terms}
    document = any(word.document for word in own.words)
    article = any(word.article for word in own.words)
    found: list[Word] = []
    for age, said in enumerate(reversed(turns)):
        opening = age == len(turns) - 1
        new: list[Word] = []
        for word in said.words:
            clash = (word.document and document) or (word.article and (document or article))
            aside = word.weight < 1 and not opening
            if not clash and not aside and not word.terms <= known:
                new.append(word)
                known |= word.terms
        document |= any(word.document for word in new)
        article |= any(word.article for word in new)
        found = new + found
    best = sorted(range(len(found)), key=lambda at: (not found[at].name, at))[:MOST]
    return [found[at] for at in sorted(best)]


@functools.lru_cache(maxsize=64)
def _read(text: str, names: tuple[str, ...]) -> Said:
    clean = tokenize.normalise(text)
    found = tokenize.morphemes_of(clean)
    spans = _spans(clean, names)
    known = laws.named(clean)
    words: dict[str, Word] = {}
    rest: list[str] = []
    for match in _WORD.finditer(clean):
        inside = [name for start, end, name in spans if start <= match.start() < end]
        word = _called(inside[0]) if inside else _word(clean, match, found, known)
        if word is not None:
            words.setdefault(word.shown, word)
        if word is None or not word.document:
            rest.append(match[0])
    refers = anaphora.points_back(spoken(text)) > 0
    return Said(text, " ".join(rest), tuple(words.values()), refers)


def _called(name: str) -> Word:
    """The name of a document as one word."""
    return Word(name, frozenset(tokenize.subject_terms(name)), document=True)


def _spans(text: str, names: Iterable[str]) -> list[tuple[int, int, str]]:
    """Where names of documents stand, longer names first."""
    found: list[tuple[int, int, str]] = []
    for name in sorted(names, key=len, reverse=True):
        shape = r"\s*".join(re.escape(part) for part in tokenize.normalise(name).split())
        for match in re.finditer(shape, text, re.IGNORECASE):
            if not any(start < match.end() and match.start() < end for start, end, _ in found):
                found.append((*match.span(), name))
    return found


def _word(
    text: str,
    match: re.Match[str],
    found: Sequence[Morpheme] | None,
    names: Collection[str],
) -> Word | None:
    """The word between white space without its particle; None where it names nothing."""
    shown = _shown(text, match, found)
    terms = frozenset(tokenize.subject_terms(shown)) if shown else frozenset()
    if not terms:
        return None
    return Word(
        shown,
        terms,
        weight=SIDE if terms <= _RELATIONAL else 1.0,
        document=re.sub(r"[ㆍ·]+", "", shown) in names,
        article=bool(_ARTICLE.match(shown)),
    )


def _shown(text: str, match: re.Match[str], found: Sequence[Morpheme] | None) -> str:
    whole = match[0]
    if found is None or not surface.HANGUL.search(whole):
        return _EDGES.sub("", particles.strip(whole) if found is None else whole)
    inside = [item for item in found if match.start() <= item.start and item.end <= match.end()]
    nouns = any(item.tag in _NOUNS and item.form not in _ASKING for item in inside)
    if not nouns and not _ARTICLE.match(whole):
        return ""
    end = max((item.end for item in inside if item.tag in _PARTS), default=match.end())
    return _EDGES.sub("", text[match.start() : end])


def _stands(turn: Turn, said: Said) -> bool:
    """Whether a turn's question said all by itself: as it was taken then, else by its words."""
    if turn.question_type:
        return turn.question_type == QuestionType.SINGLE
    if any(word.document for word in said.words):
        return True
    return not said.refers and said.weight >= 2
