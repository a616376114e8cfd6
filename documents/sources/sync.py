"""One run of a source: what is listed is compared with what is held, then read, then deleted.

1. Listing. What is as it was is marked as seen; what is new or changed waits to be read.
2. Reading. New bytes become a document, or a new version of one. Bytes of an entry that is gone
   are that entry under another name: its document stays, with its history.
3. Deleting what the whole list did not show. Not when the list was empty or could not be read to
   its end, and not without a yes when it is more than a small share.

Every step is in the rows, so a run that is cut off goes on where it stopped.
"""

import hashlib
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import islice
from typing import Any, BinaryIO
from uuid import UUID

import structlog
from django.conf import settings
from django.core.files import File
from django.db import transaction
from django.db.models import QuerySet
from django.utils import timezone

from documents import files, queue, services, versions
from documents.errors import (
    FileTooLarge,
    QuotaBytes,
    QuotaDocuments,
    SourceEmpty,
    StorageFailed,
    StorageFull,
)
from documents.metadata import merge_metadata, rewrite_labels, to_display_name
from documents.models import Document
from documents.sources.base import (
    KnownEntry,
    ListedEntry,
    Listing,
    SourceReader,
    SourceUnreachable,
    UnlistedEntry,
    get_kind,
)
from documents.sources.models import RunStage, RunStatus, Source, SourceEntry, SourceRun
from jobs.lease import RELEASED, HeldLease, LeaseLostError, select_waiting_jobs
from rag.errors import NuraError

logger = structlog.get_logger()

COPY_BYTES = 1024 * 1024
MEMORY_BYTES = 8 * 1024 * 1024
"""A file up to this size is kept in memory between its source and the storage."""
SLICE = timedelta(seconds=10)
"""After so long a run gives way where documents wait to be read."""
LONGEST_SLICE = timedelta(minutes=10)
REST = timedelta(seconds=2)
"""Before a run looks again whether its documents have been read."""
MAX_REMOVED_SHARE = 0.2
MIN_HELD_BACK = 10
"""Fewer than these are deleted without asking, whatever their share."""
MAX_LISTED = 1_000_000
"""Entries of one list; a server that names more makes them up."""
MAX_NAMED = 100
"""Entries that a run names, for each thing that can happen to one."""
SOURCE_URI = "source_uri"
STOPS = (QuotaDocuments, QuotaBytes, StorageFull, StorageFailed)
"""What would happen to every further entry as well."""


class GiveWayError(Exception):
    """The run rests, for others to get on, or until its documents have been read."""

    def __init__(self, rest: timedelta | None = None) -> None:
        super().__init__()
        self.rest = rest


@dataclass(slots=True)
class _SpooledEntry:
    """The bytes of an entry on this machine."""

    file: "File[Any]"
    sha256: str


@dataclass(slots=True)
class _Changes:
    """What was done since it was last written down."""

    counts: dict[str, int] = field(default_factory=dict)
    names: dict[str, list[str]] = field(default_factory=dict)

    def note(self, what: str, uri: str) -> None:
        self.counts[what] = self.counts.get(what, 0) + 1
        self.names.setdefault(what, []).append(uri)


