"""Deleting an account with everything, and the receipt for it.

The receipt lists how many rows of each kind were deleted, without a name: an id, counts, a time, a
digest of these and a signature with the installation's key. The person gets it, and a copy is kept
with the record of the deletion.
"""

import hashlib
import hmac
import json
from collections import Counter
from collections.abc import Collection, Mapping
from typing import Any
from uuid import UUID, uuid4

import structlog
from allauth.socialaccount.models import SocialAccount
from django.conf import settings
from django.contrib.admin.models import LogEntry
from django.contrib.auth import SESSION_KEY
from django.contrib.auth.models import User
from django.contrib.contenttypes.models import ContentType
from django.contrib.sessions.models import Session
from django.db import IntegrityError, OperationalError, connection, transaction
from django.db.models import Sum
from django.utils import timezone
from knox.models import AuthToken
from redis.exceptions import RedisError

from chats.models import (
    Assistant,
    Category,
    Chat,
    ChatShare,
    Feedback,
    FolderShare,
    Message,
    ProfileSlot,
    Prompt,
    Run,
    Turn,
)
from chats.runs import log
from documents import deletions, libraries
from documents.audit import Action, record_event
from documents.models import (
    Chunk,
    ChunkEmbedding,
    Deletion,
    DeletionKind,
    Document,
    DocumentPicture,
    DocumentVersion,
    LibraryMember,
)
from documents.services import remove_document
from nura.accounts.roles import require_other_administrator
from nura.models import Invitation

logger = structlog.get_logger()

MAX_DELETING_TRIES = 3
"""What a user starts during the deletion can make it fail once, not again."""
RECEIPT_FORMAT = 1
FOOTPRINT_BATCH = 500


def delete_account(*, user: User, may_be_last: bool = False) -> dict[str, Any]:
    """Delete a user with everything, including files and running answers; returns the receipt.

    The account is deactivated first. What the user starts meanwhile is either deleted too or fails
    for lack of an owner. Raises `LastAdministrator` unless it `may_be_last`.
    """
    with transaction.atomic():
        if not may_be_last:
            require_other_administrator(excluding=[user.pk])
        User.objects.filter(pk=user.pk).update(is_active=False)
    _close_account(user)
    for tries_left in reversed(range(MAX_DELETING_TRIES)):
        try:
            with transaction.atomic():
                return _delete_account(user)
        except (IntegrityError, OperationalError):
            if not tries_left:
                raise
    raise AssertionError


def _close_account(user: User) -> None:
    """Stop the user's running answers."""
    for run_id in Run.objects.filter(owner=user, ended_at=None).values_list("pk", flat=True):
        try:
            log.request_stop(run_id)
        except Exception:  # an unreachable Redis must not prevent the deletion
            logger.warning("run_not_stopped", run_id=str(run_id), exc_info=True)
            break


def _delete_account(user: User) -> dict[str, Any]:
    # Lock order: an ending answer locks its run, then chat; a question its chat, then documents.
    runs, open_runs = list[UUID](), list[UUID]()
    locked_runs = Run.objects.filter(owner=user).order_by("pk").select_for_update()
    for pk, ended_at in locked_runs.values_list("pk", "ended_at"):
        (open_runs if ended_at is None else runs).append(pk)
    list(Chat.objects.filter(owner=user).order_by("pk").select_for_update().values_list("pk"))
    libraries.hand_over_documents(owner=user)  # documents in shared libraries stay
    counts = _count_rows(user)
    for document in Document.objects.filter(owner=user).order_by("pk"):
        remove_document(document.pk)
    counts["sessions"] = _delete_sessions(user)
    Invitation.objects.filter(used_by=user, max_uses=1).delete()  # it names the address
    _forget_in_admin_log(user)
    deletions.delete_deletion_records(user.pk)
    User.objects.filter(pk=user.pk).delete()
    connection.check_constraints()
    receipt = make_receipt(user.pk, counts)
    deletions.record_deletions(DeletionKind.USER, [user.pk], owner_id=None, days=0, is_erased=True)
    Deletion.objects.filter(kind=DeletionKind.USER, key=str(user.pk)).update(receipt=receipt)
    record_event(Action.ACCOUNT_DELETED, target=f"user:{user.pk}", details={"receipt": receipt})
    transaction.on_commit(lambda: _delete_logs(runs, open_runs), robust=True)
    return receipt


