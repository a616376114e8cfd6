"""Carries a change of the embedding model out: fill, index, compare, swap.

It may be killed at any moment: what was committed is there, and the next process goes on.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from typing import Protocol

from documents import queue, spaces
from documents.models import Chunk, EmbeddingSpace
from documents.models.spaces import Reindexing
from documents.progress import Heartbeat
from documents.reindexing import claims, comparison, fill, questions, swap
from documents.reindexing.claims import Claim, ReindexLostError
from documents.reindexing.questions import Question
from rag.errors import EmbedderFailed
from rag.factory import new_embedder
from rag.ports import Embedder

REPORT_SECONDS = 0.5
State = Reindexing.State


class Teller(Protocol):
    """Hears how far it is."""

    def progress(self, state: Reindexing.State, done: int, total: int, made: int) -> None:
        """`done` of `total`, `made` of them embedded by this process. What it raises ends it."""
        ...


@dataclass(frozen=True, slots=True)
class Options:
    """What a person may say. `asked` None: questions made from headings."""

    asked: Sequence[Question] | None = None
    force: bool = False


@dataclass(slots=True)
class _Work:
    """A change in the hands of this process."""

    claim: Claim
    space: EmbeddingSpace
    embedder: Embedder
    teller: Teller
    heartbeat: Heartbeat
    state: Reindexing.State = State.FILLING
    reported: float = 0.0
    done: int = 0
    made: int = 0
    total: int = 0
    since: datetime | None = field(default=None)

    def enter(self, state: Reindexing.State, total: int = 0) -> None:
        """Begin a step."""
        self.state, self.done, self.total, self.reported = state, 0, total, 0.0
        self.show()

    def move(self, done: int, made: int = 0) -> None:
        """So many more are done, so many of them embedded."""
        self.done += done
        self.made += made
        self.show()

    def show(self) -> None:
        """Write it into the row, twice a second at most, and tell. Raises `ReindexLostError`."""
        self.heartbeat.check()
        if time.monotonic() - self.reported >= REPORT_SECONDS:
            self.reported = time.monotonic()
            claims.renew(self.claim, state=self.state, done=self.done, total=self.total)
        self.teller.progress(self.state, self.done, self.total, self.made)

    def fill(self) -> None:
        """Embed what is missing, and remember from when on something may be missing again."""
        since, self.since = self.since, fill.fence()
        fill.fill(self.space, self.embedder, self.move, since=since)


def carry_out(claim: Claim, teller: Teller, options: Options) -> Reindexing.State:
    """SWAPPED, or REFUSED because the new space finds less; then it is kept as it is.

    Raises `EmbedderFailed`, `ReindexLostError`, what searching raises, and what `teller` raises:
    the change then stays open, and the claim is the caller's to release.
    """
    renew = partial(claims.renew, claim)
    with Heartbeat(renew, lost=ReindexLostError, name="the re-embedding") as heartbeat:
        work = _begin(claim, teller, heartbeat)
        work.enter(State.FILLING, Chunk.objects.count())
        work.fill()
        work.enter(State.INDEXING)
        spaces.build_index(work.space)
        queue.enqueue_warming(work.space.pk)
        report = _compared(work, options)
        if report and report.falls and not options.force:
            claims.end(claim, State.REFUSED, report=report.as_json())
            return State.REFUSED
        _swap(work)
        claims.end(claim, State.SWAPPED, report=report.as_json() if report else {})
    spaces.measure_unrelated(work.space)
    return State.SWAPPED


def _begin(claim: Claim, teller: Teller, heartbeat: Heartbeat) -> _Work:
    """The space that is filled and the embedder that fills it."""
    run = Reindexing.objects.select_related("space").get(pk=claim.pk)
    config = spaces.build_config(
        run.model,
        run.base_url,
        frozenset(run.languages),
        dimensions=run.space.dimensions if run.space else 0,
    )
    embedder = new_embedder(config)
    space = run.space or spaces.ensure_space(embedder, base_url=run.base_url)
    claims.renew(claim, space=space)
    if not run.languages:
        embedder = new_embedder(spaces.to_config(space))
    return _Work(claim, space, embedder, teller, heartbeat)


def _compared(work: _Work, options: Options) -> comparison.Comparison | None:
    """None where there is nothing to compare with."""
    old = spaces.get_active_space()
    if old is None or old.pk == work.space.pk or not spaces.has_vectors(old):
        return None
    if not _answers(old, options):
        return None
    asked = questions.from_headings() if options.asked is None else options.asked
    if not asked:
        return None
    work.enter(State.COMPARING, len(asked))
    step: Callable[[int, int], None] = lambda _number, _total: work.move(1)  # noqa: E731
    return comparison.compare(old, work.space, asked, step)


def _answers(old: EmbeddingSpace, options: Options) -> bool:
    """Whether the old model still embeds questions for its space.

    Raises `EmbedderFailed` where it may do so later and nobody forces the change.
    """
    try:
        new_embedder(spaces.to_config(old)).embed_query("ready")
    except EmbedderFailed as error:
        if options.force or error.params.get("reason") == "dimensions":
            return False
        raise
    return True


def _swap(work: _Work) -> None:
    """Catch up with what was written meanwhile until nothing is missing; then swap."""
    while True:
        work.fill()
        if work.since and swap.forward(work.space, work.embedder.languages, since=work.since):
            return
