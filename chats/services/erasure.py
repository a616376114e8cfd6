"""What old answers still show of deleted or no longer readable documents; deleted chats.

An answer keeps its text and its citations; those of a deleted document are marked `deleted`.
Erasing removes the document's own text from the answer: passages, previews, sentences, the model's
reasoning, and verbatim quotations in summaries and later answers. An answer that consists of the
document's text, as without a language model, is replaced by a sentence that says so.

A document may also be closed to the person who asked, who has left its library. Nothing is removed
then, since the rights may come back; it is hidden until they do.
"""

import json
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from copy import copy
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import structlog
from django.conf import settings
from django.db import transaction
from django.db.models import Q
from django.utils import timezone
from django.utils.translation import gettext as _
from django.utils.translation import override
from redis.exceptions import RedisError

from chats.models import Chat, Message, Run, Trace, Turn
from chats.runs import log
from chats.services import turn_store
from chats.services.memory import forget_source_chats
from chats.services.turn_store import AnswerOutcome
from documents import deletions
from documents.libraries import find_unreadable_documents
from documents.models import Deletion, DeletionKind, Document
from rag.tokenize.text import split_sentences, to_letters

logger = structlog.get_logger()

MAX_CHATS_AT_ONCE = 200
"""Chats changed in one call; the next call continues with the rest."""
MIN_QUOTED_LETTERS = 12
"""A shorter sentence does not count as a quotation: it may occur anywhere by chance."""

HOLD = "SELECT id FROM documents_document WHERE id = ANY(%s) ORDER BY id FOR KEY SHARE"


# An answer that ends while a document is being deleted


def mark_deleted_documents(outcome: AnswerOutcome) -> AnswerOutcome:
    """Mark deleted documents in an outcome, and remove the text of those to be erased.

    Existing documents are locked: they are deleted before the caller's transaction or after it.
    """
    document_ids = {
        UUID(str(row["document_id"])) for row in (*(outcome.sources or ()), *outcome.candidates)
    }
    if not document_ids:
        return outcome
    locked = Document.objects.raw(HOLD, [sorted(document_ids)])
    deleted = document_ids - {row.pk for row in locked}
    if not deleted:
        return outcome
    erased = deletions.find_erased(deleted)
    texts = [text for key, text in outcome.passages.items() if _get_document_id(key) in erased]
    quotes = _QuoteFinder(
        [*texts, *_list_texts(outcome.sources, erased), *_list_texts(outcome.candidates, erased)]
    )
    is_whole_copy = erased and is_copy(outcome.label, outcome.mode)
    return replace(
        outcome,
        sources=_mark_rows(outcome.sources, deleted, erased),
        candidates=_mark_rows(outcome.candidates, deleted, erased) or [],
        passages={
            key: text
            for key, text in outcome.passages.items()
            if _get_document_id(key) not in erased
        },
        content=_make_erased_notice(outcome.sources, settings.LANGUAGE_CODE)
        if is_whole_copy
        else outcome.content,
        grounding=None if is_whole_copy else outcome.grounding,
        reasoning="" if erased else outcome.reasoning,
        trace=quotes.strip_json(dict(outcome.trace), erased) if erased else outcome.trace,
    )


# Answers that have ended


def forget_documents(document_ids: Collection[UUID], erase: bool) -> bool:
    """Mark deleted documents in all answers; `erase`: also remove their text.

    False if another call is needed: an answer is still being written, or there are too many chats.
    """
    ids = set(document_ids)
    records = Deletion.objects.filter(kind=DeletionKind.DOCUMENT, key__in=[str(pk) for pk in ids])
    owners = list(records.values_list("owner_id", "deleted_at"))
    chats = _find_chats_to_change(ids, {owner for owner, _at in owners}, erase=erase)
    for chat_id in chats[:MAX_CHATS_AT_ONCE]:
        _forget_in_chat(chat_id, ids, erase=erase)
    if len(chats) > MAX_CHATS_AT_ONCE:
        return False
    return not erase or _delete_owner_logs(owners)


