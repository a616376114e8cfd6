"""Writing the turn store: how an answer ended, and the turn that records it."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from uuid import UUID, uuid4

from django.db import connection
from django.db.models.functions import Now
from django.utils import timezone

from chats.models import Message, Turn
from documents import metadata, versions
from documents.errors import VersionNotFound
from documents.models import Document
from jobs.connections import ANY_KEY, KeptQuery
from jobs.lease import RELEASED
from rag.types import Topic

MAX_SNIPPET_CHARACTERS = 200
"""Characters of the best passage that a reference shows as its snippet."""

SCOPE_OF_TRACE = ("document_ids", "reason", "follows", "widened", "standalone_query")
"""Fields of the final scope in an answer's trace."""
NEAREST = """
    WITH RECURSIVE up AS (
        SELECT id, parent_id FROM chats_message WHERE id = %s
        UNION ALL
        SELECT m.id, m.parent_id FROM chats_message m JOIN up ON m.id = up.parent_id
         WHERE NOT EXISTS (SELECT FROM chats_turn t WHERE t.message_id = up.id)
    )
    SELECT t.id FROM chats_turn t JOIN up ON t.message_id = up.id
"""
BELOW = """
    WITH RECURSIVE down AS (
        SELECT id FROM chats_message WHERE parent_id = %s
        UNION ALL
        SELECT m.id FROM chats_message m JOIN down ON m.parent_id = down.id
    )
    SELECT t.id FROM chats_turn t JOIN down ON t.message_id = down.id
"""


@dataclass(frozen=True, slots=True)
class AnswerOutcome:
    """How an answer ended.

    `passages` are the full texts shown, by chunk id, as far as they are known; `method` is how
    they were found. `relevant_document_ids` are the documents relevant to the question, best first.
    `candidates` are `rag.conversation.DocRef` as plain JSON. `made_at` is set for an answer from
    the cache. `first_word_ms` is the wait for the first word, None if none came.
    """

    status: Message.Status
    content: str
    mode: str = ""
    label: str = ""
    question_type: str = ""
    sources: list[dict[str, Any]] | None = None
    relevant_document_ids: Collection[UUID] = ()
    passages: Mapping[str, str] = field(default_factory=dict)
    method: str = ""
    candidates: list[dict[str, Any]] = field(default_factory=list)
    view: dict[str, Any] | None = None
    usage: dict[str, Any] | None = None
    reasoning: str = ""
    grounding: list[dict[str, Any]] | None = None
    citations: list[dict[str, Any]] | None = None
    notices: Collection[str] = ()
    error_code: str = ""
    error_params: Mapping[str, object] = field(default_factory=dict)
    trace: Mapping[str, object] = field(default_factory=dict)
    tool_calls: list[dict[str, Any]] = field(default_factory=list)
    made_at: datetime | None = None
    first_word_ms: int | None = None

    @property
    def scope(self) -> dict[str, Any]:
        """What was finally searched, and why, as far as the trace says."""
        return {
            name: self._traced_scope[name] for name in SCOPE_OF_TRACE if name in self._traced_scope
        }

    @property
    def forgets(self) -> bool:
        """Whether the question dropped what the conversation was about."""
        return self.question_type == "reset" or bool(self._traced_scope.get("forgets"))

    @property
    def _traced_scope(self) -> Mapping[str, Any]:
        scope = self.trace.get("scope")
        return scope if isinstance(scope, Mapping) else {}


def record_turn(*, answer: Message, outcome: AnswerOutcome, is_held: bool = False) -> Turn:
    """Store the turn of an answer that has just ended.

    The caller holds the chat's row lock: turns of a chat are written one by one. `is_held`: the
    caller also writes the summary, and holds its lease from the start.
    """
    question = answer.parent
    lease_fields: dict[str, Any] = {}
    if is_held:
        lease_fields = {"claim": uuid4(), "lease_until": Now() + Turn.LEASE, "attempts": 1}
    refs = list_references(outcome)
    turn = Turn(
        chat_id=answer.chat_id,
        message=answer,
        parent=_find_nearest_turn(question.pk) if question and question.parent_id else None,
        ts=answer.created_at,
        user_text=question.content if question else "",
        assistant_text=outcome.content,
        question_type=outcome.question_type,
        mode=outcome.mode,
        label=outcome.label,
        doc_refs=refs,
        document_ids=[ref["document_id"] for ref in refs],
        candidates=outcome.candidates,
        view=outcome.view,
        forgets=outcome.forgets or (answer.scope or {}).get("topic") == Topic.NEW,
        remembered=list_remembered(refs, outcome),
        enqueued_at=timezone.now(),
        **lease_fields,
    )
    _set_predecessor(turn)
    turn.save(force_insert=True)
    _insert_turn(turn)
    return turn


