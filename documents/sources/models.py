"""Sources with their entries and runs."""

import uuid
from datetime import datetime, timedelta
from typing import Self
from zoneinfo import ZoneInfo

from django.conf import settings
from django.db import models
from django.db.models import Q
from django.db.models.functions import Now
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from jobs.lease import OwnedJob

DIGEST_CHARACTERS = 64


class SourceQuerySet(models.QuerySet["Source"]):
    """Filters as words that chain."""

    def due(self) -> Self:
        """Sources whose next run is due."""
        return self.filter(paused=False, next_run_at__lte=Now())


class Source(models.Model):
    """A source that fills a library. Its documents belong to `owner`, who set it up.

    `settings` are those of its kind (`documents.sources.base`) without secrets; `secrets` are
    sealed. It runs every `every_minutes`, or daily `at` a time; if neither is set, only by hand.
    `leaving`: it is being deleted with its documents.
    """

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    library = models.ForeignKey(
        "documents.Library", models.CASCADE, related_name="sources", verbose_name=_("library")
    )
    owner = models.ForeignKey(
        settings.AUTH_USER_MODEL, models.CASCADE, related_name="sources", verbose_name=_("owner")
    )
    kind = models.CharField(_("kind"), max_length=20)
    name = models.CharField(_("name"), max_length=120)
    settings = models.JSONField(_("settings"), default=dict)
    secrets = models.JSONField(default=dict, editable=False)
    every_minutes = models.PositiveIntegerField(null=True, blank=True)
    at = models.TimeField(null=True, blank=True)
    next_run_at = models.DateTimeField(_("next run"), null=True, blank=True)
    paused = models.BooleanField(_("paused"), default=False)
    leaving = models.BooleanField(default=False)
    created_at = models.DateTimeField(_("created at"), auto_now_add=True)
    updated_at = models.DateTimeField(_("changed at"), auto_now=True)

    objects = SourceQuerySet.as_manager()

    class Meta:
        """By name; an index of what is due."""

        verbose_name = _("source")
        verbose_name_plural = _("sources")
        ordering = ("name", "id")
        indexes = (
            models.Index(
                fields=("next_run_at",), condition=Q(paused=False), name="source_next_run"
            ),
        )

    def __str__(self) -> str:
        return self.name

    def find_next_run(self, after: datetime | None = None) -> datetime | None:
        """When it runs next; None if it only runs by hand."""
        now = after or timezone.now()
        if self.every_minutes:
            return now + timedelta(minutes=self.every_minutes)
        if self.at is None:
            return None
        local = now.astimezone(ZoneInfo(settings.TIME_ZONE))
        today = local.replace(hour=self.at.hour, minute=self.at.minute, second=0, microsecond=0)
        return today if today > local else today + timedelta(days=1)


class RunStatus(models.TextChoices):
    """RUNNING -> DONE | HELD (deletions wait for confirmation) | FAILED."""

    RUNNING = "running", _("Running")
    DONE = "done", _("Done")
    HELD = "held", _("Waiting for confirmation")
    FAILED = "failed", _("Failed")


class RunStage(models.TextChoices):
    """What a run does now."""

    LISTING = "listing", _("Listing")
    LOADING = "loading", _("Reading")
    REMOVING = "removing", _("Deleting")


class SourceRunManager(models.Manager["SourceRun"]):
    """Defers `listing`, which may be megabytes."""

    def get_queryset(self) -> models.QuerySet["SourceRun"]:
        """Rows without `listing`."""
        return super().get_queryset().defer("listing")


