"""What the last turns were about, in words that can be carried over to another question."""

import functools
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from rag import particles, stems, surface, tokenize
from rag.conversation import Conversation, Turn
from rag.morphemes import Morpheme
from rag.query import anaphora, laws
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
SIDE = 0.5
"""What a word that names a side of something ("기한") says beside one that names the thing."""

_NOUNS = frozenset(("NNG", "NNP", "NR", "XR", "SL", "SH"))
_PARTS = _NOUNS | {"NNB", "SN", "XSN", "XPN", "NNBC"}
_ASKING = listed("asking.ko") | {stems.stem(word) for word in listed("asking.en")}
_RELATIONAL = listed("relational.ko") | {stems.stem(word) for word in listed("relational.en")}
_ARTICLE = re.compile(r"제\s?\d+조(?:의\s?\d+)?")
_WORD = re.compile(r"\S+")
_EDGES = re.compile(r"^[^\w]+|[^\w+#%]+$")


@dataclass(frozen=True, slots=True)
class Word:
    """A word that says what something is about: as it is shown, its terms, what it says.

    `weight` is 1 for a word that names something, less for one that names a side of it ("기한").
    `law` and `article`: the name of a law, the number of an article.
    """

    shown: str
    terms: frozenset[str]
    weight: float = 1.0
    law: bool = False
    article: bool = False

    @property
    def name(self) -> bool:
        """Whether it names one thing."""
        marked = self.shown[:1].isupper() or any(sign.isdigit() for sign in self.shown)
        return self.law or self.article or marked


def turns(conversation: Conversation) -> tuple[Turn, ...]:
    """The last turns that matter, oldest first: back to one that stands alone."""
    found: list[Turn] = []
    for turn in reversed(conversation.turns[-TURNS:]):
        if turn.question_type == QuestionType.RESET:
            break
        text = turn.user_text[:CHARACTERS]
        if not text.strip() or is_smalltalk(text):
            continue
        found.insert(0, turn)
        if _stands(text):
            break
    return tuple(found)


def carried(own: Sequence[Word], before: Sequence[Turn]) -> list[Word]:
    """The words of earlier questions that a question lacks, in the order of the conversation."""
    known = {term for word in own for term in word.terms}
    law, article = any(word.law for word in own), any(word.article for word in own)
    found: list[Word] = []
    for turn in reversed(before):
        new = []
        for word in words(turn.user_text[:CHARACTERS]):
            clash = (word.law and law) or (word.article and (law or article))
            if not clash and not word.terms <= known:
                new.append(word)
                known |= word.terms
        law, article = law or any(w.law for w in new), article or any(w.article for w in new)
        found = new + found
    best = sorted(range(len(found)), key=lambda at: (not found[at].name, at))[:MOST]
    return [found[at] for at in sorted(best)]


def refers(text: str) -> bool:
    """True where it points back: "그 기한", "it"."""
    return anaphora.strength(spoken(text), 0) > 0


@functools.lru_cache(maxsize=64)
def _words(text: str) -> tuple[Word, ...]:
    clean = tokenize.normalise(text)
    found = tokenize.morphemes_of(clean)
    names = laws.named(clean)
    read = (_word(clean, match, found, names) for match in _WORD.finditer(clean))
    return tuple(word for word in read if word is not None)


def words(text: str) -> list[Word]:
    """The words of a text that say what it is about, in order."""
    return list(_words(text))


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
        law=re.sub(r"[ㆍ·]+", "", shown) in names,
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


def _stands(text: str) -> bool:
    said = words(text)
    if any(word.law for word in said):
        return True
    return not refers(text) and sum(word.weight for word in said) >= 2
