"""Shows what is indexed."""

from typing import Any

from django.core.management.base import BaseCommand
from django.db.models import Count, Sum

from documents.models import ChunkEmbedding, Document, EmbeddingSpace


class Command(BaseCommand):
    """Documents by status, chunks, and vectors by embedding space."""

    help = "Show how many documents, chunks and vectors are indexed."

    def handle(self, *_args: Any, **_options: Any) -> None:
        """Print it."""
        documents = Document.objects.all()
        totals = documents.aggregate(bytes=Sum("size"), chunks=Sum("chunk_count"))
        counts = dict(documents.order_by().values_list("status").annotate(Count("pk")))
        self.stdout.write(f"documents: {sum(counts.values())}")
        for status in Document.Status.values:
            self.stdout.write(f"  {status.lower()}: {counts.get(status, 0)}")
        self.stdout.write(f"bytes: {totals['bytes'] or 0}")
        self.stdout.write(f"chunks: {totals['chunks'] or 0}")
        for space in EmbeddingSpace.objects.order_by("pk"):
            vectors = ChunkEmbedding.objects.filter(space=space).count()
            active = "active" if space.active else "inactive"
            languages = ", ".join(space.languages) or "none declared"
            self.stdout.write(f"space {space} [{active}; {languages}]: {vectors} vectors")
        self._failures(documents)

    def _failures(self, documents: Any) -> None:
        failed = documents.filter(status=Document.Status.FAILED).order_by()
        for code, count in failed.values_list("error_code").annotate(Count("pk")):
            self.stdout.write(f"failed {code}: {count}")