def list_references(outcome: AnswerOutcome) -> list[dict[str, Any]]:
    """The documents that an answer showed, by slot, as plain `rag.conversation.DocRef`."""
    by_document: dict[str, list[Mapping[str, Any]]] = {}
    for source in outcome.sources or ():
        by_document.setdefault(str(source["document_id"]), []).append(source)
    documents = Document.objects.in_bulk([UUID(pk) for pk in by_document]) if by_document else {}
    refs = [
        _to_reference(documents.get(UUID(pk)), sources, outcome)
        for pk, sources in by_document.items()
    ]
    return sorted(refs, key=lambda ref: int(ref["slot"]))


def _to_reference(
    document: Document | None, sources: Sequence[Mapping[str, Any]], outcome: AnswerOutcome
) -> dict[str, Any]:
    """A reference; `document` is None if it was deleted meanwhile."""
    best = max(sources, key=lambda source: float(source["similarity"]))
    name = document.name if document else best["document_name"]
    version = best.get("version", 1)  # as searched: it may have been replaced since
    texts = {item["chunk_id"]: _get_passage(item, outcome.passages) for item in sources}
    return {
        "slot": best["slot"],
        "document_id": str(best["document_id"]),
        **{name: True for name in ("deleted", "erased") if best.get(name)},
        "title": metadata.to_title(name, document.metadata if document else {}),
        "source": name,
        "uri": f"/api/v1/documents/{best['document_id']}/file?version={version}",
        "version": version,
        "checksum": _get_checksum(document, version),
        "chunk_ids": list(texts),
        "passages": [] if best.get("erased") else list(texts.values()),
        "snippet": texts[best["chunk_id"]][:MAX_SNIPPET_CHARACTERS],
        "retrieval_method": outcome.method,
        "score": best["similarity"],
    }


def _get_checksum(document: Document | None, version: int) -> str:
    """The checksum of that version's file; empty if it is gone."""
    if document is None:
        return ""
    try:
        return versions.get_version(document, version).sha256
    except VersionNotFound:
        return ""


def _get_passage(source: Mapping[str, Any], passages: Mapping[str, str]) -> str:
    """The full passage; after a worker was lost, only its beginning is known."""
    return passages.get(source["chunk_id"]) or str(source["content_preview"])


def read_whole_passages(message: Message) -> dict[str, str]:
    """The full passages of an answer as shown, by chunk id.

    Those missing from rows of older versions are left out.
    """
    turn = Turn.objects.without_search_columns().filter(message=message).first()
    refs = turn.doc_refs if turn else ()
    return {
        chunk_id: text
        for ref in refs
        for chunk_id, text in zip(ref.get("chunk_ids", ()), ref.get("passages", ()), strict=False)
    }


def list_remembered(
    refs: Sequence[Mapping[str, Any]], outcome: AnswerOutcome
) -> list[dict[str, Any]]:
    """The documents that a follow-up question refers to.

    Those cited by the answer, else those shown, else those relevant to its question.
    """
    cited = {source["slot"] for source in outcome.sources or () if source["cited"]}
    if chosen := [ref for ref in refs if ref["slot"] in cited] or refs:
        return [{name: ref[name] for name in ("document_id", "title", "score")} for ref in chosen]
    documents = Document.objects.in_bulk(outcome.relevant_document_ids)
    return [
        {
            "document_id": str(key),
            "title": metadata.to_title(documents[key].name, documents[key].metadata),
            "score": 0.0,
        }
        for key in outcome.relevant_document_ids
        if key in documents
    ]


