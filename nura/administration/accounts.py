"""People: usage by account, quotas, and invitations for a whole list."""

import secrets
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from typing import Any, cast

from django import forms
from django.conf import settings
from django.contrib import messages
from django.contrib.auth.models import User
from django.core.cache import cache
from django.core.paginator import Paginator
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.utils import timezone
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from unfold.widgets import UnfoldAdminFileFieldWidget

from documents.administration import MenuPlace, Section, admin_page, render_page
from documents.quotas import get_default_limits
from documents.secrets import open_secret, seal_secret
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
LINKS_SECONDS = 1800
"""How long the links of an invited list can be downloaded; the cache holds them encrypted."""
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
    cache.set(_make_list_key(user, name), people, LIST_SECONDS)
    return name


def _make_list_key(user: User, name: str) -> str:
    return f"nura:invite-list:{user.pk}:{name}"


def _make_links_key(user: User, name: str) -> str:
    return f"nura:invitation-links:{user.pk}:{name}"


def _invite_tried(request: HttpRequest, user: User) -> HttpResponse:
    """Invite, mail the links if mail works, and go on to the page that says what was done."""
    form = InvitePeopleForm(request.POST)
    name = request.POST["tried"]
    if _make_links_key(user, name) in cache:  # pressed twice
        return redirect("admin:invited-list", name)
    key = _make_list_key(user, name)
    stored = cache.get(key) if form.is_valid() else None
    if not stored or not cache.delete(key):  # of two presses at once, one invites
        messages.error(request, _("The list is no longer available. Upload it again."))
        return redirect("admin:invite-list")
    people = [InvitedPerson(**person) for person in stored]
    invitations = invite_people(by=user, people=people, days=form.cleaned_data["days"])
    links = [
        (invitation, request.build_absolute_uri(build_path(secret)))
        for invitation, secret in invitations
    ]
    invited = InvitedList(
        ids=[invitation.pk for invitation, _secret in invitations],
        left_out=len(people) - len(invitations),
        until=timezone.now() + timedelta(seconds=LINKS_SECONDS),
        sealed_links=seal_secret(write_links(links).decode()),
    )
    cache.set(_make_links_key(user, name), asdict(invited), LINKS_SECONDS)
    _mail_links(links)
    return redirect("admin:invited-list", name)


@dataclass(frozen=True, slots=True)
class InvitedList:
    """What was done with a list: the invitations, and their links as an encrypted file.

    `left_out` counts people who had been invited or had got an account since the check.
    """

    ids: list[int]
    left_out: int
    until: datetime
    sealed_links: str


@admin_page("invite-list/<str:name>", name="invited-list")
def show_invited_list(request: HttpRequest, name: str) -> HttpResponse:
    """How many people were invited and mailed, with the links to download, for a while."""
    invited = _find_invited_list(request, name)
    if invited is None:
        return _go_to_invitations(request)
    mailed = Invitation.objects.filter(pk__in=invited.ids).exclude(mailed_at=None).count()
    context = {
        "title": _("Invite a list"),
        "name": name,
        "invited": invited,
        "mailed": mailed,
        "unmailed": len(invited.ids) - mailed,
    }
    return render_page(request, "admin/invited_list.html", context)


@admin_page("invite-list/<str:name>/links", name="invitation-links")
def download_links(request: HttpRequest, name: str) -> HttpResponse:
    """The links as a CSV, for who made them."""
    invited = _find_invited_list(request, name)
    if invited is None:
        return _go_to_invitations(request)
    content = open_secret(invited.sealed_links)
    response = HttpResponse(content, content_type="text/csv; charset=utf-8")
    response["Content-Disposition"] = 'attachment; filename="invitations.csv"'
    response["Cache-Control"] = "no-store"
    return response


def _find_invited_list(request: HttpRequest, name: str) -> InvitedList | None:
    stored = cache.get(_make_links_key(cast("User", request.user), name))
    return InvitedList(**stored) if stored else None


def _go_to_invitations(request: HttpRequest) -> HttpResponse:
    messages.error(
        request,
        _("The links are no longer available. To make new ones, withdraw the invitations first."),
    )
    return redirect("admin:nura_invitation_changelist")


def _mail_links(links: list[tuple[Invitation, str]]) -> None:
    if not settings.MAIL_WORKS:
        return
    for invitation, link in links[:MAX_MAILS]:
        try:
            mail_invitation(invitation, link)
        except (MailFailed, OSError):
            return  # the file has all links, and the page says how many were mailed


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
