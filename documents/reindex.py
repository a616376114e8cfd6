"""Changes the embedding model: fill the new space, index it, compare both, swap.

It may be killed at any moment: committed work stays, and the next process continues. Workers work
in short slices, so that uploads are processed in between.

The comparison uses Nura's own search, with questions from a file or made from headings.
"""

import csv
import functools
import json
import random
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Protocol
from uuid import UUID

import structlog
from django.db import InterfaceError, InternalError, OperationalError, connection, transaction
from django.db.models import QuerySet
from django.db.models.functions import Now

from documents import queue, renewal, spaces
from documents.connected.choice import read_config
from documents.models import Chunk, Document, EmbeddingSpace, Reindexing, ReindexState
from documents.search.store import ScopedStore
from jobs.lease import (
    RELEASED,
    Heartbeat,
    HeldLease,
    Lease,
    LeaseLostError,
    announce_unclaimed_jobs,
    claim_job,
    reap_lost_jobs,
    release_lease,
    renew_lease,
    select_jobs_at_work,
)
from rag.errors import EmbedderFailed, NuraError
from rag.factory import Engine, get_embedding_model_name, get_engine, make_embedder
from rag.ports import Embedder
from rag.types import Scope, ScopeReason

MAX_QUESTIONS = 300
"""Headings used as questions; a hash selects them, so a second run uses the same ones."""
MAX_ANSWERS = 20
"""Headings with more chunks (of one owner) are too general."""
MIN_CHARACTERS = 4

SELECT_TITLES = """
    SELECT chunk.owner_id, title.text, array_agg(chunk.id)
      FROM documents_chunk chunk
      JOIN documents_document document ON document.id = chunk.document_id,
           LATERAL (SELECT regexp_replace(chunk.section, '^.* > ', '') AS text) title
     WHERE document.indexed_at IS NOT NULL AND length(title.text) >= %s
     GROUP BY chunk.owner_id, title.text HAVING count(*) <= %s
     ORDER BY md5(chunk.owner_id || title.text), chunk.owner_id, title.text LIMIT %s
"""


class QuestionsError(Exception):
    """The file cannot be used; the message says why."""


@dataclass(frozen=True, slots=True)
class ReindexQuestion:
    """A question of one owner and the chunks any of which answers it."""

    text: str
    owner_id: int
    answers: frozenset[int]


def make_questions_from_headings() -> list[ReindexQuestion]:
    """Section titles as questions, the chunks below them as answers."""
    with connection.cursor() as cursor:
        cursor.execute(SELECT_TITLES, (MIN_CHARACTERS, MAX_ANSWERS, MAX_QUESTIONS))
        return [
            ReindexQuestion(title, owner, frozenset(keys))
            for owner, title, keys in cursor.fetchall()
        ]


def read_questions(path: Path) -> list[ReindexQuestion]:
    """The questions of a JSON, JSON Lines or CSV file; see `docs/notes/retrieval.md`.

    Raises `QuestionsError`.
    """
    try:
        rows = _read_rows(path)
        questions = [question for row in rows for question in _to_questions(row)]
    except (OSError, ValueError, KeyError, TypeError, AttributeError, csv.Error) as error:
        raise QuestionsError(f"{path}: {error}") from error
    if not questions:
        raise QuestionsError(f"{path}: no question whose document or text is stored here")
    return questions


def _read_rows(path: Path) -> list[dict[str, Any]]:
    text = path.read_text(encoding="utf-8-sig")
    if path.suffix.lower() == ".csv":
        return list(csv.DictReader(text.splitlines()))
    if path.suffix.lower() == ".jsonl":
        return [json.loads(line) for line in text.splitlines() if line.strip()]
    return list(json.loads(text))


def _to_questions(row: dict[str, Any]) -> Iterable[ReindexQuestion]:
    """One question per owner who has an answer."""
    chunks = Chunk.objects.filter(document__in=Document.objects.searchable())
    if document := row.get("document"):
        chunks = chunks.filter(**_to_document_filter(str(document)))
    if text := row.get("text"):
        chunks = chunks.filter(text__contains=text)
    if not document and not text:
        raise ValueError(f"neither document nor text: {row}")
    answers: dict[int, set[int]] = {}
    for key, owner in chunks.values_list("pk", "owner_id"):
        answers.setdefault(owner, set()).add(key)
    for owner, keys in sorted(answers.items()):
        yield ReindexQuestion(str(row["question"]), owner, frozenset(keys))


