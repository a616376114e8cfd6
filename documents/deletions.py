"""Records of deletions: rows, and a list in the data folder that outlives the database.

Answers keep copies of documents, in an app above this one. Whatever keeps such copies registers
itself (`register_evidence_keeper`) and is notified of deletions and due erasures.
"""

import fcntl
import json
import os
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from uuid import UUID

import structlog
from django.conf import settings
from django.db import transaction
from django.db.models import Q
from django.utils import timezone

from documents.files import write_atomically
from documents.models import Deletion, DeletionKind

logger = structlog.get_logger()

LIST_FORMAT, OLD_LIST_FORMAT = 2, 1
HEADER = json.dumps({"format": LIST_FORMAT}).encode() + b"\n"
LIST_NAME = "deleted.json"
MAX_AT_ONCE = 100
"""Deleted documents that the keepers handle together."""


# Rows


def record_deletions(
    kind: DeletionKind,
    keys: Collection[object],
    *,
    owner_id: int | None,
    days: int,
    is_erased: bool = False,
) -> None:
    """Record in the caller's transaction that these are deleted; copies are erased after `days`.

    `is_erased`: there are no copies, or they are deleted as well.
    """
    now = timezone.now()
    rows = [
        Deletion(
            kind=kind,
            key=str(key),
            owner_id=owner_id,
            deleted_at=now,
            due_at=now + timedelta(days=days),
            erased_at=now if is_erased else None,
        )
        for key in keys
    ]
    Deletion.objects.bulk_create(
        rows,
        update_conflicts=True,
        unique_fields=["kind", "key"],
        update_fields=["deleted_at", "due_at", "erased_at"],
    )
    extend_list_on_commit(kind, keys)


def withdraw_deletions(kind: DeletionKind, keys: Collection[object]) -> None:
    """Remove the records of these deletions: the objects are back."""
    Deletion.objects.filter(kind=kind, key__in=[str(key) for key in keys]).delete()
    extend_list_on_commit(kind, keys)


def delete_deletion_records(owner_id: int) -> None:
    """Remove the records of what an account deleted; the record of the account covers them."""
    Deletion.objects.filter(owner_id=owner_id).delete()
    transaction.on_commit(write_list, robust=True)


def find_erased(document_ids: Collection[UUID]) -> set[UUID]:
    """Which of these deleted documents must have no copy any more."""
    due = Deletion.objects.filter(
        kind=DeletionKind.DOCUMENT,
        key__in=[str(pk) for pk in document_ids],
        due_at__lte=timezone.now(),
    )
    return {UUID(key) for key in due.values_list("key", flat=True)}


# Copies in answers

EvidenceKeeper = Callable[[Collection[UUID], bool], bool]
"""Gets ids of deleted documents, and whether to erase their text. False: not finished yet."""
_keepers: list[EvidenceKeeper] = []


def register_evidence_keeper(keeper: EvidenceKeeper) -> None:
    """Have `keeper` notified of deleted documents. To be called in every process."""
    _keepers.append(keeper)


def apply_deletions() -> int:
    """Notify the keepers of new deletions and of due erasures.

    Returns the number of documents handled. What a keeper cannot finish is tried again at the next
    call.
    """
    documents = Deletion.objects.filter(kind=DeletionKind.DOCUMENT, erased_at=None)
    now, count = timezone.now(), 0
    for condition, erase in ((Q(marked_at=None), False), (Q(due_at__lte=now), True)):
        rows = documents.filter(condition).order_by("due_at", "pk")
        tried_ids = set[int]()
        while batch := list(rows.exclude(pk__in=tried_ids)[:MAX_AT_ONCE]):
            tried_ids |= {row.pk for row in batch}
            count += _notify_keepers(batch, erase=erase)
    return count


def apply_deletions_of(document_ids: Collection[UUID]) -> None:
    """Notify the keepers of documents that have just been deleted, as far as possible now."""
    rows = Deletion.objects.filter(
        kind=DeletionKind.DOCUMENT, key__in=[str(pk) for pk in document_ids], erased_at=None
    )
    for erase in (False, True):
        due = rows.filter(due_at__lte=timezone.now()) if erase else rows.filter(marked_at=None)
        _notify_keepers(list(due), erase=erase)


