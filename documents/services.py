"""What can be done with documents. Callers have checked that the document is the user's."""

import uuid
from collections.abc import Collection
from contextlib import suppress
from dataclasses import asdict
from typing import TYPE_CHECKING, Any
from uuid import UUID

from django.conf import settings
from django.core.files import File
from django.db import connection, transaction
from django.db.models import QuerySet
from django.utils import timezone

from documents import deletions, files, index, notices, queue, quotas, versions
from documents.audit import Action, record_event
from documents.errors import Cancelled, DocumentBusy, DocumentNotProcessing, LibraryNotFound
from documents.metadata import clean_metadata, merge_metadata, rewrite_labels, to_display_name
from documents.models import DeletionKind, Document, DocumentQuerySet, Library, QueueHold
from documents.queue import MAX_MESSAGES

if TYPE_CHECKING:
    from django.contrib.auth.models import User

    from documents.sources.models import Source


def upload_document(  # noqa: PLR0913 - what a file is and where it goes
    *,
    owner: "User",
    name: str,
    content: "File[Any]",
    metadata: dict[str, Any] | None = None,
    library: Library | None = None,
    source: "Source | None" = None,
) -> tuple[Document, bool]:
    """The document of this file, and whether it is new. A new one is sent to the workers.

    If the library already holds the same bytes, that document is returned. If it is the user's, its
    metadata is merged with the new one, and it is processed again if it failed. `library` None: the
    user's private one. Documents of a `source` are kept apart from those that people upload. Raises
    what is wrong with the file.
    """
    stated = clean_metadata(metadata)
    incoming = files.examine_file(name, content)
    same = _find_same_bytes(owner.pk, library, source, incoming.sha256)
    if same is None:
        document = Document(
            id=uuid.uuid4(),
            owner=owner,
            library=library,
            source=source,
            **asdict(incoming),
            stated=stated,
            metadata=merge_metadata({}, stated),
            enqueued_at=timezone.now(),
        )
        same = _store_new(document, content)
    if same is None:
        return document, True
    if same.owner_id == owner.pk:
        _merge_into_existing(same, stated)
    notices.notify_uploaded_again(same)
    return same, False


def _find_same_bytes(
    owner_id: int, library: Library | None, source: "Source | None", sha256: str
) -> Document | None:
    """The document of that library with these bytes, the oldest where there are several."""
    rows = Document.objects.filter(library=library, source=source, sha256=sha256)
    rows = rows.filter(owner_id=owner_id) if library is None else rows
    return rows.order_by("created_at", "id").first()


def _store_new(document: Document, content: "File[Any]") -> Document | None:
    """Store file and row, or return the document of a quicker upload of the same bytes."""
    try:
        document.file.name = files.store_file(document.pk, document.original_name, content)
        with transaction.atomic():
            quotas.lock_owner(document.owner_id)
            _lock_library(document.library)
            same = _find_same_bytes(
                document.owner_id, document.library, document.source, document.sha256
            )
            if same is None:
                _insert_row(document)
    except BaseException:
        files.remove_document_files(document.pk)
        raise
    if same is not None:
        files.remove_document_files(document.pk)
    return same


def _lock_library(library: Library | None) -> None:
    """Let nobody else add to the library, or delete it, until the transaction ends."""
    locked_rows = Library.objects.select_for_update(no_key=True)
    if library is not None and not locked_rows.filter(pk=library.pk).exists():
        raise LibraryNotFound


def _insert_row(document: Document) -> None:
    quotas.check_quota(
        document.owner_id, documents=1, size=document.size, library_id=document.library_id
    )
    document.save(force_insert=True)
    queue.enqueue_ingest_on_commit(document.pk)
    transaction.on_commit(lambda: notices.notify_document_changed(document), robust=True)


def _merge_into_existing(document: Document, stated: dict[str, Any]) -> None:
    """Merge the metadata of a repeated upload into the document; reprocess it if it failed."""
    if stated:
        update_document(document=document, metadata=stated)
    if document.status == Document.Status.FAILED:
        with suppress(DocumentBusy):  # the same file a third time at once
            reprocess_document(document=document)


