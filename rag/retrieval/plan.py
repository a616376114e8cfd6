"""From the kind of a question to how it is searched."""

from collections.abc import Mapping
from dataclasses import dataclass

from rag.query.classify import question_type
from rag.types import HistoryMessage, Plan, QuestionType, Scope, StrategyName

_WIDER = {QuestionType.MULTI: 1.5, QuestionType.COMPARE: 2.0}


@dataclass(frozen=True, slots=True)
class Wishes:
    """What a caller may ask of a search. `top_k` None: as configured and as the question needs."""

    strategy: StrategyName = StrategyName.AUTO
    top_k: int | None = None
    rerank: bool = True
    filters: Mapping[str, str] | None = None
    history: tuple[HistoryMessage, ...] = ()


def make(query: str, scope: Scope, wishes: Wishes, *, usual_k: int) -> Plan:
    """The plan of a question.

    Fusion for every kind unless a strategy is named, because it was never worse than one leg.
    Questions over several documents get more passages than usual, unless `top_k` is named.
    """
    kind = question_type(query, wishes.history)
    wanted = usual_k if wishes.top_k is None else wishes.top_k
    return Plan(
        question_type=kind,
        strategy=_strategy(wishes.strategy),
        top_k=round(wanted * _WIDER.get(kind, 1.0)) if wishes.top_k is None else wanted,
        needs_multi_doc=kind in _WIDER and len(scope.document_ids) > 1,
        standalone_query=query,
        scope=scope,
        filters=dict(wishes.filters or {}),
    )


def _strategy(wanted: StrategyName) -> StrategyName:
    return StrategyName.RRF if wanted is StrategyName.AUTO else wanted
