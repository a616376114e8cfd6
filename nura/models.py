"""Tables of the installation: accounts, beyond what libraries store; banners, backups, versions."""

import uuid
from collections.abc import Collection
from datetime import timedelta
from typing import Self

from django.conf import settings
from django.contrib.auth.models import Group
from django.core.validators import MaxValueValidator, MinValueValidator, RegexValidator
from django.db import models
from django.db.models import F, Q
from django.db.models.functions import Lower, Now
from django.utils import timezone
from django.utils.translation import get_language
from django.utils.translation import gettext_lazy as _

from jobs.lease import OwnedJob
from nura import __version__

MIN_SPEECH_RATE, MAX_SPEECH_RATE = 0.5, 2.0
"""Bounds of how fast answers are read aloud; 1 is the voice's own pace."""
MAX_INVITATION_USES = 10_000


class Preferences(models.Model):
    """One person's preferences on every device. An account without a row has the defaults."""

    class Theme(models.TextChoices):
        """Colours of the pages."""

        SYSTEM = "system", _("Same as the system")
        LIGHT = "light", _("Light")
        DARK = "dark", _("Dark")

    class SendKey(models.TextChoices):
        """The key that sends a question; the other one starts a new line."""

        ENTER = "enter", _("Enter")
        MOD_ENTER = "mod-enter", _("Ctrl+Enter (⌘+Enter on a Mac)")

    class DocumentLayout(models.TextChoices):
        """Layout of the list of documents where there is room for both."""

        TABLE = "table", _("Table")
        CARDS = "cards", _("Cards")

    user = models.OneToOneField(
        settings.AUTH_USER_MODEL, models.CASCADE, primary_key=True, related_name="preferences"
    )
    language = models.CharField(max_length=8, blank=True, default="")
    theme = models.CharField(max_length=8, choices=Theme, default=Theme.SYSTEM)
    send_key = models.CharField(max_length=16, choices=SendKey, default=SendKey.ENTER)
    document_layout = models.CharField(
        max_length=8,
        choices=DocumentLayout,
        default=DocumentLayout.TABLE,
        db_default=DocumentLayout.TABLE,
    )
    voice = models.CharField(max_length=200, blank=True, default="")
    speech_rate = models.FloatField(
        default=1.0,
        validators=[MinValueValidator(MIN_SPEECH_RATE), MaxValueValidator(MAX_SPEECH_RATE)],
    )
    updated_at = models.DateTimeField(auto_now=True)

    def __str__(self) -> str:
        return f"{self.user_id}"


class Auditor(models.Model):
    """A user who may read the audit log and usage (`nura.accounts.roles`)."""

    user = models.OneToOneField(
        settings.AUTH_USER_MODEL, models.CASCADE, primary_key=True, related_name="auditor"
    )
    since = models.DateTimeField(auto_now_add=True)

    def __str__(self) -> str:
        return f"{self.user_id}"


class GroupDetails(models.Model):
    """What Nura adds to a Django group (`nura.accounts.roles`)."""

    group = models.OneToOneField(
        Group, models.CASCADE, primary_key=True, related_name="details", verbose_name=_("group")
    )
    description = models.CharField(_("description"), max_length=200, blank=True, default="")
    directory_name = models.CharField(
        _("name in the directory"),
        max_length=250,
        blank=True,
        default="",
        help_text=_(
            "Its members then come from the sign-on server at each sign-in. Leave empty to "
            "choose them yourself."
        ),
    )

    class Meta:
        """One group per directory name."""

        verbose_name = verbose_name_plural = _("details")
        constraints = (
            models.UniqueConstraint(
                Lower("directory_name"),
                condition=~Q(directory_name=""),
                name="one_group_a_directory_name",
            ),
        )

    def __str__(self) -> str:
        return self.description


