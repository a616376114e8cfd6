"""One run of a source: list and compare, read what changed, delete what is gone.

1. Listing. Unchanged entries are marked as seen; new or changed ones are marked to be read.
2. Reading. New bytes become a document, or a new version of one. If an entry with the same bytes is
   gone, it was renamed: its document stays, with its history.
3. Deleting what is missing from the list. Not if the list was empty or incomplete, and not without
   confirmation if it is more than a small share.

Every step is recorded in the rows, so an interrupted run continues where it stopped.
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
"""Files up to this size are buffered in memory between source and storage."""
MIN_SLICE = timedelta(seconds=10)
"""After so long a run yields if documents wait to be read."""
MAX_SLICE = timedelta(minutes=10)
ROOM_CHECK_DELAY = timedelta(seconds=2)
"""How long a run waits before it checks again whether its documents have been read."""
MAX_REMOVED_SHARE = 0.2
MIN_CONFIRMED_REMOVALS = 10
"""Fewer deletions than this need no confirmation, whatever their share."""
MAX_LISTED = 1_000_000
"""Entries of one list; a server that lists more makes them up."""
MAX_REPORTED_NAMES = 100
"""Names of entries in a run's report, for each outcome."""
SOURCE_URI = "source_uri"
RUN_ENDING_ERRORS = (QuotaDocuments, QuotaBytes, StorageFull, StorageFailed)
"""Errors that end the run, because every further entry would fail as well."""


class GiveWayError(Exception):
    """The run yields to others, or waits `delay` until its documents have been read."""

    def __init__(self, delay: timedelta | None = None) -> None:
        super().__init__()
        self.delay = delay


@dataclass(slots=True)
class _SpooledEntry:
    """A local copy of an entry's bytes."""

    file: "File[Any]"
    sha256: str


@dataclass(slots=True)
class _Changes:
    """Outcomes since the last `_save`."""

    counts: dict[str, int] = field(default_factory=dict)
    names: dict[str, list[str]] = field(default_factory=dict)

    def note(self, outcome: str, uri: str) -> None:
        self.counts[outcome] = self.counts.get(outcome, 0) + 1
        self.names.setdefault(outcome, []).append(uri)


