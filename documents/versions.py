"""New files for a document: one to come, those gone before, those refused.

A version to come is read while the old index serves. `promote` puts it in place within the
transaction that writes its index; `refuse` leaves the document as it was.
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
from documents.models import Document, DocumentVersion, VersionState
from rag.chunking import SEPARATOR

VERSION_REFUSED = "version_refused"
FACTS = ("name", "original_name", "file", "content_type", "size", "sha256")
"""What a document and a version say alike of their files."""


def receive_version(*, document: Document, name: str, content: "File[Any]") -> bool:
    """Let a new file take the document's place once it has been read.

    False: it holds the same bytes, so nothing changes. A file that waits to be read gives way to
    the new one. A document without an index has nothing to go on serving: its file is replaced at
    once. Raises what is wrong with the file.
    """
    incoming = files.examine_file(name, content)
    if incoming.sha256 == document.sha256:
        return False
    stored = files.store_file(document.pk, incoming.original_name, content)
    try:
        with transaction.atomic():
            row = Document.objects.select_for_update().get(pk=document.pk)
            replace = _store_beside if row.indexed else _replace_unserved
            _remove_file_on_commit(replace(row, asdict(incoming) | {"file": stored}))
            Document.objects.filter(pk=row.pk).update(**queue.to_new_values())
            queue.enqueue_ingest_on_commit(row.pk)
    except BaseException:
        files.remove_file(stored)
        raise
    document.refresh_from_db()
    notices.notify_document_changed(document)
    return True


def get_pending_version(document_id: UUID) -> DocumentVersion | None:
    """The version that is to be read, if one is."""
    return DocumentVersion.objects.filter(
        document_id=document_id, state=VersionState.PENDING
    ).first()


def get_version(document: Document, number: int) -> Document | DocumentVersion:
    """The document itself, or the old version of this number. Raises `VersionNotFound`."""
    if number == document.version:
        return document
    old = document.versions.filter(number=number, state=VersionState.OLD).first()
    if old is None:
        raise VersionNotFound(version=number)
    return old


def read_whole_text(kept: Document | DocumentVersion) -> str:
    """The whole text, as the offsets of chunks count it."""
    if isinstance(kept, DocumentVersion):
        return kept.text
    pages = kept.pages.order_by("number").values_list("text", flat=True)
    return SEPARATOR.join(pages)


def promote_version(document_id: UUID, version: DocumentVersion) -> None:
    """Put the version's file in the document's place; what stood there stays as an old version.

    The caller holds the row, in the transaction that writes the new index, and the pages of the
    old one are still there.
    """
    document = Document.objects.get(pk=document_id)
    pages = document.pages.order_by("number")
    DocumentVersion.objects.create(
        document_id=document_id,
        number=document.version,
        state=VersionState.OLD,
        **{name: getattr(document, name) for name in FACTS},
        page_count=document.page_count,
        text=read_whole_text(document),
        page_starts=list(pages.values_list("start", flat=True)),
        created_at=document.received_at,
    )
    Document.objects.filter(pk=document_id).update(
        **{name: getattr(version, name) for name in FACTS},
        version=version.number,
        received_at=version.created_at,
        updated_at=Now(),
    )
    version.delete()


def refuse_version(held: QuerySet[Document], code: str, params: Mapping[str, object]) -> bool:
    """End the reading of a version; the document goes on as it was, with a warning.

    `held` is the document as long as it is the caller's to change, as `Lease.rows` gives it. False:
    it is not, or it reads no new version.
    """
    with transaction.atomic():
        version = _lock_pending(held)
        if version is None:
            return False
        DocumentVersion.objects.filter(pk=version.pk).update(
            state=VersionState.REFUSED,
            file="",
            error_code=code,
            error_params=queue.to_stored_parameters(params),
        )
        warnings = [
            *(one for one in version.document.warnings if one != VERSION_REFUSED),
            VERSION_REFUSED,
        ]
        _end_reading(version, warnings=warnings)
    return True


def withdraw_version(held: QuerySet[Document]) -> bool:
    """End the reading of a version as if it had never come. `held` and False as in `refuse`."""
    with transaction.atomic():
        version = _lock_pending(held)
        if version is None:
            return False
        DocumentVersion.objects.filter(pk=version.pk).delete()
        _end_reading(version)
    return True


def list_expired_versions(before: datetime) -> QuerySet[DocumentVersion]:
    """Old and refused versions whose successor came before that time."""
    after = DocumentVersion.objects.filter(
        document=OuterRef("document"), number__gt=OuterRef("number"), state=VersionState.OLD
    ).order_by("number")
    rows = DocumentVersion.objects.exclude(state=VersionState.PENDING)
    replaced = Coalesce(Subquery(after.values("created_at")[:1]), F("document__received_at"))
    return rows.annotate(replaced_at=replaced).filter(replaced_at__lt=before, created_at__lt=before)


def remove_version(version: DocumentVersion) -> None:
    """Delete a version that is not in use, its file and the pictures of its pages."""
    with transaction.atomic():
        DocumentVersion.objects.filter(pk=version.pk).delete()
        _remove_file_on_commit(str(version.file.name))
        if version.sha256:
            folder = files.get_pages_folder(version)
            transaction.on_commit(lambda: shutil.rmtree(folder, ignore_errors=True), robust=True)


def _lock_pending(held: QuerySet[Document]) -> DocumentVersion | None:
    """The version that the document of `held` is to get, with its row locked."""
    document = held.select_for_update().first()
    if document is None:
        return None
    return document.versions.select_related("document").filter(state=VersionState.PENDING).first()


def _end_reading(version: DocumentVersion, **changes: Any) -> None:
    """Let the document serve what it did, without the file of the version."""
    _remove_file_on_commit(str(version.file.name))
    ended = queue.to_ended_values(Document.Status.COMPLETED) | {"progress": 1.0}
    Document.objects.filter(pk=version.document_id).update(**ended | changes)


def _store_beside(document: Document, facts: dict[str, Any]) -> str:
    """Let the file wait beside the one that serves; the name of the file that waited before."""
    before = get_pending_version(document.pk)
    if before:
        before.delete()
    quotas.check_quota(
        document.owner_id, documents=0, size=facts["size"], library_id=document.library_id
    )
    DocumentVersion.objects.create(
        document=document, number=_get_next_number(document), created_at=timezone.now(), **facts
    )
    return str(before.file.name) if before else ""


def _replace_unserved(document: Document, facts: dict[str, Any]) -> str:
    """Replace a file that was never searchable; the name of the old file."""
    more = facts["size"] - document.size
    quotas.check_quota(document.owner_id, documents=0, size=more, library_id=document.library_id)
    Document.objects.filter(pk=document.pk).update(
        version=_get_next_number(document), received_at=timezone.now(), **facts
    )
    return str(document.file.name)


def _get_next_number(document: Document) -> int:
    """The number after all that were ever given, refused ones included."""
    last = document.versions.aggregate(last=Max("number"))["last"] or 0
    return max(document.version, last) + 1


def _remove_file_on_commit(name: str) -> None:
    if name:
        transaction.on_commit(lambda: files.remove_file(name), robust=True)
