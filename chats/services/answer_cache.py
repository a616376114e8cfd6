"""The answer cache: the same question gets the same answer again, where an installation wants that.

An answer is cached under two keys. One says what it was made from: exactly these documents in
exactly this state, these settings, and this version of the engine with its prompts. The state is
read from the rows at every question, so no answer outlives a change of a document, whether or not
anybody noticed it. The other says what was asked: the same words or, with an embedder that knows
the language, nearly the same (`rag.understand.sameness` then decides).

Everyone who asks may read every document of the scope, so an answer is shared only among people
who may read all that it was made from. Neither the conversation nor the person may matter to the
question: `Question.stands_alone`.
"""

import functools
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from datetime import date, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import structlog
from django.conf import settings
from django.contrib.auth.models import User
from django.db import connection
from django.db.models import QuerySet
from django.utils import timezone
from pgvector.django import CosineDistance
from redis.exceptions import RedisError

import rag
from chats.models import CachedAnswer, Message, Trace
from chats.services.turn_store import AnswerOutcome, read_whole_passages
from documents.models import Document
from jobs import connections
from rag.config import RagConfig
from rag.conversation import Question
from rag.errors import NuraError
from rag.factory import Engine
from rag.generate.offline import find_emergency
from rag.tokenize.text import choose_reply_language
from rag.types import AnswerLabel
from rag.understand.sameness import fold_question, is_dependent_on_today, is_same_question

logger = structlog.get_logger()

MAX_ANSWERS = 20_000
"""Beyond so many cached answers the nightly purge removes the oldest."""
MIN_SIMILARITY = 0.9
"""Questions with at least this cosine have their words compared."""
MAX_COMPARED = 8
"""Nearest questions whose words are compared."""
KEPT_LABELS = frozenset((AnswerLabel.DOCUMENTS, AnswerLabel.PARTIAL, AnswerLabel.PASSAGES))
"""Only answers based on documents: what was not found may be found with other words."""
COUNTS = "nura:answer-cache"
"""A hash in Redis: how many questions were looked up with which result."""
RESULTS = ("same", "near", "miss")

_OTHERS = frozenset(
    ("text", "scope", "conversation", "topic", "history_pairs", "sampling", "profile")
)
"""Fields of a question that other parts of the keys cover, or that a history alone fills."""
_SECRET = frozenset(("api_key", "headers", "fence", "socket", "models_socket"))
"""Fields of the configuration that change no answer."""

STATE = """
    SELECT count(*), md5(string_agg(
        concat_ws('|', id, version, terms_version, extract(epoch FROM indexed_at), name,
                  md5(metadata::text)), E'\\n' ORDER BY id))
      FROM documents_document WHERE id = ANY(%s) AND indexed_at IS NOT NULL
"""


@dataclass(frozen=True, slots=True)
class CacheKey:
    """The key under which the answer to a question is cached.

    `scope` is the digest of `basis` and the documents' state. `vector` is None where the embedder
    does not know its language.
    """

    basis: str
    scope: str
    question: str
    text: str
    document_ids: tuple[UUID, ...]
    embedding: str = ""
    vector: Sequence[float] | None = None


@dataclass(frozen=True, slots=True)
class CacheHit:
    """A cached answer and when it was made. `near`: it was asked for in other words."""

    outcome: AnswerOutcome
    made_at: datetime
    near: bool


# Keys


def make_key(question: Question, config: RagConfig, *, owner: User) -> CacheKey | None:
    """The key of a question; None where it may neither use nor fill the cache."""
    text, ids = question.text, question.scope.document_ids
    if not question.stands_alone or not ids or find_emergency(text) is not None:
        return None
    readable = Document.objects.visible_to(owner).filter(pk__in=ids).values("pk").distinct()
    if readable.count() != len(set(ids)):
        return None
    basis = _digest(
        {
            "settings": _describe_settings(config),
            "engine": _digest_engine(),
            "reason": question.scope.reason,
            "topic": question.topic,
            "language": choose_reply_language(text),
            "others": {
                item.name: repr(getattr(question, item.name))
                for item in fields(question)
                if item.name not in _OTHERS
            },
            "day": date.today().isoformat() if is_dependent_on_today(text) else "",  # noqa: DTZ011 - as the prompt has it
        }
    )
    scope = _digest_scope(basis, ids)
    if scope is None:
        return None
    return CacheKey(basis, scope, _digest(fold_question(text)), text, ids)


def _digest_scope(basis: str, document_ids: Sequence[UUID]) -> str | None:
    """A digest of what an answer is made from; None where a document is no longer indexed."""
    with connection.cursor() as cursor:
        cursor.execute(STATE, [list(document_ids)])
        count, state = cursor.fetchone()
    return _digest([basis, state]) if count == len(set(document_ids)) else None


def _digest(value: Any) -> str:
    plain = json.dumps(value, ensure_ascii=False, sort_keys=True, default=_to_plain)
    return hashlib.sha256(plain.encode()).hexdigest()


def _to_plain(value: Any) -> Any:
    return sorted(value) if isinstance(value, frozenset) else str(value)