class SourceSync:
    """Carries out one run; the caller holds its lease and has opened the source."""

    def __init__(self, held: HeldLease[SourceRun], run: SourceRun, reader: SourceReader) -> None:
        self._held, self._run, self._reader = held, run, reader
        self._source: Source = run.source
        self._entries = SourceEntry.objects.filter(source=self._source)
        self._changes = _Changes()
        self._until = time.monotonic() + SLICE.total_seconds()
        self._at_last = time.monotonic() + LONGEST_SLICE.total_seconds()

    def run(self) -> None:
        """Do what is left. Raises `GivesWayError`, `LeaseLostError`, or what ends the run."""
        if self._run.stage == RunStage.LISTING:
            self._list_entries()
            self._begin_stage(RunStage.REMOVING if self._run.dry_run else RunStage.LOADING)
        if self._run.stage == RunStage.LOADING:
            self._load_pending()
            self._begin_stage(RunStage.REMOVING)
        self._remove_missing()

    # 1. Listing

    def _list_entries(self) -> None:
        listing = Listing(self._run.cursor, self._get_known, self._held.check)
        entries = self._reader.list_entries(listing)
        while batch := list(islice(entries, self._reader.BATCH)):
            listed = [one for one in batch if isinstance(one, ListedEntry)]
            if self._run.listed + len(listed) > MAX_LISTED:
                raise SourceUnreachable(f"more than {MAX_LISTED} entries", reason="endless")
            sums = self._hash_new(listed) if self._run.dry_run else {}
            with transaction.atomic():
                self._compare_entries(listed)
                self._plan_renames(sums)
                for one in batch:
                    if isinstance(one, UnlistedEntry):
                        self._keep_unlisted(one)
                self._save(cursor=batch[-1].key, listed=self._run.listed + len(listed))
            self._give_way()
        if not self._run.listed and self._entries.exclude(sha256="").exists():
            raise SourceEmpty

    def _get_known(self, key: str) -> KnownEntry | None:
        row = self._entries.filter(digest=to_digest(key)).first()
        if row is None:
            return None
        held = row.document_id is not None and not row.pending
        return KnownEntry(row.fingerprint, row.notes, held, row.seen_in == self._run.pk)

    def _compare_entries(self, listed: list[ListedEntry]) -> None:
        """Mark what is as it was, note what is to be read."""
        by_digest = {to_digest(one.key): one for one in listed}
        known = {row.digest: row for row in self._entries.filter(digest__in=by_digest)}
        new, other, same = [], [], []
        for digest, one in by_digest.items():
            row = known.get(digest)
            if row is None:
                new.append(self._to_row(digest, one))
                self._note_planned("added", one)
            elif one.fingerprint and row.fingerprint == one.fingerprint and row.notes == one.notes:
                same.append(row.pk)
            else:
                if not one.fingerprint or row.fingerprint != one.fingerprint:
                    row.pending = True
                    self._note_planned("changed", one)
                row.fingerprint, row.notes, row.uri = one.fingerprint, dict(one.notes), one.uri
                row.name, row.seen_in = one.name, self._run.pk
                other.append(row)
        if self._run.dry_run:
            same += [row.pk for row in other]
        else:
            SourceEntry.objects.bulk_create(new)
            SourceEntry.objects.bulk_update(
                other, ("fingerprint", "notes", "uri", "name", "seen_in", "pending")
            )
        SourceEntry.objects.filter(pk__in=same).update(seen_in=self._run.pk)

    def _to_row(self, digest: str, one: ListedEntry) -> SourceEntry:
        return SourceEntry(
            source=self._source,
            digest=digest,
            key=one.key,
            name=one.name,
            uri=one.uri,
            fingerprint=one.fingerprint,
            notes=dict(one.notes),
            seen_in=self._run.pk,
        )

    def _note_planned(self, what: str, one: ListedEntry) -> None:
        """A dry run tells what would happen; a real one what did, once it has."""
        if self._run.dry_run:
            self._changes.note(what, one.uri)

    def _hash_new(self, listed: list[ListedEntry]) -> dict[str, str]:
        """SHA-256 by `uri` of what is listed for the first time and may be what is held already."""
        by_digest = {to_digest(one.key): one for one in listed}
        known = set(self._entries.filter(digest__in=by_digest).values_list("digest", flat=True))
        new = [one for digest, one in by_digest.items() if digest not in known]
        if get_kind(self._source.kind).sends:
            return {one.uri: one.fingerprint for one in new}
        held = Document.objects.filter(source=self._source, size__in={one.size for one in new})
        sizes = set(held.values_list("size", flat=True)) if new else set()
        sums = {}
        for one in new:
            if one.size in sizes:
                self._held.check()
                with (
                    suppress(NuraError),  # what cannot be read is told by the run that has to
                    self._reader.open_entry(one.key) as stream,
                    spool_entry(stream, self._held.check) as spooled,
                ):
                    sums[one.uri] = spooled.sha256
        return sums

    def _plan_renames(self, sums: dict[str, str]) -> None:
        """Mark what is held of these bytes; which of it is gone, the end of the list shows."""
        held = self._entries.filter(sha256__in=set(sums.values()), document__isnull=False)
        free = defaultdict(list)
        for row in held.exclude(seen_in=self._run.pk).exclude(met_in=self._run.pk).order_by("-pk"):
            free[row.sha256].append(row)
        met = []
        for uri, sha256 in sums.items():
            if free[sha256]:
                row = free[sha256].pop()
                row.met_in, row.met_as = self._run.pk, uri
                met.append(row)
        SourceEntry.objects.bulk_update(met, ("met_in", "met_as"))

    def _keep_unlisted(self, one: UnlistedEntry) -> None:
        """What could not be looked at is neither new nor gone."""
        self._changes.note("failed", one.uri)
        own = self._entries.filter(digest=to_digest(one.key))
        rows = self._entries.filter(key__startswith=one.key) if one.below else own
        rows.update(seen_in=self._run.pk)
        if not self._run.dry_run and not one.below:
            own.update(**_to_error_values(one.error))

    # 2. Reading

    def _load_pending(self) -> None:
        last = 0
        pending = self._entries.filter(pending=True, seen_in=self._run.pk).order_by("pk")
        while rows := list(pending.filter(pk__gt=last)[: self._reader.BATCH]):
            for row in rows:
                self._give_way()
                self._wait_for_room()
                self._load_entry(row)
                last = row.pk

    def _wait_for_room(self) -> None:
        """People's own uploads are not to wait behind all that a source holds."""
        going = Document.objects.processing().filter(source=self._source)
        if going.count() >= settings.SOURCE_IN_FLIGHT:
            self._save()
            raise GiveWayError(REST)

    def _load_entry(self, row: SourceEntry) -> None:
        try:
            what = self._store_entry(row)
        except STOPS:
            raise
        except NuraError as error:
            self._changes.note("failed", row.uri)
            values = _to_error_values(error) | {"pending": error.retryable}
            SourceEntry.objects.filter(pk=row.pk).update(**values)
            logger.info("source_entry_failed", source_id=str(self._source.pk), code=error.code)
        else:
            if what:
                self._changes.note(what, row.uri)
        self._save()

    def _store_entry(self, row: SourceEntry) -> str:
        """What happened to the entry; "" for nothing, as where its bytes are still to be sent."""
        if get_kind(self._source.kind).sends:
            return reuse_document(row, row.fingerprint, self._find_gone) or ""
        check = self._held.check
        with self._reader.open_entry(row.key) as stream, spool_entry(stream, check) as spooled:
            what = reuse_document(row, spooled.sha256, self._find_gone)
            return store_bytes(row, spooled.sha256, spooled.file) if what is None else what

    def _find_gone(self, sha256: str) -> SourceEntry | None:
        """An entry with these bytes that this run did not see any more."""
        rows = self._entries.filter(sha256=sha256, document__isnull=False)
        return rows.exclude(seen_in=self._run.pk).select_related("document").order_by("pk").first()

    # 3. Deleting

    def _remove_missing(self) -> None:
        missing = self._entries.exclude(seen_in=self._run.pk)
        count = missing.count()
        if self._run.dry_run:
            self._report_planned(missing)
            return
        total = self._entries.exclude(document=None).count()
        if not self._run.confirmed and needs_confirmation(count, total):
            for uri in missing.order_by("pk").values_list("uri", flat=True)[:MAX_NAMED]:
                self._changes.names.setdefault("held", []).append(uri)
            self._end_run(RunStatus.HELD, held=count)
            return
        while row := missing.select_related("document").order_by("pk").first():
            self._give_way()
            remove_entry(row)
            self._changes.note("removed", row.uri)
            self._save()
        self._end_run(RunStatus.DONE)

    def _report_planned(self, missing: QuerySet[SourceEntry]) -> None:
        """What would be deleted, and what only has another name."""
        self._move_marks(missing)
        renamed, removed = missing.filter(met_in=self._run.pk), missing.exclude(met_in=self._run.pk)
        added = self._run.report.get("added", [])
        new_names = set(renamed.filter(met_as__in=added).values_list("met_as", flat=True))
        self._run.report = self._run.report | {
            "added": [uri for uri in added if uri not in new_names]
        }
        for what, rows, name in (("renamed", renamed, "met_as"), ("removed", removed, "uri")):
            self._changes.counts[what] = rows.count()
            named = rows.order_by("pk").values_list(name, flat=True)[:MAX_NAMED]
            self._changes.names[what] = list(named)
        self._changes.counts["added"] = -self._changes.counts["renamed"]
        self._end_run(RunStatus.DONE)

    def _move_marks(self, missing: QuerySet[SourceEntry]) -> None:
        """Of several copies, one that is still there may have been marked for one that is gone."""
        there = self._entries.filter(met_in=self._run.pk, seen_in=self._run.pk).order_by("pk")
        for row in there if missing.exclude(met_in=self._run.pk).exists() else ():
            gone = missing.filter(sha256=row.sha256, document__isnull=False)
            heir = gone.exclude(met_in=self._run.pk).order_by("pk").first()
            if heir is not None:
                values = {"met_in": self._run.pk, "met_as": row.met_as}
                SourceEntry.objects.filter(pk=heir.pk).update(**values)

    # Writing down

    def _begin_stage(self, stage: str) -> None:
        self._save(stage=stage)

    def _end_run(self, status: str, **values: Any) -> None:
        if not self._run.dry_run:  # some fail without being listed anew, and those stay failed
            values["failed"] = max(
                self._entries.exclude(error_code="").count(),
                self._run.failed + self._changes.counts.pop("failed", 0),
            )
        self._save(status=status, ended_at=timezone.now(), **values, **RELEASED)

    def _save(self, **values: Any) -> None:
        """Write down what was done. Raises `LeaseLostError`."""
        changes, self._changes = self._changes, _Changes()
        report = dict(self._run.report)
        for what, names in changes.names.items():
            report[what] = (report.get(what, []) + names)[:MAX_NAMED]
        report = {what: names for what, names in report.items() if names}
        counted = {what: getattr(self._run, what) + n for what, n in changes.counts.items()}
        # what gets on has not failed: attempts are counted from the last progress
        values = {**counted, "report": report, "attempts": 1, **values}
        if not self._held.lease.rows().update(**values):
            raise LeaseLostError
        for name, value in values.items():
            setattr(self._run, name, value)

    def _give_way(self) -> None:
        """Stop where the worker is to leave, or others wait for it."""
        self._held.check()
        now = time.monotonic()
        if now < self._until:
            return
        self._save()
        if now > self._at_last or select_waiting_jobs(Document).exists():
            raise GiveWayError
        self._until = now + SLICE.total_seconds()


