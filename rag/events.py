"""What an answer tells as it is made: its events in the order in which they can come; its trace."""

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from uuid import UUID

from rag.conversation import DocRef, View
from rag.ports import Usage
from rag.types import (
    AnswerLabel,
    AnswerMode,
    AnswerSource,
    CheckedSentence,
    CitedPassage,
    Hit,
    Plan,
    QuestionType,
    Retrieval,
)

ANSWER_CUT = "answer_cut"
"""The notice of an answer that ended at its limit of tokens."""


PARTS_UNREAD = "parts_unread"
"""The notice of an answer on whole documents of which not every part was read."""

OTHER_LANGUAGE = "other_language"
"""The notice of an answer that found nothing, as the documents are in another language."""


@dataclass(frozen=True, slots=True)
class StepBegan:
    """A step began; `detail` is for people who look closely, `trace` what is known so far."""

    step: str
    detail: Mapping[str, object] = field(default_factory=dict)
    trace: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SourcesFound:
    """The evidence, before the first delta; `method` is how it was found.

    An answer that cites none of it has no sources in the end.
    """

    sources: tuple[AnswerSource, ...]
    method: str = ""


@dataclass(frozen=True, slots=True)
class Delta:
    """More text of the answer."""

    text: str


@dataclass(frozen=True, slots=True)
class Reasoning:
    """More of what the model thinks aloud; no part of the answer."""

    text: str


@dataclass(frozen=True, slots=True)
class Replaced:
    """The answer so far is replaced by this one."""

    text: str


@dataclass(frozen=True, slots=True)
class Finished:
    """The answer is complete. `sources` is None in general mode. `trace` is plain JSON.

    `label` is what it is based on; None for a clarifying question, or if it could not be checked.
    `candidates` are the documents that a clarifying question offers, `view` is the part of a
    document that was shown. `relevant_document_ids` are the documents relevant to the question,
    best first, cited or not. `checks` are the verdicts on its sentences, `citations` what its
    markers refer to, in order, and `notices` codes of what readers should know: "embedder_failed",
    "retrieval_failed", "answer_cut", "other_language".
    """

    mode: AnswerMode
    question_type: QuestionType
    sources: tuple[AnswerSource, ...] | None
    usage: Usage | None
    trace: Mapping[str, object]
    label: AnswerLabel | None = None
    candidates: tuple[DocRef, ...] = ()
    view: View | None = None
    checks: tuple[CheckedSentence, ...] = ()
    citations: tuple[CitedPassage, ...] = ()
    relevant_document_ids: tuple[UUID, ...] = ()
    notices: tuple[str, ...] = ()


Event = StepBegan | SourcesFound | Reasoning | Delta | Replaced | Finished


# The trace, as plain JSON


def describe_retrieval(retrieval: Retrieval) -> dict[str, object]:
    """Plan, candidates with all their scores, gate and times."""
    return {
        "plan": _describe_plan(retrieval.plan)
        | {"dropped_filters": dict(retrieval.dropped_filters)},
        "candidates": [_describe_candidate(hit) for hit in retrieval.hits],
        "gate": {
            "score": round(retrieval.gate.score, 4),
            "threshold": retrieval.gate.threshold,
            "relevant": retrieval.gate.relevant,
        },
        "search_ms": dict(retrieval.timings_ms),
    }


def read_filters(trace: Mapping[str, object]) -> dict[str, dict[str, str]]:
    """The filters in force and those dropped, as far as there are any."""
    plan = trace.get("plan")
    names = ("filters", "dropped_filters")
    found = {name: plan.get(name) for name in names} if isinstance(plan, Mapping) else {}
    return {name: dict(values) for name, values in found.items() if values}


def list_statuses(trace: Mapping[str, object]) -> Iterator[StepBegan]:
    """What people may want to know of a search: its scope, its filters, why there is none."""
    scope = trace.get("scope")
    if isinstance(scope, Mapping) and scope.get("follows"):
        ids = scope.get("document_ids")
        detail = {"documents": len(ids) if isinstance(ids, list) else 0}
        yield StepBegan("scope", detail | {name: scope.get(name) for name in ("reason", "widened")})
    if filters := read_filters(trace):
        yield StepBegan("filter", filters)
    fallback = trace.get("fallback")
    if isinstance(fallback, Mapping):
        yield StepBegan("fallback", dict(fallback))


@dataclass(slots=True)
class AnswerTrace:
    """What is noted of one answer while it is made; plain JSON, times in ms."""

    values: dict[str, object] = field(default_factory=dict)
    _timings: dict[str, float] = field(default_factory=dict)
    _started: float = field(default_factory=time.perf_counter)

    def add(self, values: Mapping[str, object]) -> None:
        """Note more; what was noted under the same name gives way."""
        self.values.update(values)

    def note_time_since_start(self, step: str) -> None:
        """Note the time from the beginning to now."""
        self._timings[step] = measure_milliseconds_since(self._started)

    @contextmanager
    def time_step(self, step: str) -> Iterator[None]:
        """Note the time that a step takes."""
        started = time.perf_counter()
        try:
            yield
        finally:
            self._timings[step] = measure_milliseconds_since(started)

    def snapshot(self) -> dict[str, object]:
        """What is known so far."""
        return {**self.values, "timings_ms": dict(self._timings)}


def measure_milliseconds_since(started: float) -> float:
    """Milliseconds since a `perf_counter`."""
    return round((time.perf_counter() - started) * 1000, 2)


def _describe_plan(plan: Plan) -> dict[str, object]:
    return {
        "question_type": plan.question_type.value,
        "strategy": plan.strategy.value,
        "top_k": plan.top_k,
        "needs_multi_doc": plan.needs_multi_doc,
        "standalone_query": plan.standalone_query,
        "filters": dict(plan.filters),
    }


def _describe_candidate(hit: Hit) -> dict[str, object]:
    passage = hit.passage
    return {
        "chunk_id": passage.chunk_id,
        "document_name": passage.document_name,
        "page": passage.page,
        "section": passage.section,
        "score": round(hit.score, 5),
        "scores": {name: round(value, 5) for name, value in hit.scores.items()},
    }