def _describe_settings(config: RagConfig) -> Mapping[str, Any]:
    def drop_secrets(value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        return {name: drop_secrets(item) for name, item in value.items() if name not in _SECRET}

    description: dict[str, Any] = drop_secrets(asdict(config))
    return description


@functools.cache
def _digest_engine() -> str:
    """A digest of the engine: its prompts, replies, rules and code."""
    digest = hashlib.sha256()
    root = Path(rag.__file__).parent
    for path in sorted(one for kind in ("py", "txt", "toml") for one in root.rglob(f"*.{kind}")):
        digest.update(path.relative_to(root).as_posix().encode() + path.read_bytes())
    return digest.hexdigest()


def embed_key(key: CacheKey, engine: Engine) -> CacheKey:
    """The key with its vector, or unchanged if the embedder fails or does not know the language."""
    if not engine.searcher.knows_language(key.text):
        return key
    try:
        vector = engine.embedder.embed_query(key.text)
    except NuraError as error:  # the same words are found without a vector
        logger.warning("question_not_embedded", error=str(error)[:200])
        return key
    return replace(key, vector=vector, embedding=engine.embedder.name)


# Finding


def find_answer(key: CacheKey, *, owner: User) -> CacheHit | None:
    """The cached answer to this question, or to one that is nearly the same."""
    exact = _list_fresh(key).filter(question_key=key.question).first()
    entry = exact or _find_near(key)
    _count_result("miss" if entry is None else "same" if exact else "near")
    if entry is None:
        return None
    return _to_hit(entry, key, is_own=entry.message.chat.owner_id == owner.pk)


def _list_fresh(key: CacheKey) -> QuerySet[CachedAnswer]:
    since = timezone.now() - timedelta(hours=settings.ANSWER_CACHE_HOURS)
    rows = CachedAnswer.objects.filter(scope_key=key.scope, made_at__gt=since)
    return rows.filter(message__chat__deleted_at=None).select_related("message__chat")


def _find_near(key: CacheKey) -> CachedAnswer | None:
    if key.vector is None:
        return None
    distance = CosineDistance("vector", key.vector)
    rows = _list_fresh(key).filter(embedding=key.embedding, vector__isnull=False)
    nearest = rows.annotate(distance=distance).filter(distance__lte=1 - MIN_SIMILARITY)
    for row in nearest.order_by("distance")[:MAX_COMPARED]:
        if is_same_question(row.question, key.text):
            return row
    return None


def _to_hit(entry: CachedAnswer, key: CacheKey, *, is_own: bool) -> CacheHit:
    answer = entry.message
    is_near = entry.question_key != key.question
    details = {"entry": entry.pk, "made_at": entry.made_at.isoformat(), "near": is_near}
    trace: dict[str, Any] = {}
    if is_own or not is_near:  # the other wording is somebody else's
        steps = Trace.objects.filter(message=answer).values_list("steps", flat=True).first() or {}
        trace = {name: value for name, value in steps.items() if name != "timings_ms"}
        details |= {"question": entry.question} if is_near else {}
    passages = read_whole_passages(answer)
    outcome = AnswerOutcome(
        status=Message.Status.COMPLETED,
        content=answer.content,
        mode=answer.mode,
        label=answer.label,
        question_type=answer.question_type,
        sources=answer.sources,
        passages=passages,
        method=str(trace.get("plan", {}).get("strategy", "")),
        grounding=answer.grounding,
        citations=answer.citations,
        trace=trace | {"cache": details},
        made_at=entry.made_at,
    )
    return CacheHit(outcome, entry.made_at, is_near)


# Keeping


def store_answer(key: CacheKey, *, answer: Message, outcome: AnswerOutcome) -> bool:
    """Cache an answer in the transaction that ends it; whether it was cached.

    It is not if a document has changed since the question was looked up: the answer may be based
    on the old text, or on half of it. The caller has locked the rows of its sources' documents.
    """
    if not _is_worth_keeping(outcome) or _digest_scope(key.basis, key.document_ids) != key.scope:
        return False
    CachedAnswer.objects.update_or_create(
        scope_key=key.scope,
        question_key=key.question,
        defaults={
            "message": answer,
            "question": key.text,
            "document_ids": sorted(
                {UUID(str(source["document_id"])) for source in outcome.sources or ()}
            ),
            "vector": key.vector,
            "embedding": key.embedding,
            "made_at": timezone.now(),
        },
    )
    return True


def _is_worth_keeping(outcome: AnswerOutcome) -> bool:
    return (
        outcome.status == Message.Status.COMPLETED
        and outcome.made_at is None
        and outcome.mode == Message.Mode.DOCUMENTS
        and outcome.label in KEPT_LABELS
        and bool(outcome.sources)
        and not outcome.notices
        and not any(source.get("deleted") for source in outcome.sources or ())
    )


def forget_answers(messages: QuerySet[Message]) -> None:
    """Remove the answers of these messages from the cache, in the caller's transaction."""
    CachedAnswer.objects.filter(message__in=messages).delete()


def forget_answer(message: Message) -> None:
    """Remove an answer that did not help, wherever it has been reused."""
    steps = Trace.objects.filter(message=message).values_list("steps", flat=True).first() or {}
    entry = steps.get("cache", {}).get("entry")
    CachedAnswer.objects.filter(message=message).delete()
    if entry is not None:
        CachedAnswer.objects.filter(pk=entry).delete()


def list_expired_answers() -> QuerySet[CachedAnswer]:
    """Cached answers that are no longer usable, and the oldest beyond the limit."""
    since = timezone.now() - timedelta(hours=settings.ANSWER_CACHE_HOURS)
    times = CachedAnswer.objects.order_by("-made_at").values_list("made_at", flat=True)
    oldest = times[MAX_ANSWERS : MAX_ANSWERS + 1].first()
    return CachedAnswer.objects.filter(made_at__lte=max(since, oldest or since))


# Figures


def _count_result(result: str) -> None:
    try:
        connections.get_client().hincrby(COUNTS, result, 1)
    except RedisError as error:  # no answer may fail for the sake of a figure
        logger.warning("lookup_not_counted", error=str(error)[:200])


def read_counts() -> dict[str, int]:
    """Counts of cache look-ups by their result, since Redis was last emptied."""
    counts = connections.get_client().hgetall(COUNTS)
    return {result: int(counts.get(result, 0)) for result in RESULTS}
