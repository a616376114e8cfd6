"""People: who uses how much."""

from django.core.paginator import Paginator
from django.http import HttpRequest, HttpResponse
from django.utils.translation import gettext_lazy

from documents.administration import Place, Section, admin_page, render_page
from nura.accounts.roles import may_enter
from nura.accounts.services import USAGE_DAYS, list_usage
from nura.housekeeping import describe_bytes

ACCOUNTS_A_PAGE = 50


@admin_page(
    "usage", Place(Section.RECORD, "bar_chart", 20, gettext_lazy("Usage")), may_open=may_enter
)
def show_usage(request: HttpRequest) -> HttpResponse:
    """Who asks and keeps how much, for administrators and auditors: numbers, no contents."""
    wanted = request.GET.get("q", "").strip()
    page = Paginator(list_usage(wanted), ACCOUNTS_A_PAGE).get_page(request.GET.get("page"))
    rows = [(account, describe_bytes(account.kept_bytes)) for account in page]
    context = {"page": page, "rows": rows, "wanted": wanted, "days": USAGE_DAYS}
    return render_page(request, "admin/usage.html", context)