def needs_confirmation(count: int, total: int) -> bool:
    """Whether so many entries of so many documents vanish only with a yes."""
    return count >= MIN_HELD_BACK and count > MAX_REMOVED_SHARE * total


def to_digest(key: str) -> str:
    """What stands for a key in the index."""
    return hashlib.sha256(key.encode()).hexdigest()


@contextmanager
def spool_entry(stream: BinaryIO, check: Callable[[], None]) -> Iterator[_SpooledEntry]:
    """Copy an entry to this machine, counted and hashed; `check` each piece.

    Raises `FileTooLarge`.
    """
    limit, digest, size = settings.MAX_UPLOAD_MB * files.MEGABYTE, hashlib.sha256(), 0
    with tempfile.SpooledTemporaryFile(MEMORY_BYTES, dir=str(settings.DATA_DIR)) as copy:
        while piece := stream.read(COPY_BYTES):
            check()
            size += len(piece)
            if size > limit:
                raise FileTooLarge(limit_mb=settings.MAX_UPLOAD_MB)
            digest.update(piece)
            copy.write(piece)
        copy.seek(0)
        opened = File(copy, name="entry")  # without a name it is false, and for zipfile closed
        opened.size = size
        yield _SpooledEntry(opened, digest.hexdigest())


def reuse_document(
    row: SourceEntry, sha256: str, find_gone: Callable[[str], SourceEntry | None]
) -> str | None:
    """Give an entry the document that its bytes have already; None where they have none.

    "" where that is its own, "renamed" where `find_gone` gave an entry that is gone, whose document
    goes on under this name, "added" where it is a copy of another one.
    """
    if row.document is not None:
        if row.sha256 != sha256:
            return None
        _mark_stored(row, sha256, row.document)
        return ""
    former = find_gone(sha256)
    if former is not None and former.document is not None:
        with transaction.atomic():
            _mark_stored(row, sha256, former.document)
            SourceEntry.objects.filter(pk=former.pk).delete()
            _rename_document(former.document.pk, row)
        return "renamed"
    copies = SourceEntry.objects.filter(
        source_id=row.source_id, sha256=sha256, document__isnull=False
    )
    copy = copies.exclude(pk=row.pk).select_related("document").first()
    if copy is None or copy.document is None:
        return None
    _mark_stored(row, sha256, copy.document)
    return "added"


