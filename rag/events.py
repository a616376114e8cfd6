"""The events of `rag.pipeline.answer`, in the order in which they can come."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from rag.conversation import DocRef, View
from rag.grounding.support import Checked
from rag.pieces import Usage
from rag.types import Mode, Passage, QuestionType, Source


@dataclass(frozen=True, slots=True)
class Status:
    """A step began; `detail` is for people who look closely, `trace` what is known so far."""

    step: str
    detail: Mapping[str, object] = field(default_factory=dict)
    trace: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SourcesFound:
    """The evidence, before the first delta. Never sent in general mode.

    `passages` are those of the sources, whole; `method` is how they were found.
    """

    sources: tuple[Source, ...]
    passages: tuple[Passage, ...] = ()
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
    """The answer so far gives way to this one."""

    text: str


@dataclass(frozen=True, slots=True)
class Finished:
    """The answer is whole. `sources` is None in general mode. `trace` is plain JSON.

    `candidates` are the documents that a question back offers, `view` the stretch of a whole
    document that was shown, `checks` what the evidence says of each sentence, `notices` codes of
    what the reader should know: "embedder_failed", "retrieval_failed", "answer_cut".
    """

    mode: Mode
    question_type: QuestionType
    sources: tuple[Source, ...] | None
    usage: Usage | None
    trace: Mapping[str, object]
    candidates: tuple[DocRef, ...] = ()
    view: View | None = None
    checks: tuple[Checked, ...] = ()
    notices: tuple[str, ...] = ()


Event = Status | SourcesFound | Reasoning | Delta | Replaced | Finished
