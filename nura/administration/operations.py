"""Operations: running processes, the queue, failures, and storage."""

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any, cast
from uuid import UUID

from django.conf import settings
from django.contrib import messages
from django.contrib.auth.models import User
from django.db import connection, transaction
from django.db.models import Count, Min, Q, QuerySet
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect
from django.urls import reverse
from django.utils import timezone
from django.utils.formats import date_format
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext
from redis.exceptions import RedisError

from chats.admin import ADVICE
from chats.figures import AnswerResult, list_answers
from chats.models import Message, Run
from chats.services.turns import regenerate_answer
from documents import services
from documents.admin import start_processing
from documents.administration import MenuPlace, Section, admin_page, render_page
from documents.audit import Action, record_event
from documents.errors import explain_code
from documents.models import Document, QueueHold
from documents.parsers.base import Encrypted
from nura import __version__
from nura.administration.record import describe_backup_age, find_last_backup, find_upgrade
from nura.embedded import models
from nura.health import BEAT, MODELS, WORKERS, Process, get_client, list_processes
from nura.housekeeping import describe_bytes, measure_storage
from rag.errors import NuraError

RECENTLY = timedelta(days=1)
"""Period of failures shown on the first page."""
MAX_QUEUE_ROWS = 100
"""Documents and owners listed on the page, next in turn first."""
PRIORITIES = {
    "first": Document.Priority.FIRST,
    "usual": Document.Priority.USUAL,
    "last": Document.Priority.LAST,
}


def describe_state() -> dict[str, Any]:
    """The current state, and whether every process is running."""
    storage = measure_storage()
    documents = reverse("admin:documents_document_changelist")
    runs = reverse("admin:chats_run_changelist")
    processing = Document.objects.processing()
    answers = Run.objects.filter(ended_at=None).count()
    last = find_last_backup()
    backup = date_format(timezone.localtime(last.at), "SHORT_DATE_FORMAT") if last else "–"
    failed = count_failures(timezone.now() - RECENTLY)
    age_warning, processing_link = (
        describe_backup_age(last),
        f"{documents}?status__exact=PROCESSING",
    )
    size = describe_bytes(storage.database + storage.files)
    figures = (
        (_("Documents being read"), processing.count(), processing_link, ""),
        (_("Answers being written"), answers, f"{runs}?open=yes", ""),
        (_("Failures in 24 hours"), failed, reverse("admin:failures"), "bad" if failed else ""),
        (_("Last backup"), backup, reverse("admin:backup"), "bad" if age_warning else ""),
        (_("Storage"), size, reverse("admin:storage"), ""),
    )
    return {
        "figures": [
            {"label": label, "value": value, "link": link, "tone": tone}
            for label, value, link, tone in figures
        ],
        "parts": [*_list_parts()],
        "upgrade": find_upgrade(),
    }


def _list_parts() -> Iterator[dict[str, str]]:
    """Every process and service, with its version."""
    yield _describe_part("web", __version__)
    try:
        processes = list_processes()
        redis = cast("dict[str, Any]", get_client().info("server"))["redis_version"]
    except RedisError:
        processes, redis = [], ""
    for kind in (*WORKERS, BEAT):
        running = [process for process in processes if process.kind == kind]
        for process in running or [Process(kind, "", "")]:
            yield _describe_part(kind, process.version, host=process.place)
    if settings.RAG.needs_models_process:
        is_answering = models.is_answering(settings.RAG.models_socket)
        yield _describe_part(MODELS, __version__ if is_answering else "")
    with connection.cursor() as cursor:
        cursor.execute("SHOW server_version")
        yield _describe_part("PostgreSQL", cursor.fetchone()[0].partition(" ")[0], ours=False)
    yield _describe_part("Redis", redis, ours=False)


def _describe_part(name: str, version: str, *, host: str = "", ours: bool = True) -> dict[str, str]:
    """One line of the list; an empty version: not running."""
    if not version:
        return {"name": name, "tone": "bad", "word": _("not running"), "note": ""}
    note = " · ".join(filter(None, (version, host)))
    if ours and version != __version__:
        return {"name": name, "tone": "warn", "word": _("another version"), "note": note}
    return {"name": name, "tone": "good", "word": _("running"), "note": note}


MAX_FAILURES = 200
"""Failures of each kind listed on the page, which also shows the total."""


