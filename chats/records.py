"""Converts rows of the turn store into the engine's types."""

from collections.abc import Mapping
from dataclasses import fields
from typing import Any
from uuid import UUID

from chats.models import Turn as Row
from rag.conversation import DocRef, PastTurn, RunningSummary, View

_FIELDS = {field.name for field in fields(DocRef)}
_LISTS = ("chunk_ids", "passages")


def turn(row: Row) -> PastTurn:
    """A whole turn."""
    return PastTurn(
        number=row.number,
        user_text=row.user_text,
        assistant_text=row.assistant_text,
        question_type=row.question_type,
        mode=row.mode,
        summary=row.summary,
        doc_refs=references(row.doc_refs),
        candidates=references(row.candidates),
        view=_view(row.view),
        ts=row.ts,
    )


def references(stored: list[dict[str, Any]]) -> tuple[DocRef, ...]:
    """The documents as an answer showed them, by slot; fields of other versions are left out."""
    return tuple(_reference(one) for one in stored)


def running(row: Row | None) -> RunningSummary | None:
    """The running summary that a turn carries."""
    if row is None or row.running_through is None:
        return None
    return RunningSummary(row.running_summary, row.running_through, row.running_model)


def _reference(stored: Mapping[str, Any]) -> DocRef:
    known = {name: value for name, value in stored.items() if name in _FIELDS}
    lists = {name: tuple(known.get(name, ())) for name in _LISTS}
    return DocRef(**known | lists | {"document_id": UUID(stored["document_id"])})


def _view(stored: Mapping[str, Any] | None) -> View | None:
    if stored is None:
        return None
    return View(UUID(stored["document_id"]), stored["part"], stored["parts"])