def _delete_owner_logs(owners: Collection[tuple[int | None, datetime]]) -> bool:
    """Delete the logs of answers that were being written at the deletion; False if one still is.

    The logs contain the document's text; the answers themselves are marked when they end.
    """
    for owner_id, at in owners:
        runs = Run.objects.filter(owner_id=owner_id, created_at__lte=at)
        if runs.filter(ended_at=None).exists():
            return False
        _delete_logs(list(runs.filter(ended_at__gte=at).values_list("pk", flat=True)))
    return True


def _find_chats_to_change(ids: set[UUID], owners: set[int | None], *, erase: bool) -> list[UUID]:
    """Chats with answers in which these documents still have to be marked or erased."""
    mark = "erased" if erase else "deleted"
    turns = Turn.objects.filter(document_ids__overlap=list(ids))
    chats = set(
        turns.filter(_build_unmarked_filter(ids, "doc_refs", mark)).values_list(
            "chat_id", flat=True
        )
    )
    if erase:
        # turns that only offer a document, or cite nothing, are not in `document_ids`
        offered = Turn.objects.filter(
            _build_unmarked_filter(ids, "candidates", mark), chat__owner_id__in=owners
        )
        traces = Trace.objects.filter(_build_trace_filter(ids), message__chat__owner_id__in=owners)
        chats |= set(offered.values_list("chat_id", flat=True))
        chats |= set(traces.values_list("message__chat_id", flat=True))
    return sorted(chats)


def _build_unmarked_filter(ids: set[UUID], field: str, mark: str) -> Q:
    """Rows whose references in `field` name one of these documents without the mark."""
    condition = Q()
    for pk in ids:
        reference = {"document_id": str(pk)}
        is_named = Q(**{f"{field}__contains": [reference]})
        condition |= is_named & ~Q(**{f"{field}__contains": [reference | {mark: True}]})
    return condition


def _build_trace_filter(ids: set[UUID]) -> Q:
    """Traces that name chunks of these documents and were not stripped."""
    condition = Q()
    for pk in ids:
        stripped = Q(steps__contains={"erased": [str(pk)]})
        condition |= Q(steps__icontains=f"{pk}_") & ~stripped
    return condition


def _forget_in_chat(chat_id: UUID, ids: set[UUID], *, erase: bool) -> None:
    """Mark or erase documents in one chat, in one transaction.

    The chat's row is locked, as turns are written one at a time.
    """
    erased = ids if erase else set[UUID]()
    with transaction.atomic():
        if Chat.objects.select_for_update().filter(pk=chat_id).first() is None:
            return
        turns = list(
            Turn.objects.without_search_columns()
            .filter(chat_id=chat_id)
            .select_related("message__run")
        )
        texts = [
            text
            for turn in turns
            for rows in (turn.doc_refs, turn.candidates, turn.message.sources)
            for text in _list_texts(rows, erased)
        ]
        quotes = _QuoteFinder(texts)
        for turn in turns:
            if _has_reference(turn.doc_refs, ids) or _has_reference(turn.candidates, ids):
                _forget_in_turn(turn, ids, erased)
        if erase:
            _cut_quotes(turns, quotes)
            _strip_traces(chat_id, quotes, erased)
            ended = Run.objects.filter(message__chat_id=chat_id).exclude(ended_at=None)
            runs = list(ended.values_list("pk", flat=True))
            transaction.on_commit(lambda: _delete_logs(runs), robust=True)


def _forget_in_turn(turn: Turn, ids: set[UUID], erased: set[UUID]) -> None:
    answer = turn.message
    answer_changes: dict[str, Any] = {"sources": _mark_rows(answer.sources, ids, erased)}
    turn_changes: dict[str, Any] = {
        "doc_refs": _mark_rows(turn.doc_refs, ids, erased),
        "candidates": _mark_rows(turn.candidates, ids, erased),
    }
    if erased:
        answer_changes["reasoning"] = ""
    if erased and turn.doc_refs and is_copy(answer.label, answer.mode):
        language = answer.run.language if hasattr(answer, "run") else settings.LANGUAGE_CODE
        notice = _make_erased_notice(answer.sources, language)
        answer_changes |= {"content": notice, "grounding": None}
        turn_changes |= {"assistant_text": notice, **turn_store.make_unsummarised_fields()}
        turn_store.forget_running_summaries(turn)
    Message.objects.filter(pk=answer.pk).update(**answer_changes)
    Turn.objects.filter(pk=turn.pk).update(**turn_changes)


