"""The one page of settings: its sections in order, and how a view shows one of them.

A view of a section renders a template that extends `settings/base.html` by `render_section`. What
has to be proved before something dangerous, and what is announced after it, is the view's own.
"""

from dataclasses import dataclass
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils.functional import Promise
from django.utils.translation import gettext_lazy as _


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