def find_failed_documents(since: datetime) -> QuerySet[Document]:
    """Documents whose processing has failed, latest first."""
    rows = Document.objects.filter(status=Document.Status.FAILED, updated_at__gte=since)
    return rows.select_related("owner").order_by("-updated_at")


def find_failed_answers(since: datetime) -> QuerySet[Message]:
    """Answers that failed or were interrupted, latest first."""
    rows = list_answers(AnswerResult.FAILED).filter(created_at__gte=since)
    return rows.select_related("chat__owner").order_by("-created_at")


def count_failures(since: datetime) -> int:
    """The number of failed documents and answers."""
    return find_failed_documents(since).count() + find_failed_answers(since).count()


@admin_page("failures", MenuPlace(Section.OPERATIONS, "error", 20, gettext_lazy("Failures")))
def show_failures(request: HttpRequest) -> HttpResponse:
    """Failures of the last day, with reasons and retry buttons."""
    if request.method == "POST":
        _retry_failed(request)
        return redirect("admin:failures")
    since = timezone.now() - RECENTLY
    documents, answers = find_failed_documents(since), find_failed_answers(since)
    context = {
        "document_count": documents.count(),
        "documents": [_describe_document(row) for row in documents[:MAX_FAILURES]],
        "answer_count": answers.count(),
        "answers": [
            _describe_answer(row) for row in answers.defer("content", "reasoning")[:MAX_FAILURES]
        ],
        "most": MAX_FAILURES,
    }
    return render_page(request, "admin/failures.html", context)


def _describe_document(document: Document) -> dict[str, Any]:
    is_locked = document.error_code == Encrypted.code  # it stays locked, however often it is read
    return {
        "name": document.name,
        "link": reverse("admin:documents_document_change", args=(document.pk,)),
        "owner": document.owner,
        "at": document.updated_at,
        "code": document.error_code,
        "reason": explain_code(document.error_code, document.error_params),
        "again": "" if is_locked else f"document:{document.pk}",
    }


def _describe_answer(answer: Message) -> dict[str, Any]:
    code = answer.error_code
    return {
        "name": str(answer.pk)[:8],
        "link": reverse("admin:chats_message_change", args=(answer.pk,)),
        "owner": answer.chat.owner,
        "at": answer.created_at,
        "code": code or answer.status,
        "reason": explain_code(code, answer.error_params) if code else answer.get_status_display(),
        "advice": ADVICE.get(code, ""),
        "again": f"answer:{answer.pk}",
    }


def _retry_failed(request: HttpRequest) -> None:
    """Retry a failed document or answer, as if its owner had."""
    kind, _colon, key = request.POST.get("again", "").partition(":")
    if kind == "document":
        document = get_object_or_404(Document, pk=key)
        is_started = start_processing(document)
        target: Document | Message = document
        owner = document.owner
    else:
        answer = get_object_or_404(Message.objects.select_related("chat__owner"), pk=key)
        owner, target = answer.chat.owner, answer
        is_started = _retry_answer(answer)
    if not is_started:
        messages.warning(request, _("It is already being processed, or no longer exists."))
        return
    record_event(Action.WORK_REPEATED, actor=request.user, subject=owner, target=target, details={})
    messages.success(request, _("It is being tried again."))


def _retry_answer(answer: Message) -> bool:
    language = Run.objects.filter(message=answer).values_list("language", flat=True).first()
    try:
        regenerate_answer(message=answer, language=language or "ko", model=answer.model)
    except NuraError:
        return False
    return True


@admin_page("storage", MenuPlace(Section.OPERATIONS, "hard_drive", 30, gettext_lazy("Storage")))
def show_storage(request: HttpRequest) -> HttpResponse:
    """Storage in use, measured at most a minute ago."""
    return render_page(request, "admin/storage.html", describe_storage())