def _cut_quotes(turns: Iterable[Turn], quotes: "_QuoteFinder") -> None:
    """Remove quotations from summaries, and from answers that only quote earlier ones."""
    for turn in turns:
        rows = Turn.objects.filter(pk=turn.pk)
        summary, running = rows.values_list("summary", "running_summary").get()
        shortened = quotes.remove_quotes(summary), quotes.remove_quotes(running)
        if shortened != (summary, running):
            rows.update(summary=shortened[0], running_summary=shortened[1])
        answer = turn.message
        if answer.label == Message.Label.CONVERSATION:
            content = quotes.remove_quotes(answer.content)
            if content != answer.content:
                rows.update(assistant_text=content, **turn_store.make_unsummarised_fields())
                Message.objects.filter(pk=answer.pk).update(content=content, grounding=None)


def _strip_traces(chat_id: UUID, quotes: "_QuoteFinder", erased: set[UUID]) -> None:
    for trace in Trace.objects.filter(message__chat_id=chat_id).iterator(chunk_size=50):
        steps = quotes.strip_json(trace.steps, erased)
        done = {*trace.steps.get("erased", ()), *map(str, erased)}
        Trace.objects.filter(pk=trace.pk).update(steps=steps | {"erased": sorted(done)})


def _delete_logs(runs: Sequence[UUID]) -> None:
    try:
        log.delete_logs(runs)
    except RedisError:
        logger.warning("run_logs_not_deleted", runs=len(runs), exc_info=True)


# What is closed to the reader of an old answer


def find_closed(
    user_id: int, *rows: Iterable[Mapping[str, Any]] | None, readable: Collection[UUID] = ()
) -> set[UUID]:
    """Ids of documents in these sources or references that the user may no longer read.

    Deleted documents, which are marked as such, are not among them.
    """
    document_ids = {UUID(str(row["document_id"])) for group in rows for row in group or ()}
    unknown = document_ids.difference(readable)
    return find_unreadable_documents(user_id, unknown) if unknown else set()


def hide_closed_in_turns(
    turns: Sequence[Turn], *, user_id: int, readable: Collection[UUID] = ()
) -> list[Turn]:
    """The turns as the owner of their chat may see them now; the database rows are unchanged.

    `readable` are documents already known to be readable.
    """
    closed = find_closed(user_id, *(turn.doc_refs for turn in turns), readable=readable)
    return [_hide_in_turn(turn, closed) for turn in turns] if closed else list(turns)


def _hide_in_turn(turn: Turn, closed: set[UUID]) -> Turn:
    if not _has_reference(turn.doc_refs, closed):
        return turn
    visible = copy(turn)
    visible.doc_refs = _hide_rows(turn.doc_refs, closed)
    if is_copy(turn.label, turn.mode):
        visible.assistant_text = visible.summary = _make_closed_notice(turn.doc_refs)
    return visible


def load_closed_documents(messages: Sequence[Message], *, user_id: int) -> None:
    """Load the closed documents that `hide_closed` needs, for many messages at once."""
    closed = find_closed(user_id, *(one.sources for one in messages))
    for message in messages:
        message.closed_documents = closed


def hide_closed(message: Message) -> Message:
    """The message as the owner of its chat may see it now; the database row is unchanged.

    It keeps its text and its citations, marked `unreadable` and without passages. An answer that
    consists of passages is replaced by a sentence that says so.
    """
    if not message.sources:
        return message
    if message.closed_documents is None:
        load_closed_documents([message], user_id=message.chat.owner_id)
    closed = message.closed_documents or set()
    if not _has_reference(message.sources, closed):
        return message
    visible = copy(message)
    visible.sources = _hide_rows(message.sources, closed)
    visible.reasoning = ""
    if is_copy(message.label, message.mode):
        visible.content, visible.grounding = _make_closed_notice(message.sources), None
    return visible


