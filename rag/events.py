"""The events of `rag.pipeline.answer`, in the order in which they can come."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from uuid import UUID

from rag.conversation import DocRef, View
from rag.ports import Usage
from rag.types import AnswerLabel, AnswerMode, QuestionType, Source
from rag.verify.label import Checked

ANSWER_CUT = "answer_cut"
"""The notice of an answer that ended at its limit of tokens."""


PARTS_UNREAD = "parts_unread"
"""The notice of an answer on whole documents of which not every part was read."""


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

    sources: tuple[Source, ...]
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

    `label` is what it rests on, None for a clarifying question and where it could not be checked.
    `candidates` are the documents that a clarifying question offers, `view` the stretch of a whole
    document that was shown, `bearing` the documents that bore on the question, best first, whether
    or not the answer cites them, `checks` what the evidence says of each sentence, `notices` codes
    of what the reader should know: "embedder_failed", "retrieval_failed", "answer_cut".
    """

    mode: AnswerMode
    question_type: QuestionType
    sources: tuple[Source, ...] | None
    usage: Usage | None
    trace: Mapping[str, object]
    label: AnswerLabel | None = None
    candidates: tuple[DocRef, ...] = ()
    view: View | None = None
    checks: tuple[Checked, ...] = ()
    bearing: tuple[UUID, ...] = ()
    notices: tuple[str, ...] = ()


Event = StepBegan | SourcesFound | Reasoning | Delta | Replaced | Finished
