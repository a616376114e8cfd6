"""How alike a model finds texts that have nothing to do with each other."""

import random

from django.db import connection
from django.db.models import Max, Min

from documents.models import ChunkEmbedding, EmbeddingSpace

PAIRS = 2000
LEAST_PAIRS = 500
LEAST_CHUNKS = 50
DRAWN = 16_000
"""Keys are drawn from a range with gaps: more than are needed."""

MEAN = """
    SELECT avg(1 - (one.vector <=> other.vector)), count(*)
      FROM unnest(%s::bigint[], %s::bigint[]) AS pair(one, other)
      JOIN documents_chunkembedding one ON one.chunk_id = pair.one AND one.space_id = %s
      JOIN documents_chunkembedding other ON other.chunk_id = pair.other AND other.space_id = %s
     WHERE one.document_id <> other.document_id
"""


def measure(space: EmbeddingSpace) -> float | None:
    """Keep the mean cosine of random pairs of chunks of different documents in the space.

    None, and nothing is kept, where there are too few of them.
    """
    keys = _some_keys(space)
    if len(keys) < LEAST_CHUNKS:
        return None
    dice = random.Random(1)  # noqa: S311 - a sample
    ones, others = dice.choices(keys, k=PAIRS), dice.choices(keys, k=PAIRS)
    with connection.cursor() as cursor:
        cursor.execute(MEAN, (ones, others, space.pk, space.pk))
        mean, count = cursor.fetchone() or (None, 0)
    if mean is None or count < LEAST_PAIRS:
        return None
    EmbeddingSpace.objects.filter(pk=space.pk).update(unrelated=mean)
    return float(mean)


def measure_missing() -> None:
    """Measure the active space where that was not done yet and can be done now."""
    for space in EmbeddingSpace.objects.filter(active=True, unrelated=None):
        measure(space)


def _some_keys(space: EmbeddingSpace) -> list[int]:
    """Chunks of the space, drawn at random, the same ones each time."""
    rows = ChunkEmbedding.objects.filter(space=space)
    ends = rows.aggregate(low=Min("chunk_id"), high=Max("chunk_id"))
    if ends["low"] is None:
        return []
    dice = random.Random(0)  # noqa: S311 - a sample
    drawn = {dice.randint(ends["low"], ends["high"]) for _ in range(DRAWN)}
    return sorted(rows.filter(chunk_id__in=drawn).values_list("chunk_id", flat=True))