def store_bytes(row: SourceEntry, sha256: str, content: "File[Any]") -> str:
    """Make of these bytes a version of the entry's document, or a new one: changed, added.

    Raises what is wrong with the file.
    """
    document = row.document
    if document is not None:
        others = SourceEntry.objects.filter(document=document).exclude(pk=row.pk)
        if not others.exists():
            versions.receive_version(document=document, name=row.name, content=content)
            _mark_stored(row, sha256, document)
            return "changed"
    source = row.source
    stored, _created = services.upload_document(
        owner=source.owner,
        library=source.library,
        source=source,
        name=row.name,
        content=content,
        metadata={SOURCE_URI: row.uri},
    )
    _mark_stored(row, sha256, stored)
    return "added" if document is None else "changed"


def _mark_stored(row: SourceEntry, sha256: str, document: Document) -> None:
    row.document, row.sha256, row.pending = document, sha256, False
    row.error_code, row.error_params = "", {}
    row.save(update_fields=("document", "sha256", "pending", "error_code", "error_params"))


def _rename_document(document_id: UUID, row: SourceEntry) -> None:
    document = Document.objects.select_for_update().get(pk=document_id)
    document.name = to_display_name(row.name)
    document.stated = document.stated | {SOURCE_URI: row.uri}
    document.metadata = merge_metadata(document.metadata, document.stated)
    document.save(update_fields=("name", "stated", "metadata", "updated_at"))
    rewrite_labels(document.pk, document.name, document.metadata)


@transaction.atomic
def remove_entry(row: SourceEntry) -> None:
    """Take an entry away, and its document unless a copy of it stays."""
    document = row.document
    SourceEntry.objects.filter(pk=row.pk).delete()
    if document is None or SourceEntry.objects.filter(document=document).exists():
        return
    services.delete_document(document=document)


def _to_error_values(error: NuraError) -> dict[str, Any]:
    return {
        "error_code": error.code,
        "error_params": queue.to_stored_parameters(error.params),
    }
