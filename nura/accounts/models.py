"""What an installation keeps of its accounts, beside what Django, allauth and knox keep."""

from typing import Self

from django.conf import settings
from django.core.validators import MaxValueValidator, MinValueValidator
from django.db import models
from django.db.models.functions import Now
from django.utils.translation import gettext_lazy as _

MIN_SPEECH_RATE, MAX_SPEECH_RATE = 0.5, 2.0
"""Bounds of how fast answers are read aloud; 1 is the voice's own pace."""


class Preferences(models.Model):
    """How one person wants the pages, on every device. An account without a row has the usual."""

    class Theme(models.TextChoices):
        """Colours of the pages."""

        SYSTEM = "system", _("As the system")
        LIGHT = "light", _("Light")
        DARK = "dark", _("Dark")

    class SendKey(models.TextChoices):
        """What sends a question; the other one begins a new line."""

        ENTER = "enter", _("Enter")
        MOD_ENTER = "mod-enter", _("Ctrl+Enter (⌘+Enter on a Mac)")

    user = models.OneToOneField(
        settings.AUTH_USER_MODEL, models.CASCADE, primary_key=True, related_name="preferences"
    )
    language = models.CharField(max_length=8, blank=True, default="")
    theme = models.CharField(max_length=8, choices=Theme, default=Theme.SYSTEM)
    send_key = models.CharField(max_length=16, choices=SendKey, default=SendKey.ENTER)
    voice = models.CharField(max_length=200, blank=True, default="")
    speech_rate = models.FloatField(
        default=1.0,
        validators=[MinValueValidator(MIN_SPEECH_RATE), MaxValueValidator(MAX_SPEECH_RATE)],
    )
    updated_at = models.DateTimeField(auto_now=True)

    def __str__(self) -> str:
        return f"{self.user_id}"


class InvitationQuerySet(models.QuerySet["Invitation"]):
    """Filters as words that chain."""

    def open(self) -> Self:
        """Those that somebody may still use."""
        return self.filter(used_at=None, expires_at__gt=Now())


class Invitation(models.Model):
    """A link by which one account is created; `digest` is all that is kept of its secret.

    `email`, where given, is the address that the account gets; it counts as verified when the link
    was mailed to it.
    """

    digest = models.CharField(max_length=64, unique=True, editable=False)
    email = models.EmailField(_("e-mail"), blank=True, default="")
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
        return self.email or f"{self.created_at:%Y-%m-%d %H:%M}"
