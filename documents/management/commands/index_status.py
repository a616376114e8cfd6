"""Shows what is indexed."""

from collections.abc import Iterator
from typing import Any

from django.core.management.base import BaseCommand
from django.db.models import Count, QuerySet, Sum

from documents.management.commands.inspect_chunks import histogram
from documents.models import Chunk, ChunkEmbedding, Document, DocumentPicture, EmbeddingSpace
from documents.representation import measure_chunk_lengths, to_lengths_json


class Command(BaseCommand):
    """Documents by status, chunks with their lengths, pictures, and vectors by embedding space."""

    help = "Show what is indexed: documents, chunks and their lengths, pictures, vectors."

    def handle(self, *_args: Any, **_options: Any) -> None:
        """Print it."""
        documents = Document.objects.order_by()
        for part in (_documents(documents), _chunks(), _pictures(), _spaces(), _ends(documents)):
            for line in part:
                self.stdout.write(line)


def _documents(documents: QuerySet[Document]) -> Iterator[str]:
    totals = documents.aggregate(bytes=Sum("size"), pages=Sum("page_count"))
    counts = dict(documents.values_list("status").annotate(Count("pk")))
    yield f"documents: {sum(counts.values())}"
    for status in Document.Status.values:
        yield f"  {status.lower()}: {counts.get(status, 0)}"
    yield f"bytes: {totals['bytes'] or 0}"
    yield f"pages: {totals['pages'] or 0}"


def _chunks() -> Iterator[str]:
    chunks = Chunk.objects.order_by()
    yield f"chunks: {chunks.count()}"
    for kind, count in chunks.values_list("kind").annotate(Count("pk")).order_by("kind"):
        yield f"  {kind}: {count}"
    yield from histogram(to_lengths_json(measure_chunk_lengths(chunks)))


def _pictures() -> Iterator[str]:
    pictures = DocumentPicture.objects.order_by()
    kept = pictures.filter(rejected="")
    described = kept.exclude(description=None).count()
    yield f"pictures: {kept.count()} kept, {described} of them described"
    dropped = pictures.exclude(rejected="").values_list("rejected")
    for reason, count in dropped.annotate(Count("pk")).order_by("rejected"):
        yield f"  dropped {reason}: {count}"


def _spaces() -> Iterator[str]:
    for space in EmbeddingSpace.objects.order_by("pk"):
        vectors = ChunkEmbedding.objects.filter(space=space).count()
        active = "active" if space.active else "inactive"
        languages = ", ".join(space.languages) or "none declared"
        yield f"space {space} [{active}; {languages}]: {vectors} vectors"


def _ends(documents: QuerySet[Document]) -> Iterator[str]:
    """Why documents failed, and how many."""
    failed = documents.filter(status=Document.Status.FAILED)
    for code, count in failed.values_list("error_code").annotate(Count("pk")):
        yield f"failed {code}: {count}"
