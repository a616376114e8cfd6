"""What kind of question it is, and whether it is bound to the conversation, by its words."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from rag.config import MemoryRules
from rag.conversation import Conversation
from rag.language import dense_weight
from rag.ports import Embedder
from rag.query import background, follow, reset
from rag.query.kinds import is_smalltalk, kind
from rag.query.spoken import Spoken, spoken
from rag.retrieval.similarity import KNOWN
from rag.types import QuestionType, Topic

SHORT = 30
"""Characters below which mode "simple" takes every question for a follow-up."""

__all__ = ["Verdict", "classify", "is_smalltalk"]


@dataclass(frozen=True, slots=True)
class Verdict:
    """What was decided of a question.

    `follows`: it is bound to the conversation, so that it is rewritten and searched in the
    remembered documents first. A comparison may follow, too: `question_type` is COMPARE then.
    `certainty` (0..1) is how sure `follows` is; `by` is "rules", "simple", "light_llm" or "user".
    `forgets`: the remembered documents are to be forgotten first; `rest` is what is asked, without
    the words that say so. `topic` is what the user said of it. `failed` is the error code of a
    light model that was asked in vain.
    """

    question_type: QuestionType
    follows: bool = False
    certainty: float = 1.0
    by: str = "rules"
    signals: Mapping[str, float] = field(default_factory=dict)
    forgets: bool = False
    rest: str = ""
    topic: Topic = Topic.AUTO
    failed: str = ""


def classify(
    text: str,
    conversation: Conversation,
    rules: MemoryRules,
    *,
    embedder: Embedder | None = None,
    topic: Topic = Topic.AUTO,
) -> Verdict:
    """The verdict by rules. `topic` is what the user said of it, and outranks them."""
    if wish := reset.find(text, rules.reset_words):
        if not wish.rest:
            return Verdict(QuestionType.RESET, forgets=True)
        said = spoken(wish.rest)
        return Verdict(kind(said, rules), forgets=True, rest=wish.rest)
    said = spoken(text)
    alone = Verdict(kind(said, rules), rest=text)
    if alone.question_type is QuestionType.SMALLTALK or not conversation.total:
        return replace(alone, topic=topic)
    if topic is not Topic.AUTO:
        told = replace(alone, by="user", topic=topic)
        return told if topic is Topic.NEW else bound(told, 1.0)
    if rules.mode == "simple":
        return _simply(said, alone, conversation, rules, embedder)
    found = follow.signals(said, background.of(conversation), rules)
    likely = follow.probability(said, found)
    weighed = replace(alone, certainty=max(likely, 1 - likely), signals=found)
    return bound(weighed, weighed.certainty) if likely >= 0.5 else weighed


def bound(verdict: Verdict, certainty: float) -> Verdict:
    """The same question, bound to the conversation."""
    single = verdict.question_type is QuestionType.SINGLE
    bound = QuestionType.FOLLOWUP if single else verdict.question_type
    return replace(verdict, question_type=bound, follows=True, certainty=certainty)


def _simply(
    said: Spoken,
    alone: Verdict,
    conversation: Conversation,
    rules: MemoryRules,
    embedder: Embedder | None,
) -> Verdict:
    """The plain rule: short, a follow-up word, or like the last question."""
    decided = replace(alone, by="simple")
    if len(alone.rest.strip()) < SHORT or said.holds(follow.cues(rules)):
        return bound(decided, 1.0)
    close = closeness(alone.rest, conversation.memory.last_question, embedder)
    decided = replace(decided, signals={"similarity": close})
    return bound(decided, 1.0) if close >= rules.similarity_threshold else decided


def closeness(text: str, other: str, embedder: Embedder | None) -> float:
    """Cosine of two questions; 0 where the embedder does not know the language of both."""
    if embedder is None or not other.strip():
        return 0.0
    if min(dense_weight(one, embedder.languages) for one in (text, other)) < KNOWN:
        return 0.0
    one, two = embedder.embed_query(text), embedder.embed_query(other)
    return sum(a * b for a, b in zip(one, two, strict=True))
