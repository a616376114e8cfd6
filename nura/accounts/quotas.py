"""What is left of quotas: for users in their pages, for administrators who is near a limit.

The rules themselves are set in the forms of users, groups and libraries (`documents.admin`).
"""

from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, cast

from django.contrib.auth.decorators import login_required
from django.contrib.auth.models import User
from django.db.models import Count, Sum, Value
from django.db.models.functions import Coalesce
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.template.defaultfilters import filesizeformat
from django.utils import formats
from django.utils.functional import Promise
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_GET

from chats.models import DailyMessages
from chats.services.chats import count_questions_today, count_tokens_this_month
from documents import quotas
from documents.models import Document, DocumentVersion, QuotaMeasure
from documents.quotas import STORED_STATES, QuotaLimit
from nura.accounts.preferences import render_section

KEPT = (QuotaMeasure.DOCUMENTS, QuotaMeasure.BYTES, QuotaMeasure.PAGES)
ASKED = (QuotaMeasure.QUESTIONS, QuotaMeasure.TOKENS)
AREAS = {"documents": KEPT, "questions": ASKED}
"""Areas of the pages with a notice of their own, and the measures shown there."""
LABELS: Mapping[QuotaMeasure, str | Promise] = {
    QuotaMeasure.DOCUMENTS: gettext_lazy("Documents"),
    QuotaMeasure.BYTES: gettext_lazy("Storage"),
    QuotaMeasure.PAGES: gettext_lazy("Pages"),
    QuotaMeasure.QUESTIONS: gettext_lazy("Questions today"),
    QuotaMeasure.TOKENS: gettext_lazy("Tokens this month"),
}


@dataclass(frozen=True, slots=True)
class Allowance:
    """A user's usage and limit of one measure."""

    measure: QuotaMeasure
    used: int
    limit: QuotaLimit

    @property
    def label(self) -> str | Promise:
        """The name of the measure."""
        return LABELS[self.measure]

    @property
    def is_limited(self) -> bool:
        """Whether there is a hard or a soft limit."""
        return self.bound is not None

    @property
    def bound(self) -> int | None:
        """The limit that a full bar stands for: the hard one, else the soft one."""
        return self.limit.soft if self.limit.hard is None else self.limit.hard

    @property
    def is_full(self) -> bool:
        """Whether the hard limit is reached."""
        return self.limit.hard is not None and self.used >= self.limit.hard

    @property
    def is_near(self) -> bool:
        """Whether the user should be warned."""
        return self.is_full or (self.limit.soft is not None and self.used >= self.limit.soft)

    @property
    def share(self) -> float:
        """Usage as a share of the bound; full from 1."""
        return self.used / self.bound if self.bound else float(self.used > 0 or self.bound == 0)

    @property
    def amount(self) -> str:
        """Usage in words, with the limit if there is one."""
        if self.limit.hard is None:
            return self._format_amount(self.used)
        values = {
            "used": self._format_amount(self.used),
            "limit": self._format_amount(self.limit.hard),
        }
        return _("%(used)s of %(limit)s") % values

    @property
    def rest(self) -> str:
        """What is left in words; empty without a limit."""
        left = self.limit.get_remaining(self.used)
        return "" if left is None else _("%(left)s left") % {"left": self._format_amount(left)}

    @property
    def most(self) -> str:
        """The limit in words; empty without one."""
        return "" if self.limit.hard is None else self._format_amount(self.limit.hard)

    @property
    def resets(self) -> str:
        """When the count resets, in words; empty for storage."""
        if self.measure == QuotaMeasure.QUESTIONS:
            return _("Resets at midnight.")
        if self.measure == QuotaMeasure.TOKENS:
            return _("Resets on %(day)s.") % {"day": _format_reset_day()}
        return ""

    @property
    def notice(self) -> str:
        """The sentence beside the composer."""
        values = {
            "left": self._format_amount(self.limit.get_remaining(self.used) or 0),
            "used": self._format_amount(self.used),
            "soft": self._format_amount(self.limit.soft or 0),
            "day": _format_reset_day(),
        }
        questions = self.measure == QuotaMeasure.QUESTIONS
        if self.is_full and questions:
            sentence = _("You have used up today's questions. You can ask again after midnight.")
        elif self.is_full:
            sentence = _("You have used up this month's tokens. You can ask again on %(day)s.")
        elif self.limit.hard is not None and questions:
            sentence = _("Questions left today: %(left)s")
        elif self.limit.hard is not None:
            sentence = _("Tokens left this month: %(left)s")
        elif questions:
            sentence = _(
                "You have asked %(used)s questions today. This notice appears from %(soft)s on; "
                "you can keep asking."
            )
        else:
            sentence = _(
                "You have used %(used)s tokens this month. This notice appears from %(soft)s on; "
                "you can keep asking."
            )
        return sentence % values

    def _format_amount(self, amount: int) -> str:
        if self.measure == QuotaMeasure.BYTES:
            return filesizeformat(amount)
        return f"{amount:,}"


