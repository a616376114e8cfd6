"""Carries a change of the embedding model out: fill, index, compare, swap.

It may be killed at any moment: what was committed is there, and the next process goes on. Workers
go on in short slices, so that uploads come in between.

Which of two spaces finds more is told by the product's own search, with questions of a file or made
from headings.
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

from documents import queue, spaces
from documents.connected.choice import read_config
from documents.models import Chunk, Document, EmbeddingSpace, Reindexing, ReindexState
from documents.reindex import renewal
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
"""Headings that are asked; which ones is decided by a hash, so a second run asks the same."""
MAX_ANSWERS = 20
"""Headings over more chunks than that (of one owner) ask for nothing in particular."""
MIN_CHARACTERS = 4

TITLES = """
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
        cursor.execute(TITLES, (MIN_CHARACTERS, MAX_ANSWERS, MAX_QUESTIONS))
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
        made = [question for row in rows for question in _to_questions(row)]
    except (OSError, ValueError, KeyError, TypeError, AttributeError, csv.Error) as error:
        raise QuestionsError(f"{path}: {error}") from error
    if not made:
        raise QuestionsError(f"{path}: no question whose document or text is stored here")
    return made


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


NEAR, FAR = 5, 10
RESAMPLES = 1000
TOLERANCE = 0.02
"""A loss of at most that much is let through where chance may well have made it."""


@dataclass(frozen=True, slots=True)
class Recall:
    """Shares of the questions with an answer among the first 5 and 10 passages."""

    at_5: float
    at_10: float


@dataclass(frozen=True, slots=True)
class SpaceComparison:
    """Both spaces on the same questions; `chance` is the 95 % interval of the gain at 5 and 10."""

    questions: int
    old: Recall
    new: Recall
    chance: tuple[tuple[float, float], tuple[float, float]]

    @property
    def falls(self) -> bool:
        """Whether the new space finds less: by more than the tolerance, or than chance explains."""
        gains = (self.new.at_5 - self.old.at_5, self.new.at_10 - self.old.at_10)
        return any(
            gain < 0 and (gain < -TOLERANCE or high < 0)
            for gain, (_low, high) in zip(gains, self.chance, strict=True)
        )

    def as_json(self) -> dict[str, Any]:
        """For the row of the change."""
        return asdict(self) | {"falls": self.falls}


def compare_spaces(
    old: EmbeddingSpace,
    new: EmbeddingSpace,
    questions: Sequence[ReindexQuestion],
    on_question: Callable[[int, int], None],
) -> SpaceComparison:
    """Search each question in both spaces. Raises `EmbedderFailed` and what the store raises."""
    places: list[tuple[int, int]] = []
    scope = functools.cache(_to_owner_scope)
    engines = get_engine(spaces.to_config(old)), get_engine(spaces.to_config(new))
    for number, question in enumerate(questions, 1):
        mine = scope(question.owner_id)
        places.append(
            (
                _find_place(question, mine, engines[0], old),
                _find_place(question, mine, engines[1], new),
            )
        )
        on_question(number, len(questions))
    return judge_places(places)


def judge_places(places: Sequence[tuple[int, int]]) -> SpaceComparison:
    """From the places (0: first) of the best answer in both spaces."""
    before, after = [old for old, _new in places], [new for _old, new in places]
    return SpaceComparison(
        questions=len(places),
        old=Recall(_measure_share(before, NEAR), _measure_share(before, FAR)),
        new=Recall(_measure_share(after, NEAR), _measure_share(after, FAR)),
        chance=(_draw_interval(places, NEAR), _draw_interval(places, FAR)),
    )


def _to_owner_scope(owner_id: int) -> Scope:
    documents = Document.objects.searchable().filter(owner_id=owner_id)
    return Scope(tuple(documents.values_list("pk", flat=True)), ScopeReason.ALL)


def _find_place(
    question: ReindexQuestion, scope: Scope, used: Engine, space: EmbeddingSpace
) -> int:
    store = ScopedStore(scope.document_ids, space=space)
    retrieval = used.search(question.text, scope, store, top_k=FAR)
    if retrieval.failed:  # by words alone both spaces would find the same
        raise EmbedderFailed(f"{space} could not be searched")
    found = [i for i, hit in enumerate(retrieval.hits) if hit.passage.key in question.answers]
    return found[0] if found else FAR


def _measure_share(places: Sequence[int], among: int) -> float:
    return round(sum(place < among for place in places) / len(places), 4) if places else 0.0


