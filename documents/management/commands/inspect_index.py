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
"""Of the longest bar of a histogram."""


class Command(BaseCommand):
    """Counts, lengths, pictures and vectors of all documents; of one also times and chunks."""

    help = (
        "Show what is indexed: documents, chunks and their lengths, pictures, vectors. With the "
        "id of a document: what was read of it and how it was cut, with previews of its chunks."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        """Take the document, and how much to show."""
        parser.add_argument("document", nargs="?", help="id of a document (default: all)")
        parser.add_argument("--limit", type=int, default=20, help="chunks to preview (20; 0: all)")

    def handle(self, *_args: Any, **options: Any) -> None:
        """Print it."""
        name = options["document"]
        for line in _describe_document(name, options["limit"]) if name else _describe_index():
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


def _describe_document(name: str, limit: int) -> Iterator[str]:
    """Counts, lengths and times of a document, then its first `limit` chunks (0: all)."""
    try:
        document = Document.objects.get(pk=UUID(name))
    except (ValueError, Document.DoesNotExist) as error:
        raise CommandError(f"There is no document {name}") from error
    found = inspect_document(document)
    chunks, pictures, blank = found["chunks"], found["pictures"], found["pages_without_text"]
    yield f"{document.name} ({document.status}, version {document.version})"
    listed = f": {', '.join(map(str, blank))}" if blank else ""
    count = found["pages_without_text_count"]
    yield f"pages: {found['pages'] or '-'}, {count} of them without text{listed}"
    yield f"characters: {found['characters']}"
    kinds = _list_counts(chunks["kinds"])
    yield f"chunks: {chunks['count']} ({kinds}), {chunks['embedded']} embedded"
    dropped = _list_counts(pictures["dropped"])
    kept = f"{pictures['kept']} kept, {pictures['described']} of them described"
    yield f"pictures: {kept}; dropped: {dropped}"
    yield f"seconds: {_list_counts(found['seconds'])}"
    for warning in found["warnings"]:
        yield f"warning {warning['code']}: {warning['detail']}"
    yield from _draw_histogram(chunks["length"])
    rows = document.chunks.order_by("index").defer("lexemes")
    yield from map(_preview_chunk, rows[:limit] if limit else rows)


def _list_counts(counts: dict[str, Any]) -> str:
    return ", ".join(f"{name} {count}" for name, count in sorted(counts.items())) or "none"


def _draw_histogram(length: dict[str, Any] | None) -> Iterator[str]:
    """Statistics of lengths, and a bar for each of their ranges."""
    if length is None:
        return
    yield (
        f"characters a chunk: least {length['min']}, median {length['median']:.0f}, "
        f"mean {length['mean']:.0f}, p90 {length['p90']:.0f}, most {length['max']}"
    )
    highest = max(one["count"] for one in length["histogram"])
    for one in length["histogram"]:
        bar = "#" * round(one["count"] / highest * BAR_CHARACTERS)
        yield f"{one['from']:>7}-{one['to'] - 1:<7}{one['count']:>7} {bar}".rstrip()


def _preview_chunk(chunk: Chunk) -> str:
    page = f"p.{chunk.page}-{chunk.page_end}" if chunk.page else "-"
    head = (
        f"[{chunk.index}] {chunk.kind} {page} {chunk.start}-{chunk.end} "
        f"terms {chunk.term_count} {chunk.section}"
    )
    header = [f"    under: {_shorten(chunk.header)}"] if chunk.header else []
    return "\n".join([head, *header, f"    {_shorten(chunk.text)}"])


def _shorten(text: str) -> str:
    flat = " ".join(text.split())
    return flat if len(flat) <= PREVIEW_CHARACTERS else flat[: PREVIEW_CHARACTERS - 1] + "…"
