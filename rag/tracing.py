"""What an answer's trace keeps of a search, as plain JSON, and usage where no server counted it."""

from collections.abc import Iterator, Mapping

from rag.context.plan import TokenPlan
from rag.events import Status
from rag.generation.brief import Brief
from rag.pieces import Usage
from rag.types import Hit, Plan, Retrieval

CHARACTERS_PER_TOKEN = 2.5
"""Between Korean (about 1.5) and English (about 4) with usual tokenisers."""


def of_retrieval(found: Retrieval) -> dict[str, object]:
    """Plan, candidates with all their scores, gate and times."""
    return {
        "plan": _plan(found.plan) | {"dropped_filters": dict(found.dropped_filters)},
        "candidates": [_candidate(hit) for hit in found.hits],
        "gate": {
            "score": round(found.gate.score, 4),
            "threshold": found.gate.threshold,
            "relevant": found.gate.relevant,
        },
        "search_ms": dict(found.timings_ms),
    }


def of_plan(plan: TokenPlan) -> dict[str, object]:
    """What each part of the prompt could take and took, and what did not fit."""
    layers = {
        name: {"planned": layer.planned, "used": layer.used} for name, layer in plan.layers.items()
    }
    return {
        "total": plan.total,
        "used": plan.used,
        "layers": layers,
        "dropped": dict(plan.dropped),
        "counter": plan.counter,
    }


def filters_of(trace: Mapping[str, object]) -> dict[str, dict[str, str]]:
    """The filters in force and those dropped, as far as there are any."""
    plan = trace.get("plan")
    names = ("filters", "dropped_filters")
    found = {name: plan.get(name) for name in names} if isinstance(plan, Mapping) else {}
    return {name: dict(told) for name, told in found.items() if told}


def statuses(trace: Mapping[str, object]) -> Iterator[Status]:
    """What people may want to know of a search: its scope, its filters, why there is none."""
    scope = trace.get("scope")
    if isinstance(scope, Mapping) and scope.get("follows"):
        ids = scope.get("document_ids")
        found = {"documents": len(ids) if isinstance(ids, list) else 0}
        yield Status("scope", found | {name: scope.get(name) for name in ("reason", "widened")})
    if filters := filters_of(trace):
        yield Status("filter", filters)
    fallback = trace.get("fallback")
    if isinstance(fallback, Mapping):
        yield Status("fallback", dict(fallback))


def estimated_usage(brief: Brief, characters: int) -> Usage:
    """A guess by length."""
    read = len(brief.question) + sum(len(message.content) for message in brief.history)
    read += sum(len(item.text) for item in brief.evidence)
    return Usage(
        prompt_tokens=round(read / CHARACTERS_PER_TOKEN),
        completion_tokens=round(characters / CHARACTERS_PER_TOKEN),
        estimated=True,
    )


def _plan(plan: Plan) -> dict[str, object]:
    return {
        "question_type": plan.question_type.value,
        "strategy": plan.strategy.value,
        "top_k": plan.top_k,
        "needs_multi_doc": plan.needs_multi_doc,
        "standalone_query": plan.standalone_query,
        "filters": dict(plan.filters),
    }


def _candidate(hit: Hit) -> dict[str, object]:
    passage = hit.passage
    return {
        "chunk_id": passage.chunk_id,
        "document_name": passage.document_name,
        "page": passage.page,
        "section": passage.section,
        "score": round(hit.score, 5),
        "scores": {name: round(value, 5) for name, value in hit.scores.items()},
    }
