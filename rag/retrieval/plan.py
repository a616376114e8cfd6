"""From the kind of a question to how it is searched."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from rag.conversation import Memory
from rag.query.classify import Verdict
from rag.query.rewrite import Standalone
from rag.types import Plan, QuestionType, Scope, StrategyName

_WIDER = {QuestionType.MULTI: 1.5, QuestionType.COMPARE: 2.0}


@dataclass(frozen=True, slots=True)
class Wishes:
    """What a caller may ask of a search. `top_k` None: as configured and as the question needs."""

    strategy: StrategyName = StrategyName.AUTO
    top_k: int | None = None
    rerank: bool = True
    filters: Mapping[str, str] | None = None


@dataclass(frozen=True, slots=True)
class Asked:
    """A question as it was understood: what kind, in which words, with which memory."""

    verdict: Verdict
    standalone: Standalone
    memory: Memory = field(default_factory=Memory)


def make(asked: Asked, scope: Scope, wishes: Wishes, *, usual_k: int) -> Plan:
    """The plan of a question.

    Fusion for every kind unless a strategy is named, because it was never worse than one leg.
    Questions over several documents get more passages than usual, unless `top_k` is named.
    """
    kind = asked.verdict.question_type
    wanted = usual_k if wishes.top_k is None else wishes.top_k
    return Plan(
        question_type=kind,
        strategy=_strategy(wishes.strategy),
        top_k=round(wanted * _WIDER.get(kind, 1.0)) if wishes.top_k is None else wanted,
        needs_multi_doc=kind in _WIDER and len(scope.document_ids) > 1,
        standalone_query=_searched(asked),
        completed=asked.standalone.text,
        scope=scope,
        filters=dict(wishes.filters or {}),
        follows=asked.verdict.follows,
        context=asked.standalone.context,
        own_words=asked.standalone.own_words,
        background=asked.standalone.background,
        background_weight=asked.standalone.weight,
    )


def _strategy(wanted: StrategyName) -> StrategyName:
    return StrategyName.RRF if wanted is StrategyName.AUTO else wanted


def _searched(asked: Asked) -> str:
    """What is searched for by its words and by the names in it.

    With documents to remember, a question in its own words: names carried over from the
    conversation would keep a search beyond those documents inside of them.
    """
    said = asked.standalone
    return said.own_words if said.own_words and asked.memory.documents else said.text
