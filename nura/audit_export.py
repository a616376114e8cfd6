"""The audit log as JSON Lines: an export for a program, and the way to remove what is old."""

import json
from collections.abc import AsyncIterator, Iterable, Iterator
from datetime import datetime
from typing import IO

from asgiref.sync import sync_to_async
from django.core.handlers.asgi import ASGIRequest
from django.db import connection, transaction
from django.db.models import QuerySet
from django.http import HttpRequest, StreamingHttpResponse
from django.utils import timezone

from documents.audit import Action, AuditEvent, record_event, to_line

ROWS_A_PAGE = 1000
CONTENT_TYPE = "application/x-ndjson"

LIFT_GUARD = "ALTER TABLE documents_auditevent DISABLE TRIGGER audit_is_append_only"
PUT_GUARD_BACK = "ALTER TABLE documents_auditevent ENABLE TRIGGER audit_is_append_only"


def make_export_response(
    request: HttpRequest, events: QuerySet[AuditEvent]
) -> StreamingHttpResponse:
    """The entries as a download, oldest first, page by page."""
    is_async = isinstance(request, ASGIRequest)
    response = StreamingHttpResponse(
        _export_pages_async(events) if is_async else _export_pages(events),
        content_type=CONTENT_TYPE,
    )
    name = f"nura-audit-{timezone.localtime():%Y%m%d-%H%M%S}.jsonl"
    response["Content-Disposition"] = f'attachment; filename="{name}"'
    response["Cache-Control"] = "no-store"
    return response


def trim_log(*, before: datetime, out: IO[str]) -> int:
    """Write the entries before that time to `out`, then remove them; how many.

    The only way to remove any: the guard is lifted within the transaction, and the last entry says
    how many went.
    """
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(LIFT_GUARD)  # locks the table: nothing is added between the two
        old = AuditEvent.objects.filter(at__lt=before)
        count = 0
        for page in _export_pages(old):
            out.write(page)
            count += page.count("\n")
        out.flush()
        old.delete()
        record_event(Action.LOG_TRIMMED, details={"before": before, "count": count})
        cursor.execute(PUT_GUARD_BACK)
    return count


def _export_pages(events: QuerySet[AuditEvent]) -> Iterator[str]:
    last = 0
    while page := _read_page(events, last):
        last = page[-1].pk
        yield _to_text(page)


async def _export_pages_async(events: QuerySet[AuditEvent]) -> AsyncIterator[str]:
    """The same under ASGI, where Django would gather a plain iterator in memory first."""
    last = 0
    while page := await sync_to_async(_read_page)(events, last):
        last = page[-1].pk
        yield _to_text(page)


def _read_page(events: QuerySet[AuditEvent], after: int) -> list[AuditEvent]:
    return list(events.filter(pk__gt=after).order_by("pk")[:ROWS_A_PAGE])


def _to_text(events: Iterable[AuditEvent]) -> str:
    lines = (json.dumps(to_line(event), ensure_ascii=False) for event in events)
    return "".join(f"{line}\n" for line in lines)
