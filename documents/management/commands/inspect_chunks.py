"""Shows how a document was read and cut."""

from typing import Any
from uuid import UUID

from django.core.management.base import BaseCommand, CommandError, CommandParser

from documents.models import Chunk, Document
from documents.representation import inspect_document

PREVIEW_CHARACTERS = 100
BAR = 40
"""Characters of the longest bar of a histogram."""


class Command(BaseCommand):
    """Counts, lengths, pictures, times and the chunks of a document."""

    help = "Show what was read of a document and how it was cut: counts, lengths, previews."

    def add_arguments(self, parser: CommandParser) -> None:
        """Take the document, and how much to show."""
        parser.add_argument("document", help="id of the document")
        parser.add_argument("--limit", type=int, default=20, help="chunks to preview (20; 0: all)")

    def handle(self, *_args: Any, **options: Any) -> None:
        """Print it."""
        document = _document(options["document"])
        found = inspect_document(document)
        self.stdout.write(f"{document.name} ({document.status}, version {document.version})")
        for line in (*_summary(found), *histogram(found["chunks"]["length"])):
            self.stdout.write(line)
        chunks = document.chunks.order_by("index").defer("lexemes")
        for chunk in chunks[: options["limit"]] if options["limit"] else chunks:
            self.stdout.write(_shown(chunk))


def _summary(found: dict[str, Any]) -> list[str]:
    chunks, pictures = found["chunks"], found["pictures"]
    blank = found["pages_without_text_count"]
    pictured = (
        f"pictures: {pictures['kept']} kept, {pictures['described']} of them described; "
        f"dropped: {_counts(pictures['dropped'])}"
    )
    return [
        f"pages: {found['pages'] or '-'}, {blank} of them without text"
        + (f": {', '.join(map(str, found['pages_without_text']))}" if blank else ""),
        f"characters: {found['characters']}",
        f"chunks: {chunks['count']} ({_counts(chunks['kinds'])}), {chunks['embedded']} embedded",
        pictured,
        f"seconds: {_counts(found['seconds'])}",
        *(f"warning {warning['code']}: {warning['detail']}" for warning in found["warnings"]),
    ]


def _counts(counts: dict[str, Any]) -> str:
    return ", ".join(f"{name} {count}" for name, count in sorted(counts.items())) or "none"


def histogram(length: dict[str, Any] | None) -> list[str]:
    """Lines of text: statistics of lengths, and a bar for each of their ranges."""
    if length is None:
        return []
    highest = max(one["count"] for one in length["histogram"])
    statistics = (
        f"characters a chunk: least {length['min']}, median {length['median']:.0f}, "
        f"mean {length['mean']:.0f}, p90 {length['p90']:.0f}, most {length['max']}"
    )
    return [statistics, *(_bar(one, one["count"] / highest) for one in length["histogram"])]


def _bar(one: dict[str, int], share: float) -> str:
    line = f"{one['from']:>7}-{one['to'] - 1:<7}{one['count']:>7} {'#' * round(share * BAR)}"
    return line.rstrip()


def _document(name: str) -> Document:
    try:
        return Document.objects.get(pk=UUID(name))
    except (ValueError, Document.DoesNotExist) as error:
        raise CommandError(f"There is no document {name}") from error


def _shown(chunk: Chunk) -> str:
    page = f"p.{chunk.page}-{chunk.page_end}" if chunk.page else "-"
    head = (
        f"[{chunk.index}] {chunk.kind} {page} {chunk.start}-{chunk.end} "
        f"terms {chunk.term_count} {chunk.section}"
    )
    header = [f"    under: {_preview(chunk.header)}"] if chunk.header else []
    return "\n".join([head, *header, f"    {_preview(chunk.text)}"])


def _preview(text: str) -> str:
    flat = " ".join(text.split())
    return flat if len(flat) <= PREVIEW_CHARACTERS else flat[: PREVIEW_CHARACTERS - 1] + "…"