def _to_document_filter(document: str) -> dict[str, object]:
    try:
        return {"document_id": UUID(document)}
    except ValueError:
        return {"document__name": document}


TOP_FEW, TOP_MANY = 5, 10
RESAMPLES = 1000
TOLERANCE = 0.02
"""A loss of at most this much is accepted if it may well be due to chance."""


@dataclass(frozen=True, slots=True)
class Recall:
    """Shares of the questions with an answer among the first 5 and 10 passages."""

    at_5: float
    at_10: float


@dataclass(frozen=True, slots=True)
class SpaceComparison:
    """Both spaces on the same questions; `chance` are 95 % intervals of the gain at 5 and 10."""

    questions: int
    old: Recall
    new: Recall
    chance: tuple[tuple[float, float], tuple[float, float]]

    @property
    def finds_less(self) -> bool:
        """Whether the new space finds less: beyond the tolerance, or more than by chance."""
        gains = (self.new.at_5 - self.old.at_5, self.new.at_10 - self.old.at_10)
        return any(
            gain < 0 and (gain < -TOLERANCE or high < 0)
            for gain, (_low, high) in zip(gains, self.chance, strict=True)
        )

    def as_json(self) -> dict[str, Any]:
        """The comparison for the `report` of the change."""
        return asdict(self) | {"falls": self.finds_less}


def compare_spaces(
    old: EmbeddingSpace,
    new: EmbeddingSpace,
    questions: Sequence[ReindexQuestion],
    on_question: Callable[[int, int], None],
) -> SpaceComparison:
    """Search each question in both spaces. Raises `EmbedderFailed` and what the store raises."""
    ranks: list[tuple[int, int]] = []
    scope = functools.cache(_to_owner_scope)
    both = get_engine(spaces.to_config(old)), get_engine(spaces.to_config(new))
    for number, question in enumerate(questions, 1):
        scope_ = scope(question.owner_id)
        ranks.append(
            (
                _find_rank(question, scope_, both[0], old),
                _find_rank(question, scope_, both[1], new),
            )
        )
        on_question(number, len(questions))
    return judge_ranks(ranks)


def judge_ranks(ranks: Sequence[tuple[int, int]]) -> SpaceComparison:
    """The comparison from the ranks (0: first) of the best answer in both spaces."""
    old_ranks, new_ranks = [old for old, _new in ranks], [new for _old, new in ranks]
    return SpaceComparison(
        questions=len(ranks),
        old=Recall(_measure_share(old_ranks, TOP_FEW), _measure_share(old_ranks, TOP_MANY)),
        new=Recall(_measure_share(new_ranks, TOP_FEW), _measure_share(new_ranks, TOP_MANY)),
        chance=(_bootstrap_interval(ranks, TOP_FEW), _bootstrap_interval(ranks, TOP_MANY)),
    )


def _to_owner_scope(owner_id: int) -> Scope:
    documents = Document.objects.searchable().filter(owner_id=owner_id)
    return Scope(tuple(documents.values_list("pk", flat=True)), ScopeReason.ALL)


def _find_rank(
    question: ReindexQuestion, scope: Scope, engine: Engine, space: EmbeddingSpace
) -> int:
    store = ScopedStore(scope.document_ids, space=space)
    retrieval = engine.search(question.text, scope, store, top_k=TOP_MANY)
    if retrieval.error_code:  # by words alone, both spaces would find the same
        raise EmbedderFailed(f"{space} could not be searched")
    ranks = [i for i, hit in enumerate(retrieval.hits) if hit.passage.key in question.answers]
    return ranks[0] if ranks else TOP_MANY


def _measure_share(ranks: Sequence[int], depth: int) -> float:
    return round(sum(rank < depth for rank in ranks) / len(ranks), 4) if ranks else 0.0


