"""Shows how a document was cut."""

from statistics import mean, median
from typing import Any
from uuid import UUID

from django.core.management.base import BaseCommand, CommandError, CommandParser

from documents.models import Document

PREVIEW_CHARACTERS = 100


class Command(BaseCommand):
    """Counts, lengths and beginnings of a document's chunks."""

    help = "Show the chunks of a document: counts, lengths, previews."

    def add_arguments(self, parser: CommandParser) -> None:
        """Take the document, and how much to show."""
        parser.add_argument("document", help="id of the document")
        parser.add_argument("--limit", type=int, default=20, help="chunks to preview (20; 0: all)")

    def handle(self, *_args: Any, **options: Any) -> None:
        """Print it."""
        document = _document(options["document"])
        chunks = document.chunks.order_by("index").defer("lexemes")
        lengths = [len(text) for text in chunks.values_list("text", flat=True)]
        self.stdout.write(f"{document.name} ({document.status}, version {document.version})")
        self.stdout.write(f"pages: {document.page_count or '-'}  chunks: {len(lengths)}")
        if lengths:
            self.stdout.write(
                f"characters: least {min(lengths)}, median {median(lengths):.0f}, "
                f"mean {mean(lengths):.0f}, most {max(lengths)}"
            )
        for chunk in chunks[: options["limit"]] if options["limit"] else chunks:
            page = f"p.{chunk.page}-{chunk.page_end}" if chunk.page else "-"
            self.stdout.write(
                f"[{chunk.index}] {page} {chunk.start}-{chunk.end} terms {chunk.term_count} "
                f"{chunk.section}\n    {_preview(chunk.text)}"
            )


def _document(name: str) -> Document:
    try:
        return Document.objects.get(pk=UUID(name))
    except (ValueError, Document.DoesNotExist) as error:
        raise CommandError(f"There is no document {name}") from error


def _preview(text: str) -> str:
    flat = " ".join(text.split())
    return flat if len(flat) <= PREVIEW_CHARACTERS else flat[: PREVIEW_CHARACTERS - 1] + "…"
