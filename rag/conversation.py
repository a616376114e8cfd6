"""A question and what the engine knows of its conversation: turns, documents, memory, summary.

Everything belongs to one branch: the path from the chat's first message to the question.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Self
from uuid import UUID

from rag.memory.profile import Slot
from rag.types import HistoryMessage, Intent, QuestionType, Scope, Speaker, ToolResult, Topic

SCHEMA_VERSION = 1
"""Of `DocRef` and `Turn` as stored; raised with a change of their shape."""


@dataclass(frozen=True, slots=True)
class DocRef:
    """A document as an answer showed it.

    `slot` counts documents from 1 in every answer. `title` is what people call it, `source` its
    file name. `passages` are the texts shown, whole, in the order of `chunk_ids`: they outlive the
    document. `snippet` is the beginning of the best one. `score` is 0..1.
    """

    slot: int
    document_id: UUID
    title: str
    source: str
    uri: str = ""
    version: int = 1
    checksum: str = ""
    chunk_ids: tuple[str, ...] = ()
    passages: tuple[str, ...] = ()
    snippet: str = ""
    retrieval_method: str = ""
    score: float = 0.0


@dataclass(frozen=True, slots=True)
class View:
    """A stretch of a whole document that an answer showed: part `part` of `parts`, from 1."""

    document_id: UUID
    part: int
    parts: int


@dataclass(frozen=True, slots=True)
class PastTurn:
    """A question and its answer; `number` counts from 1 in its branch.

    `candidates` are the documents that an answer of mode clarify offered.
    """

    number: int
    user_text: str
    assistant_text: str
    question_type: str = ""
    mode: str = ""
    summary: str = ""
    doc_refs: tuple[DocRef, ...] = ()
    candidates: tuple[DocRef, ...] = ()
    view: View | None = None
    ts: datetime | None = None

    @property
    def messages(self) -> tuple[HistoryMessage, ...]:
        """Its texts as messages, empty ones left out."""
        texts = ((Speaker.USER, self.user_text), (Speaker.ASSISTANT, self.assistant_text))
        return tuple(HistoryMessage(role, text) for role, text in texts if text)


@dataclass(frozen=True, slots=True)
class TurnLine:
    """A turn as listed for searching, before its full text is loaded.

    `question` is the beginning of the user's text, `summary` one line. `terms` and `vector` are
    those of the whole turn; empty and None until its note is written.
    """

    number: int
    question: str
    summary: str
    question_type: str = ""
    document_ids: tuple[UUID, ...] = ()
    terms: Mapping[str, int] = field(default_factory=dict)
    vector: tuple[float, ...] | None = None
    ts: datetime | None = None


@dataclass(frozen=True, slots=True)
class RememberedDocument:
    """A document that the conversation is about."""

    document_id: UUID
    title: str
    score: float


@dataclass(frozen=True, slots=True)
class Memory:
    """The documents used last, best first, and the last turn."""

    documents: tuple[RememberedDocument, ...] = ()
    last_question: str = ""
    last_answer: str = ""
    last_question_type: QuestionType | None = None

    @property
    def document_ids(self) -> tuple[UUID, ...]:
        """The remembered documents, best first."""
        return tuple(item.document_id for item in self.documents)


@dataclass(frozen=True, slots=True)
class RunningSummary:
    """Summary of the turns up to `through`, back to the last fresh start before it."""

    text: str
    through: int
    model: str = ""


@dataclass(frozen=True, slots=True)
class Conversation:
    """The branch that leads to a question.

    `turns` are the last ones, oldest first, at least as many as the window holds; `total` counts
    all. Turns before `begins_at` precede the last fresh start ("새 주제로"): the model does not see
    them unless the user refers to them. `shown_turn` is the latest turn with documents since the
    memory was cleared. `readable` maps the documents of earlier turns that the user may still read
    to their present versions.
    """

    turns: tuple[PastTurn, ...] = ()
    total: int = 0
    memory: Memory = field(default_factory=Memory)
    shown_turn: PastTurn | None = None
    summary: RunningSummary | None = None
    readable: Mapping[UUID, int] = field(default_factory=dict)
    begins_at: int = 1

    @property
    def current_turns(self) -> tuple[PastTurn, ...]:
        """The `turns` since the last fresh start."""
        return tuple(turn for turn in self.turns if turn.number >= self.begins_at)

    @property
    def last_turn(self) -> PastTurn | None:
        """The previous turn, unless there was a fresh start since."""
        return next(reversed(self.current_turns), None)

    @property
    def current_messages(self) -> tuple[HistoryMessage, ...]:
        """The messages of the turns since the last fresh start."""
        return tuple(message for turn in self.current_turns for message in turn.messages)


@dataclass(frozen=True, slots=True)
class Sampling:
    """What a caller asks for in one answer; None or empty means as configured.

    `max_tokens` can only lower the configured limit.
    """

    temperature: float | None = None
    max_tokens: int | None = None
    stop: tuple[str, ...] = ()
    seed: int | None = None

    @classmethod
    def from_stored(cls, stored: Mapping[str, Any]) -> Self:
        """From JSON; missing fields are as configured."""
        return cls(**{**stored, "stop": tuple(stored.get("stop", ()))})


@dataclass(frozen=True, slots=True)
class Persona:
    """How an assistant is set up. It has no influence on what may be read."""

    name: str
    instructions: str = ""
    intent: Intent | None = None


@dataclass(frozen=True, slots=True)
class Question:
    """One question with everything the engine may know about its conversation.

    The store that comes with it holds the documents of `scope` and of `conversation.readable`.
    """

    text: str
    scope: Scope
    conversation: Conversation = field(default_factory=Conversation)
    topic: Topic = Topic.AUTO
    history_pairs: int | None = None
    """Question-and-answer pairs to read; None: as configured."""
    sampling: Sampling = field(default_factory=Sampling)
    profile: tuple[Slot, ...] | None = None
    """What is remembered about the user; None: memory is off for this question."""
    persona: Persona | None = None
    """The assistant asked; None: Nura itself."""
    tool_results: tuple[ToolResult, ...] = ()
    """Results of tools on other servers: material for the prompt, never instructions."""

    @property
    def stands_alone(self) -> bool:
        """Whether its answer depends on nothing but the documents.

        Not on earlier turns, sampling, an assistant, tools or what is remembered about the user.
        """
        is_plain = self.sampling == Sampling() and not self.profile and self.persona is None
        is_plain = is_plain and not self.tool_results
        return is_plain and not self.conversation.total


def to_conversation(messages: Sequence[HistoryMessage]) -> Conversation:
    """A conversation given as messages only, without remembered documents."""
    pairs: list[tuple[str, str]] = []
    for message in messages:
        if message.role is Speaker.USER:
            pairs.append((message.content, ""))
        elif message.role is Speaker.ASSISTANT:
            question, answer = pairs.pop() if pairs else ("", "")
            pairs.append((question, f"{answer}\n{message.content}".strip()))
    turns = tuple(
        PastTurn(number, question, answer) for number, (question, answer) in enumerate(pairs, 1)
    )
    last_turn = turns[-1] if turns else None
    memory = Memory((), last_turn.user_text, last_turn.assistant_text) if last_turn else Memory()
    return Conversation(turns, len(turns), memory)


QUESTION_CHARACTERS = 200


class MemoryHistory:
    """Implements `rag.ports.HistoryStore` over turns, oldest first."""

    def __init__(self, turns: Sequence[PastTurn] = ()) -> None:
        self._turns = {turn.number: turn for turn in turns}

    def list_turns(self, limit: int, before: int | None = None) -> list[TurnLine]:
        """The newest turns, newest first."""
        numbers = [number for number in self._turns if before is None or number < before]
        return [
            _to_turn_line(self._turns[number]) for number in sorted(numbers, reverse=True)[:limit]
        ]

    def get_turns(self, numbers: Collection[int]) -> list[PastTurn]:
        """The turns with these numbers, oldest first."""
        return [self._turns[number] for number in sorted(set(numbers)) if number in self._turns]

    def list_documents(self) -> tuple[DocRef, ...]:
        """The documents of all answers by first appearance."""
        return number_documents(turn.doc_refs for _, turn in sorted(self._turns.items()))


def number_documents(answers: Iterable[Sequence[DocRef]]) -> tuple[DocRef, ...]:
    """The documents of answers, numbered by first appearance, as last shown."""
    latest: dict[UUID, DocRef] = {}
    for refs in answers:
        for ref in refs:
            latest[ref.document_id] = ref
    return tuple(replace(ref, slot=slot) for slot, ref in enumerate(latest.values(), 1))


def _to_turn_line(turn: PastTurn) -> TurnLine:
    return TurnLine(
        number=turn.number,
        question=turn.user_text[:QUESTION_CHARACTERS],
        summary=turn.summary,
        question_type=turn.question_type,
        document_ids=tuple(ref.document_id for ref in turn.doc_refs),
        ts=turn.ts,
    )