class SignOnServer(models.Model):
    """An OpenID Connect server by which people sign in (`nura.accounts.sign_on`)."""

    class SignUp(models.TextChoices):
        """Who gets an account when signing in there."""

        EVERYBODY = "everybody", _("Everybody who signs in there")
        INVITED = "invited", _("Those who are invited")
        NOBODY = "nobody", _("Nobody: accounts must already exist")

    name = models.CharField(
        _("name"), max_length=40, help_text=_("As shown on the button of the sign-in page.")
    )
    slug = models.SlugField(
        _("short name"),
        unique=True,
        max_length=40,
        help_text=_(
            "Part of the address that the server sends people back to. It cannot be changed later."
        ),
        # the names of the protocol and of connections with the directory
        validators=[RegexValidator("^(?!(openid_connect|ldap)$)")],
    )
    issuer = models.URLField(
        _("issuer"),
        max_length=500,
        help_text=_("The server's address, as given in its /.well-known/openid-configuration."),
    )
    client_id = models.CharField(_("client id"), max_length=191)
    sealed_secret = models.TextField(blank=True, default="", editable=False)
    groups_claim = models.CharField(
        _("claim with the groups"),
        max_length=100,
        blank=True,
        default="",
        help_text=_("Often “groups”. Leave empty if the server has no say in groups and roles."),
    )
    administrators = models.CharField(
        _("group of administrators"), max_length=250, blank=True, default=""
    )
    auditors = models.CharField(_("group of auditors"), max_length=250, blank=True, default="")
    sign_up = models.CharField(
        _("who gets an account"), max_length=10, choices=SignUp, default=SignUp.INVITED
    )
    domains = models.CharField(
        _("e-mail domains"),
        max_length=500,
        blank=True,
        default="",
        help_text=_(
            "Only people with a verified address there may sign in. Separate several with commas."
        ),
    )
    vouches_for_email = models.BooleanField(
        _("treat all addresses as verified"),
        default=False,
        help_text=_(
            "Treat addresses as verified even if the server does not say so. Only for a server "
            "of your own, such as a single tenant of Entra ID."
        ),
    )
    link_by_email = models.BooleanField(
        _("link accounts by address"),
        default=False,
        help_text=_(
            "Whoever signs in there with a verified address gets the account with that address,"
            " unless it is an administrator's."
        ),
    )
    is_active = models.BooleanField(_("active"), default=True)
    created_at = models.DateTimeField(_("created at"), auto_now_add=True)

    class Meta:
        """By name."""

        verbose_name = _("sign-on server")
        verbose_name_plural = _("sign-on servers")
        ordering = ("name",)

    def __str__(self) -> str:
        return self.name

    def accepts(self, emails: Collection[str]) -> bool:
        """Whether the server's domains admit a person with these verified addresses."""
        domains = {domain.strip().lower() for domain in self.domains.split(",") if domain.strip()}
        return not domains or any(email.rpartition("@")[2].lower() in domains for email in emails)


class InvitationQuerySet(models.QuerySet["Invitation"]):
    """Filters as words that chain."""

    def open(self) -> Self:
        """Invitations that can still be used."""
        return self.filter(used_at=None, expires_at__gt=Now(), uses__lt=F("max_uses"))


class Invitation(models.Model):
    """A link by which accounts are created; only the `digest` of its secret is stored.

    `email`, if set, is the address of the one account; it counts as verified if the link was mailed
    to it. `used_at` is set once the invitation is used up, by the account `used_by`.
    """

    digest = models.CharField(max_length=64, unique=True, editable=False)
    email = models.EmailField(_("e-mail"), blank=True, default="")
    name = models.CharField(_("name"), max_length=150, blank=True, default="", db_default="")
    max_uses = models.PositiveIntegerField(
        _("number of accounts"),
        default=1,
        db_default=1,
        validators=[MinValueValidator(1), MaxValueValidator(MAX_INVITATION_USES)],
    )
    uses = models.PositiveIntegerField(_("used"), default=0, db_default=0, editable=False)
    groups = models.ManyToManyField(
        Group, blank=True, related_name="+", verbose_name=_("joins these groups")
    )
    created_by = models.ForeignKey(
        settings.AUTH_USER_MODEL,
        models.SET_NULL,
        null=True,
        editable=False,
        related_name="+",
        verbose_name=_("invited by"),
    )
    created_at = models.DateTimeField(_("created at"), auto_now_add=True)
    expires_at = models.DateTimeField(_("valid until"))
    mailed_at = models.DateTimeField(_("mailed at"), null=True, editable=False)
    used_at = models.DateTimeField(_("used at"), null=True, editable=False)
    used_by = models.ForeignKey(
        settings.AUTH_USER_MODEL,
        models.SET_NULL,
        null=True,
        editable=False,
        related_name="+",
        verbose_name=_("used by"),
    )

    objects = InvitationQuerySet.as_manager()

    class Meta:
        """Newest first."""

        verbose_name = _("invitation")
        verbose_name_plural = _("invitations")
        ordering = ("-created_at",)

    def __str__(self) -> str:
        return self.email or f"{timezone.localtime(self.created_at):%Y-%m-%d %H:%M}"


