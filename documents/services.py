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

    The same bytes in the same library are the document that is there. Where it is the user's, what
    is said of it now is added to it, and it is processed again if it failed. `library` None: the
    user's private one. What a `source` brings has its own documents, beside those of people. Raises
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
    return same, False


def _find_same_bytes(
    owner_id: int, library: Library | None, source: "Source | None", sha256: str
) -> Document | None:
    """The document of that library with these bytes, the oldest where there are several."""
    rows = Document.objects.filter(library=library, source=source, sha256=sha256)
    rows = rows.filter(owner_id=owner_id) if library is None else rows
    return rows.order_by("created_at", "id").first()


def _store_new(document: Document, content: "File[Any]") -> Document | None:
    """Store the file and make the row; another upload of the same bytes that was quicker."""
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
    held = Library.objects.select_for_update(no_key=True)
    if library is not None and not held.filter(pk=library.pk).exists():
        raise LibraryNotFound


def _insert_row(document: Document) -> None:
    quotas.check_quota(
        document.owner_id, documents=1, size=document.size, library_id=document.library_id
    )
    document.save(force_insert=True)
    queue.enqueue_ingest_on_commit(document.pk)
    transaction.on_commit(lambda: notices.notify_document_changed(document), robust=True)


def _merge_into_existing(document: Document, stated: dict[str, Any]) -> None:
    """Take over what an upload of a file that is there already says, and try again what failed."""
    if stated:
        update_document(document=document, metadata=stated)
    if document.status == Document.Status.FAILED:
        with suppress(DocumentBusy):  # the same file a third time at once
            reprocess_document(document=document)


def delete_document(
    *, document: Document, erase: bool = False, actor: "User | None" = None
) -> None:
    """Delete row, chunks and vectors in one transaction, the files when that is done.

    Answers that rest on it keep the passages they showed until its retention is over; `erase`: as
    soon as it can be done. With an `actor` it is written to the audit log.
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
            target, told = f"document:{document.pk}", {"erase": erase}
            record_event(Action.DATA_DELETED, actor=actor, target=target, details=told)
        transaction.on_commit(lambda: deletions.apply_deletions_of([document.pk]), robust=True)
        if notices.is_open_to_owner(document):
            gone = notices.to_deletion_notice(document)  # now: its owner may be deleted with it
            transaction.on_commit(
                lambda: notices.send_notices(document.owner_id, gone), robust=True
            )


def remove_document(document_id: UUID) -> bool:
    """Remove row, index and files in the caller's transaction; False where it is gone already."""
    if not Document.objects.select_for_update().filter(pk=document_id).exists():
        return False
    index.delete_index(document_id)
    transaction.on_commit(lambda: files.remove_document_files(document_id), robust=True)
    Document.objects.filter(pk=document_id).delete()
    return True


def reprocess_document(*, document: Document) -> None:
    """Process an ended document again; the old index stays until the new one is whole.

    Raises `DocumentBusy`.
    """
    with transaction.atomic():
        ended = Document.objects.filter(pk=document.pk).exclude(status=Document.Status.PROCESSING)
        again = ended.update(**queue.to_new_values())
        if not again:
            raise DocumentBusy
        queue.enqueue_ingest_on_commit(document.pk)
    _notify_change(document)


def cancel_document(*, document: Document) -> None:
    """Stop the processing; the worker notices soon. Raises `DocumentNotProcessing`.

    A document that was being processed again keeps the index that it has; a new version is as if
    it had never come.
    """
    row = Document.objects.processing().filter(pk=document.pk)
    before = queue.to_ended_values(Document.Status.COMPLETED) | {"progress": 1.0}
    if not (
        versions.withdraw_version(row)
        or row.exclude(indexed_at=None).update(**before)
        or row.update(**queue.to_ended_values(Document.Status.FAILED, Cancelled.code))
    ):
        raise DocumentNotProcessing
    _notify_change(document)


