"""What can be done with sources. Callers have checked that the library is the user's to manage."""

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
"""States that are called as the run that they come from."""


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
    """Set a source up; it runs for the first time at once, unless it is sent what it holds.

    Raises `SourceSettingInvalid`, `SourceForAdministrators`.
    """
    source = Source(library=library, owner=creator, kind=kind, name=_clean_name(name, kind))
    _apply_settings(source, creator, values)
    _apply_schedule(source, schedule)
    with transaction.atomic():
        source.save(force_insert=True)
        told = {"kind": kind, "library": str(library.pk)}
        record_event(Action.SOURCE_CREATED, actor=creator, target=source, details=told)
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
    """Change what is given; whoever changes settings is whose documents they are from now on.

    `schedule` None: no more by itself. Raises as `create_source`.
    """
    changed = []
    if name is not None:
        source.name = _clean_name(name, source.kind)
        changed.append("name")
    if values is not None:
        _apply_settings(source, actor, {**source.settings, **values})
        source.owner = actor
        changed.append("settings")
    if "schedule" in schedule:
        _apply_schedule(source, schedule["schedule"])
        changed.append("schedule")
    if paused is not None:
        source.paused = paused
        source.next_run_at = source.find_next_run()
        changed.append("paused")
    with transaction.atomic():
        source.save()
        record_event(Action.SOURCE_CHANGED, actor=actor, target=source, details={"fields": changed})


def _clean_name(name: str, kind: str) -> str:
    return normalize("NFC", name).replace("\0", "").strip()[:120] or str(get_kind(kind).label)


def _apply_settings(source: Source, actor: "User", values: Mapping[str, Any]) -> None:
    """Check the settings and keep secrets apart; an empty secret leaves what is stored."""
    kind = get_kind(source.kind)
    if kind.administrators and not actor.is_staff:
        raise SourceForAdministrators
    secret = {one.name for one in kind.fields if one.form == "secret"}
    known = {name: "●" for name in secret if source.secrets.get(name)}
    given = {name: value for name, value in values.items() if value or name not in known}
    cleaned = clean_settings(kind, known | given)
    kind.check(cleaned)
    source.settings = {name: value for name, value in cleaned.items() if name not in secret}
    source.secrets = source.secrets | {
        name: seal_secret(cleaned[name]) for name in secret if given.get(name)
    }


def _apply_schedule(source: Source, schedule: Schedule | None) -> None:
    """`{every, unit}`, `{at: "03:30"}`, or None. Raises `SourceSettingInvalid`."""
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
    """The schedule as it was given; the largest unit that fits."""
    if source.at is not None:
        return {"at": source.at.strftime("%H:%M")}
    if not source.every_minutes:
        return None
    unit = max((one for one in UNITS if source.every_minutes % UNITS[one] == 0), key=UNITS.get)  # type: ignore[arg-type]
    return {"every": source.every_minutes // UNITS[unit], "unit": unit}


def delete_source(*, source: Source, actor: "User", documents: bool) -> None:
    """Take a source away; its documents stay and are people's from now on, or go with it."""
    with transaction.atomic():
        if source.runs.filter(status=RunStatus.RUNNING, claim__isnull=False).exists():
            raise SourceBusy
        rows = Document.objects.filter(source=source)
        told = {"documents": "delete" if documents else "keep", "count": rows.count()}
        record_event(Action.SOURCE_DELETED, actor=actor, target=source, details=told)
        if documents:
            for document in rows.select_related("owner").order_by("pk").iterator(500):
                services.delete_document(document=document)
        source.delete()


def check_editable(document: Document) -> None:
    """What follows a source is changed there. Raises `DocumentFromSource`."""
    if document.source_id is not None:
        raise DocumentFromSource


# What is told of a source


def get_state(source: Source, last: SourceRun | None) -> str:
    """running, held, failed, paused, or idle."""
    if last is not None and last.status == RunStatus.RUNNING:
        return "running"
    if source.paused:
        return "paused"
    if last is not None and last.status in {RunStatus.HELD, RunStatus.FAILED}:
        return str(last.status)
    return "idle"


def count_sources() -> dict[str, int]:
    """How many sources are in each state, by their latest real run."""
    newest = SourceRun.objects.filter(source=OuterRef("pk"), dry_run=False)
    latest = Subquery(newest.order_by("-created_at").values("status")[:1])
    rows = Source.objects.order_by().annotate(latest=latest).values_list("paused", "latest")
    counts = dict.fromkeys(("idle", "running", "held", "failed", "paused"), 0)
    for paused, status, number in rows.annotate(number=Count("pk")):
        running = status == RunStatus.RUNNING
        counts["paused" if paused and not running else _STATES.get(status, "idle")] += number
    return counts


def to_source_json(source: Source) -> dict[str, Any]:
    """Plain JSON values, as in the contract; secrets are only told to be there."""
    real = source.runs.filter(dry_run=False).first()
    dry = source.runs.filter(dry_run=True).first()
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
        "state": get_state(source, newest if running else real),
        "next_run_at": _to_time(source.next_run_at),
        "document_count": source.documents.count(),
        "last_run": to_run_json(real) if real else None,
        "dry_run": to_run_json(dry) if dry else None,
        "created_at": _to_time(source.created_at),
    }


