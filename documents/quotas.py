"""How much a user may have, and how much is there: documents, bytes, pages, questions, tokens.

Documents count for who uploaded them, wherever they are; a library may have limits besides.
Of each measure one rule counts: the user's own, else the most generous of the user's groups, else
the installation's settings. A rule of a group is for each of its members, not for all together.
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

KEPT_STATES = (VersionState.PENDING, VersionState.OLD)
"""Versions whose files are kept."""
LOCK_LIBRARY = "SELECT pg_advisory_xact_lock(hashtextextended('quota of library ' || %s, 0))"


@dataclass(frozen=True, slots=True)
class QuotaLimit:
    """From `soft` on a user is told, more than `hard` is refused; None: never.

    `source` is where it comes from: "user", the name of a group behind "group:", or "default".
    """

    soft: int | None
    hard: int | None
    source: str = "default"

    def refuses(self, amount: int) -> bool:
        """Whether that much is too much."""
        return self.hard is not None and amount > self.hard

    def get_left(self, used: int) -> int | None:
        """What is left; None: no limit."""
        return None if self.hard is None else max(0, self.hard - used)


QuotaLimits = Mapping[QuotaMeasure, QuotaLimit]


@dataclass(frozen=True, slots=True)
class KeptFigures:
    """What a user has stored. `bytes` includes all versions; files without pages count as one."""

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
    """The limits of one user, of all measures, by one query."""
    found = _rules_of.fetch(user_id)
    own = [rule for rule in found if rule.user_id is not None]
    of_groups = [rule for rule in found if rule.user_id is None]
    return _choose_limits(get_default_limits(), own, of_groups)


def find_limits_of_all() -> Mapping[int, QuotaLimits]:
    """The same of everybody; who has no rule has the installation's."""
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
    found: dict[int, QuotaLimits] = defaultdict(lambda: default)
    for user_id in own.keys() | of_groups.keys():
        found[user_id] = _choose_limits(default, own[user_id], of_groups[user_id])
    return found


def get_default_limits() -> QuotaLimits:
    """The installation's, from its settings; 0 there is no limit."""
    given = {
        QuotaMeasure.DOCUMENTS: settings.QUOTA_DOCUMENTS,
        QuotaMeasure.BYTES: settings.QUOTA_MB * MEGABYTE,
        QuotaMeasure.PAGES: settings.QUOTA_PAGES,
        QuotaMeasure.QUESTIONS: settings.QUOTA_MESSAGES_PER_DAY,
        QuotaMeasure.TOKENS: settings.QUOTA_TOKENS_PER_MONTH,
    }
    return {measure: _make_limit(None, most or None) for measure, most in given.items()}


def _choose_limits(
    default: QuotaLimits, own: Iterable[QuotaRule], of_groups: Iterable[QuotaRule]
) -> QuotaLimits:
    chosen: dict[QuotaMeasure, QuotaLimit] = {}
    for rule in of_groups:
        limit = _to_limit(rule)
        before = chosen.get(QuotaMeasure(rule.measure))
        if before is None or _rank_generosity(limit) > _rank_generosity(before):
            chosen[QuotaMeasure(rule.measure)] = limit
    return {**default, **chosen, **{QuotaMeasure(rule.measure): _to_limit(rule) for rule in own}}


def _to_limit(rule: QuotaRule) -> QuotaLimit:
    unit = MEGABYTE if rule.measure == QuotaMeasure.BYTES else 1
    soft, hard = (None if given is None else given * unit for given in (rule.soft, rule.hard))
    source = "user" if rule.group_id is None else f"group:{getattr(rule, 'group_name', '')}"
    return _make_limit(soft, hard, source)


def _make_limit(soft: int | None, hard: int | None, source: str = "default") -> QuotaLimit:
    if soft is None and hard is not None and settings.QUOTA_SOFT_PERCENT:
        soft = math.ceil(hard * settings.QUOTA_SOFT_PERCENT / 100)
    return QuotaLimit(soft, hard, source)


def _rank_generosity(limit: QuotaLimit) -> tuple[float, float]:
    return tuple(math.inf if most is None else most for most in (limit.hard, limit.soft))  # type: ignore[return-value]


def count_kept(owner_id: int) -> KeptFigures:
    """Counted now from the rows, wherever the documents are."""
    return _count_figures(Document.objects.filter(owner_id=owner_id))


def count_library(library_id: UUID) -> KeptFigures:
    """The same of a library, whoever put the documents there."""
    return _count_figures(Document.objects.filter(library_id=library_id))


def count_bytes(document: Document) -> int:
    """What a document takes with its versions."""
    return _count_figures(Document.objects.filter(pk=document.pk)).bytes