class SourceRun(OwnedJob):
    """One comparison of a source with its library; a dry one changes nothing.

    `cursor` is the last key that was compared. `report` has the names of some entries by what
    happened to them. `listing` is the list sent by a program. `confirmed`: it may delete however
    many entries are gone. `held` entries would have been deleted.
    """

    OPEN = Q(status="running")
    LEASE = timedelta(seconds=30)
    MAX_ATTEMPTS = 5

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    source = models.ForeignKey(Source, models.CASCADE, related_name="runs")
    owner = models.ForeignKey(settings.AUTH_USER_MODEL, models.CASCADE, related_name="+")
    status = models.CharField(
        _("status"), max_length=8, choices=RunStatus.choices, default=RunStatus.RUNNING
    )
    stage = models.CharField(max_length=8, choices=RunStage.choices, default=RunStage.LISTING)
    dry_run = models.BooleanField(_("dry run"), default=False)
    confirmed = models.BooleanField(default=False)
    cursor = models.TextField(blank=True, default="")
    listing = models.JSONField(null=True, editable=False)
    listed = models.PositiveIntegerField(_("listed"), default=0)
    added = models.PositiveIntegerField(_("added"), default=0)
    changed = models.PositiveIntegerField(_("changed"), default=0)
    renamed = models.PositiveIntegerField(_("renamed"), default=0)
    removed = models.PositiveIntegerField(_("deleted"), default=0)
    held = models.PositiveIntegerField(default=0)
    failed = models.PositiveIntegerField(_("failed"), default=0)
    report = models.JSONField(default=dict)
    error_code = models.CharField(max_length=64, blank=True, default="")
    error_params = models.JSONField(default=dict, blank=True)
    created_at = models.DateTimeField(_("started at"), auto_now_add=True)
    ended_at = models.DateTimeField(_("ended at"), null=True)

    objects = SourceRunManager()

    class Meta:
        """Newest first; one open run a source; indexes as `jobs.lease` asks for."""

        verbose_name = _("run of a source")
        verbose_name_plural = _("runs of sources")
        ordering = ("-created_at",)
        constraints = (
            models.UniqueConstraint(
                fields=("source",), condition=Q(status="running"), name="one_open_run_a_source"
            ),
        )
        indexes = (
            models.Index(fields=("source", "-created_at"), name="source_run_newest"),
            models.Index(
                fields=("owner", "created_at"),
                condition=Q(status="running"),
                name="source_run_in_turn",
            ),
            models.Index(fields=("owner", "started_at"), name="source_run_last_served"),
        )

    def __str__(self) -> str:
        return f"{self.source_id} {self.created_at:%Y-%m-%d %H:%M}"

    @property
    def counts(self) -> dict[str, int]:
        """How many entries, by what happened to them."""
        names = ("listed", "added", "changed", "renamed", "removed", "held", "failed")
        return {name: getattr(self, name) for name in names}


class SourceEntry(models.Model):
    """One file or page of a source: its state at the last run, and its document.

    `digest` is the hash of `key`, which may be too long for an index. `seen_in` is the run that
    listed it last; entries missing from a complete list are gone. `pending`: it has to be read.
    `sha256` is that of the bytes in the library, "" if there are none. Copies share a document.
    `met_in` is the dry run that found the same bytes under another address, `met_as`.
    """

    source = models.ForeignKey(Source, models.CASCADE, related_name="entries")
    digest = models.CharField(max_length=DIGEST_CHARACTERS)
    key = models.TextField()
    name = models.CharField(max_length=1024)
    uri = models.TextField()
    fingerprint = models.CharField(max_length=255, blank=True, default="")
    sha256 = models.CharField(max_length=64, blank=True, default="")
    notes = models.JSONField(default=dict)
    pending = models.BooleanField(default=True)
    seen_in = models.UUIDField(null=True)
    met_in = models.UUIDField(null=True)
    met_as = models.TextField(default="", db_default="")
    document = models.ForeignKey(
        "documents.Document", models.SET_NULL, null=True, related_name="source_entries"
    )
    error_code = models.CharField(max_length=64, blank=True, default="")
    error_params = models.JSONField(default=dict, blank=True)

    class Meta:
        """One row a key; indexes of what is to be read and of equal bytes.

        None holds `seen_in`, which each run writes into every row.
        """

        ordering = ("pk",)
        constraints = (
            models.UniqueConstraint(fields=("source", "digest"), name="one_row_an_entry"),
        )
        indexes = (
            models.Index(
                fields=("source", "id"), condition=Q(pending=True), name="source_entry_pending"
            ),
            models.Index(fields=("source", "sha256"), name="source_entry_same_bytes"),
            models.Index(
                fields=("source", "id"),
                condition=~Q(error_code=""),
                name="source_entry_failed",
            ),
        )

    def __str__(self) -> str:
        return self.uri
