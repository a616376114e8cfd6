"""A branch of a chat in the engine's terms: its turns, and the conversation up to a message."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from datetime import datetime
from typing import Any, NamedTuple, Self
from uuid import UUID

from django.conf import settings
from django.db import connection
from django.db.models.functions import Left
from django.utils.translation import get_language

from chats.models import Chat, Message, Trace
from chats.models import Turn as Row
from chats.services.erasure import hide_closed_in_turns
from chats.services.memory import describe_used_slots
from chats.services.turn_store import is_forgotten
from documents.models import Document
from jobs.connections import run_and_release
from rag.conversation import (
    QUESTION_CHARACTERS,
    Conversation,
    DocRef,
    Memory,
    PastTurn,
    RememberedDocument,
    RunningSummary,
    TurnLine,
    View,
    number_documents,
    to_conversation,
)
from rag.memory.summary import open_window
from rag.types import HistoryMessage, QuestionType, Speaker
from rag.understand.kinds import find_reset

_REFERENCE_FIELDS = {field.name for field in fields(DocRef)}
_REFERENCE_LISTS = ("chunk_ids", "passages")


def to_past_turn(row: Row) -> PastTurn:
    """A stored turn as the engine's type."""
    return PastTurn(
        number=row.number,
        user_text=row.user_text,
        assistant_text=row.assistant_text,
        question_type=row.question_type,
        mode=row.mode,
        summary=row.summary,
        doc_refs=to_references(row.doc_refs),
        candidates=to_references(row.candidates),
        view=_to_view(row.view),
        ts=row.ts,
    )


def to_references(stored: list[dict[str, Any]]) -> tuple[DocRef, ...]:
    """The documents an answer showed, by slot; unknown fields of other versions are dropped."""
    return tuple(_to_reference(row) for row in stored)


def to_running_summary(row: Row | None) -> RunningSummary | None:
    """The running summary that a turn carries."""
    if row is None or row.running_through is None:
        return None
    return RunningSummary(row.running_summary, row.running_through, row.running_model)


def _to_reference(stored: Mapping[str, Any]) -> DocRef:
    values = {name: value for name, value in stored.items() if name in _REFERENCE_FIELDS}
    lists = {name: tuple(values.get(name, ())) for name in _REFERENCE_LISTS}
    return DocRef(**values | lists | {"document_id": UUID(stored["document_id"])})


def _to_view(stored: Mapping[str, Any] | None) -> View | None:
    if stored is None:
        return None
    return View(UUID(stored["document_id"]), stored["part"], stored["parts"])


BRANCH_QUERY = """
    WITH RECURSIVE up AS (
        SELECT id, parent_id FROM chats_message WHERE id = %s
        UNION ALL
        SELECT m.id, m.parent_id FROM chats_message m JOIN up ON m.id = up.parent_id
         WHERE NOT EXISTS (SELECT FROM chats_turn t WHERE t.message_id = up.id)
    ), spine AS (
        SELECT t.id, t.parent_id, t.number, t.document_ids, t.running_through, t.forgets,
               t.question_type, t.ts
          FROM chats_turn t JOIN up ON t.message_id = up.id
        UNION ALL
        SELECT t.id, t.parent_id, t.number, t.document_ids, t.running_through, t.forgets,
               t.question_type, t.ts
          FROM chats_turn t JOIN spine ON t.id = spine.parent_id
    )
    SELECT id, number, document_ids, running_through, forgets, question_type, ts
      FROM spine ORDER BY number
"""


class BranchStep(NamedTuple):
    """A turn of a branch, without its texts."""

    turn_id: UUID
    number: int
    document_ids: list[UUID]
    running_through: int | None
    forgets: bool
    question_type: str
    ts: datetime


@dataclass(frozen=True, slots=True)
class Branch:
    """The turns up to and including a message, oldest first; a question without answer has none."""

    chat: Chat
    steps: tuple[BranchStep, ...] = ()

    @classmethod
    def to_message(cls, message: Message) -> Self:
        """The branch of a message with its chat loaded. One query, none for the first message."""
        if message.parent_id is None and message.role == Message.Role.USER:
            return cls(message.chat)
        with connection.cursor() as cursor:
            cursor.execute(BRANCH_QUERY, [message.pk])
            return cls(message.chat, tuple(BranchStep(*row) for row in cursor.fetchall()))

    @classmethod
    def find_newest(cls, chat: Chat) -> Self:
        """The branch with the newest message."""
        last = Message.objects.filter(chat=chat).order_by("-created_at", "-id").first()
        if last is None:
            return cls(chat)
        last.chat = chat
        return cls.to_message(last)

    @property
    def turn_ids(self) -> list[UUID]:
        """All turns."""
        return [step.turn_id for step in self.steps]

    @property
    def document_ids(self) -> set[UUID]:
        """The documents of all turns."""
        return {document_id for step in self.steps for document_id in step.document_ids}

    @property
    def begins_at(self) -> int:
        """The number of the first turn since the last reset, which may not have been asked yet.

        A turn that only asked for the reset is left behind; one that also asked something is first.
        """
        cleared_at = self.chat.memory_cleared_at
        for step in reversed(self.steps):
            if cleared_at is not None and step.ts <= cleared_at:
                return step.number + 1
            if step.forgets:
                return step.number + (step.question_type == QuestionType.RESET)
        return 1

    @property
    def summarised(self) -> UUID | None:
        """The latest turn since the last reset that carries a running summary."""
        first = self.begins_at
        return next(
            (s.turn_id for s in reversed(self.steps) if (s.running_through or 0) >= first), None
        )


