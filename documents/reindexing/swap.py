"""The moment in which another space becomes the active one, there and back."""

from collections.abc import Iterator
from collections.abc import Set as AbstractSet
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime

from django.db import connection, transaction
from django.db.models.functions import Now

from documents import spaces
from documents.models import ChunkEmbedding, EmbeddingSpace
from documents.models.spaces import Reindexing
from documents.reindexing import fill

DELETED_AT_ONCE = 10_000


@dataclass(frozen=True, slots=True)
class Back:
    """A swap back. `lacking` chunks, uploaded since, are found by their words only as yet."""

    space: EmbeddingSpace
    lacking: int


def forward(space: EmbeddingSpace, languages: AbstractSet[str], *, since: datetime) -> bool:
    """Make the space the active one, of texts in these languages.

    False, and nothing is changed, when something that was written since lacks its vector.
    """
    with _alone():
        if fill.lacking(space, languages, since):
            return False
        EmbeddingSpace.objects.filter(pk=space.pk).update(languages=sorted(languages))
        _activate(space)
    return True


def back() -> Back | None:
    """Make the space that was active before the active one; None where there is none."""
    with _alone():
        space = previous()
        if space is None or space.retired_at is None:
            return None
        retired = space.retired_at
        _activate(space)
    return Back(space, fill.lacking(space, frozenset(space.languages), retired))


def previous() -> EmbeddingSpace | None:
    """The space that was active before."""
    retired = EmbeddingSpace.objects.filter(active=False, retired_at__isnull=False)
    return retired.order_by("-retired_at").first()


def drop_inactive() -> list[EmbeddingSpace]:
    """Delete the vectors of all spaces that are neither in use nor being filled; those spaces."""
    unused = EmbeddingSpace.objects.filter(active=False)
    gone = list(unused.exclude(reindexings__in=Reindexing.objects.filter(open=True)))
    for space in gone:
        spaces.drop_index(space)
        rows = ChunkEmbedding.objects.filter(space=space)
        while keys := list(rows.values_list("pk", flat=True)[:DELETED_AT_ONCE]):
            ChunkEmbedding.objects.filter(pk__in=keys).delete()
        EmbeddingSpace.objects.filter(pk=space.pk, active=False).delete()
    return gone


def _activate(space: EmbeddingSpace) -> None:
    EmbeddingSpace.objects.filter(active=True).exclude(pk=space.pk).update(
        active=False, retired_at=Now()
    )
    EmbeddingSpace.objects.filter(pk=space.pk).update(active=True, retired_at=None)


@contextmanager
def _alone() -> Iterator[None]:
    """A transaction beside which no ingest writes and nobody else swaps."""
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_xact_lock(%s)", (spaces.SPACES_LOCK,))
        yield
