"""What was deleted: noted in a row, and in a list beside the data that outlives the database.

Copies of a document stand on floors above this one, in answers. Who keeps such copies says so
(`register_evidence_keeper`), and is told of deletions and of erasures.
"""

import fcntl
import json
import os
import secrets
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

from documents.models import Deletion, DeletionKind

logger = structlog.get_logger()

LIST_FORMAT, FORMER_FORMAT = 2, 1
HEADER = json.dumps({"format": LIST_FORMAT}).encode() + b"\n"
LIST_NAME = "deleted.json"
MAX_AT_ONCE = 100
"""Deleted documents whose copies are looked for together."""


# Rows


def record_deletions(
    kind: DeletionKind,
    keys: Collection[object],
    *,
    owner_id: int | None,
    days: int,
    done: bool = False,
) -> None:
    """Note in the caller's transaction that these are gone; their last copies go after `days`.

    `done`: there are no copies, or they went with it.
    """
    now = timezone.now()
    rows = [
        Deletion(
            kind=kind,
            key=str(key),
            owner_id=owner_id,
            deleted_at=now,
            due_at=now + timedelta(days=days),
            erased_at=now if done else None,
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
    """Forget that these were deleted: they are back."""
    Deletion.objects.filter(kind=kind, key__in=[str(key) for key in keys]).delete()
    extend_list_on_commit(kind, keys)


def forget_deletions_of(owner_id: int) -> None:
    """Forget what an account deleted: the deletion of the account stands for all of it."""
    Deletion.objects.filter(owner_id=owner_id).delete()
    transaction.on_commit(write_list, robust=True)


def find_erased(document_ids: Collection[UUID]) -> set[UUID]:
    """Those of these deleted documents of which no copy may be kept any more."""
    due = Deletion.objects.filter(
        kind=DeletionKind.DOCUMENT,
        key__in=[str(pk) for pk in document_ids],
        due_at__lte=timezone.now(),
    )
    return {UUID(key) for key in due.values_list("key", flat=True)}


# Copies in answers

EvidenceKeeper = Callable[[Collection[UUID], bool], bool]
"""Told of documents that are gone, and whether their text goes, too; False: not all of it yet."""
_keepers: list[EvidenceKeeper] = []


def register_evidence_keeper(keeper: EvidenceKeeper) -> None:
    """Let `keeper` know of deleted documents, in every process."""
    _keepers.append(keeper)


def apply_deletions() -> int:
    """Tell the keepers of deletions that they have not heard of, and of erasures that are due.

    How many documents are done with. What a keeper cannot do yet is tried again at the next call.
    """
    documents = Deletion.objects.filter(kind=DeletionKind.DOCUMENT, erased_at=None)
    now, done = timezone.now(), 0
    for wanted, erase in ((Q(marked_at=None), False), (Q(due_at__lte=now), True)):
        rows = documents.filter(wanted).order_by("due_at", "pk")
        tried = set[int]()
        while found := list(rows.exclude(pk__in=tried)[:MAX_AT_ONCE]):
            tried |= {row.pk for row in found}
            done += _notify_keepers(found, erase=erase)
    return done


def apply_deletions_of(document_ids: Collection[UUID]) -> None:
    """The same of a few documents that have just been deleted, as far as it can be done now."""
    rows = Deletion.objects.filter(
        kind=DeletionKind.DOCUMENT, key__in=[str(pk) for pk in document_ids], erased_at=None
    )
    for erase in (False, True):
        wanted = rows.filter(due_at__lte=timezone.now()) if erase else rows.filter(marked_at=None)
        _notify_keepers(list(wanted), erase=erase)


def _notify_keepers(rows: Collection[Deletion], *, erase: bool) -> int:
    if not rows:
        return 0
    ids = [UUID(row.key) for row in rows]
    if not all(keeper(ids, erase) for keeper in _keepers):
        return 0
    now = timezone.now()
    told = {"marked_at": now} | ({"erased_at": now} if erase else {})
    Deletion.objects.filter(pk__in=[row.pk for row in rows]).update(**told)
    if erase:
        extend_list_on_commit(DeletionKind.DOCUMENT, [row.key for row in rows])
    return len(rows)


# The list beside the data: a line for each deletion, what came of it, and its withdrawal. Of the
# lines of one thing the last one counts; now and then the list is written anew, one line a thing.


@dataclass(frozen=True, slots=True)
class ListedDeletion:
    """What the list says of a thing; `erased`: its last copies are gone, too."""

    kind: str
    key: str
    at: datetime
    erased: bool


def get_list_path() -> Path:
    """Where this installation keeps its list."""
    return Path(settings.DATA_DIR) / LIST_NAME


def extend_list_on_commit(kind: DeletionKind, keys: Collection[object]) -> None:
    """Let the list say how it stands with these when the caller's transaction is committed."""
    named = [str(key) for key in keys]
    transaction.on_commit(lambda: _extend_list(kind, named), robust=True)


def write_list() -> None:
    """Write the list anew, whole or not at all; a failure is only logged: it is written again."""
    with _lock_list():
        _write_atomically(get_list_path())


def dump_list() -> bytes:
    """All that was ever deleted, as lines of JSON."""
    rows = Deletion.objects.order_by("pk").values_list("kind", "key", "deleted_at", "erased_at")
    return b"".join((HEADER, *(_to_line(*row) for row in rows.iterator())))


def load_list(text: bytes) -> list[ListedDeletion]:
    """What a list says. Raises ValueError where it is none.

    A last line that does not end was being written when the machine stopped: it counts for nothing.
    """
    header, _, rest = text.partition(b"\n")
    try:
        told = json.loads(header)
        if told["format"] == FORMER_FORMAT:
            lines = told["deleted"]
        elif told["format"] == LIST_FORMAT:
            lines = [json.loads(line) for line in rest.split(b"\n")[:-1]]
        else:
            raise ValueError("a list of deletions of a version that is not known")
        last = {(str(kind), str(key)): (at, bool(erased)) for kind, key, at, erased in lines}
        return [
            ListedDeletion(kind, key, datetime.fromisoformat(at), erased)
            for (kind, key), (at, erased) in last.items()
            if at is not None
        ]
    except (KeyError, TypeError) as error:
        raise ValueError("no list of deletions") from error


def _to_line(kind: str, key: str, at: datetime | None, erased_at: datetime | None) -> bytes:
    """`at` None: it was withdrawn."""
    line = [kind, key, at and at.isoformat(), erased_at is not None]
    return json.dumps(line).encode() + b"\n"


def _extend_list(kind: DeletionKind, keys: Collection[str]) -> None:
    """The rows are read under the lock: of two that change one row, the later writer knows both."""
    with _lock_list():
        rows = Deletion.objects.filter(kind=kind, key__in=keys)
        known = {row.key: (row.deleted_at, row.erased_at) for row in rows}
        lines = b"".join(_to_line(kind, key, *known.get(key, (None, None))) for key in keys)
        path = get_list_path()
        if not _is_complete(path):
            _write_atomically(path)
            return
        with path.open("ab") as file:
            file.write(lines)
            file.flush()
            os.fsync(file.fileno())


def _is_complete(path: Path) -> bool:
    """Whether it is a list of this format whose last line ends."""
    try:
        with path.open("rb") as file:
            if file.readline() != HEADER:
                return False
            file.seek(-1, os.SEEK_END)
            return file.read() == b"\n"
    except FileNotFoundError:
        return False


def _write_atomically(path: Path) -> None:
    part = path.with_suffix(f".{secrets.token_hex(4)}.part")
    try:
        with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(dump_list())
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


@contextmanager
def _lock_list() -> Iterator[None]:
    """One process at a time reads rows and writes. A failure is logged; the night writes again."""
    path = get_list_path().with_suffix(".lock")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT, 0o600), "wb") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield
    except OSError:
        logger.warning("list_of_deletions_not_written", exc_info=True)