class SourceSync:
    """Executes one run; the caller holds its lease and has opened the source."""

    def __init__(
        self, held_lease: HeldLease[SourceRun], run: SourceRun, reader: SourceReader
    ) -> None:
        self._held_lease, self._run, self._reader = held_lease, run, reader
        self._source: Source = run.source
        self._entries = SourceEntry.objects.filter(source=self._source)
        self._changes = _Changes()
        self._slice_ends_at = time.monotonic() + MIN_SLICE.total_seconds()
        self._must_yield_at = time.monotonic() + MAX_SLICE.total_seconds()

    def run(self) -> None:
        """Do what is left. Raises `GiveWayError`, `LeaseLostError`, or what ends the run."""
        if self._run.stage == RunStage.LISTING:
            self._list_entries()
            self._begin_stage(RunStage.REMOVING if self._run.dry_run else RunStage.LOADING)
        if self._run.stage == RunStage.LOADING:
            self._load_pending()
            self._begin_stage(RunStage.REMOVING)
        self._remove_missing()

    # 1. Listing

    def _list_entries(self) -> None:
        listing = Listing(self._run.cursor, self._get_known, self._held_lease.check)
        entries = self._reader.list_entries(listing)
        while batch := list(islice(entries, self._reader.BATCH)):
            listed = [entry for entry in batch if isinstance(entry, ListedEntry)]
            if self._run.listed + len(listed) > MAX_LISTED:
                raise SourceUnreachable(f"more than {MAX_LISTED} entries", reason="endless")
            hashes = self._hash_new(listed) if self._run.dry_run else {}
            with transaction.atomic():
                self._compare_entries(listed)
                self._plan_renames(hashes)
                for entry in batch:
                    if isinstance(entry, UnlistedEntry):
                        self._keep_unlisted(entry)
                self._save(cursor=batch[-1].key, listed=self._run.listed + len(listed))
            self._give_way()
        if not self._run.listed and self._entries.exclude(sha256="").exists():
            raise SourceEmpty

    def _get_known(self, key: str) -> KnownEntry | None:
        row = self._entries.filter(digest=to_digest(key)).first()
        if row is None:
            return None
        is_stored = row.document_id is not None and not row.pending
        return KnownEntry(row.fingerprint, row.notes, is_stored, row.seen_in == self._run.pk)

    def _compare_entries(self, listed: list[ListedEntry]) -> None:
        """Mark unchanged entries as seen, and new or changed ones as to be read."""
        by_digest = {to_digest(entry.key): entry for entry in listed}
        rows = {row.digest: row for row in self._entries.filter(digest__in=by_digest)}
        new_rows, updated_rows, seen_ids = [], [], []
        for digest, entry in by_digest.items():
            row = rows.get(digest)
            if row is None:
                new_rows.append(self._to_row(digest, entry))
                self._note_planned("added", entry)
            elif (
                entry.fingerprint
                and row.fingerprint == entry.fingerprint
                and row.notes == entry.notes
            ):
                seen_ids.append(row.pk)
            else:
                if not entry.fingerprint or row.fingerprint != entry.fingerprint:
                    row.pending = True
                    self._note_planned("changed", entry)
                row.fingerprint, row.notes, row.uri = (
                    entry.fingerprint,
                    dict(entry.notes),
                    entry.uri,
                )
                row.name, row.seen_in = entry.name, self._run.pk
                updated_rows.append(row)
        if self._run.dry_run:
            seen_ids += [row.pk for row in updated_rows]
        else:
            SourceEntry.objects.bulk_create(new_rows)
            SourceEntry.objects.bulk_update(
                updated_rows, ("fingerprint", "notes", "uri", "name", "seen_in", "pending")
            )
        SourceEntry.objects.filter(pk__in=seen_ids).update(seen_in=self._run.pk)

    def _to_row(self, digest: str, entry: ListedEntry) -> SourceEntry:
        return SourceEntry(
            source=self._source,
            digest=digest,
            key=entry.key,
            name=entry.name,
            uri=entry.uri,
            fingerprint=entry.fingerprint,
            notes=dict(entry.notes),
            seen_in=self._run.pk,
        )

    def _note_planned(self, outcome: str, entry: ListedEntry) -> None:
        """Count the outcome in a dry run; a real run counts it once it has happened."""
        if self._run.dry_run:
            self._changes.note(outcome, entry.uri)

    def _hash_new(self, listed: list[ListedEntry]) -> dict[str, str]:
        """SHA-256 by `uri` of new entries that may have the bytes of a stored document."""
        by_digest = {to_digest(entry.key): entry for entry in listed}
        known_digests = set(
            self._entries.filter(digest__in=by_digest).values_list("digest", flat=True)
        )
        new_entries = [entry for digest, entry in by_digest.items() if digest not in known_digests]
        if get_kind(self._source.kind).sends:
            return {entry.uri: entry.fingerprint for entry in new_entries}
        stored = Document.objects.filter(
            source=self._source, size__in={entry.size for entry in new_entries}
        )
        sizes = set(stored.values_list("size", flat=True)) if new_entries else set()
        hashes = {}
        for entry in new_entries:
            if entry.size in sizes:
                self._held_lease.check()
                with (
                    suppress(NuraError),  # the real run will report what cannot be read
                    self._reader.open_entry(entry.key) as stream,
                    spool_entry(stream, self._held_lease.check) as spooled,
                ):
                    hashes[entry.uri] = spooled.sha256
        return hashes

    def _plan_renames(self, hashes: dict[str, str]) -> None:
        """Mark stored entries with the same bytes; the end of the list shows which are gone."""
        stored = self._entries.filter(sha256__in=set(hashes.values()), document__isnull=False)
        candidates = defaultdict(list)
        for row in (
            stored.exclude(seen_in=self._run.pk).exclude(met_in=self._run.pk).order_by("-pk")
        ):
            candidates[row.sha256].append(row)
        marked = []
        for uri, sha256 in hashes.items():
            if candidates[sha256]:
                row = candidates[sha256].pop()
                row.met_in, row.met_as = self._run.pk, uri
                marked.append(row)
        SourceEntry.objects.bulk_update(marked, ("met_in", "met_as"))

    def _keep_unlisted(self, entry: UnlistedEntry) -> None:
        """Mark entries that could not be listed as seen: they are neither new nor gone."""
        self._changes.note("failed", entry.uri)
        row = self._entries.filter(digest=to_digest(entry.key))
        rows = self._entries.filter(key__startswith=entry.key) if entry.is_prefix else row
        rows.update(seen_in=self._run.pk)
        if not self._run.dry_run and not entry.is_prefix:
            row.update(**_to_error_values(entry.error))

    # 2. Reading

    def _load_pending(self) -> None:
        last_pk = 0
        pending = self._entries.filter(pending=True, seen_in=self._run.pk).order_by("pk")
        while rows := list(pending.filter(pk__gt=last_pk)[: self._reader.BATCH]):
            for row in rows:
                self._give_way()
                self._wait_for_room()
                self._load_entry(row)
                last_pk = row.pk

    def _wait_for_room(self) -> None:
        """Wait while many documents of the source are processed, so that uploads get on."""
        processing = Document.objects.processing().filter(source=self._source)
        if processing.count() >= settings.SOURCE_IN_FLIGHT:
            self._save()
            raise GiveWayError(ROOM_CHECK_DELAY)

    def _load_entry(self, row: SourceEntry) -> None:
        try:
            outcome = self._store_entry(row)
        except RUN_ENDING_ERRORS:
            raise
        except NuraError as error:
            self._changes.note("failed", row.uri)
            values = _to_error_values(error) | {"pending": error.retryable}
            SourceEntry.objects.filter(pk=row.pk).update(**values)
            logger.info("source_entry_failed", source_id=str(self._source.pk), code=error.code)
        else:
            if outcome:
                self._changes.note(outcome, row.uri)
        self._save()

    def _store_entry(self, row: SourceEntry) -> str:
        """Store the entry. Returns the outcome; "" for none, e.g. if the file is not sent yet."""
        if get_kind(self._source.kind).sends:
            return reuse_document(row, row.fingerprint, self._find_gone) or ""
        check = self._held_lease.check
        with self._reader.open_entry(row.key) as stream, spool_entry(stream, check) as spooled:
            outcome = reuse_document(row, spooled.sha256, self._find_gone)
            return store_bytes(row, spooled.sha256, spooled.file) if outcome is None else outcome

    def _find_gone(self, sha256: str) -> SourceEntry | None:
        """An entry with these bytes that this run has not seen."""
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
            for uri in missing.order_by("pk").values_list("uri", flat=True)[:MAX_REPORTED_NAMES]:
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
        """Report what would be deleted, and what was only renamed."""
        self._move_marks(missing)
        renamed, removed = missing.filter(met_in=self._run.pk), missing.exclude(met_in=self._run.pk)
        added = self._run.report.get("added", [])
        new_names = set(renamed.filter(met_as__in=added).values_list("met_as", flat=True))
        self._run.report = self._run.report | {
            "added": [uri for uri in added if uri not in new_names]
        }
        for outcome, rows, column in (("renamed", renamed, "met_as"), ("removed", removed, "uri")):
            self._changes.counts[outcome] = rows.count()
            names = rows.order_by("pk").values_list(column, flat=True)[:MAX_REPORTED_NAMES]
            self._changes.names[outcome] = list(names)
        self._changes.counts["added"] = -self._changes.counts["renamed"]
        self._end_run(RunStatus.DONE)

    def _move_marks(self, missing: QuerySet[SourceEntry]) -> None:
        """Move the mark of a copy that still exists to one that is gone."""
        marked = self._entries.filter(met_in=self._run.pk, seen_in=self._run.pk).order_by("pk")
        for row in marked if missing.exclude(met_in=self._run.pk).exists() else ():
            candidates = missing.filter(sha256=row.sha256, document__isnull=False)
            new_row = candidates.exclude(met_in=self._run.pk).order_by("pk").first()
            if new_row is not None:
                values = {"met_in": self._run.pk, "met_as": row.met_as}
                SourceEntry.objects.filter(pk=new_row.pk).update(**values)

    # Saving

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
        """Write the outcomes and other values to the run. Raises `LeaseLostError`."""
        changes, self._changes = self._changes, _Changes()
        report = dict(self._run.report)
        for outcome, names in changes.names.items():
            report[outcome] = (report.get(outcome, []) + names)[:MAX_REPORTED_NAMES]
        report = {outcome: names for outcome, names in report.items() if names}
        counts = {outcome: getattr(self._run, outcome) + n for outcome, n in changes.counts.items()}
        # progress resets the attempts
        values = {**counts, "report": report, "attempts": 1, **values}
        if not self._held_lease.lease.rows().update(**values):
            raise LeaseLostError
        for name, value in values.items():
            setattr(self._run, name, value)

    def _give_way(self) -> None:
        """Yield if the worker has to stop or, at the end of a slice, if others wait."""
        self._held_lease.check()
        now = time.monotonic()
        if now < self._slice_ends_at:
            return
        self._save()
        if now > self._must_yield_at or select_waiting_jobs(Document).exists():
            raise GiveWayError
        self._slice_ends_at = now + MIN_SLICE.total_seconds()


