"""Versions of a document: the waiting one, old ones, and refused ones.

A waiting version is read while the old index stays in use. `promote_version` makes it the current
one in the transaction that writes its index; `refuse_version` leaves the document as it was.
"""

import shutil
from collections.abc import Mapping
from dataclasses import asdict
from datetime import datetime
from typing import Any
from uuid import UUID

from django.core.files import File
from django.db import transaction
from django.db.models import F, Max, OuterRef, QuerySet, Subquery
from django.db.models.functions import Coalesce, Now
from django.utils import timezone

from documents import files, notices, queue, quotas
from documents.errors import VersionNotFound
from documents.models import AnyVersion, Document, DocumentVersion, VersionState
from rag.chunking import SEPARATOR

VERSION_REFUSED = "version_refused"
FILE_FIELDS = ("name", "original_name", "file", "content_type", "size", "sha256")
"""Fields that documents and versions share."""


def receive_version(*, document: Document, name: str, content: "File[Any]") -> bool:
    """Queue a new file that becomes the current version once it has been read.

    False: it holds the same bytes, so nothing changes. A version that is still waiting is replaced.
    If the document has no index, its file is replaced at once. Raises what is wrong with the file.
    """
    incoming = files.examine_file(name, content)
    if incoming.sha256 == document.sha256:
        return False
    file_name = files.store_file(document.pk, incoming.original_name, content)
    try:
        with transaction.atomic():
            row = Document.objects.select_for_update().get(pk=document.pk)
            replace_file = _store_beside if row.indexed else _replace_unserved
            _remove_file_on_commit(replace_file(row, asdict(incoming) | {"file": file_name}))
            Document.objects.filter(pk=row.pk).update(**queue.to_new_values())
            queue.enqueue_ingest_on_commit(row.pk)
    except BaseException:
        files.remove_file(file_name)
        raise
    document.refresh_from_db()
    notices.notify_document_changed(document)
    return True


def get_pending_version(document_id: UUID) -> DocumentVersion | None:
    """The version that waits to be read, if there is one."""
    return DocumentVersion.objects.filter(
        document_id=document_id, state=VersionState.PENDING
    ).first()


def get_version(document: Document, number: int) -> AnyVersion:
    """The document itself, or the old version of this number. Raises `VersionNotFound`."""
    if number == document.version:
        return document
    old_version = document.versions.filter(number=number, state=VersionState.OLD).first()
    if old_version is None:
        raise VersionNotFound(version=number)
    return old_version


def read_whole_text(version: AnyVersion) -> str:
    """The whole text, as the offsets of chunks count it."""
    if isinstance(version, DocumentVersion):
        return version.text
    pages = version.pages.order_by("number").values_list("text", flat=True)
    return SEPARATOR.join(pages)


def promote_version(document_id: UUID, version: DocumentVersion) -> None:
    """Make the version the current one; the current one becomes an old version.

    The caller has locked the row in the transaction that writes the new index, and has not deleted
    the old pages yet.
    """
    document = Document.objects.get(pk=document_id)
    pages = document.pages.order_by("number")
    DocumentVersion.objects.create(
        document_id=document_id,
        number=document.version,
        state=VersionState.OLD,
        **{name: getattr(document, name) for name in FILE_FIELDS},
        page_count=document.page_count,
        text=read_whole_text(document),
        page_starts=list(pages.values_list("start", flat=True)),
        created_at=document.received_at,
    )
    Document.objects.filter(pk=document_id).update(
        **{name: getattr(version, name) for name in FILE_FIELDS},
        version=version.number,
        received_at=version.created_at,
        updated_at=Now(),
    )
    version.delete()


def refuse_version(rows: QuerySet[Document], code: str, params: Mapping[str, object]) -> bool:
    """Refuse the waiting version; the document stays as it was, with a warning.

    `rows` holds the document as long as the caller may change it, like `Lease.rows`. False if that
    is over, or no version is waiting.
    """
    with transaction.atomic():
        version = _lock_pending(rows)
        if version is None:
            return False
        DocumentVersion.objects.filter(pk=version.pk).update(
            state=VersionState.REFUSED,
            file="",
            error_code=code,
            error_params=queue.to_stored_parameters(params),
        )
        warnings = [
            *(warning for warning in version.document.warnings if warning != VERSION_REFUSED),
            VERSION_REFUSED,
        ]
        _end_reading(version, warnings=warnings)
    return True


def withdraw_version(rows: QuerySet[Document]) -> bool:
    """Discard the waiting version. `rows` and False as in `refuse_version`."""
    with transaction.atomic():
        version = _lock_pending(rows)
        if version is None:
            return False
        DocumentVersion.objects.filter(pk=version.pk).delete()
        _end_reading(version)
    return True


def list_expired_versions(before: datetime) -> QuerySet[DocumentVersion]:
    """Old and refused versions that were replaced before that time."""
    successors = DocumentVersion.objects.filter(
        document=OuterRef("document"), number__gt=OuterRef("number"), state=VersionState.OLD
    ).order_by("number")
    rows = DocumentVersion.objects.exclude(state=VersionState.PENDING)
    replaced_at = Coalesce(
        Subquery(successors.values("created_at")[:1]), F("document__received_at")
    )
    return rows.annotate(replaced_at=replaced_at).filter(
        replaced_at__lt=before, created_at__lt=before
    )


def remove_version(version: DocumentVersion) -> None:
    """Delete a version that is not in use, with its file and page pictures."""
    with transaction.atomic():
        DocumentVersion.objects.filter(pk=version.pk).delete()
        _remove_file_on_commit(str(version.file.name))
        if version.sha256:
            folder = files.get_pages_folder(version)
            transaction.on_commit(lambda: shutil.rmtree(folder, ignore_errors=True), robust=True)


def _lock_pending(rows: QuerySet[Document]) -> DocumentVersion | None:
    """The waiting version of the document in `rows`, whose row is locked."""
    document = rows.select_for_update().first()
    if document is None:
        return None
    return document.versions.select_related("document").filter(state=VersionState.PENDING).first()


def _end_reading(version: DocumentVersion, **changes: Any) -> None:
    """Set the document back to its current version, and remove the version's file."""
    _remove_file_on_commit(str(version.file.name))
    values = queue.to_ended_values(Document.Status.COMPLETED) | {"progress": 1.0}
    Document.objects.filter(pk=version.document_id).update(**values | changes)


def _store_beside(document: Document, values: dict[str, Any]) -> str:
    """Store a waiting version. Returns the file name of the one it replaces, or ""."""
    pending = get_pending_version(document.pk)
    if pending:
        pending.delete()
    quotas.check_quota(
        document.owner_id, documents=0, size=values["size"], library_id=document.library_id
    )
    DocumentVersion.objects.create(
        document=document, number=_get_next_number(document), created_at=timezone.now(), **values
    )
    return str(pending.file.name) if pending else ""


def _replace_unserved(document: Document, values: dict[str, Any]) -> str:
    """Replace a file that was never indexed. Returns the name of the old file."""
    growth = values["size"] - document.size
    quotas.check_quota(document.owner_id, documents=0, size=growth, library_id=document.library_id)
    Document.objects.filter(pk=document.pk).update(
        version=_get_next_number(document), received_at=timezone.now(), **values
    )
    return str(document.file.name)


def _get_next_number(document: Document) -> int:
    """The number after all used so far, those of refused versions included."""
    last = document.versions.aggregate(last=Max("number"))["last"] or 0
    return max(document.version, last) + 1


def _remove_file_on_commit(name: str) -> None:
    if name:
        transaction.on_commit(lambda: files.remove_file(name), robust=True)
