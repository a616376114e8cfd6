"""API keys and usage of one user."""

from collections.abc import Collection
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from allauth.account.models import EmailAddress
from django.conf import settings
from django.contrib.auth.models import AbstractBaseUser, AnonymousUser, User
from django.db import transaction
from django.db.models import Count, OuterRef, Q, QuerySet, Subquery, Sum
from django.db.models.functions import Coalesce
from django.utils import timezone
from knox.models import AuthToken

from chats.models import DailyMessages, KeyDetails
from chats.models.key import ALL_SCOPES, make_key_id, sort_scopes
from chats.services.chats import count_questions_today, count_tokens_this_month
from documents import files, quotas
from documents.audit import Action, record_event
from documents.models import Document, QuotaMeasure
from documents.notices import announce_change
from nura.accounts.names import check_name

SHOWN_CHARACTERS = 8
"""Characters of a key that stay readable, so that its owner can tell keys apart."""
USAGE_DAYS = 30
"""Questions of so many days are told with the usage."""


@dataclass(frozen=True, slots=True)
class AccountUsage:
    """What a user has stored and asked."""

    documents: int
    bytes: int
    pages: int
    messages_today: int
    tokens_this_month: int


def create_key(*, user: User, lifetime: timedelta | None = None) -> str:
    """A new API key that may do everything; this is the only time it is readable."""
    expires_at = None if lifetime is None else timezone.now() + lifetime
    _stored, key = make_key(user=user, name="", scopes=ALL_SCOPES, expires_at=expires_at)
    return key


@transaction.atomic
def make_key(
    *, user: User, name: str, scopes: Collection[str], expires_at: datetime | None = None
) -> tuple[AuthToken, str]:
    """Create an API key: its row and its secret, of which only the hash is stored."""
    stored, key = AuthToken.objects.create(user)
    stored.expiry = expires_at
    stored.save(update_fields=("expiry",))
    kept = sort_scopes(scopes)
    stored.details = KeyDetails.objects.create(key=stored, name=name, scopes=kept)
    record_event(
        Action.KEY_CREATED,
        actor=user,
        subject=user,
        target=f"key:{make_key_id(stored)}",
        details={"scopes": kept, "expires_at": stored.expiry},
    )
    return stored, str(key)


def list_keys(*, user: User) -> QuerySet[Any]:
    """The user's keys that still work, newest first."""
    alive: QuerySet[Any] = AuthToken.objects.filter(user=user).exclude(expiry__lt=timezone.now())
    return alive.select_related("details").order_by("-created", "digest")


@transaction.atomic
def revoke_key(*, user: User, key_id: UUID) -> bool:
    """Delete one key of the user; False when the user has no such key. What it has open ends."""
    found = AuthToken.objects.select_for_update().filter(user=user, digest__startswith=key_id.hex)
    if (key := found.first()) is None:
        return False
    key.delete()
    record_event(Action.KEY_REVOKED, actor=user, subject=user, target=f"key:{key_id}")
    announce_change()
    return True


@transaction.atomic
def revoke_keys(*, user: User, actor: AbstractBaseUser | AnonymousUser) -> int:
    """Delete all keys of a user; how many. What they have open ends."""
    keys = AuthToken.objects.filter(user=user)
    count: int = keys.count()
    keys.delete()
    if count:
        announce_change()
        record_event(
            Action.KEY_REVOKED,
            actor=actor,
            subject=user,
            target="key:all",
            details={"count": count},
        )
    return count


@transaction.atomic
def make_user(*, name: str, password: str, staff: bool, email: str = "") -> User:
    """Create the user of that name, or bring an existing one to this state.

    Raises `ValidationError` where a new name could be mistaken for another.
    """
    if not User.objects.filter(username=User.normalize_username(name)).exists():
        check_name(User.normalize_username(name))
    user, created = User.objects.select_for_update().get_or_create(
        username=User.normalize_username(name), defaults={"email": email}
    )
    user.set_password(password)
    user.is_active = True
    user.is_staff = staff or user.is_staff
    user.save()
    done = Action.ACCOUNT_CREATED if created else Action.PASSWORD_CHANGED
    record_event(done, subject=user, details={"by": "command", "is_staff": user.is_staff})
    announce_change()
    return user


@transaction.atomic
def replace_email(*, user: User, email: str) -> None:
    """The account's one address from now on, unconfirmed: for installations without mail."""
    EmailAddress.objects.filter(user=user).delete()
    EmailAddress.objects.create(user=user, email=email.lower(), primary=True, verified=False)
    User.objects.filter(pk=user.pk).update(email=email.lower())
    changed = {"changed": ["email"]}
    record_event(Action.ACCOUNT_CHANGED, actor=user, subject=user, details=changed)


def count_usage(*, user: User) -> AccountUsage:
    """Counted now from the rows."""
    kept = quotas.count_kept(user.pk)
    return AccountUsage(
        documents=kept.documents,
        bytes=kept.bytes,
        pages=kept.pages,
        messages_today=count_questions_today(user.pk),
        tokens_this_month=count_tokens_this_month(user.pk),
    )


def list_usage(wanted: str = "") -> QuerySet[Any]:
    """Accounts with what they keep and ask, those that ask most first.

    Each has `kept_documents`, `kept_bytes`, `kept_pages`, and `questions` of the last `USAGE_DAYS`
    days. `wanted` narrows them to names and addresses that contain it.
    """
    own = Document.objects.filter(owner=OuterRef("pk")).order_by().values("owner")
    since = timezone.localdate() - timedelta(days=USAGE_DAYS - 1)
    asked = DailyMessages.objects.filter(owner=OuterRef("pk"), day__gte=since).order_by()
    questions = asked.values("owner").annotate(sum=Sum("count")).values("sum")
    figures = {
        "kept_documents": own.annotate(sum=Count("pk")).values("sum"),
        "kept_bytes": own.annotate(sum=Sum("size")).values("sum"),
        "kept_pages": own.annotate(sum=Sum("page_count")).values("sum"),
        "questions": questions,
    }
    counted = {name: Coalesce(Subquery(rows), 0) for name, rows in figures.items()}
    named = Q(username__icontains=wanted) | Q(email__icontains=wanted)
    found: QuerySet[Any] = User.objects.filter(named).annotate(**counted)
    return found.order_by("-questions", "username")


def describe_account(*, user: User) -> dict[str, Any]:
    """The response of `GET /me`. None in limits, what is left and soft limits means no limit."""
    usage: dict[str, int] = asdict(count_usage(user=user))
    limits = {measure.value: limit for measure, limit in quotas.find_limits(user.pk).items()}
    return {
        "id": user.pk,
        "username": user.username,
        "is_staff": user.is_staff,
        "usage": usage,
        "limits": {
            **{name: limit.hard for name, limit in limits.items()},
            "upload_bytes": settings.MAX_UPLOAD_MB * files.MEGABYTE,
        },
        "left": {name: limit.get_left(usage[name]) for name, limit in limits.items()},
        "soft": {name: limit.soft for name, limit in limits.items()},
        "resets_at": {
            QuotaMeasure.QUESTIONS.value: quotas.get_next_day(),
            QuotaMeasure.TOKENS.value: quotas.get_next_month(),
        },
    }
