"""The queue of documents: what waits and works, holding it, and who goes first."""

from typing import Any
from uuid import UUID

from django.contrib import messages
from django.contrib.auth.models import User
from django.db import transaction
from django.db.models import Count, Min, Q, QuerySet
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.utils.translation import gettext_lazy, ngettext

from documents import services
from documents.administration import MenuPlace, Section, admin_page, render_page
from documents.audit import Action, record_event
from documents.models import Document, QueueHold

MAX_ROWS = 100
"""Documents and owners that the page lists, those whose turn is next first."""
PRIORITIES = {
    "first": Document.Priority.FIRST,
    "usual": Document.Priority.USUAL,
    "last": Document.Priority.LAST,
}


@admin_page("queue", MenuPlace(Section.OPERATIONS, "pending_actions", 10, gettext_lazy("Queue")))
def show_queue(request: HttpRequest) -> HttpResponse:
    """What is being read and what waits, and the buttons that change it."""
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
    listed = rows.select_related("owner").order_by("-priority", "created_at")
    context: dict[str, Any] = {
        "hold": QueueHold.objects.first(),
        "owners": owners[:MAX_ROWS],
        "documents": listed[:MAX_ROWS],
        "count": rows.count(),
        "most": MAX_ROWS,
    }
    return render_page(request, "admin/queue.html", context)


def _change_queue(request: HttpRequest, wish: str) -> None:
    """Do what a button says: `hold`, `release`, or `{what}:{document|owner}:{id}`."""
    what, _, whose = wish.partition(":")
    if what in {"hold", "release"}:
        name = request.user.get_username()
        done = services.hold_queue(by=name) if what == "hold" else services.release_queue()
        if done:
            details = {"change": what}
            record_event(Action.QUEUE_CHANGED, actor=request.user, target="queue:", details=details)
        return
    rows, subject, target = _find_rows(whose)
    count = _change_rows(rows, what)
    text = ngettext("%(count)d document changed.", "%(count)d documents changed.", count)
    messages.success(request, text % {"count": count})
    if count:
        record_event(
            Action.QUEUE_CHANGED,
            actor=request.user,
            subject=subject,
            target=target,
            details={"change": what, "documents": count},
        )


def _find_rows(whose: str) -> tuple[QuerySet[Document], User, str]:
    """The documents that a button is about, their owner, and how the audit log calls them."""
    kind, _, key = whose.partition(":")
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


def _change_rows(rows: QuerySet[Document], what: str) -> int:
    if what == "pause":
        return services.pause_rows(rows)
    if what == "resume":
        return services.resume_rows(rows)
    if what in PRIORITIES:
        return services.set_priority(rows, PRIORITIES[what])
    raise Http404