def _bootstrap_interval(ranks: Sequence[tuple[int, int]], depth: int) -> tuple[float, float]:
    """95 % interval of the mean gain (paired bootstrap)."""
    gains = [(new < depth) - (old < depth) for old, new in ranks]
    if not gains:
        return 0.0, 0.0
    sampler = random.Random(0)  # noqa: S311 - a second run must judge the same
    means = sorted(sum(sampler.choices(gains, k=len(gains))) / len(gains) for _ in range(RESAMPLES))
    return round(means[RESAMPLES // 40], 4), round(means[-RESAMPLES // 40], 4)


CHANGES_LOCK = 0x6E757262
"""Number of the advisory lock for starting a change."""

HEARTBEAT = Heartbeat(Reindexing)
REPORT_SECONDS = 0.5
SLICE_SECONDS = 20.0
RETRY_SECONDS = 10.0
PATIENCE = timedelta(seconds=30)
"""How long a change waits before a message is sent again."""

logger = structlog.get_logger()


class ReindexBusyError(Exception):
    """A process is at work on a change."""


@dataclass(frozen=True, slots=True)
class ReindexTarget:
    """The model to change to. Without languages: those declared for it."""

    model: str
    base_url: str = ""
    languages: tuple[str, ...] = ()


def begin_change(target: ReindexTarget, *, background: bool) -> Reindexing:
    """The open change to this model, created if needed; one to another model is replaced.

    Raises `ReindexBusyError` while a process is at work.
    """
    values = {
        "model": target.model,
        "base_url": target.base_url,
        "languages": list(target.languages),
    }
    with _require_idle():
        same = Reindexing.objects.filter(open=True, **values)
        others = Reindexing.objects.filter(open=True).exclude(pk__in=same.values("pk"))
        others.update(open=False, state=ReindexState.REPLACED, **RELEASED)
        if same.update(background=background, attempts=0, error="", enqueued_at=Now()):
            return same.get()
        state = {"background": background, "enqueued_at": Now()}
        return Reindexing.objects.create(**values, **state)


def dismiss_change() -> None:
    """End an interrupted change. Raises `ReindexBusyError` while a process is at work."""
    with _require_idle():
        Reindexing.objects.filter(open=True).update(
            open=False, state=ReindexState.REPLACED, **RELEASED
        )


def claim_change(reindexing_id: int) -> Lease[Reindexing] | None:
    """Claim a change; None if it has ended or a process is at work on it."""
    lease = claim_job(Reindexing, reindexing_id)
    if lease is not None:
        lease.rows().update(updated_at=Now())
    return lease


def release_change(
    lease: Lease[Reindexing], *, max_attempts: int | None = None, **changes: Any
) -> bool:
    """Let another process continue; False if the lease is lost or no attempt is left."""
    return release_lease(lease, max_attempts=max_attempts, updated_at=Now(), **changes)


def end_change(lease: Lease[Reindexing], state: ReindexState, **changes: Any) -> None:
    """End a change in this state. Raises `LeaseLostError`."""
    values = {**RELEASED, "updated_at": Now(), **changes}
    if not lease.rows().update(open=False, state=state, **values):
        raise LeaseLostError


def is_change_at_work(run: Reindexing) -> bool:
    """Whether a process renews its lease."""
    return select_jobs_at_work(Reindexing).filter(pk=run.pk).exists()


@contextmanager
def _require_idle() -> Iterator[None]:
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_xact_lock(%s)", (CHANGES_LOCK,))
        if Reindexing.objects.filter(open=True, lease_until__gte=Now()).exists():
            raise ReindexBusyError
        yield


class ProgressListener(Protocol):
    """Receives the progress of a change."""

    def report_progress(self, state: ReindexState, done: int, total: int, embedded: int) -> None:
        """`done` of `total` chunks, `embedded` by this process. An exception stops the change."""
        ...


@dataclass(frozen=True, slots=True)
class ReindexOptions:
    """Options of a change. `questions` None: made from headings."""

    questions: Sequence[ReindexQuestion] | None = None
    force: bool = False


@dataclass(slots=True)
class _Change:
    """A change that this process works on."""

    lease: Lease[Reindexing]
    space: EmbeddingSpace
    embedder: Embedder
    listener: ProgressListener
    held: HeldLease[Reindexing]
    state: ReindexState = ReindexState.FILLING
    last_report_at: float = 0.0
    done: int = 0
    embedded: int = 0
    total: int = 0
    since: datetime | None = field(default=None)

    def begin_step(self, state: ReindexState, total: int = 0) -> None:
        """Begin a step."""
        self.state, self.done, self.total, self.last_report_at = state, 0, total, 0.0
        self.save_progress()

    def count_done(self, done: int, embedded: int = 0) -> None:
        """Add to the numbers of chunks done and embedded."""
        self.done += done
        self.embedded += embedded
        self.save_progress()

    def save_progress(self) -> None:
        """Store the progress, at most twice a second, and report it. Raises `LeaseLostError`."""
        self.held.check()
        if time.monotonic() - self.last_report_at >= REPORT_SECONDS:
            self.last_report_at = time.monotonic()
            values = {"state": self.state, "done": self.done, "total": self.total}
            renew_lease(self.lease, updated_at=Now(), **values)
        self.listener.report_progress(self.state, self.done, self.total, self.embedded)

    def fill_space(self) -> None:
        """Embed what is missing, and note from when on something may be missing again."""
        since, self.since = self.since, renewal.get_fence_time()
        renewal.fill_space(self.space, self.embedder, self.count_done, since=since)


def carry_out_change(
    lease: Lease[Reindexing], listener: ProgressListener, options: ReindexOptions
) -> ReindexState:
    """Execute a change. SWAPPED, or REFUSED because the new space finds less; it is kept then.

    Raises `EmbedderFailed`, `LeaseLostError`, and exceptions of the search and of `listener`: the
    change then stays open, and the caller has to release the lease.
    """
    with HEARTBEAT.hold(lease) as held_lease:
        change = _open_change(lease, listener, held_lease)
        change.begin_step(ReindexState.FILLING, Chunk.objects.count())
        change.fill_space()
        change.begin_step(ReindexState.INDEXING)
        spaces.build_index(change.space)
        report = _compare(change, options)
        if report and report.finds_less and not options.force:
            end_change(lease, ReindexState.REFUSED, report=report.as_json())
            return ReindexState.REFUSED
        _swap_spaces(change)
        end_change(lease, ReindexState.SWAPPED, report=report.as_json() if report else {})
    spaces.measure_unrelated(change.space)
    return ReindexState.SWAPPED


def _open_change(
    lease: Lease[Reindexing], listener: ProgressListener, held_lease: HeldLease[Reindexing]
) -> _Change:
    """Open the change with the space to fill and its embedder."""
    run = Reindexing.objects.select_related("space").get(pk=lease.job_id)
    config = spaces.build_config(
        run.model,
        run.base_url,
        frozenset(run.languages),
        dimensions=run.space.dimensions if run.space else 0,
    )
    embedder = make_embedder(config)
    space = run.space or spaces.ensure_space(embedder, base_url=run.base_url)
    renew_lease(lease, space=space)
    if not run.languages:
        embedder = make_embedder(spaces.to_config(space))
    return _Change(lease, space, embedder, listener, held_lease)


def _compare(change: _Change, options: ReindexOptions) -> SpaceComparison | None:
    """Compare the spaces; None if there is nothing to compare."""
    old = spaces.get_active_space()
    if old is None or old.pk == change.space.pk or not spaces.has_vectors(old):
        return None
    if not _is_answering(old, options):
        return None
    questions = make_questions_from_headings() if options.questions is None else options.questions
    if not questions:
        return None
    change.begin_step(ReindexState.COMPARING, len(questions))
    step: Callable[[int, int], None] = lambda _number, _total: change.count_done(1)  # noqa: E731
    return compare_spaces(old, change.space, questions, step)


def _is_answering(old: EmbeddingSpace, options: ReindexOptions) -> bool:
    """Whether the old model still embeds questions for its space.

    Raises `EmbedderFailed` if it may do so later, unless the change is forced.
    """
    try:
        make_embedder(spaces.to_config(old)).embed_query("ready")
    except EmbedderFailed as error:
        if options.force or error.params.get("reason") == "dimensions":
            return False
        raise
    return True


def _swap_spaces(change: _Change) -> None:
    """Embed what was written meanwhile until nothing is missing, then swap."""
    while True:
        change.fill_space()
        if change.since and renewal.swap_forward(
            change.space, change.embedder.languages, since=change.since
        ):
            return


class _SliceOverError(Exception):
    """The slice is over."""


class _TimeSlice:
    """Stops filling after some seconds; later steps are not interrupted."""

    def __init__(self) -> None:
        self._end = time.monotonic() + SLICE_SECONDS

    def report_progress(self, state: ReindexState, done: int, total: int, embedded: int) -> None:
        """Raise if the time is over."""
        del done, total, embedded
        if state is ReindexState.FILLING and time.monotonic() > self._end:
            raise _SliceOverError


def get_configured_target() -> ReindexTarget:
    """The model that is chosen on the models page, or set in the environment."""
    config = read_config()
    return ReindexTarget(
        get_embedding_model_name(config),
        spaces.strip_credentials(config.embedding_endpoint),
        tuple(sorted(config.embedding_languages)),
    )


def start_change(target: ReindexTarget) -> Reindexing:
    """Start a change in the workers. Raises `ReindexBusyError`."""
    run = begin_change(target, background=True)
    queue.enqueue_reindex(run.pk)
    return run


def roll_back_change() -> renewal.SwapBack | None:
    """Swap back; the workers embed what was uploaded since. None if there is no earlier space.

    Raises `ReindexBusyError`.
    """
    dismiss_change()
    swap = renewal.swap_back()
    if swap and swap.missing:
        space = swap.space
        start_change(ReindexTarget(space.model, space.base_url, tuple(space.languages)))
    return swap


def continue_change(reindexing_id: int) -> None:
    """Execute one slice of a change; nothing if it has ended or another worker has it."""
    lease = claim_change(reindexing_id)
    if lease is None:
        return
    try:
        state = carry_out_change(lease, _TimeSlice(), ReindexOptions())
    except _SliceOverError:
        if release_change(lease, attempts=0):
            queue.enqueue_reindex(reindexing_id)
    except LeaseLostError:
        logger.info("reindex_taken_away", reindexing=reindexing_id)
    except NuraError as error:
        _handle_failure(lease, error.code)
    except (OperationalError, InterfaceError, InternalError) as error:
        connection.close()
        _handle_failure(lease, type(error).__name__)
    else:
        logger.info("reindex_ended", reindexing=reindexing_id, outcome=state.value)


def reap_changes() -> None:
    """Hand on lost changes and announce unclaimed ones; people repeat those of commands."""
    reap_lost_jobs(Reindexing, announce=_announce_change, give_up=_give_up_change)
    exhausted = Reindexing.objects.filter(attempts__gte=Reindexing.MAX_ATTEMPTS, claim=None)
    _fail_changes(exhausted.filter(open=True, background=True))
    announce_unclaimed_jobs(Reindexing, announce=_announce_change, patience=PATIENCE)
    spaces.measure_missing_unrelated()


def _announce_change(reindexing_id: int) -> None:
    if Reindexing.objects.filter(pk=reindexing_id, background=True).exists():
        queue.enqueue_reindex(reindexing_id)


def _give_up_change(lease: Lease[Reindexing]) -> None:
    _fail_changes(lease.rows())


def _fail_changes(rows: QuerySet[Reindexing]) -> None:
    rows.update(open=False, state=ReindexState.FAILED, updated_at=Now(), **RELEASED)


def _handle_failure(lease: Lease[Reindexing], code: str) -> None:
    """Let the workers try again a little later, or fail the change."""
    is_retried = release_change(lease, max_attempts=Reindexing.MAX_ATTEMPTS, error=code)
    logger.warning("reindex_failed", reindexing=lease.job_id, code=code, again=is_retried)
    if is_retried:
        queue.enqueue_reindex(lease.job_id, delay_seconds=RETRY_SECONDS)
    else:
        lease.rows().update(error=code)
        _give_up_change(lease)