def update_document(
    *, document: Document, name: str | None = None, metadata: dict[str, Any] | None = None
) -> None:
    """Change what people call the document and say about it; what is None stays.

    `metadata` is merged into what was said before; None as a value takes the key away for good.
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
    """Put a document off; a worker that reads it stops soon. Raises `DocumentNotProcessing`."""
    row = Document.objects.filter(pk=document.pk)
    if not pause_rows(row) and not row.paused().exists():
        raise DocumentNotProcessing
    document.refresh_from_db()


def resume_document(*, document: Document) -> None:
    """Let a document wait again, from its beginning. Raises `DocumentNotProcessing`."""
    row = Document.objects.filter(pk=document.pk)
    if not resume_rows(row) and not row.processing().exists():
        raise DocumentNotProcessing
    document.refresh_from_db()


def pause_documents(*, owner: "User") -> int:
    """Put off all that waits or is at work; how many that were."""
    return pause_rows(_list_changeable(owner))


def resume_documents(*, owner: "User") -> int:
    """Go on with all that was put off; how many that were."""
    return resume_rows(_list_changeable(owner))


def cancel_documents(*, owner: "User") -> int:
    """Stop the processing of all; how many that were."""
    mine = _list_changeable(owner).processing()
    count = 0
    for document in mine.searchable():  # few: each may have a version that is refused
        with suppress(DocumentNotProcessing):  # it has ended meanwhile
            cancel_document(document=document)
            count += 1
    never_indexed = mine.filter(indexed_at=None)
    ended = queue.to_ended_values(Document.Status.FAILED, Cancelled.code)
    return count + len(_change_rows(never_indexed, ended))


def _list_changeable(owner: "User") -> DocumentQuerySet:
    """What a user put there and may still change; of a library he manages not that of others."""
    return Document.objects.owned_by(owner).filter(owner=owner)


def hold_queue(*, by: str) -> bool:
    """Begin no further document, whosever it is; False where that is so already."""
    with transaction.atomic():
        _lock_hold()
        if QueueHold.objects.exists():
            return False
        QueueHold.objects.create(held_by=by)
        return True


def release_queue() -> bool:
    """Go on with what waits; False where nothing held it."""
    with transaction.atomic():
        _lock_hold()
        if not QueueHold.objects.all().delete()[0]:
            return False
    waiting = Document.objects.filter(Document.OPEN, claim=None).order_by("-priority", "created_at")
    for pk in waiting.values_list("pk", flat=True)[:MAX_MESSAGES]:
        queue.enqueue_ingest(pk)
    return True


def _lock_hold() -> None:
    """Two who hold or release it at once go one after the other."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_xact_lock(hashtext('nura queue hold'))")


def set_priority(rows: QuerySet[Document], priority: int) -> int:
    """Let the documents that wait go before others, or after them; how many those are."""
    waiting = rows.filter(status=Document.Status.PROCESSING, claim=None)
    return waiting.update(priority=priority)


def pause_rows(rows: QuerySet[Document]) -> int:
    """Put off what of these waits or is at work; how many that were."""
    going = rows.filter(status=Document.Status.PROCESSING).exclude(stage=Document.Stage.PAUSED)
    return len(_change_rows(going, queue.to_released_values() | {"stage": Document.Stage.PAUSED}))


def resume_rows(rows: QuerySet[Document]) -> int:
    """Go on with what of these was put off; how many that were."""
    paused = rows.filter(status=Document.Status.PROCESSING, stage=Document.Stage.PAUSED)
    changed = _change_rows(paused, queue.to_released_values() | {"attempts": 0})
    for pk in changed[:MAX_MESSAGES]:  # the workers carry on by themselves
        queue.enqueue_ingest(pk)
    return len(changed)


def _change_rows(rows: QuerySet[Document], values: dict[str, object]) -> list[UUID]:
    """Change the rows and show it to their owner; their keys."""
    with transaction.atomic():
        keys = list(rows.select_for_update().values_list("pk", flat=True))
        Document.objects.filter(pk__in=keys).update(**values)
    _notify_changes(keys)
    return keys


def _notify_changes(keys: Collection[UUID]) -> None:
    notices.notify_documents_changed(list(Document.objects.filter(pk__in=keys)))