def _find_nearest_turn(message_id: UUID) -> Turn | None:
    """The turn of the message, or of its nearest ancestor with one."""
    ids = _fetch_ids(NEAREST, message_id)
    turns = Turn.objects.without_search_columns().select_related("chat")
    return turns.get(pk=ids[0]) if ids else None


def _set_predecessor(turn: Turn) -> None:
    """Number a turn after its parent, and inherit the memory that it does not change."""
    previous = turn.parent
    turn.number = previous.number + 1 if previous else 1
    if turn.document_ids:
        turn.shown = turn
        return
    inherited = None if previous is None or turn.forgets or is_forgotten(previous) else previous
    turn.remembered = turn.remembered or (inherited.remembered if inherited else [])
    turn.shown_id = inherited.shown_id if inherited else None


def is_forgotten(turn: Turn) -> bool:
    """Whether the chat's memory was cleared after the turn was asked."""
    cleared_at = turn.chat.memory_cleared_at
    return cleared_at is not None and turn.ts <= cleared_at


_is_followed = KeptQuery(
    lambda key: Message.objects.filter(parent_id=key).values_list("pk")[:1], ANY_KEY
)


def _insert_turn(turn: Turn) -> None:
    """Insert a turn before those that were asked later but ended earlier."""
    if not _is_followed.fetch(turn.message_id):
        return
    later_turns = (
        Turn.objects.without_search_columns()
        .select_related("chat")
        .in_bulk(_fetch_ids(BELOW, turn.message_id))
    )
    by_id: dict[UUID | None, Turn] = {turn.pk: turn}
    for later in sorted(later_turns.values(), key=lambda row: row.number):
        if later.parent is None or later.remembered == later.parent.remembered:
            later.remembered = []  # what it took over is taken over anew
        if later.parent_id == turn.parent_id:
            later.parent_id = turn.pk
        later.parent = by_id[later.parent_id]
        _set_predecessor(later)
        later.save(update_fields=("parent", "number", "remembered", "shown"))
        by_id[later.pk] = later


def unlink_turn(turn: Turn) -> None:
    """Link the turns after this one to its parent, as if it had never been asked.

    The caller holds the chat's row and deletes the turn.
    """
    later_turns = _load_below(turn)
    forget_running_summaries(turn)
    by_id: dict[UUID | None, Turn | None] = {turn.pk: turn.parent}
    for later in later_turns:
        previous = later.parent
        if previous is None or later.remembered == previous.remembered:
            later.remembered = []  # what it took over is taken over anew
        later.parent = by_id[later.parent_id]
        _set_predecessor(later)
        later.save(update_fields=("parent", "number", "remembered", "shown"))
        by_id[later.pk] = later


def reword_question(turn: Turn, text: str) -> None:
    """Store a reworded question in its turn, and queue the turn for a new summary.

    The caller holds the chat's row.
    """
    forget_running_summaries(turn)
    Turn.objects.filter(pk=turn.pk).update(user_text=text, **make_unsummarised_fields())


def make_unsummarised_fields() -> dict[str, Any]:
    """Field values that put a turn back in the queue for a summary."""
    return {
        "summary": "",
        "summary_model": "",
        "summarised_at": None,
        "terms": {},
        "vector": None,
        "embedding": "",
        "enqueued_at": timezone.now(),
        "attempts": 0,
        **RELEASED,
    }


def _load_below(turn: Turn) -> list[Turn]:
    """The turns that follow, by number, each with the one before it."""
    rows = Turn.objects.without_search_columns().select_related("chat", "parent__chat")
    later_turns = rows.in_bulk(_fetch_ids(BELOW, turn.message_id))
    return sorted(later_turns.values(), key=lambda row: row.number)


def forget_running_summaries(turn: Turn) -> None:
    """Clear the running summaries that include the turn; the next one is written without it."""
    keys = [turn.pk, *_fetch_ids(BELOW, turn.message_id)]
    Turn.objects.filter(pk__in=keys, running_through__gte=turn.number).update(
        running_summary="", running_through=None, running_model=""
    )


def _fetch_ids(query: str, message_id: UUID | None) -> list[UUID]:
    with connection.cursor() as cursor:
        cursor.execute(query, [message_id])
        return [row[0] for row in cursor.fetchall()]