def _notify_keepers(rows: Collection[Deletion], *, erase: bool) -> int:
    if not rows:
        return 0
    ids = [UUID(row.key) for row in rows]
    if not all(keeper(ids, erase) for keeper in _keepers):
        return 0
    now = timezone.now()
    values = {"marked_at": now} | ({"erased_at": now} if erase else {})
    Deletion.objects.filter(pk__in=[row.pk for row in rows]).update(**values)
    if erase:
        extend_list_on_commit(DeletionKind.DOCUMENT, [row.key for row in rows])
    return len(rows)


# The list beside the data: a line for each deletion, erasure and withdrawal. The last line of an
# object counts; now and then the list is rewritten with one line for each.


@dataclass(frozen=True, slots=True)
class ListedDeletion:
    """An entry of the list; `erased`: the last copies are gone, too."""

    kind: str
    key: str
    at: datetime
    erased: bool


def get_list_path() -> Path:
    """The path of this installation's list."""
    return Path(settings.DATA_DIR) / LIST_NAME


def extend_list_on_commit(kind: DeletionKind, keys: Collection[object]) -> None:
    """Append the state of these to the list after commit."""
    key_texts = [str(key) for key in keys]
    transaction.on_commit(lambda: _extend_list(kind, key_texts), robust=True)


def write_list() -> None:
    """Rewrite the list. A failure is only logged: the nightly run repeats it."""
    with _lock_list():
        _rewrite_list()


def dump_list() -> bytes:
    """The whole list, as lines of JSON."""
    rows = Deletion.objects.order_by("pk").values_list("kind", "key", "deleted_at", "erased_at")
    return b"".join((HEADER, *(_to_line(*row) for row in rows.iterator())))


def load_list(text: bytes) -> list[ListedDeletion]:
    """Parse a list. Raises ValueError if it is none.

    An incomplete last line was cut off by a crash and is ignored.
    """
    header, _, rest = text.partition(b"\n")
    try:
        header_json = json.loads(header)
        if header_json["format"] == OLD_LIST_FORMAT:
            lines = header_json["deleted"]
        elif header_json["format"] == LIST_FORMAT:
            lines = [json.loads(line) for line in rest.split(b"\n")[:-1]]
        else:
            raise ValueError("a list of deletions of a version that is not known")
        states = {(str(kind), str(key)): (at, bool(erased)) for kind, key, at, erased in lines}
        return [
            ListedDeletion(kind, key, datetime.fromisoformat(at), erased)
            for (kind, key), (at, erased) in states.items()
            if at is not None
        ]
    except (KeyError, TypeError) as error:
        raise ValueError("no list of deletions") from error


def _to_line(kind: str, key: str, at: datetime | None, erased_at: datetime | None) -> bytes:
    """A line of the list; `at` None: the deletion was withdrawn."""
    line = [kind, key, at and at.isoformat(), erased_at is not None]
    return json.dumps(line).encode() + b"\n"


def _extend_list(kind: DeletionKind, keys: Collection[str]) -> None:
    """Rows are read under the lock: of two concurrent changes, the later writer sees both."""
    with _lock_list():
        rows = Deletion.objects.filter(kind=kind, key__in=keys)
        states = {row.key: (row.deleted_at, row.erased_at) for row in rows}
        lines = b"".join(_to_line(kind, key, *states.get(key, (None, None))) for key in keys)
        path = get_list_path()
        if not _is_complete(path):
            _rewrite_list()
            return
        with path.open("ab") as file:
            file.write(lines)
            file.flush()
            os.fsync(file.fileno())


def _rewrite_list() -> None:
    write_atomically(get_list_path(), dump_list(), mode=0o600, durable=True)


def _is_complete(path: Path) -> bool:
    """Whether it is a list of the current format with a complete last line."""
    try:
        with path.open("rb") as file:
            if file.readline() != HEADER:
                return False
            file.seek(-1, os.SEEK_END)
            return file.read() == b"\n"
    except FileNotFoundError:
        return False


@contextmanager
def _lock_list() -> Iterator[None]:
    """One process at a time. A failure to write is logged; the nightly run repeats it."""
    path = get_list_path().with_suffix(".lock")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT, 0o600), "wb") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield
    except OSError:
        logger.warning("list_of_deletions_not_written", exc_info=True)
