"""Records of the installation: backups, retention, versions, and the banner on every page."""

import re
import time
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

from django.conf import settings
from django.contrib import admin
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect
from django.utils import timezone
from django.utils.html import conditional_escape
from django.utils.http import url_has_allowed_host_and_scheme
from django.utils.safestring import SafeString, mark_safe
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from django.views.decorators.http import require_POST

from documents.administration import AuditedAdmin, MenuPlace, Section, admin_page, render_page
from documents.audit import Action, AuditEvent
from nura import __version__
from nura.accounts.exports import KEPT_HOURS
from nura.models import BackupEvent, BackupRecord, Banner, InstalledVersion
from nura.retention import COUNTED_DAYS, EXPIRED, LEFTOVER_AGE

# Banner

MAX_BANNERS = 3
HIDDEN_SECONDS = 90 * 24 * 3600
BANNER_SECONDS = 5.0
"""Time until a change of banners shows on every page."""


@admin.register(Banner)
class BannerAdmin(AuditedAdmin):
    """Messages to everybody."""

    navigation = MenuPlace(Section.OPERATIONS, "campaign", 70)
    list_display = ("__str__", "level", "starts_at", "ends_at", "dismissible")
    list_filter = ("level",)
    fields = ("text_ko", "text_en", "level", "starts_at", "ends_at", "dismissible")


@lru_cache(maxsize=1)
def list_shown_banners(_moment: float) -> tuple[Banner, ...]:
    """The current banners, cached: every page shows them, and they seldom change."""
    return tuple(Banner.objects.shown())


