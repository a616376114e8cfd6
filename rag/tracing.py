"""What an answer's trace keeps, as plain JSON."""

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from rag.events import StepBegan
from rag.retrieve.evidence import Selection
from rag.types import Hit, Plan, Retrieval


def describe_retrieval(found: Retrieval) -> dict[str, object]:
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


def filters_of(trace: Mapping[str, object]) -> dict[str, dict[str, str]]:
    """The filters in force and those dropped, as far as there are any."""
    plan = trace.get("plan")
    names = ("filters", "dropped_filters")
    found = {name: plan.get(name) for name in names} if isinstance(plan, Mapping) else {}
    return {name: dict(told) for name, told in found.items() if told}


def list_statuses(trace: Mapping[str, object]) -> Iterator[StepBegan]:
    """What people may want to know of a search: its scope, its filters, why there is none."""
    scope = trace.get("scope")
    if isinstance(scope, Mapping) and scope.get("follows"):
        ids = scope.get("document_ids")
        found = {"documents": len(ids) if isinstance(ids, list) else 0}
        yield StepBegan("scope", found | {name: scope.get(name) for name in ("reason", "widened")})
    if filters := filters_of(trace):
        yield StepBegan("filter", filters)
    fallback = trace.get("fallback")
    if isinstance(fallback, Mapping):
        yield StepBegan("fallback", dict(fallback))


def describe_selection(selection: Selection) -> dict[str, object]:
    """What of the passages stands in the prompt."""
    return {
        "by": selection.by,
        "passages": [
            {"number": item.number, "chunk_id": item.passage.chunk_id, "weak": item.weak}
            for item in selection.evidence
        ],
        "noted": [item.number for item in selection.noted],
        "parts": len(selection.portions),
    }


@dataclass(slots=True)
class AnswerTrace:
    """What is noted of one answer while it is made; plain JSON, times in ms."""

    values: dict[str, object] = field(default_factory=dict)
    _timings: dict[str, float] = field(default_factory=dict)
    _started: float = field(default_factory=time.perf_counter)

    def add(self, found: Mapping[str, object]) -> None:
        """Note more; what was noted under the same name gives way."""
        self.values.update(found)

    def took_since_start(self, step: str) -> None:
        """Note the time from the beginning to now."""
        self._timings[step] = milliseconds_since(self._started)

    @contextmanager
    def timed(self, step: str) -> Iterator[None]:
        """Note the time that a step takes."""
        begun = time.perf_counter()
        try:
            yield
        finally:
            self._timings[step] = milliseconds_since(begun)

    def snapshot(self) -> dict[str, object]:
        """What is known so far."""
        return {**self.values, "timings_ms": dict(self._timings)}


def milliseconds_since(begun: float) -> float:
    """Milliseconds since a `perf_counter`."""
    return round((time.perf_counter() - begun) * 1000, 2)


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
