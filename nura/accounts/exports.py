"""All of one's data as a file: chats as JSON and Markdown, documents as they were uploaded.

A worker makes it (`nura.tasks`), so that a large account blocks no request. The file is available
for `KEPT_HOURS`; `sweep_exports` removes files that have expired or whose account is gone.
"""

import json
import tempfile
import zipfile
from collections.abc import Iterator
from datetime import timedelta
from pathlib import PurePosixPath
from typing import Any
from uuid import UUID

import structlog
from django.conf import settings
from django.contrib.auth.models import User
from django.core.files import File
from django.core.files.storage import default_storage
from django.core.serializers.json import DjangoJSONEncoder
from django.db import IntegrityError, transaction
from django.db.models.functions import Now
from django.http import Http404, HttpRequest, StreamingHttpResponse
from django.utils import timezone, translation
from django.utils.text import get_valid_filename

from chats.models import Chat, Message, Turn
from chats.services.assistants import export_assistants, export_folders, export_prompts
from chats.services.erasure import hide_closed, load_closed_documents
from chats.services.export import export_markdown, to_one_line
from chats.services.memory import describe_profile
from documents.api.transfers import stream_blocks
from documents.audit import Action, record_event
from documents.models import Document
from jobs.lease import (
    RELEASED,
    Heartbeat,
    Lease,
    announce_unclaimed_jobs,
    claim_job,
    reap_lost_jobs,
)
from jobs.queue import make_task_id, send_task
from nura.accounts.preferences import get_preferences
from nura.models import DataExport

logger = structlog.get_logger()

TASK = "nura.tasks.make_export"
FOLDER = "exports"
KEPT_HOURS = 48
PATIENCE = timedelta(seconds=30)
COPY_BYTES = 1024 * 1024
MAX_NAME_CHARACTERS = 60
FORMAT, VERSION, INDEX = "nura-export", 1, "export.json"
HEARTBEAT = Heartbeat(DataExport)


def request_export(*, user: User) -> DataExport:
    """The user's pending export, or a new one."""
    try:
        with transaction.atomic():
            export = DataExport.objects.create(
                owner=user, language=translation.get_language() or "ko", enqueued_at=timezone.now()
            )
            record_event(Action.DATA_EXPORTED, actor=user, subject=user, target=export)
            transaction.on_commit(lambda: queue_export(export.pk), robust=True)
    except IntegrityError:
        return DataExport.objects.get(owner=user, status=DataExport.Status.WAITING)
    return export


def queue_export(export_id: UUID) -> None:
    """Send the task to a worker."""
    send_task(TASK, [str(export_id)], task_id=make_task_id("export", export_id))


def make_export(export_id: UUID) -> None:
    """Make the file of an export, unless another worker is at it."""
    lease = claim_job(DataExport, export_id)
    if lease is None:
        return
    export = DataExport.objects.select_related("owner").get(pk=export_id)
    with (
        HEARTBEAT.hold(lease) as held_lease,
        translation.override(export.language),
        tempfile.TemporaryFile(dir=settings.DATA_DIR) as file,  # /tmp may be memory
    ):
        with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
            for _part in write_archive(archive, export.owner):
                held_lease.check()
        size = file.tell()
        file.seek(0)
        default_storage.delete(name_file(export_id))
        default_storage.save(name_file(export_id), File(file))
        expires_at = timezone.now() + timedelta(hours=KEPT_HOURS)
        changes = {"status": DataExport.Status.READY, "size": size, "expires_at": expires_at}
        lease.rows().update(**changes, **RELEASED)


