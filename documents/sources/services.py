"""Operations on sources. Callers have checked that the user manages the library."""

from collections.abc import Mapping
from datetime import time
from typing import TYPE_CHECKING, Any
from unicodedata import normalize

from django.core.files import File
from django.db import transaction
from django.db.models import Count, F, OuterRef, Q, QuerySet, Subquery
from django.utils.timezone import localtime

from documents import files, services
from documents.audit import Action, record_event
from documents.errors import (
    DocumentFromSource,
    FileNotWanted,
    ManifestInvalid,
    SourceBusy,
    SourceForAdministrators,
    explain_code,
)
from documents.models import Document, Library
from documents.secrets import seal_secret
from documents.sources import runs
from documents.sources.base import (
    SourceKind,
    SourceSettingInvalid,
    clean_settings,
    get_kind,
    list_kinds,
)
from documents.sources.kinds.manifest import SHA256, to_path
from documents.sources.models import RunStatus, Source, SourceEntry, SourceRun
from documents.sources.sync import reuse_document, store_bytes, to_digest
from jobs.lease import claim_job

if TYPE_CHECKING:
    from django.contrib.auth.models import User

MAX_MANIFEST_FILES = 50_000
MAX_PATH_CHARACTERS = 1000
MIN_MINUTES, MAX_MINUTES = 5, 366 * 24 * 60
UNITS = {"minutes": 1, "hours": 60, "days": 24 * 60}
Schedule = Mapping[str, Any]
_STATES = {one: one for one in ("running", "held", "failed")}
"""States of a source that have the name of a run's status."""


def list_kinds_for(user: "User") -> list[SourceKind]:
    """The kinds that this user may set up."""
    return [kind for kind in list_kinds() if user.is_staff or not kind.administrators]


def create_source(  # noqa: PLR0913 - what a source is and whose
    *,
    library: Library,
    creator: "User",
    kind: str,
    name: str,
    values: Mapping[str, Any],
    schedule: Schedule | None = None,
) -> Source:
    """Create a source. It runs by its schedule, or when it is started.

    Raises `SourceSettingInvalid`, `SourceForAdministrators`.
    """
    source = Source(library=library, owner=creator, kind=kind, name=_clean_name(name, kind))
    _apply_settings(source, creator, values)
    _apply_schedule(source, schedule)
    with transaction.atomic():
        source.save(force_insert=True)
        details = {"kind": kind, "library": str(library.pk)}
        record_event(Action.SOURCE_CREATED, actor=creator, target=source, details=details)
    return source


def update_source(
    *,
    source: Source,
    actor: "User",
    name: str | None = None,
    values: Mapping[str, Any] | None = None,
    paused: bool | None = None,
    **schedule: Schedule | None,
) -> None:
    """Change what is given. Whoever changes the settings becomes the owner.

    `schedule=None` removes the schedule. Raises like `create_source`.
    """
    changed_fields = []
    if name is not None:
        source.name = _clean_name(name, source.kind)
        changed_fields.append("name")
    if values is not None:
        _apply_settings(source, actor, {**source.settings, **values})
        source.owner = actor
        changed_fields.append("settings")
    if "schedule" in schedule:
        _apply_schedule(source, schedule["schedule"])
        changed_fields.append("schedule")
    if paused is not None:
        source.paused = paused
        source.next_run_at = source.find_next_run()
        changed_fields.append("paused")
    with transaction.atomic():
        source.save()
        record_event(
            Action.SOURCE_CHANGED, actor=actor, target=source, details={"fields": changed_fields}
        )


def _clean_name(name: str, kind: str) -> str:
    return normalize("NFC", name).replace("\0", "").strip()[:120] or str(get_kind(kind).label)


def _apply_settings(source: Source, actor: "User", values: Mapping[str, Any]) -> None:
    """Validate the settings and seal the secrets; an empty secret keeps the stored one."""
    kind = get_kind(source.kind)
    if kind.administrators and not actor.is_staff:
        raise SourceForAdministrators
    secret_names = {field.name for field in kind.fields if field.form == "secret"}
    placeholders = {name: "●" for name in secret_names if source.secrets.get(name)}
    entered = {name: value for name, value in values.items() if value or name not in placeholders}
    cleaned = clean_settings(kind, placeholders | entered)
    kind.check(cleaned)
    source.settings = {name: value for name, value in cleaned.items() if name not in secret_names}
    source.secrets = source.secrets | {
        name: seal_secret(cleaned[name]) for name in secret_names if entered.get(name)
    }


