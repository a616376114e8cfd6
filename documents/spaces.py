"""Embedding spaces: which model's vectors are stored and searched."""

from django.conf import settings
from django.db import connection, transaction

from documents.models import EmbeddingSpace
from rag.factory import engine
from rag.ports import Embedder

LOCK = 0x6E757261  # any constant: it only has to be the same in every process
WIDEST_INDEX = 4000
"""Most dimensions of an HNSW index on halfvec; wider spaces are scanned exactly."""


def active_space(embedder: Embedder) -> EmbeddingSpace:
    """The space of this embedder, made and switched to when it is not the active one."""
    space = EmbeddingSpace.objects.filter(
        model=embedder.name, dimensions=embedder.dimensions, active=True
    ).first()
    return space or _activate(embedder)


def configured() -> EmbeddingSpace:
    """The space of the embedder that the settings name."""
    return active_space(engine(settings.RAG).embedder)


def _activate(embedder: Embedder) -> EmbeddingSpace:
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_xact_lock(%s)", (LOCK,))
        space, _ = EmbeddingSpace.objects.get_or_create(
            model=embedder.name,
            dimensions=embedder.dimensions,
            defaults={"languages": sorted(embedder.languages)},
        )
        EmbeddingSpace.objects.exclude(pk=space.pk).filter(active=True).update(active=False)
        space.active = True
        space.save(update_fields=("active",))
        _create_index(space)
    return space


def _create_index(space: EmbeddingSpace) -> None:
    """The space's own HNSW index: partial, so that one graph never mixes two models."""
    if space.dimensions > WIDEST_INDEX:
        return
    with connection.cursor() as cursor:
        cursor.execute(
            f"CREATE INDEX IF NOT EXISTS embedding_space_{space.pk:d} ON documents_chunkembedding "
            f"USING hnsw ((vector::halfvec({space.dimensions:d})) halfvec_cosine_ops) "
            f"WHERE space_id = {space.pk:d}"
        )
