"""What the engine knows of a conversation, read from the turn store for one question."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from uuid import UUID

from django.conf import settings

from chats import records
from chats.lineage import Branch
from chats.models import Turn
from chats.services.turn_store import is_forgotten
from documents.models import Document
from rag.conversation import Conversation, Memory, Remembered, of_messages
from rag.types import HistoryMessage, QuestionType, Role
from rag.understand.kinds import find_reset

MORE_TURNS = 10
"""Whole turns beyond the window: what a question may refer to without naming it."""


def load(branch: Branch, *, pairs: int) -> Conversation:
    """The conversation of a branch; `pairs` is the size of the window. Two queries."""
    if not branch.steps:
        return Conversation()
    last = branch.turn_ids[-(pairs + MORE_TURNS) :]
    rows = _rows(branch, last)
    here = rows[last[-1]]
    can_read = readable(branch)
    shown = rows.get(here.shown_id) if here.shown_id else None
    return Conversation(
        turns=tuple(records.turn(rows[pk]) for pk in last),
        total=len(branch.steps),
        memory=memory(here, can_read),
        shown=records.turn(shown) if shown and not is_forgotten(here) else None,
        summary=records.running(rows.get(branch.summarised) if branch.summarised else None),
        readable=can_read,
        begins_at=branch.begins_at,
    )


def from_messages(messages: Sequence[Mapping[str, str]]) -> Conversation:
    """The conversation that came along as `{role, content}`; the last new start in it holds."""
    known = of_messages([HistoryMessage(Role(one["role"]), one["content"]) for one in messages])
    for turn in reversed(known.turns):
        rest = find_reset(turn.user_text, settings.RAG.memory.reset_words)
        if rest is not None:
            return replace(known, begins_at=turn.number + (not rest))
    return known


def readable(branch: Branch) -> dict[UUID, int]:
    """The documents of all turns that their owner may still read, and their versions."""
    wanted = branch.document_ids
    if not wanted:
        return {}
    documents = Document.objects.visible_to(branch.chat.owner).searchable()
    return dict(documents.filter(pk__in=wanted).values_list("pk", "version"))


def memory(turn: Turn, can_read: Mapping[UUID, int]) -> Memory:
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
class Session:
    """What a chat remembers, for people and programs; None where nothing was said yet."""

    documents: tuple[Remembered, ...] = ()
    last_question: str | None = None
    last_answer: str | None = None
    last_question_type: str | None = None
    updated_at: datetime | None = None

    @property
    def document_ids(self) -> tuple[UUID, ...]:
        """The remembered documents, best first."""
        return tuple(one.document_id for one in self.documents)


def session(branch: Branch) -> Session:
    """What is remembered at the end of a branch."""
    cleared = branch.chat.memory_cleared_at
    if not branch.steps:
        return Session(updated_at=cleared)
    turns = Turn.objects.told().select_related("chat")
    last = turns.get(pk=branch.turn_ids[-1])
    kept = memory(last, readable(branch))
    return Session(
        documents=kept.documents,
        last_question=kept.last_question,
        last_answer=kept.last_answer,
        last_question_type=kept.last_question_type,
        updated_at=max(last.created_at, cleared) if cleared else last.created_at,
    )


def _rows(branch: Branch, last: list[UUID]) -> dict[UUID, Turn]:
    """The last turns, the one with the running summary, and the one whose documents count."""
    wanted = [*last, *filter(None, [branch.summarised])]
    turns = Turn.objects.told().select_related("chat")
    head = Turn.objects.filter(pk=last[-1]).values("shown")
    return {row.pk: row for row in turns.filter(pk__in=wanted) | turns.filter(pk__in=head)}