def _apply_schedule(source: Source, schedule: Schedule | None) -> None:
    """Apply `{every, unit}`, `{at: "03:30"}`, or None. Raises `SourceSettingInvalid`."""
    source.every_minutes, source.at = None, None
    if schedule and "at" in schedule:
        try:
            source.at = time.fromisoformat(str(schedule["at"]))
        except ValueError as error:
            raise SourceSettingInvalid(name="schedule", reason="text") from error
    elif schedule:
        try:
            minutes = int(schedule.get("every", 0)) * UNITS[str(schedule.get("unit", "minutes"))]
        except (KeyError, TypeError, ValueError) as error:
            raise SourceSettingInvalid(name="schedule", reason="text") from error
        if not MIN_MINUTES <= minutes <= MAX_MINUTES:
            raise SourceSettingInvalid(
                name="schedule", reason="range", minimum=MIN_MINUTES, maximum=MAX_MINUTES
            )
        source.every_minutes = minutes
    source.next_run_at = source.find_next_run()


def describe_schedule(source: Source) -> dict[str, Any] | None:
    """The schedule in the form in which it is entered, with the largest unit that fits."""
    if source.at is not None:
        return {"at": source.at.strftime("%H:%M")}
    if not source.every_minutes:
        return None
    unit = max((name for name in UNITS if source.every_minutes % UNITS[name] == 0), key=UNITS.get)  # type: ignore[arg-type]
    return {"every": source.every_minutes // UNITS[unit], "unit": unit}


def delete_source(*, source: Source, actor: "User", with_documents: bool) -> None:
    """Delete a source, with its documents or without. Raises `SourceBusy`."""
    with transaction.atomic():
        if source.runs.filter(status=RunStatus.RUNNING, claim__isnull=False).exists():
            raise SourceBusy
        rows = Document.objects.filter(source=source)
        details = {"documents": "delete" if with_documents else "keep", "count": rows.count()}
        record_event(Action.SOURCE_DELETED, actor=actor, target=source, details=details)
        if with_documents:
            for document in rows.select_related("owner").order_by("pk").iterator(500):
                services.delete_document(document=document)
        source.delete()


def check_editable(document: Document) -> None:
    """Raise `DocumentFromSource` if the document can only be changed at its source."""
    if document.source_id is not None:
        raise DocumentFromSource


# Representation


def get_state(source: Source, run: SourceRun | None) -> str:
    """The state of a source: running, held, failed, paused or idle."""
    if run is not None and run.status == RunStatus.RUNNING:
        return "running"
    if source.paused:
        return "paused"
    if run is not None and run.status in {RunStatus.HELD, RunStatus.FAILED}:
        return str(run.status)
    return "idle"


def count_sources() -> dict[str, int]:
    """The number of sources in each state, by their latest run that is not a dry run."""
    real_runs = SourceRun.objects.filter(source=OuterRef("pk"), dry_run=False)
    latest_status = Subquery(real_runs.order_by("-created_at").values("status")[:1])
    rows = Source.objects.order_by().annotate(latest=latest_status).values_list("paused", "latest")
    counts = dict.fromkeys(("idle", "running", "held", "failed", "paused"), 0)
    for paused, status, number in rows.annotate(number=Count("pk")):
        running = status == RunStatus.RUNNING
        counts["paused" if paused and not running else _STATES.get(status, "idle")] += number
    return counts


def to_source_json(source: Source) -> dict[str, Any]:
    """A source as in the API; secrets are listed by name only."""
    last_run = source.runs.filter(dry_run=False).first()
    last_dry_run = source.runs.filter(dry_run=True).first()
    newest = source.runs.first()
    running = newest is not None and newest.status == RunStatus.RUNNING
    return {
        "id": str(source.pk),
        "kind": source.kind,
        "name": source.name,
        "owner": source.owner.get_username(),
        "settings": source.settings | dict.fromkeys(source.secrets, ""),
        "schedule": describe_schedule(source),
        "paused": source.paused,
        "state": get_state(source, newest if running else last_run),
        "next_run_at": _to_time(source.next_run_at),
        "document_count": source.documents.count(),
        "last_run": to_run_json(last_run) if last_run else None,
        "dry_run": to_run_json(last_dry_run) if last_dry_run else None,
        "created_at": _to_time(source.created_at),
    }


def to_run_json(run: SourceRun) -> dict[str, Any]:
    """A run as in the API; the error in the active language."""
    error = None
    if run.error_code:
        detail = explain_code(run.error_code, run.error_params)
        error = {"code": run.error_code, "detail": detail}
    return {
        "id": str(run.pk),
        "at": _to_time(run.created_at),
        "ended_at": _to_time(run.ended_at),
        "status": run.status,
        "stage": run.stage if run.status == RunStatus.RUNNING else None,
        "dry_run": run.dry_run,
        **run.counts,
        "names": run.report,
        "error": error,
    }


def _to_time(value: Any) -> str | None:
    return localtime(value).isoformat() if value else None


def list_problems(source: Source) -> QuerySet[SourceEntry]:
    """Entries that could not be read, and those whose document failed."""
    has_error = ~Q(error_code="") | Q(document__status=Document.Status.FAILED)
    return (
        SourceEntry.objects.filter(has_error, source=source)
        .select_related("document")
        .order_by("pk")
    )


def to_problem_json(row: SourceEntry) -> dict[str, Any]:
    """An entry with its error."""
    code, params = row.error_code, row.error_params
    if not code and row.document is not None:
        code, params = row.document.error_code, row.document.error_params
    document_id = str(row.document_id) if row.document_id else None
    error = {"code": code, "detail": explain_code(code, params)}
    return {"uri": row.uri, "document_id": document_id, "error": error}


# Sources that are sent by a program


def receive_manifest(
    *, source: Source, entries: Any, actor: "User", dry_run: bool, confirmed: bool
) -> SourceRun:
    """Compare the list of a program right away; a worker continues if it takes long.

    Raises `ManifestInvalid`, `SourceBusy`.
    """
    run = runs.request_run(
        source=source,
        dry_run=dry_run,
        confirmed=confirmed,
        listing=_clean_manifest(source, entries),
        actor=actor,
    )
    lease = claim_job(SourceRun, run.pk)
    if lease is not None:
        runs.carry_out_run(lease)
    run.refresh_from_db()
    return run


def _clean_manifest(source: Source, entries: Any) -> dict[str, str]:
    limit = MAX_MANIFEST_FILES
    if not get_kind(source.kind).sends or not isinstance(entries, list) or len(entries) > limit:
        raise ManifestInvalid(limit=limit)
    hashes: dict[str, str] = {}
    for entry in entries:
        path, sha256 = (
            (entry.get("path"), entry.get("sha256")) if isinstance(entry, dict) else (None, None)
        )
        if not isinstance(path, str) or not isinstance(sha256, str) or "\0" in path:
            raise ManifestInvalid(limit=limit)
        cleaned, digest = to_path(path), sha256.lower()
        is_invalid = not cleaned or cleaned in hashes or len(cleaned) > MAX_PATH_CHARACTERS
        if is_invalid or not SHA256.fullmatch(digest):
            raise ManifestInvalid(path, limit=limit)
        hashes[cleaned] = digest
    return hashes


def list_wanted_paths(source: Source) -> list[str]:
    """Paths in the latest list whose files are still to be sent."""
    last_run = source.runs.filter(dry_run=False).first()
    rows = SourceEntry.objects.filter(source=source, pending=True)
    return list(
        rows.filter(seen_in=last_run.pk if last_run else None).values_list("key", flat=True)
    )


def receive_file(*, source: Source, path: str, content: "File[Any]") -> SourceEntry:
    """Store a file that the latest list announced.

    Raises `FileNotWanted`, `SourceOwnerLost`, or what is wrong with the file.
    """
    runs.check_owner(source)
    row = (
        SourceEntry.objects.filter(source=source, digest=to_digest(to_path(path)))
        .select_related("document", "source__owner", "source__library")
        .first()
    )
    sha256 = files.measure_file(content).sha256
    if row is None or row.fingerprint != sha256:
        raise FileNotWanted
    outcome = reuse_document(row, sha256, lambda _sum: None)
    if outcome is None:
        outcome = store_bytes(row, sha256, content)
    last_run = source.runs.filter(dry_run=False).first()
    if outcome and last_run is not None:
        SourceRun.objects.filter(pk=last_run.pk).update(**{outcome: F(outcome) + 1})
    return row


def start_source(
    *, source: Source, actor: "User", dry_run: bool = False, confirmed: bool = False
) -> SourceRun:
    """Run a source now; one that is sent by a program by its last list. Raises `SourceBusy`.

    Entries that failed are tried again as well.
    """
    if not dry_run:
        failed_entries = SourceEntry.objects.filter(source=source).exclude(error_code="")
        failed_entries.update(pending=True)
    last_manifest_run = (
        source.runs.exclude(listing=None).first() if get_kind(source.kind).sends else None
    )
    return runs.request_run(
        source=source,
        dry_run=dry_run,
        confirmed=confirmed,
        listing=last_manifest_run.listing if last_manifest_run else None,
        actor=actor,
    )
