"""The workers' part: a change goes on in short slices, so that uploads come in between."""

import logging
import time
from datetime import timedelta

from django.conf import settings
from django.db import InterfaceError, OperationalError, connection
from django.db.models import Q
from django.db.models.functions import Now

from documents import queue, spaces
from documents.models import EmbeddingSpace
from documents.models.spaces import Reindexing
from documents.reindexing import claims, swap, work
from documents.reindexing.claims import Claim, ReindexLostError, Wish
from rag.errors import EmbedderFailed, NuraError
from rag.factory import engine, model_name

logger = logging.getLogger(__name__)

SLICE_SECONDS = 20.0
MAX_ATTEMPTS = 5
"""Slices in a row that embed nothing, because they fail or are killed."""
RETRY_SECONDS = 10.0
PATIENCE = timedelta(seconds=30)

State = Reindexing.State


class _PausedError(Exception):
    """The slice is over."""


class _Slice:
    """Ends the filling after some seconds; the steps after it are not cut."""

    def __init__(self) -> None:
        self._end = time.monotonic() + SLICE_SECONDS

    def progress(self, state: Reindexing.State, done: int, total: int, made: int) -> None:
        """Raise when the time is over."""
        del done, total, made
        if state is State.FILLING and time.monotonic() > self._end:
            raise _PausedError


def configured() -> Wish:
    """The change to the model that the settings name."""
    config = settings.RAG
    return Wish(
        model_name(config),
        spaces.strip_credentials(config.embedding_endpoint),
        tuple(sorted(config.embedding_languages)),
    )


def start(wish: Wish) -> Reindexing:
    """Let the workers change over. Raises `ReindexBusyError`."""
    run = claims.begin(wish, background=True)
    queue.enqueue_reindexing(run.pk)
    return run


def roll_back() -> swap.Back | None:
    """Swap back; the workers embed what was uploaded since. None where nothing was before.

    Raises `ReindexBusyError`.
    """
    claims.dismiss()
    back = swap.back()
    if back and back.lacking:
        space = back.space
        start(Wish(space.model, space.base_url, tuple(space.languages)))
    return back


def go_on(pk: int) -> None:
    """One slice of the change; nothing where it ended or somebody else has it."""
    claim = claims.take(pk)
    if claim is None:
        return
    try:
        work.carry_out(claim, _Slice(), work.Options())
    except _PausedError:
        if claims.release(claim, attempts=0):
            queue.enqueue_reindexing(pk)
    except ReindexLostError:
        logger.info("the re-embedding was taken away: stopped")
    except NuraError as error:
        _failed(claim, error.code, error)
    except (OperationalError, InterfaceError) as error:
        connection.close()
        _failed(claim, type(error).__name__, error)


def warm(pk: int) -> None:
    """Load the model of the space, so that the first question after the swap does not wait."""
    space = EmbeddingSpace.objects.filter(pk=pk).first()
    if space is None:
        return
    config = spaces.to_config(space)
    connection.close()
    try:
        engine(config).warm()
    except EmbedderFailed:
        logger.warning("%s could not be warmed", space, exc_info=True)


def sweep() -> None:
    """Send a change again that lost its worker or its message."""
    lost = Q(lease_until__lt=Now()) | Q(claim=None, enqueued_at__lt=Now() - PATIENCE)
    for run in Reindexing.objects.filter(lost, open=True, background=True):
        same = Reindexing.objects.filter(lost, pk=run.pk, open=True)
        if run.attempts >= MAX_ATTEMPTS:
            same.update(open=False, state=State.FAILED, claim=None)
        elif same.update(claim=None, lease_until=None, enqueued_at=Now()):
            queue.enqueue_reindexing(run.pk)
    spaces.measure_missing_unrelated()


def _failed(claim: Claim, error: str, reason: Exception) -> None:
    logger.warning("the re-embedding stopped: %s (%s)", error, reason)
    if Reindexing.objects.filter(pk=claim.pk, attempts__lt=MAX_ATTEMPTS).exists():
        if claims.release(claim, error=error):
            queue.enqueue_reindexing(claim.pk, delay=RETRY_SECONDS)
    else:
        claims.end(claim, State.FAILED, error=error)