def to_run_json(run: SourceRun) -> dict[str, Any]:
    """One run; its error in the language that is active."""
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
    """Entries that could not be read, and those whose document could not."""
    bad = ~Q(error_code="") | Q(document__status=Document.Status.FAILED)
    return SourceEntry.objects.filter(bad, source=source).select_related("document").order_by("pk")


def to_problem_json(row: SourceEntry) -> dict[str, Any]:
    """An entry with what is wrong with it."""
    code, params = row.error_code, row.error_params
    if not code and row.document is not None:
        code, params = row.document.error_code, row.document.error_params
    document_id = str(row.document_id) if row.document_id else None
    error = {"code": code, "detail": explain_code(code, params)}
    return {"uri": row.uri, "document_id": document_id, "error": error}


# What a program sends


def receive_manifest(
    *, source: Source, listed: Any, actor: "User", dry_run: bool, confirmed: bool
) -> SourceRun:
    """Compare the list of a program at once; what it takes longer for goes on in a worker.

    Raises `ManifestInvalid`, `SourceBusy`.
    """
    run = runs.request_run(
        source=source,
        dry_run=dry_run,
        confirmed=confirmed,
        listing=_clean_manifest(source, listed),
        actor=actor,
    )
    lease = claim_job(SourceRun, run.pk)
    if lease is not None:
        runs.carry_out_run(lease)
    run.refresh_from_db()
    return run


def _clean_manifest(source: Source, listed: Any) -> dict[str, str]:
    limit = MAX_MANIFEST_FILES
    if not get_kind(source.kind).sends or not isinstance(listed, list) or len(listed) > limit:
        raise ManifestInvalid(limit=limit)
    found: dict[str, str] = {}
    for one in listed:
        path, sum_ = (one.get("path"), one.get("sha256")) if isinstance(one, dict) else (None, None)
        if not isinstance(path, str) or not isinstance(sum_, str) or "\0" in path:
            raise ManifestInvalid(limit=limit)
        cleaned, digest = to_path(path), sum_.lower()
        bad = not cleaned or cleaned in found or len(cleaned) > MAX_PATH_CHARACTERS
        if bad or not SHA256.fullmatch(digest):
            raise ManifestInvalid(path, limit=limit)
        found[cleaned] = digest
    return found


def list_wanted(source: Source) -> list[str]:
    """Paths of the list that was sent last whose files are still to be sent."""
    last = source.runs.filter(dry_run=False).first()
    rows = SourceEntry.objects.filter(source=source, pending=True)
    return list(rows.filter(seen_in=last.pk if last else None).values_list("key", flat=True))


def receive_file(*, source: Source, path: str, content: "File[Any]") -> SourceEntry:
    """Take a file that is wanted.

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
    what = reuse_document(row, sha256, lambda _sum: None)
    if what is None:
        what = store_bytes(row, sha256, content)
    last = source.runs.filter(dry_run=False).first()
    if what and last is not None:
        SourceRun.objects.filter(pk=last.pk).update(**{what: F(what) + 1})
    return row


def start_source(
    *, source: Source, actor: "User", dry_run: bool = False, confirmed: bool = False
) -> SourceRun:
    """Run a source now, one that is sent what it holds by its last list. Raises `SourceBusy`.

    Whoever starts it by hand wants what failed to be tried again, too.
    """
    if not dry_run:
        failed = SourceEntry.objects.filter(source=source).exclude(error_code="")
        failed.update(pending=True)
    last = source.runs.exclude(listing=None).first() if get_kind(source.kind).sends else None
    return runs.request_run(
        source=source,
        dry_run=dry_run,
        confirmed=confirmed,
        listing=last.listing if last else None,
        actor=actor,
    )