def write_archive(archive: zipfile.ZipFile, user: User) -> Iterator[None]:
    """Write everything of the user's; yields after each part so that the caller can stop."""
    index: dict[str, Any] = {
        "format": FORMAT,
        "version": VERSION,
        "exported_at": timezone.now(),
        "account": {
            "username": user.username,
            "email": user.email,
            "display_name": user.first_name,
            "joined_at": user.date_joined,
        },
        "preferences": _describe_preferences(user),
        "memory": describe_profile(user),
        "assistants": export_assistants(user),
        "prompts": export_prompts(user),
        "prompt_folders": export_folders(user),
        "chats": [],
        "documents": [],
    }
    for number, chat in enumerate(Chat.objects.visible_to(user).order_by("created_at"), 1):
        name = f"chats/{number:04}-{_to_file_name(chat.title) or 'chat'}"
        archive.writestr(f"{name}.json", _to_json(_describe_chat(chat)))
        turns = list(
            Turn.objects.without_search_columns().filter(chat=chat).order_by("number", "ts")
        )
        archive.writestr(f"{name}.md", export_markdown(chat, turns))
        index["chats"].append(f"{name}.json")
        yield
    documents = Document.objects.visible_to(user).filter(owner=user)
    for number, document in enumerate(documents.order_by("created_at"), 1):
        path = PurePosixPath(document.original_name)
        name = f"documents/{number:04}-{_to_file_name(path.stem) or 'document'}{path.suffix[:10]}"
        index["documents"].append(_describe_document(document, name))
        with (
            document.file.open("rb") as source,
            archive.open(name, "w", force_zip64=True) as target,
        ):
            while part := source.read(COPY_BYTES):
                target.write(part)
                yield
    archive.writestr(INDEX, _to_json(index))


def _describe_preferences(user: User) -> dict[str, Any]:
    preferences = get_preferences(user=user)
    names = ("language", "theme", "send_key", "document_layout", "voice", "speech_rate")
    return {name: getattr(preferences, name) for name in names}


def _describe_chat(chat: Chat) -> dict[str, Any]:
    messages = Message.objects.filter(chat=chat).order_by("created_at", "id")
    fields = ("id", "parent_id", "role", "content", "status", "label", "sources", "created_at")
    loaded = list(messages)
    load_closed_documents(loaded, user_id=chat.owner_id)
    visible = [hide_closed(message) for message in loaded]
    return {
        "id": chat.pk,
        "title": chat.title,
        "created_at": chat.created_at,
        "updated_at": chat.updated_at,
        "messages": [{name: getattr(row, name) for name in fields} for row in visible],
    }


def _describe_document(document: Document, name: str) -> dict[str, Any]:
    return {
        "id": document.pk,
        "name": document.name,
        "file": name,
        "content_type": document.content_type,
        "size": document.size,
        "sha256": document.sha256,
        "metadata": document.metadata,
        "created_at": document.created_at,
    }


def _to_json(value: Any) -> str:
    return json.dumps(value, cls=DjangoJSONEncoder, ensure_ascii=False, indent=1)


def _to_file_name(text: str) -> str:
    cut = to_one_line(text)[:MAX_NAME_CHARACTERS].strip(" .-_")
    return get_valid_filename(cut) if cut else ""


def name_file(export_id: UUID) -> str:
    """The file's path in the storage."""
    return f"{FOLDER}/{export_id}.zip"


def respond_with_export(
    request: HttpRequest, *, user: User, export_id: UUID
) -> StreamingHttpResponse:
    """The file as a download. Raises `Http404` if the user has no such export, or no longer.

    The file is missing after a restore: backups leave exports out.
    """
    ready = DataExport.objects.filter(owner=user, status=DataExport.Status.READY)
    export = ready.filter(pk=export_id, expires_at__gt=Now()).first()
    if export is None:
        raise Http404
    try:
        file = default_storage.open(name_file(export.pk))
    except FileNotFoundError as error:
        raise Http404 from error
    name = f"nura-{export.created_at:%Y-%m-%d}.zip"
    return StreamingHttpResponse(
        stream_blocks(request, file, export.size),
        content_type="application/zip",
        headers={
            "Content-Disposition": f'attachment; filename="{name}"',
            "Content-Length": str(export.size),
            "Cache-Control": "no-store",
        },
    )


def fail_export(lease: Lease[DataExport]) -> None:
    """Mark an export that no worker could make as failed."""
    lease.rows().update(status=DataExport.Status.FAILED, **RELEASED)


def sweep_exports() -> None:
    """Requeue lost exports, and remove those that expired or whose account is gone."""
    reap_lost_jobs(DataExport, announce=queue_export, give_up=fail_export)
    announce_unclaimed_jobs(DataExport, announce=queue_export, patience=PATIENCE)
    DataExport.objects.filter(expires_at__lt=Now()).delete()
    try:
        names = default_storage.listdir(FOLDER)[1]
    except FileNotFoundError:  # nobody has requested an export yet
        return
    known_names = {f"{pk}.zip" for pk in DataExport.objects.values_list("pk", flat=True)}
    for name in names:
        if name not in known_names:
            default_storage.delete(f"{FOLDER}/{name}")
            logger.info("export_removed", name=name)