def describe_storage() -> dict[str, Any]:
    """The storage figures for the template."""
    storage, format_size = measure_storage(), describe_bytes
    limit = f"/ {format_size(storage.redis_limit)}" if storage.redis_limit else ""
    logs = _("%(count)d answer logs")
    documents = reverse("admin:documents_document_changelist")
    deletions = reverse("admin:documents_deletion_changelist")
    parts = (
        (_("Database"), format_size(storage.database), "", ""),
        ("Redis", f"{format_size(storage.redis)} {limit}", logs % {"count": storage.run_logs}, ""),
        (_("Documents"), format_size(storage.files), "", documents),
        (_("Page pictures"), format_size(storage.cache), f"/ {settings.CACHE_MB} MB", ""),
        (_("Logs"), format_size(storage.logs), "", ""),
        (
            _("Free disk space"),
            format_size(storage.disk_free),
            f"/ {format_size(storage.disk_total)}",
            "",
        ),
        (_("Waiting to be erased"), f"{storage.deletions:,}", "", f"{deletions}?state=waiting"),
        (_("Overdue"), f"{storage.overdue_deletions:,}", "", f"{deletions}?state=overdue"),
    )
    return {
        "figures": [
            {"label": label, "value": value, "note": note, "link": link}
            for label, value, note, link in parts
        ],
        "tables": [
            {
                "name": table.name,
                "rows": f"{table.rows:,}",
                "data": format_size(table.rows_bytes),
                "indexes": format_size(table.index_bytes),
                "dead": f"{table.dead_rows:,}",
                "bloated": table.is_bloated,
            }
            for table in storage.tables
        ],
    }


@admin_page("queue", MenuPlace(Section.OPERATIONS, "pending_actions", 10, gettext_lazy("Queue")))
def show_queue(request: HttpRequest) -> HttpResponse:
    """Documents being processed and waiting, with buttons to change the queue."""
    if request.method == "POST":
        with transaction.atomic():
            _change_queue(request, request.POST.get("do", ""))
        return redirect("admin:queue")
    rows = Document.objects.processing()
    owners = (
        rows.order_by()
        .values("owner_id", "owner__username")
        .annotate(
            waiting=Count("pk", filter=Q(claim=None) & ~Q(stage=Document.Stage.PAUSED)),
            going=Count("pk", filter=~Q(stage=Document.Stage.PAUSED)),
            working=Count("pk", filter=Q(claim__isnull=False)),
            paused=Count("pk", filter=Q(stage=Document.Stage.PAUSED)),
            since=Min("created_at"),
        )
        .order_by("since")
    )
    documents = rows.select_related("owner").order_by("-priority", "created_at")
    context: dict[str, Any] = {
        "hold": QueueHold.objects.first(),
        "owners": owners[:MAX_QUEUE_ROWS],
        "documents": documents[:MAX_QUEUE_ROWS],
        "count": rows.count(),
        "most": MAX_QUEUE_ROWS,
    }
    return render_page(request, "admin/queue.html", context)


def _change_queue(request: HttpRequest, command: str) -> None:
    """Carry out a button's command: `hold`, `release`, or `{change}:{document|owner}:{id}`."""
    change, _, target_key = command.partition(":")
    if change in {"hold", "release"}:
        name = request.user.get_username()
        is_hold = change == "hold"
        is_changed = services.hold_queue(username=name) if is_hold else services.release_queue()
        if is_changed:
            details = {"change": change}
            record_event(Action.QUEUE_CHANGED, actor=request.user, target="queue:", details=details)
        return
    rows, subject, target = _find_rows(target_key)
    count = _change_rows(rows, change)
    text = ngettext("%(count)d document changed.", "%(count)d documents changed.", count)
    messages.success(request, text % {"count": count})
    if count:
        record_event(
            Action.QUEUE_CHANGED,
            actor=request.user,
            subject=subject,
            target=target,
            details={"change": change, "documents": count},
        )


def _find_rows(target_key: str) -> tuple[QuerySet[Document], User, str]:
    """The documents a button refers to, their owner, and their name in the audit log."""
    kind, _, key = target_key.partition(":")
    try:
        if kind == "document":
            rows = Document.objects.filter(pk=UUID(key))
            owner = rows.select_related("owner").get().owner
        else:
            owner = User.objects.get(pk=int(key))
            rows = Document.objects.filter(owner=owner)
    except (ValueError, User.DoesNotExist, Document.DoesNotExist) as error:
        raise Http404 from error
    return rows, owner, f"{'document' if kind == 'document' else 'user'}:{key}"


def _change_rows(rows: QuerySet[Document], change: str) -> int:
    if change == "pause":
        return services.pause_rows(rows)
    if change == "resume":
        return services.resume_rows(rows)
    if change in PRIORITIES:
        return services.set_priority(rows, PRIORITIES[change])
    raise Http404