def _format_reset_day() -> str:
    return formats.date_format(quotas.get_next_month(), "DATE_FORMAT")


def list_allowances(
    user: User,
    measures: Collection[QuotaMeasure] = tuple(QuotaMeasure),
    *,
    include_unlimited: bool = False,
) -> list[Allowance]:
    """The user's limited allowances, or all with `include_unlimited`. Counts only these."""
    limits = quotas.find_limits(user.pk)
    counted = [measure for measure in measures if include_unlimited or _has_limit(limits[measure])]
    used: dict[QuotaMeasure, int] = {}
    if set(counted) & set(KEPT):
        stored = quotas.measure_usage(user.pk)
        used |= dict(zip(KEPT, (stored.documents, stored.bytes, stored.pages), strict=True))
    if QuotaMeasure.QUESTIONS in counted:
        used[QuotaMeasure.QUESTIONS] = count_questions_today(user.pk)
    if QuotaMeasure.TOKENS in counted:
        used[QuotaMeasure.TOKENS] = count_tokens_this_month(user.pk)
    return [Allowance(measure, used[measure], limits[measure]) for measure in counted]


def _has_limit(limit: QuotaLimit) -> bool:
    return limit.hard is not None or limit.soft is not None


def list_near_limits() -> list[tuple[int, Allowance]]:
    """Allowances near or at their limit, with the account's id, the fullest first."""
    limits = quotas.find_all_limits()
    near = []
    for (user_id, measure), used in _count_usage_of_all().items():
        allowance = Allowance(measure, used, limits[user_id][measure])
        if allowance.is_near:
            near.append((user_id, allowance))
    return sorted(near, key=lambda item: (-item[1].share, item[0]))


def _count_usage_of_all() -> dict[tuple[int, QuotaMeasure], int]:
    """The usage of every account by measure, in four statements."""
    used: dict[tuple[int, QuotaMeasure], int] = defaultdict(int)
    owners = Document.objects.order_by().values_list("owner_id")
    for owner, count, size in owners.annotate(count=Count("pk"), sum=Sum("size")):
        used[owner, QuotaMeasure.DOCUMENTS] = count
        used[owner, QuotaMeasure.BYTES] = size
    indexed = owners.exclude(indexed_at=None)
    for owner, pages in indexed.annotate(sum=Sum(Coalesce("page_count", Value(1)))):
        used[owner, QuotaMeasure.PAGES] = pages
    versions = DocumentVersion.objects.filter(state__in=STORED_STATES).order_by()
    for owner, size in versions.values_list("document__owner_id").annotate(sum=Sum("size")):
        used[owner, QuotaMeasure.BYTES] += size
    today = quotas.get_today()
    days = DailyMessages.objects.filter(day__gte=today.replace(day=1))
    for owner, day, count, tokens in days.values_list("owner_id", "day", "count", "tokens"):
        used[owner, QuotaMeasure.TOKENS] += tokens
        if day == today:
            used[owner, QuotaMeasure.QUESTIONS] = count
    return used


def describe_area(user: User, area: str) -> dict[str, Any]:
    """Context of the quota panel of an area."""
    return {"allowances": list_allowances(user, AREAS[area]), "area": area}


@never_cache
@login_required
@require_GET
def show_quota_panel(request: HttpRequest, area: str) -> HttpResponse:
    """The notice of one area, reloaded when something changed there."""
    context = describe_area(cast("User", request.user), area)
    return render(request, "panels/quota.html", context)


@never_cache
@login_required
@require_GET
def show_usage(request: HttpRequest) -> HttpResponse:
    """The settings section: usage of all measures and what is left."""
    allowances = list_allowances(cast("User", request.user), include_unlimited=True)
    return render_section(
        request, "accounts:usage", "settings/usage.html", {"allowances": allowances}
    )
