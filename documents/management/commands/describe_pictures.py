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
    """Processes documents again whose pictures the current vision model has not described."""

    help = (
        "Process documents again whose pictures the vision model (NURA_VISION_MODEL) has not "
        "described, and those that failed because they are scans."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        """Accept a user or a document to narrow the selection; default: all documents."""
        parser.add_argument("--user", help="name of the owner")
        parser.add_argument("--document", help="id of a document")

    def handle(self, *_args: Any, **options: Any) -> None:
        """Queue the documents and print how many."""
        vision = factory.get_vision(read_config())
        if vision is None:
            raise CommandError("No vision model is set. Set NURA_VISION_MODEL and start again.")
        documents = filter_undescribed(
            _select_documents(options["user"], options["document"]), vision.name
        )
        sent_count = busy_count = 0
        for document in documents.iterator():
            try:
                services.reprocess_document(document=document)
                sent_count += 1
            except DocumentBusy:
                busy_count += 1
        self.stdout.write(f"sent to be processed again: {sent_count}")
        if busy_count:
            self.stdout.write(f"at work already: {busy_count}")


def filter_undescribed(documents: QuerySet[Document], model: str) -> QuerySet[Document]:
    """Documents with pictures that `model` has not described, or that failed for lack of it.

    Documents that are still in process are excluded.
    """
    pictures = DocumentPicture.objects.filter(document=OuterRef("pk"), rejected="")
    undescribed = pictures.filter(Q(description=None) | ~Q(model=model))
    is_scan = Q(error_code="no_text", error_params__kind__in=["scan", "unreadable"])
    seen_by_model = Q(error_params__vision=model)
    failed_for_pictures = Q(error_code="pictures_failed") | (is_scan & ~seen_by_model)
    settled = documents.exclude(status=Document.Status.PROCESSING)
    return settled.filter(
        Exists(undescribed) | (Q(status=Document.Status.FAILED) & failed_for_pictures)
    )


def _select_documents(username: str | None, document_id: str | None) -> QuerySet[Document]:
    """The selected documents, oldest first. Raises CommandError if an option matches none."""
    documents = Document.objects.order_by("created_at")
    if username:
        documents = documents.filter(owner__username=username)
        if not documents.exists():
            raise CommandError(f"{username} has no documents.")
    if document_id:
        try:
            documents = documents.filter(pk=UUID(document_id))
        except ValueError as error:
            raise CommandError(f"There is no document {document_id}.") from error
        if not documents.exists():
            raise CommandError(f"There is no document {document_id}.")
    return documents