def _count_rows(user: User) -> Counter[str]:
    """The number of rows and files to be deleted, by kind."""
    documents = Document.objects.filter(owner=user)
    versions = DocumentVersion.objects.filter(document__owner=user)
    pictures = DocumentPicture.objects.filter(document__owner=user).exclude(file="")
    size = sum(rows.aggregate(sum=Sum("size"))["sum"] or 0 for rows in (documents, versions))
    messages = Message.objects.filter(chat__owner=user)
    return Counter(
        documents=documents.count(),
        versions=versions.count(),
        files=documents.count() + versions.exclude(file="").count() + pictures.count(),
        bytes=size,
        passages=Chunk.objects.filter(document__owner=user).count(),
        vectors=ChunkEmbedding.objects.filter(document__owner=user).count(),
        chats=Chat.objects.filter(owner=user).count(),
        messages=messages.count(),
        turns=Turn.objects.filter(chat__owner=user).count(),
        runs=Run.objects.filter(owner=user).count(),
        verdicts=Feedback.objects.filter(user=user).count(),
        memories=ProfileSlot.objects.filter(owner=user).count(),
        categories=Category.objects.filter(owner=user).count(),
        assistants=Assistant.objects.filter(owner=user).count(),
        prompts=Prompt.objects.filter(owner=user).count(),
        prompt_folders=FolderShare.objects.filter(owner=user).count(),
        shares=ChatShare.objects.filter(chat__owner=user).count(),
        memberships=LibraryMember.objects.filter(user=user).count(),
        sign_ons=SocialAccount.objects.filter(user=user).count(),
        keys=AuthToken.objects.filter(user=user).count(),
    )


def _delete_sessions(user: User) -> int:
    """Delete the user's sessions; only their encoded data says whose they are."""
    user_id, keys = str(user.pk), list[str]()
    for session in Session.objects.iterator(chunk_size=FOOTPRINT_BATCH):
        if str(session.get_decoded().get(SESSION_KEY, "")) == user_id:
            keys.append(session.session_key)
    return Session.objects.filter(session_key__in=keys).delete()[0]


def _forget_in_admin_log(user: User) -> None:
    """Blank the user's name in Django's admin log."""
    content_type = ContentType.objects.get_for_model(User)
    entries = LogEntry.objects.filter(content_type=content_type, object_id=str(user.pk))
    entries.update(object_repr="", change_message="")


def _delete_logs(ended_runs: Collection[UUID], open_runs: Collection[UUID]) -> None:
    try:
        log.delete_logs(ended_runs)
        log.close_logs(open_runs)
    except RedisError:
        logger.warning("run_logs_not_deleted", exc_info=True)


# The receipt


def make_receipt(user_id: int, counts: Mapping[str, int]) -> dict[str, Any]:
    """A signed receipt dated now."""
    body: dict[str, Any] = {
        "format": RECEIPT_FORMAT,
        "id": str(uuid4()),
        "account": user_id,
        "deleted_at": timezone.now().isoformat(timespec="seconds"),
        "deleted": {name: count for name, count in counts.items() if count},
    }
    digest = hashlib.sha256(_to_canonical_json(body)).hexdigest()
    return body | {"digest": digest, "signature": _sign(digest)}


def is_genuine(receipt: Mapping[str, Any]) -> bool:
    """Whether this installation issued the receipt, unaltered."""
    body = {name: value for name, value in receipt.items() if name not in {"digest", "signature"}}
    digest = hashlib.sha256(_to_canonical_json(body)).hexdigest()
    claimed = str(receipt.get("digest", "")), str(receipt.get("signature", ""))
    return hmac.compare_digest(claimed[0], digest) and hmac.compare_digest(
        claimed[1], _sign(digest)
    )


def _to_canonical_json(body: Mapping[str, Any]) -> bytes:
    return json.dumps(body, sort_keys=True, separators=(",", ":"), ensure_ascii=True).encode()


def _sign(digest: str) -> str:
    key = hashlib.sha256(b"nura deletion receipt" + settings.SECRET_KEY.encode()).digest()
    return hmac.digest(key, digest.encode(), "sha256").hex()
