"""From a follow-up to a question that stands alone: what it lacks is carried over."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from rag import surface, tokenize
from rag.conversation import Conversation, Turn
from rag.query import topic
from rag.query.classify import Verdict
from rag.query.topic import Said, Word

CHARACTERS = 2000
"""Of a message that are read; longer ones are pasted texts and lack nothing."""
ANSWER_CHARACTERS = 300
"""Of the last answer's beginning, where it says what it is about."""
LEAST, REFERS, FEW = 0.05, 0.2, 0.4
"""What the conversation weighs beside any follow-up, one that points back, one of a single word."""
ELDER = 0.5
"""What a turn weighs beside the one after it."""
ENOUGH = 3
"""Words of its own with which a question needs no others, if it does not point back."""
MOST_TERMS = 12
"""Lexical terms that are carried over: each costs the search some time."""

_BEGINNING = re.compile(
    r"^\W*(?:(?:그럼|그러면|그렇다면|그런데|근데|그리고|또한|또|and|but|so|then|ok|okay)(?![가-힣\w])[\s,]*)+",
    re.IGNORECASE,
)
_POINTING = re.compile(
    r"^(?:(?:그|이|해당|위|앞의|위의)\s+(?=\S)|(?:그것|이것|그거|이거)(?:은|는|이|가|을|를|의|도)?\s+|"
    r"(?:그건|이건|그게|이게|그걸|이걸)\s+)"
)


@dataclass(frozen=True, slots=True)
class Standalone:
    """A question as it is searched.

    `text` is shown and searched; `context` are lexical terms of the conversation with what they
    weigh beside the question's own, also such as stand in `text`. `own_words` (empty: `text`) are
    embedded, and beside them with `weight` the `background`, which was said before. `by` is "" (as
    asked), "terms" or "light_llm"; `failed` the error code of a light model that was asked in vain.
    """

    text: str
    context: Mapping[str, float] = field(default_factory=dict)
    by: str = ""
    own_words: str = ""
    background: str = ""
    weight: float = 0.0
    failed: str = ""


def standalone(text: str, conversation: Conversation, verdict: Verdict) -> Standalone:
    """The question with what it lacks from the conversation; as it is, unless it follows."""
    turns = topic.before(conversation) if verdict.follows else ()
    if not turns or len(text) > CHARACTERS:
        return Standalone(text)
    own = topic.read(text, topic.titles(conversation))
    said = [question for _, question in turns]
    carried = topic.carried(own, said)
    lacks = own.refers or len(own.words) < ENOUGH
    share = _share(own)
    return Standalone(
        text=_joined(text, carried) if lacks else text,
        context=_context(own, carried, said, share),
        by="terms",
        own_words=text,
        background=_background(turns[-1][0]),
        weight=share,
    )


def _share(own: Said) -> float:
    """What the conversation weighs beside the question, 0..1: the more, the less it says itself."""
    return min(1.0, LEAST + REFERS * own.refers + FEW / max(1.0, own.weight))


def _joined(text: str, carried: Sequence[Word]) -> str:
    """The words carried over, and the question behind them without the words that point back."""
    if not carried:
        return text
    asked = _BEGINNING.sub("", text).strip()
    asked = _POINTING.sub("", asked) or asked
    before = " ".join(word.shown for word in carried)
    korean = surface.HANGUL.search(asked or before)
    return f"{before} {asked}" if korean else f"{before}: {asked}"


def _context(
    own: Said, carried: Sequence[Word], turns: Sequence[Said], share: float
) -> dict[str, float]:
    """The terms of the turns, all of them together weighing `share` of the question's own.

    Names of documents are left out, as all of their passages bear them. Where the question names
    nothing at all, the words carried over weigh as if it had said them.
    """
    asked = tokenize.query_terms(own.text)
    mass = share * sum(asked.values())
    weights: dict[str, float] = {}
    for age, turn in enumerate(reversed(turns)):
        found = tokenize.query_terms(turn.rest)
        total = sum(found.values()) or 1.0
        for term, weight in found.items():
            weights[term] = weights.get(term, 0.0) + mass * ELDER**age * weight / total
    shown = {term for word in carried if not word.document for term in word.terms}
    best = sorted(weights, key=lambda term: (term not in shown, -weights[term]))
    kept = [term for term in best if term not in asked][:MOST_TERMS]
    needed = shown if not own.words else ()
    return {term: 1.0 if term in needed else min(0.99, weights[term]) for term in kept}


def _background(last: Turn) -> str:
    said = (last.user_text, last.assistant_text)
    return "\n".join(text[:ANSWER_CHARACTERS] for text in said).strip()
