"""How much one user may keep. Settings of 0 are no limit; administrators have limits, too."""

from dataclasses import dataclass
from uuid import UUID

from django.conf import settings
from django.contrib.auth.models import User
from django.db import transaction
from django.db.models import Count, QuerySet, Sum, Value
from django.db.models.functions import Coalesce

from documents.errors import QuotaBytes, QuotaDocuments, QuotaPages
from documents.models import Document, DocumentVersion
from documents.models.document import VersionState

MEGABYTE = 1024 * 1024
KEPT_STATES = (VersionState.PENDING, VersionState.OLD)
"""Versions whose files are kept."""


@dataclass(frozen=True, slots=True)
class KeptFigures:
    """What a user keeps. `bytes` holds all versions; `pages` counts 1 where a format has none."""

    documents: int
    bytes: int
    pages: int


def count_kept(owner_id: int) -> KeptFigures:
    """Counted now from the rows."""
    rows = Document.objects.filter(owner_id=owner_id)
    found = rows.aggregate(count=Count("pk"), size=Coalesce(Sum("size"), 0))
    versions = DocumentVersion.objects.filter(document__owner_id=owner_id, state__in=KEPT_STATES)
    more = versions.aggregate(size=Coalesce(Sum("size"), 0))["size"]
    return KeptFigures(found["count"], found["size"] + more, _count_pages(rows))


def lock_owner(owner_id: int) -> None:
    """Let nobody else count for this user until the transaction ends.

    Who also locks a document locks the document first, then this.
    """
    User.objects.select_for_update(no_key=True).values_list("pk").get(pk=owner_id)


def check_quota(owner_id: int, *, documents: int, size: int) -> None:
    """Whether that much more may be kept. The caller is in the transaction that keeps it.

    Raises `QuotaDocuments` or `QuotaBytes`.
    """
    lock_owner(owner_id)
    most, most_bytes = settings.QUOTA_DOCUMENTS, settings.QUOTA_MB * MEGABYTE
    now = count_kept(owner_id)
    if most and documents > 0 and now.documents + documents > most:
        raise QuotaDocuments(limit=most, used=now.documents)
    if most_bytes and size > 0 and now.bytes + size > most_bytes:
        used = round(now.bytes / MEGABYTE, 1)
        raise QuotaBytes(
            limit_mb=settings.QUOTA_MB, used_mb=used, need_mb=round(size / MEGABYTE, 1)
        )


def check_page_quota(owner_id: int, document_id: UUID, pages: int) -> None:
    """Whether the document may have that many pages beside the owner's other ones.

    Within the transaction that writes them, no other document can pass at the same time.
    Raises `QuotaPages`.
    """
    most = settings.QUOTA_PAGES
    if not most:
        return
    with transaction.atomic():
        lock_owner(owner_id)
        others = Document.objects.filter(owner_id=owner_id).exclude(pk=document_id)
        used = _count_pages(others)
    if used + pages > most:
        raise QuotaPages(limit=most, used=used, pages=pages)


def _count_pages(rows: QuerySet[Document]) -> int:
    """Pages of those that are indexed."""
    indexed = rows.exclude(indexed_at=None)
    return int(indexed.aggregate(sum=Coalesce(Sum(Coalesce("page_count", Value(1))), 0))["sum"])
