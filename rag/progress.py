"""What is known of one answer while it is made."""

import time
from dataclasses import dataclass, field

from rag.conversation import DocRef, Turn
from rag.grounding.support import Checked
from rag.language import reply_language
from rag.pieces import Usage
from rag.query.understand import Understood
from rag.question import Question
from rag.types import HistoryMessage, Hit, Mode, QuestionType, Scope, Source


@dataclass(slots=True)
class Progress:
    """One question on its way to an answer. `scope` is the one that was searched in the end."""

    question: Question
    understood: Understood
    window: tuple[HistoryMessage, ...]
    kind: QuestionType
    scope: Scope
    hits: tuple[Hit, ...] = ()
    sources: tuple[Source, ...] = ()
    recalled: tuple[Turn, ...] = ()
    findings: tuple[str, ...] = ()
    notices: tuple[str, ...] = ()
    method: str = ""
    usage: Usage | None = None
    text: str = ""
    """The answer, once it is whole."""
    checks: tuple[Checked, ...] = ()
    told: tuple[str, ...] = ()
    """Codes of what the reader should know: see `rag.events.Finished`."""
    trace: dict[str, object] = field(default_factory=dict)
    timings_ms: dict[str, float] = field(default_factory=dict)
    started: float = field(default_factory=time.perf_counter)

    @property
    def mode(self) -> Mode:
        """Documents when something is shown, else general."""
        return Mode.DOCUMENTS if self.sources else Mode.GENERAL

    @property
    def asked(self) -> str:
        """The question without words that only say what it is bound to."""
        return self.understood.verdict.rest or self.question.text

    @property
    def language(self) -> str:
        """The language to answer in."""
        return reply_language(self.question.text)

    @property
    def gone(self) -> tuple[DocRef, ...]:
        """Documents that the question refers to by place and that can no longer be read."""
        reference = self.understood.reference
        readable = self.question.conversation.readable
        return tuple(
            ref
            for ref in (reference.documents if reference else ())
            if ref.document_id not in readable
        )

    @property
    def searches(self) -> bool:
        """Whether documents are looked at."""
        return self.kind is not QuestionType.SMALLTALK and bool(self.scope.document_ids)

    @staticmethod
    def now() -> float:
        """A point in time for `took`."""
        return time.perf_counter()

    def took(self, step: str, begun: float) -> None:
        """Note the time that a step took since `begun`."""
        self.timings_ms[step] = since(begun)


def since(begun: float) -> float:
    """Milliseconds since a `perf_counter`."""
    return round((time.perf_counter() - begun) * 1000, 2)
