"""Retention: finding and removing expired data.

Everything here can be stopped at any moment and restarted: each step removes a little, in a
transaction of its own, and works on what is left.
"""

import contextlib
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import structlog
from allauth.account.models import EmailConfirmation
from django.conf import settings
from django.contrib.sessions.models import Session
from django.core.files.storage import default_storage
from django.db.models import QuerySet
from django.utils import timezone
from django.utils.functional import Promise
from django.utils.translation import gettext_lazy as _
from knox.models import AuthToken

from chats.models import DailyMessages
from chats.services import answer_cache, erasure
from chats.services.chats import delete_idle_chats, find_idle_chats
from documents import deletions, files, segments, versions
from documents.audit import Action, record_event
from documents.models import Deletion, DeletionKind
from nura.accounts.signup import end_unconfirmed_signups, find_unconfirmed_signups
from nura.backup.integrity import list_orphans

logger = structlog.get_logger()

LEFTOVER_AGE = timedelta(days=1)
"""Age from which an unreferenced file is a leftover: uploads store the file before its row."""
COUNTED_DAYS = 400
"""How long daily question counts are kept."""
MAX_LOG_BYTES, KEPT_LOG_BYTES = 20_000_000, 5_000_000
"""Limits for the log of the bundled services."""


@dataclass(frozen=True, slots=True)
class ExpiredKind:
    """A kind of data past its retention: `find` counts it, `remove` deletes and counts it."""

    name: str
    label: str | Promise
    find: Callable[[], int]
    remove: Callable[[], int]


def purge(*, dry_run: bool = False) -> dict[str, int]:
    """Delete all data past its retention, or only count it; how many of each kind."""
    counts = {kind.name: kind.find() if dry_run else kind.remove() for kind in EXPIRED}
    if not dry_run:
        deletions.write_list()
        logger.info("purged", **counts)
        if any(counts.values()):
            record_event(Action.DATA_PURGED, details=counts)
    return counts


# Evidence, chats, versions


def _find_evidence() -> int:
    due = Deletion.objects.filter(kind=DeletionKind.DOCUMENT, erased_at=None)
    return due.filter(due_at__lte=timezone.now()).count()


def _find_chats() -> int:
    idle = find_idle_chats().count()
    return idle + len(erasure.list_purgeable_chats(settings.RETENTION_DELETED_DAYS))


def purge_chats() -> int:
    """Purge deleted chats past their retention, and idle temporary ones; how many."""
    delete_idle_chats()
    chats = erasure.list_purgeable_chats(settings.RETENTION_DELETED_DAYS)
    return sum(erasure.purge_chat(pk) for pk in chats)


def _find_versions() -> int:
    return versions.list_expired_versions(_subtract_days(settings.RETENTION_DELETED_DAYS)).count()


def _remove_versions() -> int:
    rows = versions.list_expired_versions(_subtract_days(settings.RETENTION_DELETED_DAYS))
    count = 0
    for version in rows.order_by("pk").iterator(chunk_size=100):
        versions.remove_version(version)
        count += 1
    return count


def _subtract_days(days: int) -> datetime:
    return timezone.now() - timedelta(days=days)


# Expired rows


def _find_rows() -> int:
    return sum(rows.count() for rows in _list_expired_rows())


def _remove_rows() -> int:
    return sum(rows.delete()[0] for rows in _list_expired_rows())


def _list_expired_rows() -> Iterator[QuerySet[Any]]:
    now = timezone.now()
    yield Session.objects.filter(expire_date__lt=now)
    yield AuthToken.objects.filter(expiry__lt=now)
    yield EmailConfirmation.objects.filter(
        created__lt=_subtract_days(settings.RETENTION_DELETED_DAYS)
    )
    yield answer_cache.list_expired_answers()
    yield DailyMessages.objects.filter(day__lt=timezone.localdate() - timedelta(days=COUNTED_DAYS))


def _find_signups() -> int:
    return find_unconfirmed_signups().count()


# Files


def _find_leftovers() -> int:
    return sum(1 for _name in _list_leftovers())


def _remove_leftovers() -> int:
    count = 0
    for name in _list_leftovers():
        files.remove_file(name)
        count += 1
    return count


def _list_leftovers() -> Iterator[str]:
    """Unreferenced files, old enough that no upload is still in progress."""
    cutoff = timezone.now() - LEFTOVER_AGE
    for name in list_orphans():
        try:
            modified_at = default_storage.get_modified_time(name)
        except FileNotFoundError:
            continue
        if modified_at < cutoff:
            yield name


def _find_cache() -> int:
    return len(files.list_stray_pictures())


def _remove_cache() -> int:
    stray = files.list_stray_pictures()
    for folder in stray:
        shutil.rmtree(folder, ignore_errors=True)
    return len(stray) + files.trim_page_cache()


def _find_temporary() -> int:
    return len(list(_list_temporary()))


def _remove_temporary() -> int:
    count = 0
    for path in _list_temporary():
        path.unlink(missing_ok=True)
        count += 1
    return count + _shorten_log()


def _list_temporary() -> Iterator[Path]:
    """Leftovers of killed processes: unfinished uploads, pictures and lists."""
    cutoff = time.time() - LEFTOVER_AGE.total_seconds()
    data = Path(settings.DATA_DIR)
    paths = [*Path(tempfile.gettempdir()).glob("tmp*.upload*"), *data.glob("*.part")]
    paths += (data / "cache").rglob("*.part")
    for path in paths:
        with contextlib.suppress(OSError):
            stat = path.stat()
            if stat.st_uid == os.getuid() and stat.st_mtime < cutoff:
                yield path


def _shorten_log() -> int:
    """Truncate the bundled services' log to its end; they append, so writing continues."""
    path = Path(settings.DATA_DIR) / "services.log"
    if not path.exists() or path.stat().st_size <= MAX_LOG_BYTES:
        return 0
    with path.open("r+b") as file:
        file.seek(-KEPT_LOG_BYTES, os.SEEK_END)
        end = file.read()
        file.seek(0)
        file.write(end[end.find(b"\n") + 1 :])
        file.truncate()
    return 1


EXPIRED = (
    ExpiredKind(
        "evidence", _("deleted documents in answers"), _find_evidence, deletions.apply_deletions
    ),
    ExpiredKind("chats", _("chats"), _find_chats, purge_chats),
    ExpiredKind("versions", _("replaced versions"), _find_versions, _remove_versions),
    ExpiredKind(
        "postings",
        _("parts of the word index with deleted passages"),
        segments.find_stale_segments,
        segments.renew_stale_segments,
    ),
    ExpiredKind("rows", _("expired records"), _find_rows, _remove_rows),
    ExpiredKind("signups", _("unconfirmed sign-ups"), _find_signups, end_unconfirmed_signups),
    ExpiredKind("files", _("leftover files"), _find_leftovers, _remove_leftovers),
    ExpiredKind("pictures", _("leftover pictures"), _find_cache, _remove_cache),
    ExpiredKind("temporary", _("temporary files"), _find_temporary, _remove_temporary),
)
"""In this order."""
