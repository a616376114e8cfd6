"""A person's preferences, and the settings page that edits them.

Preferences are stored with the account and in cookies: the server renders a page in the right
language and theme from cookies alone, signed in or not, and sign-in sets the cookies to the
account's preferences.

The view of a settings section uses `render_section` with a template that extends
`settings/base.html`. Asking for the password before something dangerous, and announcing changes, is
up to the view.
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

from nura.accounts.roles import may_enter
from nura.models import Preferences

THEME_COOKIE = "theme"
COOKIE_SECONDS = 365 * 24 * 3600


def get_preferences(*, user: AbstractBaseUser) -> Preferences:
    """The user's preferences; the defaults, unsaved, if there are none."""
    return Preferences.objects.filter(pk=user.pk).first() or Preferences(user_id=user.pk)


def save_preferences(*, user: User, **changes: Any) -> Preferences:
    """Change these preferences and leave the rest."""
    preferences, _created = Preferences.objects.update_or_create(user=user, defaults=changes)
    return preferences


def set_cookies(response: HttpResponseBase, preferences: Preferences) -> None:
    """Set this browser's cookies to the account's preferences."""
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
        # Not HttpOnly: the page's theme switch changes it without the server.
        response.set_cookie(THEME_COOKIE, preferences.theme, max_age=COOKIE_SECONDS, samesite="Lax")


def describe_preferences(request: HttpRequest) -> dict[str, Any]:
    """Context processor: `preferences`, `mail_works` and `may_enter_administration`.

    The account is read once, and only if a page uses it.
    """

    @cache
    def find_user() -> User | AnonymousUser:
        if not request.user.is_authenticated:
            return AnonymousUser()
        rows = User.objects.select_related("preferences", "auditor").filter(pk=request.user.pk)
        return rows.first() or AnonymousUser()  # it may have been deleted meanwhile

    def read() -> dict[str, Any]:
        preferences: Preferences = getattr(find_user(), "preferences", None) or Preferences()
        return {
            "send_key": preferences.send_key,
            "document_layout": preferences.document_layout,
            "voice": preferences.voice,
            "speech_rate": preferences.speech_rate,
        }

    return {
        "preferences": read,
        "mail_works": settings.MAIL_WORKS,
        "may_enter_administration": lambda: may_enter(find_user()),
    }


@dataclass(frozen=True, slots=True)
class SettingsSection:
    """A section of the settings with its own address; `icon` is one of `icons.svg`."""

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
"""In the order of the page. To add one: a line here, a route and a template."""


def render_section(
    request: HttpRequest,
    route: str,
    template: str,
    context: dict[str, Any] | None = None,
    *,
    status: int = 200,
) -> HttpResponse:
    """The settings page with the section of that route open."""
    current = next(section for section in SECTIONS if section.route == route)
    page_context = {"sections": SECTIONS, "section": current, "area": "settings", **(context or {})}
    return render(request, template, page_context, status=status)
