"""Quotas: how much a user may have, and how much they use (documents, bytes, pages, questions...).

Documents count for whoever uploaded them, wherever they are; a library may have limits of its own.
For each measure one rule counts: the user's own, else the most generous of the user's groups, else
the installation's settings. A group's rule is for each member, not for all together.
Administrators have limits, too. Days and months are those of the installation's time zone.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from uuid import UUID

from django.conf import settings
from django.contrib.auth.models import User
from django.db import connection, transaction
from django.db.models import Count, F, Q, QuerySet, Sum, Value
from django.db.models.functions import Coalesce
from django.utils import timezone

from documents.errors import QuotaBytes, QuotaDocuments, QuotaLibrary, QuotaPages
from documents.files import MEGABYTE
from documents.models import Document, DocumentVersion, QuotaMeasure, QuotaRule, VersionState
from jobs.connections import ANYBODY, KeptQuery

STORED_STATES = (VersionState.PENDING, VersionState.OLD)
"""Versions whose files are kept."""
LOCK_LIBRARY = "SELECT pg_advisory_xact_lock(hashtextextended('quota of library ' || %s, 0))"


@dataclass(frozen=True, slots=True)
class QuotaLimit:
    """Users are warned from `soft` on and refused beyond `hard`; None: never.

    `source` is "user", "group:" with the name of the group, or "default".
    """

    soft: int | None
    hard: int | None
    source: str = "default"

    def refuses(self, amount: int) -> bool:
        """Whether this amount exceeds the hard limit."""
        return self.hard is not None and amount > self.hard

    def get_remaining(self, used: int) -> int | None:
        """What is left; None: no limit."""
        return None if self.hard is None else max(0, self.hard - used)


QuotaLimits = Mapping[QuotaMeasure, QuotaLimit]


@dataclass(frozen=True, slots=True)
class StorageUsage:
    """What is stored. `bytes` includes all versions; a file without pages counts as one page."""

    documents: int
    bytes: int
    pages: int


def _select_rules(user_id: int) -> QuerySet[QuotaRule]:
    """The user's rules and those of his groups."""
    groups = User.groups.through.objects.filter(user_id=user_id).values("group_id")
    rules = QuotaRule.objects.filter(Q(user_id=user_id) | Q(group__in=groups))
    return rules.annotate(group_name=F("group__name"))


_rules_of = KeptQuery(_select_rules, ANYBODY)


def find_limits(user_id: int) -> QuotaLimits:
    """The limits of one user for all measures, with one query."""
    rules = _rules_of.fetch(user_id)
    own = [rule for rule in rules if rule.user_id is not None]
    of_groups = [rule for rule in rules if rule.user_id is None]
    return _choose_limits(get_default_limits(), own, of_groups)


def find_all_limits() -> Mapping[int, QuotaLimits]:
    """The limits of all users by id; users without a rule get the default ones."""
    own: dict[int, list[QuotaRule]] = defaultdict(list)
    shared: dict[int, list[QuotaRule]] = defaultdict(list)
    for rule in QuotaRule.objects.annotate(group_name=F("group__name")):
        if rule.user_id is not None:
            own[rule.user_id].append(rule)
        elif rule.group_id is not None:
            shared[rule.group_id].append(rule)
    of_groups: dict[int, list[QuotaRule]] = defaultdict(list)
    links = User.groups.through.objects.filter(group_id__in=shared)
    for user_id, group_id in links.values_list("user_id", "group_id"):
        of_groups[user_id].extend(shared[group_id])
    default = get_default_limits()
    limits: dict[int, QuotaLimits] = defaultdict(lambda: default)
    for user_id in own.keys() | of_groups.keys():
        limits[user_id] = _choose_limits(default, own[user_id], of_groups[user_id])
    return limits


def get_default_limits() -> QuotaLimits:
    """The limits of the installation's settings, in which 0 is no limit."""
    hard_limits = {
        QuotaMeasure.DOCUMENTS: settings.QUOTA_DOCUMENTS,
        QuotaMeasure.BYTES: settings.QUOTA_MB * MEGABYTE,
        QuotaMeasure.PAGES: settings.QUOTA_PAGES,
        QuotaMeasure.QUESTIONS: settings.QUOTA_MESSAGES_PER_DAY,
        QuotaMeasure.TOKENS: settings.QUOTA_TOKENS_PER_MONTH,
    }
    return {measure: _make_limit(None, hard or None) for measure, hard in hard_limits.items()}


def _choose_limits(
    default: QuotaLimits, own: Iterable[QuotaRule], of_groups: Iterable[QuotaRule]
) -> QuotaLimits:
    chosen: dict[QuotaMeasure, QuotaLimit] = {}
    for rule in of_groups:
        limit = _to_limit(rule)
        current = chosen.get(QuotaMeasure(rule.measure))
        if current is None or _rank_generosity(limit) > _rank_generosity(current):
            chosen[QuotaMeasure(rule.measure)] = limit
    return {**default, **chosen, **{QuotaMeasure(rule.measure): _to_limit(rule) for rule in own}}


def _to_limit(rule: QuotaRule) -> QuotaLimit:
    unit = MEGABYTE if rule.measure == QuotaMeasure.BYTES else 1
    soft, hard = (None if value is None else value * unit for value in (rule.soft, rule.hard))
    source = "user" if rule.group_id is None else f"group:{getattr(rule, 'group_name', '')}"
    return _make_limit(soft, hard, source)


def _make_limit(soft: int | None, hard: int | None, source: str = "default") -> QuotaLimit:
    if soft is None and hard is not None and settings.QUOTA_SOFT_PERCENT:
        soft = math.ceil(hard * settings.QUOTA_SOFT_PERCENT / 100)
    return QuotaLimit(soft, hard, source)


