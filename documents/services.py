"""What can be done with documents. Callers have checked that the document is the user's."""

import uuid
from functools import partial
from typing import TYPE_CHECKING, Any, BinaryIO, cast

from django.core.files import File
from django.db import transaction
from django.db.models.functions import Now
from django.utils import timezone

from documents import claims, files, labels, names, notices, queue, rows
from documents.errors import Cancelled, DocumentBusy, DocumentNotProcessing
from documents.metadata import cleaned
from documents.models import Document
from documents.parsers import sniff

if TYPE_CHECKING:
    from django.contrib.auth.models import User


def upload(
    *,
    owner: "User",
    name: str,
    content: "File[Any]",
    metadata: dict[str, Any] | None = None,
) -> Document:
    """Keep the file and let a worker process it. Raises what is wrong with it."""
    described = cleaned(metadata)
    measure = files.measure(content)
    original = names.original(name)
    content_type = sniff.content_type(cast("BinaryIO", content), original)
    document = Document(
        id=uuid.uuid4(),
        owner=owner,
        name=names.shown(name),
        original_name=original,
        content_type=content_type,
        size=measure.size,
        sha256=measure.sha256,
        metadata=described,
        enqueued_at=timezone.now(),
    )
    document.file.name = files.store(document.pk, original, content)
    return _created(document)


def _created(document: Document) -> Document:
    """Insert the row and send it to the workers; without the row the file goes, too."""
    try:
        with transaction.atomic():
            document.save(force_insert=True)
            queue.enqueue_on_commit(document.pk)
            transaction.on_commit(partial(notices.document_changed, document), robust=True)
    except BaseException:
        files.remove_all(document.pk, str(document.file.name))
        raise
    return document


def delete_document(*, document: Document) -> None:
    """Delete row, chunks and vectors in one transaction, the files when that is done."""
    with transaction.atomic():
        if not Document.objects.select_for_update().filter(pk=document.pk).exists():
            return
        rows.delete(document.pk)
        transaction.on_commit(
            partial(files.remove_all, document.pk, str(document.file.name)), robust=True
        )
        transaction.on_commit(partial(notices.document_deleted, document), robust=True)
        Document.objects.filter(pk=document.pk).delete()


def reprocess(*, document: Document) -> None:
    """Process an ended document again; the old index stays until the new one is whole.

    Raises `DocumentBusy`.
    """
    with transaction.atomic():
        again = (
            Document.objects.filter(pk=document.pk)
            .exclude(status=Document.Status.PROCESSING)
            .update(
                status=Document.Status.PROCESSING,
                attempts=0,
                error_code="",
                error_params={},
                **claims.waiting(),
            )
        )
        if not again:
            raise DocumentBusy
        queue.enqueue_on_commit(document.pk)
    _tell(document)


def cancel(*, document: Document) -> None:
    """Stop the processing; the worker notices soon. Raises `DocumentNotProcessing`.

    A document that was being processed again is searched by the index that it still has.
    """
    row = Document.objects.processing().filter(pk=document.pk)
    before = claims.ended(Document.Status.COMPLETED) | {"progress": 1.0}
    indexed = row.filter(chunk_count__gt=0).update(**before)
    if not indexed and not row.update(**claims.ended(Document.Status.FAILED, Cancelled.code)):
        raise DocumentNotProcessing
    _tell(document)


def update_document(
    *, document: Document, name: str | None = None, metadata: dict[str, Any] | None = None
) -> None:
    """Change what people call the document and say about it; what is None stays."""
    changes: dict[str, Any] = {}
    if name is not None:
        changes["name"] = names.shown(name)
    if metadata is not None:
        changes["metadata"] = cleaned(metadata)
    if changes:
        with transaction.atomic():
            row = Document.objects.select_for_update().filter(pk=document.pk)
            row.update(**changes, updated_at=Now())
            for pk, called, described in row.values_list("pk", "name", "metadata"):
                labels.rewrite(pk, called, described)
        _tell(document)


def _tell(document: Document) -> None:
    """Refresh the caller's copy and show the change to the owner's pages."""
    document.refresh_from_db()
    notices.document_changed(document)
