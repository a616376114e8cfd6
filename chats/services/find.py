"""Looking through all that a user has: titles and messages of chats, names and texts of documents.

This is what Ctrl+K opens. It finds words where they stand and asks no model.
"""

import unicodedata
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

from django.contrib.auth.models import User

from chats.models import Chat, Message, Turn
from chats.models.chat import to_text_filter
from chats.models.memory import TurnQuerySet
from chats.serializers import to_time_json
from chats.services.erasure import hide_closed, hide_closed_in_turns, note_closed
from documents.models import Document
from documents.search import excerpts
from documents.search.excerpts import MarkedExcerpt, cut_excerpt
from rag.generate.markdown import to_plain_text

BEGINNING_CHARACTERS = 240
"""Of an answer in a list of turns."""
MAX_CHATS, MAX_MESSAGES, MAX_DOCUMENTS, MAX_PASSAGES = 6, 8, 6, 6


def find_everything(*, user: User, query: str) -> dict[str, list[dict[str, Any]]]:
    """Chats, messages, documents and passages of the user that hold all words of the query."""
    query = unicodedata.normalize("NFC", query)
    words = excerpts.split_words(query)
    documents = Document.objects.visible_to(user)
    return {
        "chats": [
            {"chat_id": str(chat.pk), **_mark_whole(chat.title, words)}
            for chat in _holding(Chat.objects.visible_to(user).listed(), "title", words)[:MAX_CHATS]
        ],
        "messages": _find_messages(user, words),
        "documents": [
            {"document_id": str(document.pk), **_mark_whole(document.name, words)}
            for document in _holding(documents, "name", words)[:MAX_DOCUMENTS]
        ],
        "passages": _find_passages(documents, query),
    }


def find_turns(turns: TurnQuerySet, query: str) -> TurnQuerySet:
    """The turns whose question, answer or summary hold each word of a search, the latest first."""
    for word in excerpts.split_words(unicodedata.normalize("NFC", query)):
        turns = turns.matching(word)
    return turns.order_by("-number")


@dataclass(frozen=True, slots=True)
class DescribedTurn:
    """A turn as a list shows it: texts in pieces, each with whether it is a hit."""

    turn: Turn
    question: list[tuple[str, bool]]
    answer: list[tuple[str, bool]]
    summary: list[tuple[str, bool]]


def describe_turns(turns: Iterable[Turn], query: str) -> list[DescribedTurn]:
    """The turns with what was looked for marked in them; without a search their beginnings."""
    words = excerpts.split_words(unicodedata.normalize("NFC", query))
    rows = list(turns)
    shown = hide_closed_in_turns(rows, user_id=rows[0].chat.owner_id) if rows else []
    return [
        DescribedTurn(
            turn,
            MarkedExcerpt(turn.user_text, excerpts.find_hits(turn.user_text, words)).split(),
            _cut(turn.assistant_text, words),
            _cut(turn.summary, words),
        )
        for turn in shown
    ]


def _cut(said: str, words: list[str]) -> list[tuple[str, bool]]:
    found = cut_excerpt(said, words)
    if found.marks:
        return found.split()
    plain = to_plain_text(said)
    is_whole = len(plain) <= BEGINNING_CHARACTERS
    return [(plain if is_whole else f"{plain[:BEGINNING_CHARACTERS]}…", False)] if plain else []


def _holding(rows: Any, field: str, words: list[str]) -> Any:
    """Rows whose field holds each of the words; none without a word."""
    for word in words:
        rows = rows.filter(to_text_filter(field, word))
    return rows if words else rows.none()


def _find_messages(user: User, words: list[str]) -> list[dict[str, Any]]:
    """Newest first; of what only Markdown's own signs hold, nothing."""
    rows = _holding(
        Message.objects.visible_to(user).filter(chat__temporary=False), "content", words
    )
    rows = rows.order_by("-created_at", "id").select_related("chat")
    found: list[dict[str, Any]] = []
    fields = ("content", "role", "created_at", "label", "mode", "sources", "chat__title")
    messages = list(rows.only(*fields)[: 2 * MAX_MESSAGES])
    note_closed(messages, user_id=user.pk)
    for message in messages:
        excerpt = cut_excerpt(hide_closed(message).content, words)
        if excerpt.marks and len(found) < MAX_MESSAGES:
            found.append(
                {
                    "chat_id": str(message.chat_id),
                    "message_id": str(message.pk),
                    "chat_title": message.chat.title,
                    "role": message.role,
                    "created_at": to_time_json(message.created_at),
                    **asdict(excerpt),
                }
            )
    return found


def _find_passages(documents: Any, query: str) -> list[dict[str, Any]]:
    ids = documents.searchable().values_list("pk", flat=True)
    marked = excerpts.list_marked_words(query)
    return [
        {
            "document_id": str(passage.document_id),
            "document_name": passage.document_name,
            "chunk_id": passage.chunk_id,
            "page": passage.page,
            "section": passage.section,
            **asdict(cut_excerpt(passage.text, marked)),
        }
        for passage in excerpts.find_passages(ids, query, MAX_PASSAGES)
    ]


def _mark_whole(name: str, words: list[str]) -> dict[str, Any]:
    """A short text that is shown whole."""
    return asdict(MarkedExcerpt(name, excerpts.find_hits(name, words)))