def delete_document(
    *, document: Document, erase: bool = False, actor: "User | None" = None
) -> None:
    """Delete row, chunks and vectors in one transaction, the files once it is committed.

    Answers that cite it keep their passages until the retention period is over; `erase`: they lose
    them as soon as possible. With an `actor` it is written to the audit log.
    """
    with transaction.atomic():
        if not remove_document(document.pk):
            return
        deletions.record_deletions(
            DeletionKind.DOCUMENT,
            [document.pk],
            owner_id=document.owner_id,
            days=0 if erase else settings.RETENTION_EVIDENCE_DAYS,
        )
        if actor is not None:
            target, details = f"document:{document.pk}", {"erase": erase}
            record_event(Action.DATA_DELETED, actor=actor, target=target, details=details)
        transaction.on_commit(lambda: deletions.apply_deletions_of([document.pk]), robust=True)
        if notices.is_open_to_owner(document):
            notice = notices.to_deletion_notice(document)  # now: its owner may be deleted with it
            transaction.on_commit(
                lambda: notices.send_notices(document.owner_id, notice), robust=True
            )


@transaction.atomic
def delete_documents(*, documents: Collection[Document], erase: bool, actor: "User") -> None:
    """Delete these together; see `delete_document`."""
    for document in sorted(documents, key=lambda one: one.pk):  # locked in one order everywhere
        delete_document(document=document, erase=erase, actor=actor)


def remove_document(document_id: UUID) -> bool:
    """Remove row, index and files in the caller's transaction; False where it is gone already."""
    if not Document.objects.select_for_update().filter(pk=document_id).exists():
        return False
    index.delete_index(document_id)
    transaction.on_commit(lambda: files.remove_document_files(document_id), robust=True)
    Document.objects.filter(pk=document_id).delete()
    return True


def reprocess_document(*, document: Document) -> None:
    """Process a document again; the old index stays in use until the new one is complete.

    Raises `DocumentBusy`.
    """
    with transaction.atomic():
        ended_rows = Document.objects.filter(pk=document.pk).exclude(
            status=Document.Status.PROCESSING
        )
        is_updated = ended_rows.update(**queue.to_new_values())
        if not is_updated:
            raise DocumentBusy
        queue.enqueue_ingest_on_commit(document.pk)
    _notify_change(document)


def cancel_document(*, document: Document) -> None:
    """Stop the processing; the worker notices soon. Raises `DocumentNotProcessing`.

    A document that was being processed again keeps its index; a waiting version is discarded.
    """
    row = Document.objects.processing().filter(pk=document.pk)
    restored_values = queue.to_ended_values(Document.Status.COMPLETED) | {"progress": 1.0}
    if not (
        versions.withdraw_version(row)
        or row.exclude(indexed_at=None).update(**restored_values)
        or row.update(**queue.to_ended_values(Document.Status.FAILED, Cancelled.code))
    ):
        raise DocumentNotProcessing
    _notify_change(document)


def update_document(
    *, document: Document, name: str | None = None, metadata: dict[str, Any] | None = None
) -> None:
    """Change the name or the stated metadata; None leaves either as it is.

    `metadata` is merged into what was stated before; a value of None removes its key for good.
    """
    with transaction.atomic():
        row = Document.objects.select_for_update().get(pk=document.pk)
        row.name = row.name if name is None else to_display_name(name)
        row.stated = clean_metadata(row.stated | clean_metadata(metadata))
        row.metadata = merge_metadata(row.metadata, row.stated)
        row.save(update_fields=("name", "stated", "metadata", "updated_at"))
        rewrite_labels(row.pk, row.name, row.metadata)
    _notify_change(document)


def _notify_change(document: Document) -> None:
    """Refresh the caller's copy and show the change to the owner's pages."""
    document.refresh_from_db()
    notices.notify_document_changed(document)