def _draw_interval(places: Sequence[tuple[int, int]], among: int) -> tuple[float, float]:
    """95 % of the mean gains of questions drawn again and again (paired bootstrap)."""
    gains = [(new < among) - (old < among) for old, new in places]
    if not gains:
        return 0.0, 0.0
    dice = random.Random(0)  # noqa: S311 - a second run must judge the same
    means = sorted(sum(dice.choices(gains, k=len(gains))) / len(gains) for _ in range(RESAMPLES))
    return round(means[RESAMPLES // 40], 4), round(means[-RESAMPLES // 40], 4)


CHANGES_LOCK = 0x6E757262
"""Number of the advisory lock under which changes begin."""

HEARTBEAT = Heartbeat(Reindexing)
REPORT_SECONDS = 0.5
SLICE_SECONDS = 20.0
RETRY_SECONDS = 10.0
PATIENCE = timedelta(seconds=30)
"""How long a change waits before a message is sent again."""

logger = structlog.get_logger()


class ReindexBusyError(Exception):
    """A living process is at work on a change."""


@dataclass(frozen=True, slots=True)
class ReindexWish:
    """Which model to change to. No languages: those that are declared for it."""

    model: str
    base_url: str = ""
    languages: tuple[str, ...] = ()


def begin_change(wish: ReindexWish, *, background: bool) -> Reindexing:
    """The open change to this model, made where there is none; one to another model gives way.

    Raises `ReindexBusyError` while a process is at work.
    """
    values = {"model": wish.model, "base_url": wish.base_url, "languages": list(wish.languages)}
    with _require_idle():
        same = Reindexing.objects.filter(open=True, **values)
        others = Reindexing.objects.filter(open=True).exclude(pk__in=same.values("pk"))
        others.update(open=False, state=ReindexState.REPLACED, **RELEASED)
        if same.update(background=background, attempts=0, error="", enqueued_at=Now()):
            return same.get()
        now = {"background": background, "enqueued_at": Now()}
        return Reindexing.objects.create(**values, **now)


def dismiss_change() -> None:
    """End what was begun and interrupted. Raises `ReindexBusyError` while a process is at work."""
    with _require_idle():
        Reindexing.objects.filter(open=True).update(
            open=False, state=ReindexState.REPLACED, **RELEASED
        )


def claim_change(reindexing_id: int) -> Lease[Reindexing] | None:
    """Claim it; None when it ended or a living process has it."""
    lease = claim_job(Reindexing, reindexing_id)
    if lease is not None:
        lease.rows().update(updated_at=Now())
    return lease


def release_change(lease: Lease[Reindexing], *, most: int | None = None, **changes: Any) -> bool:
    """Let another process go on; False when the lease was lost or there were `most` attempts."""
    return release_lease(lease, max_attempts=most, updated_at=Now(), **changes)


def end_change(lease: Lease[Reindexing], state: ReindexState, **changes: Any) -> None:
    """It is over. Raises `LeaseLostError`."""
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
    """Hears how far it is."""

    def report_progress(self, state: ReindexState, done: int, total: int, made: int) -> None:
        """`done` of `total`, `made` of them embedded by this process. What it raises ends it."""
        ...


@dataclass(frozen=True, slots=True)
class ReindexOptions:
    """What a person may say. `asked` None: questions made from headings."""

    asked: Sequence[ReindexQuestion] | None = None
    force: bool = False


@dataclass(slots=True)
class _Change:
    """A change in the hands of this process."""

    lease: Lease[Reindexing]
    space: EmbeddingSpace
    embedder: Embedder
    teller: ProgressListener
    held: HeldLease[Reindexing]
    state: ReindexState = ReindexState.FILLING
    reported: float = 0.0
    done: int = 0
    made: int = 0
    total: int = 0
    since: datetime | None = field(default=None)

    def begin_step(self, state: ReindexState, total: int = 0) -> None:
        """Begin a step."""
        self.state, self.done, self.total, self.reported = state, 0, total, 0.0
        self.save_progress()

    def count_done(self, done: int, made: int = 0) -> None:
        """Count chunks as done, and how many of them were embedded."""
        self.done += done
        self.made += made
        self.save_progress()

    def save_progress(self) -> None:
        """Store the progress, at most twice a second, and report it. Raises `LeaseLostError`."""
        self.held.check()
        if time.monotonic() - self.reported >= REPORT_SECONDS:
            self.reported = time.monotonic()
            values = {"state": self.state, "done": self.done, "total": self.total}
            renew_lease(self.lease, updated_at=Now(), **values)
        self.teller.report_progress(self.state, self.done, self.total, self.made)

    def fill_space(self) -> None:
        """Embed what is missing, and remember from when on something may be missing again."""
        since, self.since = self.since, renewal.get_fence_time()
        renewal.fill_space(self.space, self.embedder, self.count_done, since=since)


def carry_out_change(
    lease: Lease[Reindexing], teller: ProgressListener, options: ReindexOptions
) -> ReindexState:
    """SWAPPED, or REFUSED because the new space finds less; then it is kept as it is.

    Raises `EmbedderFailed`, `LeaseLostError`, what searching raises, and what `teller` raises:
    the change then stays open, and the lease is the caller's to release.
    """
    with HEARTBEAT.hold(lease) as held:
        work = _open_change(lease, teller, held)
        work.begin_step(ReindexState.FILLING, Chunk.objects.count())
        work.fill_space()
        work.begin_step(ReindexState.INDEXING)
        spaces.build_index(work.space)
        report = _compare(work, options)
        if report and report.falls and not options.force:
            end_change(lease, ReindexState.REFUSED, report=report.as_json())
            return ReindexState.REFUSED
        _swap_spaces(work)
        end_change(lease, ReindexState.SWAPPED, report=report.as_json() if report else {})
    spaces.measure_unrelated(work.space)
    return ReindexState.SWAPPED


def _open_change(
    lease: Lease[Reindexing], teller: ProgressListener, held: HeldLease[Reindexing]
) -> _Change:
    """The space that is filled and the embedder that fills it."""
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
    return _Change(lease, space, embedder, teller, held)


def _compare(work: _Change, options: ReindexOptions) -> SpaceComparison | None:
    """None where there is nothing to compare with."""
    old = spaces.get_active_space()
    if old is None or old.pk == work.space.pk or not spaces.has_vectors(old):
        return None
    if not _is_answering(old, options):
        return None
    asked = make_questions_from_headings() if options.asked is None else options.asked
    if not asked:
        return None
    work.begin_step(ReindexState.COMPARING, len(asked))
    step: Callable[[int, int], None] = lambda _number, _total: work.count_done(1)  # noqa: E731
    return compare_spaces(old, work.space, asked, step)


def _is_answering(old: EmbeddingSpace, options: ReindexOptions) -> bool:
    """Whether the old model still embeds questions for its space.

    Raises `EmbedderFailed` where it may do so later and nobody forces the change.
    """
    try:
        make_embedder(spaces.to_config(old)).embed_query("ready")
    except EmbedderFailed as error:
        if options.force or error.params.get("reason") == "dimensions":
            return False
        raise
    return True


def _swap_spaces(work: _Change) -> None:
    """Catch up with what was written meanwhile until nothing is missing; then swap."""
    while True:
        work.fill_space()
        if work.since and renewal.swap_forward(
            work.space, work.embedder.languages, since=work.since
        ):
            return


class _SliceOverError(Exception):
    """The slice is over."""


class _TimeSlice:
    """Ends the filling after some seconds; the steps after it are not cut."""

    def __init__(self) -> None:
        self._end = time.monotonic() + SLICE_SECONDS

    def report_progress(self, state: ReindexState, done: int, total: int, made: int) -> None:
        """Raise when the time is over."""
        del done, total, made
        if state is ReindexState.FILLING and time.monotonic() > self._end:
            raise _SliceOverError


def get_configured_wish() -> ReindexWish:
    """The change to the model that is chosen in the page, or named in the environment."""
    config = read_config()
    return ReindexWish(
        get_embedding_model_name(config),
        spaces.strip_credentials(config.embedding_endpoint),
        tuple(sorted(config.embedding_languages)),
    )


def start_change(wish: ReindexWish) -> Reindexing:
    """Let the workers change over. Raises `ReindexBusyError`."""
    run = begin_change(wish, background=True)
    queue.enqueue_reindex(run.pk)
    return run


def roll_back_change() -> renewal.SwapBack | None:
    """Swap back; the workers embed what was uploaded since. None where nothing was before.

    Raises `ReindexBusyError`.
    """
    dismiss_change()
    back = renewal.swap_back()
    if back and back.lacking:
        space = back.space
        start_change(ReindexWish(space.model, space.base_url, tuple(space.languages)))
    return back


def continue_change(reindexing_id: int) -> None:
    """Do one slice of the change; nothing if it ended or another worker has it."""
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
    """Hand on what lost its worker or its message; a command that died is repeated by a person."""
    reap_lost_jobs(Reindexing, announce=_announce_change, give_up=_give_up_change)
    used_up = Reindexing.objects.filter(attempts__gte=Reindexing.MAX_ATTEMPTS, claim=None)
    _fail_changes(used_up.filter(open=True, background=True))
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
    """Let the workers try again a little later, or end it."""
    again = release_change(lease, most=Reindexing.MAX_ATTEMPTS, error=code)
    logger.warning("reindex_failed", reindexing=lease.job_id, code=code, again=again)
    if again:
        queue.enqueue_reindex(lease.job_id, delay_seconds=RETRY_SECONDS)
    else:
        lease.rows().update(error=code)
        _give_up_change(lease)