def describe_banners(request: HttpRequest) -> dict[str, Any]:
    """Context processor: the banners this browser has not dismissed, loaded when used."""

    def read() -> list[Banner]:
        rows = list_shown_banners(time.monotonic() // BANNER_SECONDS)
        visible = [
            banner
            for banner in rows
            if not (banner.dismissible and _get_cookie_name(banner.pk) in request.COOKIES)
        ]
        return visible[-MAX_BANNERS:]

    return {"banners": read}


@require_POST
def hide_banner(request: HttpRequest, pk: int) -> HttpResponse:
    """Dismiss a banner in this browser."""
    banner = get_object_or_404(Banner.objects.shown(), pk=pk, dismissible=True)
    referer = request.headers.get("Referer", "")
    is_own = url_has_allowed_host_and_scheme(referer, {request.get_host()}, request.is_secure())
    is_partial = "HX-Request" in request.headers
    response = HttpResponse() if is_partial else redirect(referer if is_own else "chats:new")
    response.set_cookie(
        _get_cookie_name(banner.pk),
        "1",
        max_age=HIDDEN_SECONDS,
        path=settings.SESSION_COOKIE_PATH,
        secure=settings.SESSION_COOKIE_SECURE,
        httponly=True,
        samesite="Lax",
    )
    return response


def _get_cookie_name(pk: int) -> str:
    return f"banner_{pk}"


# Backup


def record_backup(kind: BackupEvent, *, place: str, name: str = "", problem: str = "") -> None:
    """Record that a backup was taken or verified, with any problem."""
    BackupRecord.objects.create(
        kind=kind, place=place[:500], name=name, succeeded=not problem, detail=problem[:2000]
    )


def find_last_backup() -> BackupRecord | None:
    """The last successful backup."""
    return BackupRecord.objects.filter(kind=BackupEvent.TAKEN, succeeded=True).first()


def describe_backup_age(last: BackupRecord | None) -> str:
    """A warning if the `last` backup is missing or too old; else empty."""
    if last is None:
        return _("No backup has been taken yet. manage.py backup takes one while Nura is running.")
    if timezone.now() - last.at > BackupRecord.OLD:
        days = BackupRecord.OLD.days
        return _("The last backup is more than %(days)d days old.") % {"days": days}
    return ""


@admin_page("backup", MenuPlace(Section.OPERATIONS, "backup", 50, gettext_lazy("Backup")))
def show_backups(request: HttpRequest) -> HttpResponse:
    """When backups were taken and verified, where they are, and whether they are too old."""
    verified = BackupRecord.objects.filter(kind=BackupEvent.VERIFIED).first()
    last = find_last_backup()
    context = {
        "warning": describe_backup_age(last),
        "last": last,
        "verified": verified,
        "records": BackupRecord.objects.all()[:50],
    }
    return render_page(request, "admin/backup.html", context)


# Retention


@admin_page("retention", MenuPlace(Section.RECORD, "auto_delete", 50, gettext_lazy("Retention")))
def show_retention(request: HttpRequest) -> HttpResponse:
    """Retention periods from the settings, and what was purged lately."""
    days_label = _("%(count)d days")
    hours_label, hours = _("%(count)d hours"), settings.ANSWER_CACHE_HOURS
    labels = {kind_row.name: kind_row.label for kind_row in EXPIRED}
    context = {
        "kept": [
            (
                _("Deleted chats and replaced versions of documents"),
                days_label % {"count": settings.RETENTION_DELETED_DAYS},
                "NURA_RETENTION_DELETED_DAYS",
            ),
            (
                _("Passages of deleted documents in old answers"),
                days_label % {"count": settings.RETENTION_EVIDENCE_DAYS},
                "NURA_RETENTION_EVIDENCE_DAYS",
            ),
            (
                _("Answers reused for the same question"),
                hours_label % {"count": hours} if hours else _("not kept"),
                "NURA_ANSWER_CACHE_HOURS",
            ),
            (
                _("Exports of a person's data"),
                hours_label % {"count": KEPT_HOURS},
                "",
            ),
            (_("Daily question counts"), days_label % {"count": COUNTED_DAYS}, ""),
            (_("Files nothing refers to"), days_label % {"count": LEFTOVER_AGE.days}, ""),
            (_("Audit log"), _("until it is trimmed"), "manage.py trim_audit_log"),
        ],
        "purged": [
            (event, [(labels.get(kind, kind), count) for kind, count in event.details.items()])
            for event in AuditEvent.objects.filter(action=Action.DATA_PURGED)[:30]
        ],
    }
    return render_page(request, "admin/retention.html", context)


# Versions


def find_upgrade() -> InstalledVersion | None:
    """A recent upgrade; None without one, or if this is the first version."""
    latest = InstalledVersion.objects.first()
    if latest is None or timezone.now() - latest.since > InstalledVersion.NEWS:
        return None
    return latest if InstalledVersion.objects.count() > 1 else None


@admin_page("version", MenuPlace(Section.RECORD, "new_releases", 60, gettext_lazy("Version")))
def show_version(request: HttpRequest) -> HttpResponse:
    """The current version, earlier ones, and the changes in this one."""
    context = {
        "version": __version__,
        "versions": InstalledVersion.objects.all(),
        "notes": list(_read_notes(__version__)),
    }
    return render_page(request, "admin/version.html", context)


_SECTION = re.compile(r"^## +(.*)$", re.MULTILINE)
_MARKED = re.compile(r"(`[^`]+`)|\*([^*\s][^*]*)\*")


def _read_notes(version: str) -> Iterator[tuple[str, list[SafeString]]]:
    """Headings of this version's section in the changelog, with their points as HTML.

    Without such a section, those of "Unreleased".
    """
    parts = _SECTION.split((settings.BASE_DIR / "CHANGELOG.md").read_text(encoding="utf-8"))
    sections = dict(zip(parts[1::2], parts[2::2], strict=True))
    texts = (text for name, text in sections.items() if name.split()[0].strip("[]v") == version)
    text = next(texts, sections.get("Unreleased", ""))
    for part in re.split(r"^### +", text, flags=re.MULTILINE)[1:]:
        heading, _newline, body = part.partition("\n")
        points = [" ".join(one.split()) for one in re.split(r"^- ", body, flags=re.MULTILINE)[1:]]
        yield heading, [_to_html(point) for point in points]


def _to_html(point: str) -> SafeString:
    """Render Markdown's code and emphasis; escape everything else."""

    def mark(match: re.Match[str]) -> str:
        code, emphasis = match.groups()
        return f"<code>{code[1:-1]}</code>" if code else f"<em>{emphasis}</em>"

    return mark_safe(_MARKED.sub(mark, conditional_escape(point)))  # noqa: S308 - escaped first