def pause_document(*, document: Document) -> None:
    """Pause a document; a worker that reads it stops soon. Raises `DocumentNotProcessing`."""
    row = Document.objects.filter(pk=document.pk)
    if not pause_rows(row) and not row.paused().exists():
        raise DocumentNotProcessing
    document.refresh_from_db()


def resume_document(*, document: Document) -> None:
    """Queue a paused document again, from its beginning. Raises `DocumentNotProcessing`."""
    row = Document.objects.filter(pk=document.pk)
    if not resume_rows(row) and not row.processing().exists():
        raise DocumentNotProcessing
    document.refresh_from_db()


def pause_documents(*, owner: "User") -> int:
    """Pause all that wait or are at work. Returns their number."""
    return pause_rows(_list_changeable(owner))


def resume_documents(*, owner: "User") -> int:
    """Resume all that are paused. Returns their number."""
    return resume_rows(_list_changeable(owner))


def cancel_documents(*, owner: "User") -> int:
    """Stop the processing of all. Returns their number."""
    processing = _list_changeable(owner).processing()
    count = 0
    for document in processing.searchable():  # few: each may have a version that is refused
        with suppress(DocumentNotProcessing):  # it has ended meanwhile
            cancel_document(document=document)
            count += 1
    never_indexed = processing.filter(indexed_at=None)
    failed_values = queue.to_ended_values(Document.Status.FAILED, Cancelled.code)
    return count + len(_change_rows(never_indexed, failed_values))


def _list_changeable(owner: "User") -> DocumentQuerySet:
    """Documents that the user uploaded and may still change, not those of others they manage."""
    return Document.objects.owned_by(owner).filter(owner=owner)


def hold_queue(*, username: str) -> bool:
    """Start no further document of anybody. False if the queue is held already."""
    with transaction.atomic():
        _lock_hold()
        if QueueHold.objects.exists():
            return False
        QueueHold.objects.create(held_by=username)
        return True


def release_queue() -> bool:
    """Let waiting documents start again. False if the queue was not held."""
    with transaction.atomic():
        _lock_hold()
        if not QueueHold.objects.all().delete()[0]:
            return False
    waiting = Document.objects.filter(Document.OPEN, claim=None).order_by("-priority", "created_at")
    for pk in waiting.values_list("pk", flat=True)[:MAX_MESSAGES]:
        queue.enqueue_ingest(pk)
    return True


def _lock_hold() -> None:
    """Serialise holding and releasing until the transaction ends."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_xact_lock(hashtext('nura queue hold'))")


def set_priority(rows: QuerySet[Document], priority: int) -> int:
    """Set the priority of those that wait. Returns their number."""
    waiting_rows = rows.filter(status=Document.Status.PROCESSING, claim=None)
    return waiting_rows.update(priority=priority)


def pause_rows(rows: QuerySet[Document]) -> int:
    """Pause those of these that wait or are at work. Returns their number."""
    open_rows = rows.filter(status=Document.Status.PROCESSING).exclude(stage=Document.Stage.PAUSED)
    return len(
        _change_rows(open_rows, queue.to_released_values() | {"stage": Document.Stage.PAUSED})
    )


def resume_rows(rows: QuerySet[Document]) -> int:
    """Resume those of these that are paused. Returns their number."""
    paused = rows.filter(status=Document.Status.PROCESSING, stage=Document.Stage.PAUSED)
    ids = _change_rows(paused, queue.to_released_values() | {"attempts": 0})
    for pk in ids[:MAX_MESSAGES]:  # the workers carry on by themselves
        queue.enqueue_ingest(pk)
    return len(ids)


def _change_rows(rows: QuerySet[Document], values: dict[str, object]) -> list[UUID]:
    """Update the rows and notify their owners. Returns their ids."""
    with transaction.atomic():
        ids = list(rows.select_for_update().values_list("pk", flat=True))
        Document.objects.filter(pk__in=ids).update(**values)
    _notify_changes(ids)
    return ids


def _notify_changes(ids: Collection[UUID]) -> None:
    notices.notify_documents_changed(list(Document.objects.filter(pk__in=ids)))
