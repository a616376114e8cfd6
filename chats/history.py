"""A branch of a chat as the engine knows it: its turns, and the conversation up to a message."""

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
from jobs.connections import released
from rag.conversation import (
    QUESTION_CHARACTERS,
    Conversation,
    DocRef,
    Memory,
    PastTurn,
    Remembered,
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
    """A whole turn."""
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
    """The documents as an answer showed them, by slot; fields of other versions are left out."""
    return tuple(_to_reference(one) for one in stored)


def to_running_summary(row: Row | None) -> RunningSummary | None:
    """The running summary that a turn carries."""
    if row is None or row.running_through is None:
        return None
    return RunningSummary(row.running_summary, row.running_through, row.running_model)


def _to_reference(stored: Mapping[str, Any]) -> DocRef:
    known = {name: value for name, value in stored.items() if name in _REFERENCE_FIELDS}
    lists = {name: tuple(known.get(name, ())) for name in _REFERENCE_LISTS}
    return DocRef(**known | lists | {"document_id": UUID(stored["document_id"])})


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
    """The turns up to a message and with it, oldest first; of an unanswered one those before it."""

    chat: Chat
    steps: tuple[BranchStep, ...] = ()

    @classmethod
    def to_message(cls, message: Message) -> Self:
        """The branch of a message, whose chat should be at hand. One query, none for the first."""
        if message.parent_id is None and message.role == Message.Role.USER:
            return cls(message.chat)
        with connection.cursor() as cursor:
            cursor.execute(BRANCH_QUERY, [message.pk])
            return cls(message.chat, tuple(BranchStep(*row) for row in cursor.fetchall()))

    @classmethod
    def find_newest(cls, chat: Chat) -> Self:
        """The branch in which something was said last."""
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
        """The number of the first turn since the last new start, be it not asked yet.

        A turn that only asked for the new start is left behind; one that asked more begins it.
        """
        cleared = self.chat.memory_cleared_at
        for step in reversed(self.steps):
            if cleared is not None and step.ts <= cleared:
                return step.number + 1
            if step.forgets:
                return step.number + (step.question_type == QuestionType.RESET)
        return 1

    @property
    def summarised(self) -> UUID | None:
        """The latest turn since the last new start that carries a running summary of it."""
        begins = self.begins_at
        return next(
            (s.turn_id for s in reversed(self.steps) if (s.running_through or 0) >= begins), None
        )


_LINE = ("pk", "number", "question", "summary", "question_type", "document_ids", "terms", "ts")


class BranchHistory:
    """Implements `rag.ports.HistoryStore` over a branch.

    `embedding` names the model whose vectors can be compared; others are left out. Every look
    gives its connection back: threads of the loop hold none while tokens arrive.
    """

    def __init__(self, branch: Branch, *, embedding: str = "") -> None:
        self._ids = {step.number: step.turn_id for step in branch.steps}
        self._answered = [step.turn_id for step in branch.steps if step.document_ids]
        self._embedding = embedding
        self._user_id = branch.chat.owner_id

    def list_turns(self, limit: int, before: int | None = None) -> list[TurnLine]:
        """The newest turns, newest first."""
        numbers = [number for number in self._ids if before is None or number < before]
        chosen = sorted(numbers, reverse=True)[: max(0, limit)]
        return released(self._load_lines, [self._ids[number] for number in chosen])

    def get_turns(self, numbers: Collection[int]) -> list[PastTurn]:
        """The turns with these numbers, oldest first."""
        chosen = [self._ids[number] for number in sorted(set(numbers)) if number in self._ids]
        return released(self._load_turns, chosen)

    def list_documents(self) -> tuple[DocRef, ...]:
        """The documents of all answers by first appearance."""
        return number_documents(released(self._load_references))

    def _load_lines(self, ids: Sequence[UUID]) -> list[TurnLine]:
        rows = Row.objects.filter(pk__in=ids).order_by("-number")
        told = rows.annotate(question=Left("user_text", QUESTION_CHARACTERS))
        return [self._to_line(row) for row in told.values(*_LINE, "vector", "embedding")]

    def _to_line(self, row: dict[str, Any]) -> TurnLine:
        known = row["vector"] is not None and row["embedding"] == self._embedding
        return TurnLine(
            number=row["number"],
            question=row["question"],
            summary=row["summary"],
            question_type=row["question_type"],
            document_ids=tuple(row["document_ids"]),
            terms=row["terms"],
            vector=tuple(row["vector"]) if known else None,
            ts=row["ts"],
        )

    def _load_turns(self, ids: Sequence[UUID]) -> list[PastTurn]:
        rows = Row.objects.without_search_columns().filter(pk__in=ids).order_by("number")
        shown = hide_closed_in_turns(list(rows), user_id=self._user_id)
        return [to_past_turn(row) for row in shown]

    def _load_references(self) -> list[tuple[DocRef, ...]]:
        rows = Row.objects.filter(pk__in=self._answered).order_by("number")
        shown = hide_closed_in_turns(list(rows), user_id=self._user_id)
        return [to_references(row.doc_refs) for row in shown]


MAX_EARLIER_TURNS = 10
"""Whole turns beyond the window: what a question may refer to without naming it."""


def load_conversation(branch: Branch, *, pairs: int) -> Conversation:
    """The conversation of a branch; `pairs` is the size of the window. Two queries."""
    if not branch.steps:
        return Conversation()
    last = branch.turn_ids[-(pairs + MAX_EARLIER_TURNS) :]
    can_read = find_readable_documents(branch)
    rows = _hide_unreadable(branch, _load_rows(branch, last), can_read)
    here = rows[last[-1]]
    shown = rows.get(here.shown_id) if here.shown_id else None
    return Conversation(
        turns=tuple(to_past_turn(rows[pk]) for pk in last),
        total=len(branch.steps),
        memory=read_memory(here, can_read),
        shown=to_past_turn(shown) if shown and not is_forgotten(here) else None,
        summary=to_running_summary(rows.get(branch.summarised) if branch.summarised else None),
        readable=can_read,
        begins_at=branch.begins_at,
    )


def read_conversation(messages: Sequence[Mapping[str, str]]) -> Conversation:
    """The conversation that came along as `{role, content}`; the last new start in it holds."""
    known = to_conversation(
        [HistoryMessage(Speaker(one["role"]), one["content"]) for one in messages]
    )
    for turn in reversed(known.turns):
        rest = find_reset(turn.user_text, settings.RAG.memory.reset_words)
        if rest is not None:
            return replace(known, begins_at=turn.number + (not rest))
    return known


def find_readable_documents(branch: Branch) -> dict[UUID, int]:
    """The documents of all turns that their owner may still read, and their versions."""
    wanted = branch.document_ids
    if not wanted:
        return {}
    documents = Document.objects.visible_to(branch.chat.owner).searchable()
    return dict(documents.filter(pk__in=wanted).values_list("pk", "version"))


def read_memory(turn: Row, can_read: Mapping[UUID, int]) -> Memory:
    """What is remembered after a turn, without what cannot be read any more."""
    stored = () if is_forgotten(turn) else turn.remembered
    documents = [Remembered(UUID(one["document_id"]), one["title"], one["score"]) for one in stored]
    kinds = set(QuestionType)
    return Memory(
        documents=tuple(one for one in documents if one.document_id in can_read),
        last_question=turn.user_text,
        last_answer=turn.assistant_text,
        last_question_type=QuestionType(turn.question_type)
        if turn.question_type in kinds
        else None,
    )


@dataclass(frozen=True, slots=True)
class RememberedFile:
    """A document that a chat is about: its title as answers say it, its name as lists show it."""

    document_id: UUID
    title: str
    name: str
    score: float


@dataclass(frozen=True, slots=True)
class ChatMemory:
    """What a chat remembers, for people and programs; None where nothing was said yet."""

    documents: tuple[RememberedFile, ...] = ()
    last_question: str | None = None
    last_answer: str | None = None
    last_question_type: str | None = None
    updated_at: datetime | None = None

    @property
    def document_ids(self) -> tuple[UUID, ...]:
        """The remembered documents, best first."""
        return tuple(one.document_id for one in self.documents)


def describe_memory(branch: Branch) -> ChatMemory:
    """What is remembered at the end of a branch."""
    cleared = branch.chat.memory_cleared_at
    if not branch.steps:
        return ChatMemory(updated_at=cleared)
    turns = Row.objects.without_search_columns().select_related("chat")
    last = turns.get(pk=branch.turn_ids[-1])
    kept = read_memory(last, find_readable_documents(branch))
    return ChatMemory(
        documents=_name_files(kept.documents),
        last_question=kept.last_question,
        last_answer=kept.last_answer,
        last_question_type=kept.last_question_type,
        updated_at=max(last.created_at, cleared) if cleared else last.created_at,
    )


@dataclass(frozen=True, slots=True)
class ChatContext:
    """What the next question of a branch is told of it: see `rag.memory`.

    `profile` are slots as `/me/memory` shows them, with the title of their kind. `recent` are the
    turns in its window, `summary` tells of those before; `recalled` are older turns that the latest
    answer looked up.
    """

    documents: tuple[RememberedFile, ...] = ()
    profile: tuple[Mapping[str, Any], ...] = ()
    recent: tuple[Row, ...] = ()
    summary: RunningSummary | None = None
    recalled: tuple[Row, ...] = ()


def describe_context(branch: Branch) -> ChatContext:
    """What is in play at the end of a branch."""
    profile = tuple(describe_used_slots(branch.chat, get_language() or settings.LANGUAGE_CODE))
    if not branch.steps:
        return ChatContext(profile=profile)
    pairs = get_history_pairs(branch.chat)
    known = load_conversation(branch, pairs=pairs)
    window = open_window(known, pairs=pairs)
    last = Trace.objects.filter(message__turn=branch.turn_ids[-1]).first()
    history = last.steps.get("history") if last else None
    recalled = set(history.get("selected", ())) if isinstance(history, Mapping) else set()
    wanted = {
        step.turn_id: step.number >= window.first
        for step in branch.steps
        if step.number >= window.first or step.number in recalled
    }
    turns = list(Row.objects.without_search_columns().filter(pk__in=wanted).order_by("number"))
    return ChatContext(
        documents=_name_files(known.memory.documents),
        profile=profile,
        recent=tuple(turn for turn in turns if wanted[turn.pk]),
        summary=known.summary,
        recalled=tuple(turn for turn in turns if turn.number in recalled),
    )


def _name_files(documents: Sequence[Remembered]) -> tuple[RememberedFile, ...]:
    ids = [one.document_id for one in documents]
    names = dict(Document.objects.filter(pk__in=ids).values_list("pk", "name"))
    return tuple(
        RememberedFile(one.document_id, one.title, names[one.document_id], one.score)
        for one in documents
        if one.document_id in names  # one may be deleted at this moment
    )


def _load_rows(branch: Branch, last: list[UUID]) -> dict[UUID, Row]:
    """The last turns, the one with the running summary, and the one whose documents count."""
    wanted = [*last, *filter(None, [branch.summarised])]
    turns = Row.objects.without_search_columns().select_related("chat")
    head = Row.objects.filter(pk=last[-1]).values("shown")
    return {row.pk: row for row in turns.filter(pk__in=wanted) | turns.filter(pk__in=head)}


def _hide_unreadable(
    branch: Branch, rows: dict[UUID, Row], readable: Collection[UUID]
) -> dict[UUID, Row]:
    """The turns without passages of documents that the chat's owner may not read any more."""
    shown = hide_closed_in_turns([*rows.values()], user_id=branch.chat.owner_id, readable=readable)
    return {row.pk: row for row in shown}


def get_history_pairs(chat: Chat) -> int:
    """How many past turns a question of the chat may read: its own setting, else the default."""
    return settings.RAG.history_pairs if chat.history_pairs is None else chat.history_pairs
