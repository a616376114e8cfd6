"""The events of `rag.pipeline.answer`, in the order in which they can come."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from rag.types import Mode, QuestionType, Source, Usage


@dataclass(frozen=True, slots=True)
class Status:
    """A step began; `detail` is for people who look closely, `trace` what is known so far."""

    step: str
    detail: Mapping[str, object] = field(default_factory=dict)
    trace: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SourcesFound:
    """The evidence, before the first delta. Never sent in general mode."""

    sources: tuple[Source, ...]


@dataclass(frozen=True, slots=True)
class Delta:
    """More text of the answer."""

    text: str


@dataclass(frozen=True, slots=True)
class Finished:
    """The answer is whole. `sources` is None in general mode. `trace` is plain JSON."""

    mode: Mode
    question_type: QuestionType
    sources: tuple[Source, ...] | None
    usage: Usage | None
    trace: Mapping[str, object]


Event = Status | SourcesFound | Delta | Finished