_LINE = ("pk", "number", "question", "summary", "question_type", "document_ids", "terms", "ts")


class BranchHistory:
    """Implements `rag.ports.HistoryStore` over a branch.

    `embedding` names the model whose vectors can be compared; others are left out. Every query
    releases its connection: threads of the loop hold none while tokens arrive.
    """

    def __init__(self, branch: Branch, *, embedding: str = "") -> None:
        self._ids = {step.number: step.turn_id for step in branch.steps}
        self._answered = [step.turn_id for step in branch.steps if step.document_ids]
        self._embedding = embedding
        self._user_id = branch.chat.owner_id

    def list_turns(self, limit: int, before: int | None = None) -> list[TurnLine]:
        """The newest turns, newest first."""
        numbers = [number for number in self._ids if before is None or number < before]
        newest = sorted(numbers, reverse=True)[: max(0, limit)]
        return run_and_release(self._load_lines, [self._ids[number] for number in newest])

    def get_turns(self, numbers: Collection[int]) -> list[PastTurn]:
        """The turns with these numbers, oldest first."""
        ids = [self._ids[number] for number in sorted(set(numbers)) if number in self._ids]
        return run_and_release(self._load_turns, ids)

    def list_documents(self) -> tuple[DocRef, ...]:
        """The documents of all answers by first appearance."""
        return number_documents(run_and_release(self._load_references))

    def _load_lines(self, ids: Sequence[UUID]) -> list[TurnLine]:
        rows = Row.objects.filter(pk__in=ids).order_by("-number")
        annotated = rows.annotate(question=Left("user_text", QUESTION_CHARACTERS))
        return [self._to_line(row) for row in annotated.values(*_LINE, "vector", "embedding")]

    def _to_line(self, row: dict[str, Any]) -> TurnLine:
        is_comparable = row["vector"] is not None and row["embedding"] == self._embedding
        return TurnLine(
            number=row["number"],
            question=row["question"],
            summary=row["summary"],
            question_type=row["question_type"],
            document_ids=tuple(row["document_ids"]),
            terms=row["terms"],
            vector=tuple(row["vector"]) if is_comparable else None,
            ts=row["ts"],
        )

    def _load_turns(self, ids: Sequence[UUID]) -> list[PastTurn]:
        rows = Row.objects.without_search_columns().filter(pk__in=ids).order_by("number")
        visible = hide_closed_in_turns(list(rows), user_id=self._user_id)
        return [to_past_turn(row) for row in visible]

    def _load_references(self) -> list[tuple[DocRef, ...]]:
        rows = Row.objects.filter(pk__in=self._answered).order_by("number")
        visible = hide_closed_in_turns(list(rows), user_id=self._user_id)
        return [to_references(row.doc_refs) for row in visible]


MAX_EARLIER_TURNS = 10
"""Full turns beyond the window, which a question may refer to implicitly."""


def load_conversation(branch: Branch, *, pairs: int) -> Conversation:
    """The conversation of a branch; `pairs` is the size of the window. Two queries."""
    if not branch.steps:
        return Conversation()
    turn_ids = branch.turn_ids[-(pairs + MAX_EARLIER_TURNS) :]
    readable = find_readable_documents(branch)
    rows = _hide_unreadable(branch, _load_rows(branch, turn_ids), readable)
    last_turn = rows[turn_ids[-1]]
    shown = rows.get(last_turn.shown_id) if last_turn.shown_id else None
    return Conversation(
        turns=tuple(to_past_turn(rows[pk]) for pk in turn_ids),
        total=len(branch.steps),
        memory=read_memory(last_turn, readable),
        shown_turn=to_past_turn(shown) if shown and not is_forgotten(last_turn) else None,
        summary=to_running_summary(rows.get(branch.summarised) if branch.summarised else None),
        readable=readable,
        begins_at=branch.begins_at,
    )


def read_conversation(messages: Sequence[Mapping[str, str]]) -> Conversation:
    """The conversation from messages of a request, from the last reset in it on."""
    conversation = to_conversation(
        [HistoryMessage(Speaker(message["role"]), message["content"]) for message in messages]
    )
    for turn in reversed(conversation.turns):
        rest = find_reset(turn.user_text, settings.RAG.memory.reset_words)
        if rest is not None:
            return replace(conversation, begins_at=turn.number + (not rest))
    return conversation


def find_readable_documents(branch: Branch) -> dict[UUID, int]:
    """The documents of all turns that their owner may still read, and their versions."""
    document_ids = branch.document_ids
    if not document_ids:
        return {}
    documents = Document.objects.visible_to(branch.chat.owner).searchable()
    return dict(documents.filter(pk__in=document_ids).values_list("pk", "version"))


