"""Deleting again, after a restore, what had been deleted since the backup was taken."""

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime

from django.contrib.auth.models import User
from django.db import transaction
from django.db.models import F, QuerySet
from django.db.models.functions import Now

from chats.models import Chat, Message, Run
from chats.services.branches import delete_message
from chats.services.erasure import purge_chat
from documents.deletions import NotedDeletion, settle_deletions
from documents.models import Deletion, DeletionKind, Document
from documents.services import delete_document
from jobs.lease import RELEASED
from nura.accounts.deletion import delete_account


def delete_again(noted: Iterable[NotedDeletion]) -> int:
    """Delete what a list says and the database still has; how many things.

    A number of an account may have been given anew: only an account that is older than its deletion
    is meant.
    """
    lines = {(one.kind, one.key): one for one in noted}
    return sum(REPEAT[line.kind](line) for line in lines.values() if line.kind in REPEAT)


def _delete_document(line: NotedDeletion) -> bool:
    document = Document.objects.filter(pk=line.key).first()
    if document is None:
        return False
    delete_document(document=document, erase=line.erased)
    _date_back(DeletionKind.DOCUMENT, line.key, line.at)
    settle_deletions()
    return True


def _delete_chat(line: NotedDeletion) -> bool:
    rows = Chat.objects.filter(pk=line.key)
    hidden = rows.filter(deleted_at=None).update(deleted_at=line.at)
    if hidden:
        Deletion.objects.update_or_create(
            kind=DeletionKind.CHAT,
            key=line.key,
            defaults={
                "owner_id": rows.values_list("owner_id", flat=True).get(),
                "deleted_at": line.at,
                "due_at": line.at,
            },
        )
    if line.erased and rows.exists():
        _end_runs(Run.objects.filter(message__chat_id=line.key))
        purge_chat(rows.values_list("pk", flat=True).get())
        return True
    return bool(hidden)


def _delete_message(line: NotedDeletion) -> bool:
    message = Message.objects.filter(pk=line.key, chat__deleted_at=None).first()
    if message is None:
        return False
    _end_runs(Run.objects.filter(message__chat_id=message.chat_id))
    delete_message(message=message)
    return True


def _delete_user(line: NotedDeletion) -> bool:
    user = User.objects.filter(pk=int(line.key), date_joined__lt=line.at).first()
    if user is None:
        return False
    delete_account(user=user, may_be_last=True)
    return True


def _end_runs(runs: QuerySet[Run]) -> None:
    """Answers that were being written when the backup was taken: nobody writes them now."""
    with transaction.atomic():
        open_ones = runs.filter(ended_at=None)
        Message.objects.filter(run__in=open_ones).update(status=Message.Status.INTERRUPTED)
        open_ones.update(ended_at=Now(), **RELEASED)


def _date_back(kind: DeletionKind, key: str, at: datetime) -> None:
    """Let the retention count from the day of the deletion, not from that of the restore."""
    rows = Deletion.objects.filter(kind=kind, key=key)
    late = rows.values_list("deleted_at", flat=True).get() - at
    rows.update(deleted_at=at, due_at=F("due_at") - late)


REPEAT: Mapping[str, Callable[[NotedDeletion], bool]] = {
    DeletionKind.USER: _delete_user,
    DeletionKind.CHAT: _delete_chat,
    DeletionKind.MESSAGE: _delete_message,
    DeletionKind.DOCUMENT: _delete_document,
}
