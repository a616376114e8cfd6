"""The audit log: who did what to whose things, when, and from where.

It records that something happened, never what was read, written or typed: no text of conversations
or documents, no passwords, no keys. A row is written in the transaction of the event, so that
neither exists without the other. A trigger refuses to change or delete rows. They contain names as
they were, since an account may be gone by the time somebody reads them.

It is in this app because conversations, documents and accounts all write it.
"""

import json
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import datetime
from typing import IO, TYPE_CHECKING, Any

from asgiref.sync import sync_to_async
from django.core.handlers.asgi import ASGIRequest
from django.core.serializers.json import DjangoJSONEncoder
from django.db import connection, models, transaction
from django.db.models import QuerySet
from django.http import HttpRequest, StreamingHttpResponse
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

if TYPE_CHECKING:
    from django.contrib.auth.models import AbstractBaseUser, AnonymousUser


NAME_CHARACTERS = 254
TARGET_CHARACTERS = 200


class Action(models.TextChoices):
    """What is recorded. The values are public: exports and alerts rely on them."""

    SIGN_IN = "sign_in", _("Signed in")
    SIGN_IN_FAILED = "sign_in_failed", _("Sign-in failed")
    SIGN_IN_LOCKED = "sign_in_locked", _("Sign-in refused after too many attempts")
    SIGN_OUT = "sign_out", _("Signed out")
    SESSION_ENDED = "session_ended", _("Session ended")
    PASSWORD_CHANGED = "password_changed", _("New password set")
    KEY_CREATED = "key_created", _("API key created")
    KEY_REVOKED = "key_revoked", _("API key revoked")
    ACCOUNT_CREATED = "account_created", _("Account created")
    ACCOUNT_CHANGED = "account_changed", _("Account changed")
    ACCOUNT_DEACTIVATED = "account_deactivated", _("Account deactivated")
    ACCOUNT_DELETED = "account_deleted", _("Account deleted")
    RIGHTS_CHANGED = "rights_changed", _("Rights changed")
    SECOND_STEP_CHANGED = "second_step_changed", _("Two-step sign-in changed")
    SHARE_CHANGED = "share_changed", _("Sharing changed")
    INVITATION_CHANGED = "invitation_changed", _("Invitation changed")
    QUOTA_CHANGED = "quota_changed", _("Quota changed")
    SETTING_CHANGED = "setting_changed", _("Setting changed")
    DATA_VIEWED = "data_viewed", _("Data of another person viewed")
    DATA_RESTORED = "data_restored", _("Data restored")
    DATA_DELETED = "data_deleted", _("Data deleted")
    DATA_PURGED = "data_purged", _("Data purged")
    CASE_WRITTEN = "case_written", _("Answer added as an evaluation case")
    WORK_REPEATED = "work_repeated", _("Failed work tried again")
    QUEUE_CHANGED = "queue_changed", _("Queue paused, resumed or reordered")
    DATA_EXPORTED = "data_exported", _("Data exported")
    LIBRARY_CREATED = "library_created", _("Library created")
    LIBRARY_CHANGED = "library_changed", _("Library changed")
    LIBRARY_DELETED = "library_deleted", _("Library deleted")
    MEMBER_ADDED = "member_added", _("Library member added")
    MEMBER_CHANGED = "member_changed", _("Role in a library changed")
    MEMBER_REMOVED = "member_removed", _("Library member removed")
    DOCUMENT_MOVED = "document_moved", _("Document moved to another library")
    DOCUMENT_PASSED_ON = "document_passed_on", _("Document given to another account")
    SOURCE_CREATED = "source_created", _("Source set up")
    SOURCE_CHANGED = "source_changed", _("Source changed")
    SOURCE_DELETED = "source_deleted", _("Source removed")
    SOURCE_RUN = "source_run", _("Source started manually")
    LOG_TRIMMED = "log_trimmed", _("Old audit entries removed")


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a request comes from; both are empty for a command."""

    address: str = ""
    request_id: str = ""


_origin: ContextVar[Origin] = ContextVar("audit_origin", default=Origin())  # noqa: B039 - frozen


@contextmanager
def use_origin(address: str, request_id: str) -> Iterator[None]:
    """Events recorded within the block come from this address and request."""
    token = _origin.set(Origin(address, request_id))
    try:
        yield
    finally:
        _origin.reset(token)


class AuditEvent(models.Model):
    """One line of the log.

    `actor` did it (null: the system, or somebody not signed in) to something that belongs to
    `subject` (null: nobody). Both are an id without a foreign key, with the name at that time.
    `target` is the object, as `{kind}:{id}`.
    """

    at = models.DateTimeField(_("time"), default=timezone.now, db_index=True)
    action = models.CharField(_("action"), max_length=40, db_index=True)
    actor_id = models.BigIntegerField(null=True, blank=True, db_index=True)
    actor_name = models.CharField(_("by"), max_length=NAME_CHARACTERS, blank=True, default="")
    subject_id = models.BigIntegerField(null=True, blank=True, db_index=True)
    subject_name = models.CharField(_("whose"), max_length=NAME_CHARACTERS, blank=True, default="")
    target = models.CharField(_("object"), max_length=TARGET_CHARACTERS, blank=True, default="")
    details = models.JSONField(_("details"), default=dict, encoder=DjangoJSONEncoder)
    address = models.GenericIPAddressField(_("address"), null=True, blank=True)
    request_id = models.CharField(_("request"), max_length=64, blank=True, default="")

    class Meta:
        """Newest first."""

        verbose_name = _("audit entry")
        verbose_name_plural = _("audit entries")
        ordering = ("-pk",)

    def __str__(self) -> str:
        return f"{self.at:%Y-%m-%d %H:%M:%S} {self.action} {self.target}"


def record_event(
    action: Action,
    *,
    actor: "AbstractBaseUser | AnonymousUser | None" = None,
    subject: "AbstractBaseUser | None" = None,
    target: models.Model | str = "",
    details: Mapping[str, Any] | None = None,
) -> AuditEvent:
    """Write one entry in the current transaction.

    `target` is a row, or `{kind}:{id}`. `details` are stored as JSON: ids, counts, names of fields,
    never contents.
    """
    origin = _origin.get()
    return AuditEvent.objects.create(
        action=action.value,
        actor_id=actor.pk if actor is not None else None,
        actor_name=_get_name(actor)[:NAME_CHARACTERS],
        subject_id=subject.pk if subject is not None else None,
        subject_name=_get_name(subject)[:NAME_CHARACTERS],
        target=(target if isinstance(target, str) else describe_target(target))[:TARGET_CHARACTERS],
        details=dict(details or {}),
        address=origin.address or None,
        request_id=origin.request_id,
    )


def describe_target(row: models.Model) -> str:
    """The name of a row in the log: `{kind}:{id}`."""
    return f"{row._meta.model_name}:{row.pk}"  # noqa: SLF001 - public in all but its name


def _get_name(user: "AbstractBaseUser | AnonymousUser | None") -> str:
    return user.get_username() if user is not None else ""


def to_export_json(event: AuditEvent) -> dict[str, Any]:
    """A row as an object of the JSON Lines export."""
    return {
        "id": event.pk,
        "at": event.at.isoformat(),
        "action": event.action,
        "actor_id": event.actor_id,
        "actor": event.actor_name,
        "subject_id": event.subject_id,
        "subject": event.subject_name,
        "target": event.target,
        "details": event.details,
        "address": event.address,
        "request_id": event.request_id,
    }


ROWS_A_PAGE = 1000
CONTENT_TYPE = "application/x-ndjson"

DISABLE_TRIGGER = "ALTER TABLE documents_auditevent DISABLE TRIGGER audit_is_append_only"
ENABLE_TRIGGER = "ALTER TABLE documents_auditevent ENABLE TRIGGER audit_is_append_only"


def make_export_response(
    request: HttpRequest, events: QuerySet[AuditEvent]
) -> StreamingHttpResponse:
    """The entries as a streamed download, oldest first."""
    is_async = isinstance(request, ASGIRequest)
    response = StreamingHttpResponse(
        _export_pages_async(events) if is_async else _export_pages(events),
        content_type=CONTENT_TYPE,
    )
    name = f"nura-audit-{timezone.localtime():%Y%m%d-%H%M%S}.jsonl"
    response["Content-Disposition"] = f'attachment; filename="{name}"'
    response["Cache-Control"] = "no-store"
    return response


def trim_log(*, before: datetime, out: IO[str]) -> int:
    """Write the entries before that time to `out`, then remove them. Returns their number.

    The only way to remove entries: the trigger is disabled within the transaction, and a new entry
    says how many were removed.
    """
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(DISABLE_TRIGGER)  # locks the table: nothing is added between the two
        events = AuditEvent.objects.filter(at__lt=before)
        count = 0
        for page in _export_pages(events):
            out.write(page)
            count += page.count("\n")
        out.flush()
        events.delete()
        record_event(Action.LOG_TRIMMED, details={"before": before, "count": count})
        cursor.execute(ENABLE_TRIGGER)
    return count


def _export_pages(events: QuerySet[AuditEvent]) -> Iterator[str]:
    last_pk = 0
    while page := _read_page(events, last_pk):
        last_pk = page[-1].pk
        yield _to_json_lines(page)


async def _export_pages_async(events: QuerySet[AuditEvent]) -> AsyncIterator[str]:
    """`_export_pages` for ASGI, where Django would collect a plain iterator in memory first."""
    last_pk = 0
    while page := await sync_to_async(_read_page)(events, last_pk):
        last_pk = page[-1].pk
        yield _to_json_lines(page)


def _read_page(events: QuerySet[AuditEvent], after_pk: int) -> list[AuditEvent]:
    return list(events.filter(pk__gt=after_pk).order_by("pk")[:ROWS_A_PAGE])


def _to_json_lines(events: Iterable[AuditEvent]) -> str:
    lines = (json.dumps(to_export_json(event), ensure_ascii=False) for event in events)
    return "".join(f"{line}\n" for line in lines)
