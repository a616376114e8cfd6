"""From the kind of a question to how it is searched."""

from collections.abc import Mapping, Sequence

from rag.query.classify import question_type
from rag.types import HistoryMessage, Plan, QuestionType, Scope, StrategyName

_WIDER = {QuestionType.MULTI: 1.5, QuestionType.COMPARE: 2.0}


def make(
    query: str,
    scope: Scope,
    *,
    top_k: int,
    strategy: StrategyName = StrategyName.AUTO,
    exact_k: bool = False,
    filters: Mapping[str, str] | None = None,
    history: Sequence[HistoryMessage] = (),
) -> Plan:
    """The plan of a question. Fusion for every kind unless a strategy is named: it was never worse than one leg.

    Questions over several documents get more passages than `top_k`, except with `exact_k`.
    """
    kind = question_type(query, history)
    return Plan(
        question_type=kind,
        strategy=StrategyName.RRF if strategy is StrategyName.AUTO else strategy,
        top_k=top_k if exact_k else round(top_k * _WIDER.get(kind, 1.0)),
        needs_multi_doc=kind in _WIDER and len(scope.document_ids) > 1,
        standalone_query=query,
        scope=scope,
        filters=dict(filters or {}),
    )
