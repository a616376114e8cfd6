"""Tables of the installation itself: banners, backups, versions that ran; and those of accounts."""

from datetime import timedelta
from typing import Self

from django.db import models
from django.db.models import Q
from django.utils import timezone
from django.utils.translation import get_language
from django.utils.translation import gettext_lazy as _

from nura import __version__
from nura.accounts.models import (
    Auditor,
    DataExport,
    DataImport,
    GroupDetails,
    Invitation,
    Preferences,
    SignOnServer,
)

__all__ = [
    "Auditor",
    "BackupEvent",
    "BackupRecord",
    "Banner",
    "DataExport",
    "DataImport",
    "GroupDetails",
    "InstalledVersion",
    "Invitation",
    "Preferences",
    "SignOnServer",
    "record_version",
]


class BannerQuerySet(models.QuerySet["Banner"]):
    """Filters as words that chain."""

    def shown(self) -> Self:
        """Those to be shown now."""
        now = timezone.now()
        return self.filter(Q(ends_at=None) | Q(ends_at__gt=now), starts_at__lte=now)


class Banner(models.Model):
    """An administrators' message on every page. Without an English text the Korean one is shown."""

    class Level(models.TextChoices):
        """How it looks."""

        INFO = "info", _("Information")
        WARNING = "warning", _("Warning")
        ERROR = "error", _("Urgent")

    text_ko = models.TextField(_("text in Korean"), max_length=500)
    text_en = models.TextField(_("text in English"), max_length=500, blank=True, default="")
    level = models.CharField(_("level"), max_length=7, choices=Level.choices, default=Level.INFO)
    starts_at = models.DateTimeField(_("shown from"), default=timezone.now)
    ends_at = models.DateTimeField(_("shown until"), null=True, blank=True)
    dismissible = models.BooleanField(
        _("can be dismissed"), default=True, help_text=_("For each person until the next banner")
    )

    objects = BannerQuerySet.as_manager()

    class Meta:
        """By start."""

        verbose_name = _("banner")
        verbose_name_plural = _("banners")
        ordering = ("starts_at", "pk")
        constraints = (
            models.CheckConstraint(
                condition=Q(ends_at=None) | Q(ends_at__gt=models.F("starts_at")),
                name="banner_ends_after_it_begins",
                violation_error_message=_("It must end after it begins."),
            ),
        )

    def __str__(self) -> str:
        return self.text[:60]

    @property
    def text(self) -> str:
        """The text in the page's language, else the Korean one."""
        return (self.text_en if get_language() == "en" else self.text_ko) or self.text_ko


class BackupEvent(models.TextChoices):
    """What was done."""

    TAKEN = "taken", _("Taken")
    VERIFIED = "verified", _("Verified")


class BackupRecord(models.Model):
    """A backup that was taken, or the verification of one."""

    OLD = timedelta(days=7)
    """Without a backup for this long, administrators are warned."""

    kind = models.CharField(max_length=8, choices=BackupEvent.choices)
    at = models.DateTimeField(auto_now_add=True)
    place = models.CharField(max_length=500)
    name = models.CharField(max_length=100, blank=True, default="")
    succeeded = models.BooleanField()
    detail = models.TextField(blank=True, default="")

    class Meta:
        """Latest first."""

        ordering = ("-at", "-pk")

    def __str__(self) -> str:
        return f"{self.kind} {self.name}"


class InstalledVersion(models.Model):
    """A version of Nura that migrated this database, and when."""

    NEWS = timedelta(days=14)
    """How long the first page shows an upgrade to administrators."""

    version = models.CharField(max_length=40, unique=True)
    since = models.DateTimeField(auto_now_add=True)

    class Meta:
        """Latest first."""

        ordering = ("-since", "-pk")

    def __str__(self) -> str:
        return self.version


def record_version() -> None:
    """Record since when this version runs on this database."""
    InstalledVersion.objects.get_or_create(version=__version__)