def _rank_generosity(limit: QuotaLimit) -> tuple[float, float]:
    return tuple(math.inf if value is None else value for value in (limit.hard, limit.soft))  # type: ignore[return-value]


def measure_usage(owner_id: int) -> StorageUsage:
    """What a user's documents take, wherever they are."""
    return _measure_rows(Document.objects.filter(owner_id=owner_id))


def measure_library_usage(library_id: UUID) -> StorageUsage:
    """What the documents of a library take, whoever uploaded them."""
    return _measure_rows(Document.objects.filter(library_id=library_id))


def count_document_bytes(document: Document) -> int:
    """What a document takes with its versions."""
    return _measure_rows(Document.objects.filter(pk=document.pk)).bytes


def count_all_bytes() -> int:
    """What all documents take with their versions."""
    return _measure_rows(Document.objects.all()).bytes


def _measure_rows(rows: QuerySet[Document]) -> StorageUsage:
    totals = rows.aggregate(count=Count("pk"), size=Coalesce(Sum("size"), 0))
    versions = DocumentVersion.objects.filter(document__in=rows, state__in=STORED_STATES)
    version_bytes = versions.aggregate(size=Coalesce(Sum("size"), 0))["size"]
    return StorageUsage(totals["count"], totals["size"] + version_bytes, _count_pages(rows))


def lock_owner(owner_id: int) -> None:
    """Lock a user's quotas until the transaction ends.

    To avoid deadlocks, lock a document first, then its owner.
    """
    User.objects.select_for_update(no_key=True).values_list("pk").get(pk=owner_id)


def check_quota(
    owner_id: int, *, documents: int, size: int, library_id: UUID | None = None
) -> None:
    """Check that this much more may be stored, in the transaction that stores it.

    Documents in a library count for their owner and for the library. Raises `QuotaDocuments`,
    `QuotaBytes` or `QuotaLibrary`.
    """
    lock_owner(owner_id)
    limits = find_limits(owner_id)
    document_limit, byte_limit = limits[QuotaMeasure.DOCUMENTS], limits[QuotaMeasure.BYTES]
    if (document_limit.hard, byte_limit.hard) != (None, None):  # else nothing needs to be counted
        usage = measure_usage(owner_id)
        if documents > 0 and document_limit.refuses(usage.documents + documents):
            raise QuotaDocuments(limit=document_limit.hard, used=usage.documents)
        if size > 0 and byte_limit.refuses(usage.bytes + size):
            raise QuotaBytes(
                limit_mb=(byte_limit.hard or 0) // MEGABYTE,
                used_mb=round(usage.bytes / MEGABYTE, 1),
                need_mb=round(size / MEGABYTE, 1),
            )
    if library_id is not None:
        check_library_quota(library_id, documents=documents, size=size)


def find_library_limits(library_id: UUID) -> QuotaLimits:
    """The limits of a library; without rules there are none."""
    rules = QuotaRule.objects.filter(library_id=library_id)
    return {QuotaMeasure(rule.measure): _to_limit(rule) for rule in rules}


def check_library_quota(library_id: UUID, *, documents: int, size: int) -> None:
    """Check that this much more may be added to a library, in the transaction that adds it.

    Raises `QuotaLibrary`.
    """
    limits = find_library_limits(library_id)
    if not limits:
        return
    with connection.cursor() as cursor:  # not its row, which is held before its documents
        cursor.execute(LOCK_LIBRARY, [str(library_id)])
    usage = measure_library_usage(library_id)
    document_limit, byte_limit = limits.get(QuotaMeasure.DOCUMENTS), limits.get(QuotaMeasure.BYTES)
    if documents > 0 and document_limit and document_limit.refuses(usage.documents + documents):
        raise QuotaLibrary(limit=document_limit.hard, used=usage.documents, kind="documents")
    if size > 0 and byte_limit and byte_limit.refuses(usage.bytes + size):
        used, limit = (
            f"{(amount or 0) / MEGABYTE:.1f}" for amount in (usage.bytes, byte_limit.hard)
        )
        raise QuotaLibrary(limit=limit, used=used, kind="bytes")


def check_page_quota(owner_id: int, document_id: UUID, pages: int) -> None:
    """Check that the document may have this many pages besides the owner's other documents.

    In the transaction that writes the pages no other document can pass at the same time. Raises
    `QuotaPages`.
    """
    limit = find_limits(owner_id)[QuotaMeasure.PAGES]
    if limit.hard is None:
        return
    with transaction.atomic():
        lock_owner(owner_id)
        others = Document.objects.filter(owner_id=owner_id).exclude(pk=document_id)
        used = _count_pages(others)
    if limit.refuses(used + pages):
        raise QuotaPages(limit=limit.hard, used=used, pages=pages)


def _count_pages(rows: QuerySet[Document]) -> int:
    """Pages of the indexed documents."""
    indexed = rows.exclude(indexed_at=None)
    return int(indexed.aggregate(sum=Coalesce(Sum(Coalesce("page_count", Value(1))), 0))["sum"])


def get_today() -> date:
    """The current day of the daily quotas."""
    return timezone.localdate(timezone=timezone.get_default_timezone())


def get_next_day() -> datetime:
    """When the next day begins."""
    return _to_midnight(get_today() + timedelta(days=1))


def get_next_month() -> datetime:
    """When the next month begins."""
    return _to_midnight((get_today().replace(day=1) + timedelta(days=32)).replace(day=1))


def _to_midnight(day: date) -> datetime:
    return timezone.make_aware(datetime.combine(day, time.min), timezone.get_default_timezone())
