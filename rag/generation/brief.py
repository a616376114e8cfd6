"""What an answerer gets, and what every answerer is."""

from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass, field
from typing import Protocol
from uuid import UUID

from rag.config import ContextRules
from rag.context.plan import TokenPlan
from rag.conversation import Turn
from rag.pieces import Piece, Sampling
from rag.types import HistoryMessage


@dataclass(frozen=True, slots=True)
class Evidence:
    """A passage as shown to the answerer: its document's slot, and how relevant it is, 0..1."""

    slot: int
    document_id: UUID
    document_name: str
    page: int | None
    section: str
    text: str
    relevance: float
    index: int = 0
    """The passage's number within its document."""


@dataclass(frozen=True, slots=True)
class Brief:
    """One question with what may be used to answer it. No evidence: general conversation."""

    question: str
    language: str
    history: tuple[HistoryMessage, ...] = ()
    evidence: tuple[Evidence, ...] = ()
    documents: int = 0
    """How many documents could be read; none: there is nothing yet, or it is not ready."""
    smalltalk: bool = False
    standalone: str = ""
    """The question as it was searched, where that is not how it was asked."""
    previous: Turn | None = None
    """The turn that a follow-up follows, whole."""
    summary: str = ""
    """What the older turns said, folded."""
    recalled: tuple[Turn, ...] = ()
    """Older turns that bear on the question, oldest first."""
    findings: tuple[str, ...] = ()
    """What an exploration of the conversation and its documents noted."""
    notices: tuple[str, ...] = ()
    """Names of prompts that tell how the evidence was found: "notice_widened" and the like."""
    several: bool = False
    """The question is on several documents, each of which holds but its part of the answer."""
    opening: bool = False
    """The evidence is the beginning of the documents: the question asked about them as a whole."""
    sampling: Sampling = field(default_factory=Sampling)


@dataclass(frozen=True, slots=True)
class Assembled:
    """A brief with what goes into the prompt, and how its tokens are spent.

    Its evidence is the beginning of what the brief held before: what follows was not read.
    """

    brief: Brief
    plan: TokenPlan


class Answerer(Protocol):
    """Answers a brief in pieces."""

    @property
    def name(self) -> str:
        """The model, or the name of the method; for traces."""
        ...

    def assemble(self, brief: Brief, rules: ContextRules) -> Assembled:
        """What of the brief it will read. Called before `sizes` and `stream`."""
        ...

    def sizes(self, brief: Brief) -> Mapping[str, int]:
        """Characters that would be sent, by part; for traces."""
        ...

    def stream(self, brief: Brief) -> AsyncGenerator[Piece, None]:
        """The answer with `[slot]` markers. Raises `rag.errors.LLMError` and nothing else."""
        ...
