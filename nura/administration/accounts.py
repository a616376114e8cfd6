"""People: usage by account, quotas, and invitations for a whole list."""

import secrets
from dataclasses import asdict
from typing import Any, cast

from django import forms
from django.conf import settings
from django.contrib import messages
from django.contrib.auth.models import User
from django.core.cache import cache
from django.core.paginator import Paginator
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from unfold.widgets import UnfoldAdminFileFieldWidget

from documents.administration import MenuPlace, Section, admin_page, render_page
from documents.quotas import get_default_limits
from nura.accounts.adapter import MailFailed
from nura.accounts.quotas import Allowance, list_near_limits
from nura.accounts.roles import may_enter
from nura.accounts.services import USAGE_DAYS, list_usage
from nura.accounts.signup import (
    DEFAULT_DAYS,
    MAX_DAYS,
    InvitationList,
    InvitedPerson,
    build_path,
    invite_people,
    mail_invitation,
    read_invitation_list,
    write_links,
)
from nura.housekeeping import describe_bytes
from nura.models import Invitation

ACCOUNTS_A_PAGE = 50


@admin_page(
    "usage", MenuPlace(Section.RECORD, "bar_chart", 20, gettext_lazy("Usage")), may_open=may_enter
)
def show_usage(request: HttpRequest) -> HttpResponse:
    """Usage by account, for administrators and auditors: numbers, no contents."""
    search = request.GET.get("q", "").strip()
    page = Paginator(list_usage(search), ACCOUNTS_A_PAGE).get_page(request.GET.get("page"))
    rows = [(account, describe_bytes(account.kept_bytes)) for account in page]
    context = {"page": page, "rows": rows, "wanted": search, "days": USAGE_DAYS}
    return render_page(request, "admin/usage.html", context)


LIST_SECONDS = 1800
"""How long a checked list can be invited."""
MAX_MAILS = 200
"""Mails sent for one list; the file has the links of all."""


class InvitationListForm(forms.Form):
    """Upload of a list of people to check."""

    file = forms.FileField(
        label=gettext_lazy("CSV file"),
        widget=UnfoldAdminFileFieldWidget(attrs={"accept": ".csv,text/csv"}),
    )


class InvitePeopleForm(forms.Form):
    """Invitation of a list that has been checked."""

    tried = forms.CharField(widget=forms.HiddenInput)
    days = forms.IntegerField(
        label=gettext_lazy("Valid for days"),
        min_value=1,
        max_value=MAX_DAYS,
        initial=DEFAULT_DAYS,
        widget=forms.NumberInput(attrs={"class": "nu-input"}),
    )


@admin_page(
    "invite-list", MenuPlace(Section.PEOPLE, "playlist_add", 35, gettext_lazy("Invite a list"))
)
def invite_list(request: HttpRequest) -> HttpResponse:
    """Check a list without storing anything, and report errors by line; then invite it."""
    user = cast("User", request.user)
    if "tried" in request.POST:
        return _invite_tried(request, user)
    form = InvitationListForm(request.POST or None, request.FILES or None)
    context: dict[str, Any] = {"form": form, "mail_works": settings.MAIL_WORKS}
    if request.method == "POST" and form.is_valid():
        people = read_invitation_list(form.cleaned_data["file"].read())
        context |= {
            "found": people,
            "invite": InvitePeopleForm(initial={"tried": _keep_list(user, people)}),
        }
    return render_page(request, "admin/invite_list.html", context)


def _keep_list(user: User, people_list: InvitationList) -> str:
    name = secrets.token_urlsafe(16)
    people = [asdict(person) for person in people_list.people]
    cache.set(f"nura:invite-list:{user.pk}:{name}", people, LIST_SECONDS)
    return name


def _invite_tried(request: HttpRequest, user: User) -> HttpResponse:
    """Invite, mail the links if mail works, and return them as a file: readable only now."""
    form = InvitePeopleForm(request.POST)
    key = f"nura:invite-list:{user.pk}:{request.POST['tried']}"
    stored = cache.get(key) if form.is_valid() else None
    if not stored or not cache.delete(key):  # pressing twice invites once
        messages.error(request, _("The list is no longer available. Upload it again."))
        return redirect("admin:invite-list")
    people = [InvitedPerson(**person) for person in stored]
    invitations = invite_people(by=user, people=people, days=form.cleaned_data["days"])
    links = [
        (invitation, request.build_absolute_uri(build_path(secret)))
        for invitation, secret in invitations
    ]
    _mail_links(links)
    response = HttpResponse(write_links(links), content_type="text/csv; charset=utf-8")
    response["Content-Disposition"] = 'attachment; filename="invitations.csv"'
    response["Cache-Control"] = "no-store"
    return response


def _mail_links(links: list[tuple[Invitation, str]]) -> None:
    if not settings.MAIL_WORKS:
        return
    for invitation, link in links[:MAX_MAILS]:
        try:
            mail_invitation(invitation, link)
        except (MailFailed, OSError):
            return  # the file has all links, and the list of invitations says which were mailed


@admin_page("quotas", MenuPlace(Section.PEOPLE, "speed", 40, gettext_lazy("Quotas")))
def show_quotas(request: HttpRequest) -> HttpResponse:
    """Accounts near or at a limit, the fullest first, and the default limits."""
    near = list_near_limits()
    page = Paginator(near, ACCOUNTS_A_PAGE).get_page(request.GET.get("page"))
    names = User.objects.in_bulk({user_id for user_id, _allowance in page})
    rows = [
        {
            "user": names[user_id],
            "allowance": allowance,
            "percent": round(100 * allowance.share),
            "source": _describe_source(allowance.limit.source),
        }
        for user_id, allowance in page
        if user_id in names
    ]
    context = {
        "page": page,
        "rows": rows,
        "full": sum(allowance.is_full for _user, allowance in near),
        "defaults": [
            Allowance(measure, 0, limit) for measure, limit in get_default_limits().items()
        ],
    }
    return render_page(request, "admin/quotas.html", context)


def _describe_source(source: str) -> str:
    """Where a limit comes from, in words."""
    if source == "user":
        return _("own rule")
    kind, _colon, name = source.partition(":")
    return _("group %(name)s") % {"name": name} if kind == "group" else _("default")
