"""Shows what is indexed, or how one document was read and cut."""

from collections.abc import Iterator
from typing import Any
from uuid import UUID

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db.models import Count, Sum

from documents.models import Chunk, ChunkEmbedding, Document, DocumentPicture, EmbeddingSpace
from documents.representation import inspect_document, measure_chunk_lengths, to_lengths_json

PREVIEW_CHARACTERS = 100
BAR_CHARACTERS = 40
"""Length of the longest bar of a histogram."""


class Command(BaseCommand):
    """Counts, lengths, pictures and vectors of all documents; of one also times and chunks."""

    help = (
        "Show what is indexed: documents, chunks and their lengths, pictures, vectors. With the "
        "id of a document: what was read of it and how it was cut, with previews of its chunks."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        """Accept the document and the number of chunks to show."""
        parser.add_argument("document", nargs="?", help="id of a document (default: all)")
        parser.add_argument("--limit", type=int, default=20, help="chunks to preview (20; 0: all)")

    def handle(self, *_args: Any, **options: Any) -> None:
        """Print the description of the document or of the index."""
        document_id = options["document"]
        for line in (
            _describe_document(document_id, options["limit"]) if document_id else _describe_index()
        ):
            self.stdout.write(line)


def _describe_index() -> Iterator[str]:
    documents = Document.objects.order_by()
    totals = documents.aggregate(bytes=Sum("size"), pages=Sum("page_count"))
    counts = dict(documents.values_list("status").annotate(Count("pk")))
    yield f"documents: {sum(counts.values())}"
    for status in Document.Status.values:
        yield f"  {status.lower()}: {counts.get(status, 0)}"
    yield f"bytes: {totals['bytes'] or 0}"
    yield f"pages: {totals['pages'] or 0}"
    chunks = Chunk.objects.order_by()
    yield f"chunks: {chunks.count()}"
    for kind, count in chunks.values_list("kind").annotate(Count("pk")).order_by("kind"):
        yield f"  {kind}: {count}"
    yield from _draw_histogram(to_lengths_json(measure_chunk_lengths(chunks)))
    yield from _describe_pictures()
    for space in EmbeddingSpace.objects.order_by("pk"):
        vectors = ChunkEmbedding.objects.filter(space=space).count()
        active = "active" if space.active else "inactive"
        languages = ", ".join(space.languages) or "none declared"
        yield f"space {space} [{active}; {languages}]: {vectors} vectors"
    failed = documents.filter(status=Document.Status.FAILED)
    for code, count in failed.values_list("error_code").annotate(Count("pk")):
        yield f"failed {code}: {count}"


def _describe_pictures() -> Iterator[str]:
    pictures = DocumentPicture.objects.order_by()
    kept = pictures.filter(rejected="")
    described = kept.exclude(description=None).count()
    yield f"pictures: {kept.count()} kept, {described} of them described"
    dropped = pictures.exclude(rejected="").values_list("rejected")
    for reason, count in dropped.annotate(Count("pk")).order_by("rejected"):
        yield f"  dropped {reason}: {count}"


def _describe_document(document_id: str, limit: int) -> Iterator[str]:
    """Counts, lengths and times of a document, then its first `limit` chunks (0: all)."""
    try:
        document = Document.objects.get(pk=UUID(document_id))
    except (ValueError, Document.DoesNotExist) as error:
        raise CommandError(f"There is no document {document_id}") from error
    inspection = inspect_document(document)
    chunks, pictures, blank_pages = (
        inspection["chunks"],
        inspection["pictures"],
        inspection["pages_without_text"],
    )
    yield f"{document.name} ({document.status}, version {document.version})"
    blank_list = f": {', '.join(map(str, blank_pages))}" if blank_pages else ""
    blank_count = inspection["pages_without_text_count"]
    yield f"pages: {inspection['pages'] or '-'}, {blank_count} of them without text{blank_list}"
    yield f"characters: {inspection['characters']}"
    kinds = _list_counts(chunks["kinds"])
    yield f"chunks: {chunks['count']} ({kinds}), {chunks['embedded']} embedded"
    dropped = _list_counts(pictures["dropped"])
    kept = f"{pictures['kept']} kept, {pictures['described']} of them described"
    yield f"pictures: {kept}; dropped: {dropped}"
    yield f"seconds: {_list_counts(inspection['seconds'])}"
    for warning in inspection["warnings"]:
        yield f"warning {warning['code']}: {warning['detail']}"
    yield from _draw_histogram(chunks["length"])
    chunk_rows = document.chunks.order_by("index").defer("lexemes")
    yield from map(_preview_chunk, chunk_rows[:limit] if limit else chunk_rows)


def _list_counts(counts: dict[str, Any]) -> str:
    return ", ".join(f"{name} {count}" for name, count in sorted(counts.items())) or "none"


def _draw_histogram(lengths: dict[str, Any] | None) -> Iterator[str]:
    """Statistics of lengths, and a bar for each range."""
    if lengths is None:
        return
    yield (
        f"characters a chunk: least {lengths['min']}, median {lengths['median']:.0f}, "
        f"mean {lengths['mean']:.0f}, p90 {lengths['p90']:.0f}, most {lengths['max']}"
    )
    highest = max(bucket["count"] for bucket in lengths["histogram"])
    for bucket in lengths["histogram"]:
        bar = "#" * round(bucket["count"] / highest * BAR_CHARACTERS)
        yield f"{bucket['from']:>7}-{bucket['to'] - 1:<7}{bucket['count']:>7} {bar}".rstrip()


def _preview_chunk(chunk: Chunk) -> str:
    page = f"p.{chunk.page}-{chunk.page_end}" if chunk.page else "-"
    summary = (
        f"[{chunk.index}] {chunk.kind} {page} {chunk.start}-{chunk.end} "
        f"terms {chunk.term_count} {chunk.section}"
    )
    header_lines = [f"    under: {_shorten(chunk.header)}"] if chunk.header else []
    return "\n".join([summary, *header_lines, f"    {_shorten(chunk.text)}"])


def _shorten(text: str) -> str:
    flat = " ".join(text.split())
    return flat if len(flat) <= PREVIEW_CHARACTERS else flat[: PREVIEW_CHARACTERS - 1] + "…"
