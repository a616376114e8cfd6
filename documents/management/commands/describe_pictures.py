"""Has the vision model describe pictures it has not described yet."""

from typing import Any
from uuid import UUID

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db.models import Exists, OuterRef, Q, QuerySet

from documents import services
from documents.connected.choice import read_config
from documents.errors import DocumentBusy
from documents.models import Document, DocumentPicture
from rag import factory


class Command(BaseCommand):
    """Processes again what has kept pictures without a description by the model in use."""

    help = (
        "Process documents again whose pictures the vision model (NURA_VISION_MODEL) has not "
        "described, and those that failed because they are scans."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        """Take all documents, or those of one user, or one."""
        parser.add_argument("--user", help="name of the owner")
        parser.add_argument("--document", help="id of a document")

    def handle(self, *_args: Any, **options: Any) -> None:
        """Send them and print how many."""
        vision = factory.get_vision(read_config())
        if vision is None:
            raise CommandError("No vision model is set. Set NURA_VISION_MODEL and start again.")
        wanted = filter_undescribed(
            _select_documents(options["user"], options["document"]), vision.name
        )
        sent = busy = 0
        for document in wanted.iterator():
            try:
                services.reprocess_document(document=document)
                sent += 1
            except DocumentBusy:
                busy += 1
        self.stdout.write(f"sent to be processed again: {sent}")
        if busy:
            self.stdout.write(f"at work already: {busy}")


def filter_undescribed(documents: QuerySet[Document], model: str) -> QuerySet[Document]:
    """Those that `model` may add something to; what waits or works is left alone."""
    pictures = DocumentPicture.objects.filter(document=OuterRef("pk"), rejected="")
    unread = pictures.filter(Q(description=None) | ~Q(model=model))
    of_pictures = Q(error_code="no_text", error_params__kind__in=["scan", "unreadable"])
    looked_at = Q(error_params__vision=model)
    failed = Q(error_code="pictures_failed") | (of_pictures & ~looked_at)
    ended = documents.exclude(status=Document.Status.PROCESSING)
    return ended.filter(Exists(unread) | (Q(status=Document.Status.FAILED) & failed))


def _select_documents(user: str | None, document: str | None) -> QuerySet[Document]:
    """All documents, narrowed."""
    rows = Document.objects.order_by("created_at")
    if user:
        rows = rows.filter(owner__username=user)
        if not rows.exists():
            raise CommandError(f"{user} has no documents.")
    if document:
        try:
            rows = rows.filter(pk=UUID(document))
        except ValueError as error:
            raise CommandError(f"There is no document {document}.") from error
        if not rows.exists():
            raise CommandError(f"There is no document {document}.")
    return rows