def count_all_bytes() -> int:
    """What all documents take with their versions."""
    return _count_figures(Document.objects.all()).bytes


def _count_figures(rows: QuerySet[Document]) -> KeptFigures:
    found = rows.aggregate(count=Count("pk"), size=Coalesce(Sum("size"), 0))
    versions = DocumentVersion.objects.filter(document__in=rows, state__in=KEPT_STATES)
    more = versions.aggregate(size=Coalesce(Sum("size"), 0))["size"]
    return KeptFigures(found["count"], found["size"] + more, _count_pages(rows))


def lock_owner(owner_id: int) -> None:
    """Let nobody else count for this user until the transaction ends.

    Who also locks a document locks the document first, then this.
    """
    User.objects.select_for_update(no_key=True).values_list("pk").get(pk=owner_id)


def check_quota(
    owner_id: int, *, documents: int, size: int, library_id: UUID | None = None
) -> None:
    """Whether that much more may be kept. The caller is in the transaction that keeps it.

    What is in a library counts for its owner and for the library. Raises `QuotaDocuments`,
    `QuotaBytes` or `QuotaLibrary`.
    """
    lock_owner(owner_id)
    limits = find_limits(owner_id)
    most, room = limits[QuotaMeasure.DOCUMENTS], limits[QuotaMeasure.BYTES]
    if (most.hard, room.hard) != (None, None):  # else nothing needs to be counted
        now = count_kept(owner_id)
        if documents > 0 and most.refuses(now.documents + documents):
            raise QuotaDocuments(limit=most.hard, used=now.documents)
        if size > 0 and room.refuses(now.bytes + size):
            raise QuotaBytes(
                limit_mb=(room.hard or 0) // MEGABYTE,
                used_mb=round(now.bytes / MEGABYTE, 1),
                need_mb=round(size / MEGABYTE, 1),
            )
    if library_id is not None:
        check_library_quota(library_id, documents=documents, size=size)


def find_library_limits(library_id: UUID) -> QuotaLimits:
    """The limits of a library; without rules there are none."""
    rules = QuotaRule.objects.filter(library_id=library_id)
    return {QuotaMeasure(rule.measure): _to_limit(rule) for rule in rules}


def check_library_quota(library_id: UUID, *, documents: int, size: int) -> None:
    """Whether that much more may come into a library, in the transaction that brings it.

    Raises `QuotaLibrary`.
    """
    limits = find_library_limits(library_id)
    if not limits:
        return
    with connection.cursor() as cursor:  # not its row, which is held before its documents
        cursor.execute(LOCK_LIBRARY, [str(library_id)])
    now = count_library(library_id)
    most, room = limits.get(QuotaMeasure.DOCUMENTS), limits.get(QuotaMeasure.BYTES)
    if documents > 0 and most and most.refuses(now.documents + documents):
        raise QuotaLibrary(limit=most.hard, used=now.documents, kind="documents")
    if size > 0 and room and room.refuses(now.bytes + size):
        used, limit = (f"{(one or 0) / MEGABYTE:.1f}" for one in (now.bytes, room.hard))
        raise QuotaLibrary(limit=limit, used=used, kind="bytes")


def check_page_quota(owner_id: int, document_id: UUID, pages: int) -> None:
    """Whether the document may have that many pages beside the owner's other ones.

    Within the transaction that writes them, no other document can pass at the same time.
    Raises `QuotaPages`.
    """
    most = find_limits(owner_id)[QuotaMeasure.PAGES]
    if most.hard is None:
        return
    with transaction.atomic():
        lock_owner(owner_id)
        others = Document.objects.filter(owner_id=owner_id).exclude(pk=document_id)
        used = _count_pages(others)
    if most.refuses(used + pages):
        raise QuotaPages(limit=most.hard, used=used, pages=pages)


def _count_pages(rows: QuerySet[Document]) -> int:
    """Pages of those that are indexed."""
    indexed = rows.exclude(indexed_at=None)
    return int(indexed.aggregate(sum=Coalesce(Sum(Coalesce("page_count", Value(1))), 0))["sum"])


def get_today() -> date:
    """The day by which questions are counted."""
    return timezone.localdate(timezone=timezone.get_default_timezone())


def get_next_day() -> datetime:
    """When the next day begins."""
    return _to_midnight(get_today() + timedelta(days=1))


def get_next_month() -> datetime:
    """When the next month begins."""
    return _to_midnight((get_today().replace(day=1) + timedelta(days=32)).replace(day=1))


def _to_midnight(day: date) -> datetime:
    return timezone.make_aware(datetime.combine(day, time.min), timezone.get_default_timezone())