class DataExport(OwnedJob):
    """All data of an account as one file, made by a worker and available until it expires.

    `language` is the language of its texts.
    """

    class Status(models.TextChoices):
        """WAITING -> READY | FAILED."""

        WAITING = "WAITING", _("Being made")
        READY = "READY", _("Ready")
        FAILED = "FAILED", _("Failed")

    OPEN = Q(status="WAITING")
    LEASE = timedelta(seconds=30)
    MAX_ATTEMPTS = 3

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    owner = models.ForeignKey(settings.AUTH_USER_MODEL, models.CASCADE, related_name="exports")
    status = models.CharField(max_length=7, choices=Status, default=Status.WAITING)
    language = models.CharField(max_length=8, default="ko")
    size = models.BigIntegerField(default=0)
    created_at = models.DateTimeField(auto_now_add=True)
    expires_at = models.DateTimeField(null=True)

    class Meta:
        """One at a time for each account."""

        ordering = ("-created_at",)
        indexes = (
            models.Index(
                fields=("owner", "created_at"),
                condition=Q(status="WAITING"),
                name="data_export_waiting",
            ),
            models.Index(fields=("owner", "started_at"), name="data_export_served"),
        )
        constraints = (
            models.UniqueConstraint(
                fields=("owner",), condition=Q(status="WAITING"), name="one_export_at_a_time"
            ),
        )

    def __str__(self) -> str:
        return f"{self.owner_id} {self.status}"


class DataImport(OwnedJob):
    """A file of chats to import, read by a worker: `done` of `total` chats so far.

    `messages` counts new messages, `empty` chats without any. `error_code` says why it failed.
    """

    class Status(models.TextChoices):
        """WAITING -> DONE | FAILED."""

        WAITING = "WAITING", _("Being read")
        DONE = "DONE", _("Imported")
        FAILED = "FAILED", _("Failed")

    OPEN = Q(status="WAITING")
    LEASE = timedelta(seconds=30)
    MAX_ATTEMPTS = 3

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    owner = models.ForeignKey(settings.AUTH_USER_MODEL, models.CASCADE, related_name="imports")
    name = models.CharField(max_length=255)
    status = models.CharField(max_length=7, choices=Status, default=Status.WAITING)
    total = models.PositiveIntegerField(null=True)
    done = models.PositiveIntegerField(default=0)
    messages = models.PositiveIntegerField(default=0)
    empty = models.PositiveIntegerField(default=0)
    error_code = models.CharField(max_length=64, blank=True, default="")
    created_at = models.DateTimeField(auto_now_add=True)
    ended_at = models.DateTimeField(null=True)

    class Meta:
        """One at a time for each account."""

        ordering = ("-created_at",)
        indexes = (
            models.Index(
                fields=("owner", "created_at"),
                condition=Q(status="WAITING"),
                name="data_import_waiting",
            ),
            models.Index(fields=("owner", "started_at"), name="data_import_served"),
        )
        constraints = (
            models.UniqueConstraint(
                fields=("owner",), condition=Q(status="WAITING"), name="one_import_at_a_time"
            ),
        )

    @property
    def chats(self) -> int:
        """Chats so far that have messages."""
        return self.done - self.empty

    def __str__(self) -> str:
        return f"{self.owner_id} {self.status}"


# The installation


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
        _("can be dismissed"),
        default=True,
        help_text=_("Once dismissed, it stays hidden in that browser."),
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