def hide_closed_in_trace(steps: dict[str, Any], *, user_id: int) -> dict[str, Any]:
    """The steps without the text of documents that the user may no longer read."""
    document_ids = {
        UUID(match) for match in _CHUNK_ID.findall(json.dumps(steps, ensure_ascii=False))
    }
    closed = find_unreadable_documents(user_id, document_ids) if document_ids else set()
    stripped: dict[str, Any] = _strip_closed(steps, closed) if closed else steps
    return stripped


def _strip_closed(value: Any, closed: set[UUID]) -> Any:
    if isinstance(value, list):
        return [_strip_closed(item, closed) for item in value]
    if not isinstance(value, Mapping):
        return value
    chunk_id = value.get("chunk_id")
    is_closed = (
        isinstance(chunk_id, str) and "_" in chunk_id and _get_document_id(chunk_id) in closed
    )
    return {
        name: ""
        if is_closed and isinstance(item, str) and name != "chunk_id" and name not in NAMES
        else _strip_closed(item, closed)
        for name, item in value.items()
    }


_CHUNK_ID = re.compile(r'"([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})_\d+"')


def _hide_rows(rows: Sequence[Mapping[str, Any]], closed: set[UUID]) -> list[dict[str, Any]]:
    return [
        _remove_texts(row) | {"unreadable": True}
        if UUID(str(row["document_id"])) in closed
        else dict(row)
        for row in rows
    ]


def _remove_texts(row: Mapping[str, Any]) -> dict[str, Any]:
    return dict(row) | {name: empty() for name, empty in TEXTS.items() if name in row}


def _make_closed_notice(sources: Sequence[Mapping[str, Any]]) -> str:
    slots = dict.fromkeys(source["slot"] for source in sources if source.get("cited", True))
    sentence = _("This answer quoted a document that you can no longer read.")
    return " ".join([sentence, "".join(f"[{slot}]" for slot in slots)]).strip()


# Shapes


def _has_reference(rows: Iterable[Mapping[str, Any]], ids: set[UUID]) -> bool:
    return any(UUID(str(row["document_id"])) in ids for row in rows)


def _mark_rows(
    rows: Sequence[Mapping[str, Any]] | None, deleted: set[UUID], erased: set[UUID]
) -> list[dict[str, Any]] | None:
    """Sources or references: `deleted` ones are marked, `erased` ones lose their text."""
    if rows is None:
        return None
    marked = []
    for row in rows:
        document_id = UUID(str(row["document_id"]))
        new_row = dict(row)
        if document_id in deleted:
            new_row["deleted"] = True
        if document_id in erased:
            new_row = _remove_texts(new_row) | {"erased": True}
        marked.append(new_row)
    return marked


TEXTS: Mapping[str, Callable[[], Any]] = {
    "content_preview": str,
    "section": str,
    "spans": list,
    "boxes": list,
    "passages": list,
    "snippet": str,
    "checksum": str,
}
"""Fields of a source or reference that hold text of the document, with their empty values."""
NAMES = frozenset({"document_name", "title", "source"})
"""Names of the document stay, as its citation does."""


def _list_texts(rows: Iterable[Mapping[str, Any]] | None, ids: set[UUID]) -> list[str]:
    """All texts of these documents in sources or references."""
    texts: list[str] = []
    for row in rows or ():
        if UUID(str(row["document_id"])) in ids:
            texts += [str(row.get("content_preview", "")), str(row.get("snippet", ""))]
            texts += row.get("passages", ())
            texts += [str(span.get("text", "")) for span in row.get("spans", ())]
    return [text for text in texts if text]


def _get_document_id(chunk_id: str) -> UUID:
    return UUID(chunk_id.rpartition("_")[0])


def is_copy(label: str, mode: str) -> bool:
    """Whether an answer consists of text from documents, without any of a model's."""
    return label == Message.Label.PASSAGES or mode == Message.Mode.DOCUMENT