def read_memory(turn: Row, readable: Mapping[UUID, int]) -> Memory:
    """The memory after a turn, without documents that are no longer readable."""
    stored = () if is_forgotten(turn) else turn.remembered
    documents = [
        RememberedDocument(UUID(item["document_id"]), item["title"], item["score"])
        for item in stored
    ]
    kinds = set(QuestionType)
    return Memory(
        documents=tuple(item for item in documents if item.document_id in readable),
        last_question=turn.user_text,
        last_answer=turn.assistant_text,
        last_question_type=QuestionType(turn.question_type)
        if turn.question_type in kinds
        else None,
    )


@dataclass(frozen=True, slots=True)
class RememberedFile:
    """A document that a chat is about: its title for answers, its name for lists."""

    document_id: UUID
    title: str
    name: str
    score: float


@dataclass(frozen=True, slots=True)
class ChatMemory:
    """What a chat remembers, for display and the API; None before the first turn."""

    documents: tuple[RememberedFile, ...] = ()
    last_question: str | None = None
    last_answer: str | None = None
    last_question_type: str | None = None
    updated_at: datetime | None = None

    @property
    def document_ids(self) -> tuple[UUID, ...]:
        """The remembered documents, best first."""
        return tuple(document.document_id for document in self.documents)


def describe_memory(branch: Branch) -> ChatMemory:
    """The memory at the end of a branch."""
    cleared_at = branch.chat.memory_cleared_at
    if not branch.steps:
        return ChatMemory(updated_at=cleared_at)
    turns = Row.objects.without_search_columns().select_related("chat")
    last = turns.get(pk=branch.turn_ids[-1])
    memory = read_memory(last, find_readable_documents(branch))
    return ChatMemory(
        documents=_name_files(memory.documents),
        last_question=memory.last_question,
        last_answer=memory.last_answer,
        last_question_type=memory.last_question_type,
        updated_at=max(last.created_at, cleared_at) if cleared_at else last.created_at,
    )


@dataclass(frozen=True, slots=True)
class ChatContext:
    """The context that the next question of a branch gets: see `rag.memory`.

    `profile` are slots as in `/me/memory`, with the title of their kind. `recent` are the turns in
    the window, `summary` covers those before; `recalled` are older turns that the latest answer
    looked up.
    """

    documents: tuple[RememberedFile, ...] = ()
    profile: tuple[Mapping[str, Any], ...] = ()
    recent: tuple[Row, ...] = ()
    summary: RunningSummary | None = None
    recalled: tuple[Row, ...] = ()


def describe_context(branch: Branch) -> ChatContext:
    """The context at the end of a branch."""
    profile = tuple(describe_used_slots(branch.chat, get_language() or settings.LANGUAGE_CODE))
    if not branch.steps:
        return ChatContext(profile=profile)
    pairs = get_history_pairs(branch.chat)
    conversation = load_conversation(branch, pairs=pairs)
    window = open_window(conversation, pairs=pairs)
    last = Trace.objects.filter(message__turn=branch.turn_ids[-1]).first()
    history = last.steps.get("history") if last else None
    recalled = set(history.get("selected", ())) if isinstance(history, Mapping) else set()
    is_in_window = {
        step.turn_id: step.number >= window.first
        for step in branch.steps
        if step.number >= window.first or step.number in recalled
    }
    turns = list(
        Row.objects.without_search_columns().filter(pk__in=is_in_window).order_by("number")
    )
    return ChatContext(
        documents=_name_files(conversation.memory.documents),
        profile=profile,
        recent=tuple(turn for turn in turns if is_in_window[turn.pk]),
        summary=conversation.summary,
        recalled=tuple(turn for turn in turns if turn.number in recalled),
    )


def _name_files(documents: Sequence[RememberedDocument]) -> tuple[RememberedFile, ...]:
    ids = [document.document_id for document in documents]
    names = dict(Document.objects.filter(pk__in=ids).values_list("pk", "name"))
    return tuple(
        RememberedFile(
            document.document_id, document.title, names[document.document_id], document.score
        )
        for document in documents
        if document.document_id in names  # one may just have been deleted
    )


def _load_rows(branch: Branch, last: list[UUID]) -> dict[UUID, Row]:
    """The last turns, the one with the running summary, and the last one that showed documents."""
    ids = [*last, *filter(None, [branch.summarised])]
    turns = Row.objects.without_search_columns().select_related("chat")
    head = Row.objects.filter(pk=last[-1]).values("shown")
    return {row.pk: row for row in turns.filter(pk__in=ids) | turns.filter(pk__in=head)}


def _hide_unreadable(
    branch: Branch, rows: dict[UUID, Row], readable: Collection[UUID]
) -> dict[UUID, Row]:
    """The turns without passages that the chat's owner may no longer read."""
    visible = hide_closed_in_turns(
        [*rows.values()], user_id=branch.chat.owner_id, readable=readable
    )
    return {row.pk: row for row in visible}


def get_history_pairs(chat: Chat) -> int:
    """Number of past turns a question gets: the chat's setting, else the default."""
    return settings.RAG.history_pairs if chat.history_pairs is None else chat.history_pairs
