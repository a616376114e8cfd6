"""How one person wants the pages, and the one page of settings that asks.

What is wanted is kept with the account, and in cookies that speak before it does.
The server draws a page in the right language and colours from cookies alone, signed in or not. So
what is chosen is kept in both places, and a sign-in brings the cookies to what the account says.

A view of a section of the settings renders a template that extends `settings/base.html` by
`render_section`. What has to be proved before something dangerous, and what is announced after it,
is the view's own.
"""

from dataclasses import dataclass
from functools import cache
from typing import Any

from django.conf import settings
from django.contrib.auth.models import AbstractBaseUser, AnonymousUser, User
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import render
from django.utils.functional import Promise
from django.utils.translation import gettext_lazy as _

from nura.accounts.models import Preferences
from nura.accounts.roles import may_enter

THEME_COOKIE = "theme"
COOKIE_SECONDS = 365 * 24 * 3600


def get_preferences(*, user: AbstractBaseUser) -> Preferences:
    """What the person has chosen; the usual, not stored, where nothing was."""
    return Preferences.objects.filter(pk=user.pk).first() or Preferences(user_id=user.pk)


def save_preferences(*, user: User, **chosen: Any) -> Preferences:
    """Keep what was chosen; all else stays."""
    preferences, _created = Preferences.objects.update_or_create(user=user, defaults=chosen)
    return preferences


def set_cookies(response: HttpResponseBase, preferences: Preferences) -> None:
    """Bring the cookies of this browser to what the account says."""
    if preferences.language in dict(settings.LANGUAGES):
        response.set_cookie(
            settings.LANGUAGE_COOKIE_NAME,
            preferences.language,
            max_age=settings.LANGUAGE_COOKIE_AGE,
            samesite="Lax",
            path=settings.LANGUAGE_COOKIE_PATH,
        )
    if preferences.theme == Preferences.Theme.SYSTEM:
        response.delete_cookie(THEME_COOKIE, samesite="Lax", path=settings.LANGUAGE_COOKIE_PATH)
    else:
        # Not HttpOnly: the page's own switch changes it without asking the server for a page.
        response.set_cookie(THEME_COOKIE, preferences.theme, max_age=COOKIE_SECONDS, samesite="Lax")


def describe_preferences(request: HttpRequest) -> dict[str, Any]:
    """Context processor: what the pages ask for: `preferences`, mail, and the administration.

    What is kept of the account is read once, and only where a page asks.
    """

    @cache
    def find_user() -> User | AnonymousUser:
        if not request.user.is_authenticated:
            return AnonymousUser()
        rows = User.objects.select_related("preferences", "auditor").filter(pk=request.user.pk)
        return rows.first() or AnonymousUser()  # it may have been deleted meanwhile

    def read() -> dict[str, Any]:
        kept: Preferences = getattr(find_user(), "preferences", None) or Preferences()
        return {
            "send_key": kept.send_key,
            "document_layout": kept.document_layout,
            "voice": kept.voice,
            "speech_rate": kept.speech_rate,
        }

    return {
        "preferences": read,
        "mail_works": settings.MAIL_WORKS,
        "may_enter_administration": lambda: may_enter(find_user()),
    }


@dataclass(frozen=True, slots=True)
class SettingsSection:
    """A part of the settings with an address of its own; `icon` is one of `icons.svg`."""

    route: str
    title: str | Promise
    icon: str


SECTIONS = (
    SettingsSection("accounts:profile", _("Profile"), "user"),
    SettingsSection("accounts:appearance", _("Appearance and language"), "sun"),
    SettingsSection("accounts:memory", _("Memory"), "sparkles"),
    SettingsSection("accounts:two-step", _("Two-step sign-in"), "shield"),
    SettingsSection("accounts:keys", _("API keys"), "key-round"),
    SettingsSection("accounts:devices", _("Devices"), "monitor"),
    SettingsSection("accounts:usage", _("Usage"), "layout-grid"),
    SettingsSection("accounts:data", _("Your data"), "download"),
    SettingsSection("accounts:delete", _("Delete account"), "trash-2"),
)
"""In the order of the page. One is added by its line here, its route and its template."""


def render_section(
    request: HttpRequest,
    route: str,
    template: str,
    context: dict[str, Any] | None = None,
    *,
    status: int = 200,
) -> HttpResponse:
    """The page with the section of that route open."""
    shown = next(section for section in SECTIONS if section.route == route)
    told = {"sections": SECTIONS, "section": shown, "area": "settings", **(context or {})}
    return render(request, template, told, status=status)