def _make_erased_notice(sources: Sequence[Mapping[str, Any]] | None, language: str) -> str:
    """The text that replaces such an answer; its citation markers stay."""
    slots = dict.fromkeys(source["slot"] for source in sources or () if source.get("cited"))
    with override(language):
        sentence = _("This answer quoted a document that has been deleted.")
    return " ".join([sentence, "".join(f"[{slot}]" for slot in slots)]).strip()


class _QuoteFinder:
    """Finds sentences that are quoted word for word from the given texts."""

    def __init__(self, texts: Iterable[str]) -> None:
        distinct = list(dict.fromkeys(texts))
        self._texts = [letters for text in distinct if (letters := to_letters(text))]
        parts = {to_letters(sentence) for text in distinct for sentence in split_sentences(text)}
        self._sentences = [sentence for sentence in parts if len(sentence) >= MIN_QUOTED_LETTERS]

    def is_quoted(self, text: str) -> bool:
        """Whether the letters of `text` occur in a given text, or a sentence of that in them."""
        letters = to_letters(text)
        if len(letters) < MIN_QUOTED_LETTERS:
            return False
        return any(letters in known for known in self._texts) or any(
            known in letters for known in self._sentences
        )

    def remove_quotes(self, text: str) -> str:
        """The text without quoted sentences, line by line."""
        if not text or not self._texts:
            return text
        lines = (self._cut_line(line) for line in text.split("\n"))
        return "\n".join(line for line in lines if line is not None)

    def _cut_line(self, line: str) -> str | None:
        sentences = split_sentences(line)
        remaining = [sentence for sentence in sentences if not self.is_quoted(sentence)]
        if len(remaining) < len(sentences):
            line = " ".join(remaining)
            return None if not line or self.is_quoted(line) else line
        return None if self.is_quoted(line) else line

    def strip_json(self, value: Any, erased: set[UUID]) -> Any:
        """The JSON value without quotations and without section titles of the erased documents."""
        if isinstance(value, str):
            return "" if self.is_quoted(value) else value
        if isinstance(value, list):
            return [self.strip_json(item, erased) for item in value]
        if not isinstance(value, dict):
            return value
        stripped = {
            name: item if name in NAMES else self.strip_json(item, erased)
            for name, item in value.items()
        }
        chunk_id = value.get("chunk_id")
        if isinstance(chunk_id, str) and "_" in chunk_id and _get_document_id(chunk_id) in erased:
            stripped["section"] = ""
        return stripped


# Chats


def list_purgeable_chats(days: int) -> list[UUID]:
    """Ids of chats deleted at least `days` ago, and of deleted temporary chats; oldest first."""
    cutoff = timezone.now() - timedelta(days=days)
    condition = Q(deleted_at__lte=cutoff) | Q(deleted_at__isnull=False, temporary=True)
    rows = Chat.objects.filter(condition).order_by("deleted_at", "pk")
    return list(rows.values_list("pk", flat=True))


def purge_chat(chat_id: UUID) -> bool:
    """Delete a deleted chat for good, with everything; False while an answer is being written."""
    with transaction.atomic():
        # the end of an answer locks its run, then its chat
        runs = list(
            Run.objects.filter(message__chat_id=chat_id)
            .order_by("pk")
            .select_for_update(of=("self",))
        )
        chat = Chat.objects.select_for_update().filter(pk=chat_id).exclude(deleted_at=None).first()
        if chat is None:
            return True
        open_ids = [run.pk for run in runs if run.ended_at is None]
        if open_ids:
            for run_id in open_ids:
                log.request_stop(run_id)
            return False
        keys = [run.pk for run in runs]
        forget_source_chats([chat_id])
        Chat.objects.filter(pk=chat_id).delete()
        Deletion.objects.filter(kind=DeletionKind.CHAT, key=str(chat_id)).update(
            erased_at=timezone.now()
        )
        transaction.on_commit(lambda: _delete_logs(keys), robust=True)
        deletions.extend_list_on_commit(DeletionKind.CHAT, [chat_id])
    return True