def needs_confirmation(count: int, total: int) -> bool:
    """Whether deleting `count` of `total` entries needs confirmation."""
    return count >= MIN_CONFIRMED_REMOVALS and count > MAX_REMOVED_SHARE * total


def to_digest(key: str) -> str:
    """The hash of a key, which is indexed instead of the key."""
    return hashlib.sha256(key.encode()).hexdigest()


@contextmanager
def spool_entry(stream: BinaryIO, check: Callable[[], None]) -> Iterator[_SpooledEntry]:
    """Copy an entry to this machine and hash it; `check` is called for each piece.

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
        file = File(copy, name="entry")  # without a name it is false, and for zipfile closed
        file.size = size
        yield _SpooledEntry(file, digest.hexdigest())


def reuse_document(
    row: SourceEntry, sha256: str, find_gone: Callable[[str], SourceEntry | None]
) -> str | None:
    """Assign an existing document with the same bytes to the entry; None if there is none.

    Returns "" if it is the entry's own, "renamed" if it belongs to an entry that is gone
    (`find_gone`), and "added" if the entry is a copy of another one.
    """
    if row.document is not None:
        if row.sha256 != sha256:
            return None
        _mark_stored(row, sha256, row.document)
        return ""
    gone_entry = find_gone(sha256)
    if gone_entry is not None and gone_entry.document is not None:
        with transaction.atomic():
            _mark_stored(row, sha256, gone_entry.document)
            SourceEntry.objects.filter(pk=gone_entry.pk).delete()
            _rename_document(gone_entry.document.pk, row)
        return "renamed"
    others = SourceEntry.objects.filter(
        source_id=row.source_id, sha256=sha256, document__isnull=False
    )
    copy = others.exclude(pk=row.pk).select_related("document").first()
    if copy is None or copy.document is None:
        return None
    _mark_stored(row, sha256, copy.document)
    return "added"


def store_bytes(row: SourceEntry, sha256: str, content: "File[Any]") -> str:
    """Store the bytes as a version of the entry's document ("changed") or a new one ("added").

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
    new_document, _created = services.upload_document(
        owner=source.owner,
        library=source.library,
        source=source,
        name=row.name,
        content=content,
        metadata={SOURCE_URI: row.uri},
    )
    _mark_stored(row, sha256, new_document)
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
    """Delete an entry, and its document unless another entry shares it."""
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
