"""Operations: how much room the installation takes."""

from typing import Any

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from documents.administration import Place, Section, admin_page, render_page
from nura.housekeeping import describe_bytes, measure_room


@admin_page("storage", Place(Section.OPERATIONS, "hard_drive", 30, gettext_lazy("Storage")))
def show_storage(request: HttpRequest) -> HttpResponse:
    """What the installation takes, as of at most a minute ago."""
    return render_page(request, "admin/storage.html", describe_room())


def describe_room() -> dict[str, Any]:
    """What the template shows of the figures."""
    room, tell = measure_room(), describe_bytes
    limit = f"/ {tell(room.redis_limit)}" if room.redis_limit else ""
    logs = _("%(count)d answer logs")
    documents = reverse("admin:documents_document_changelist")
    deletions = reverse("admin:documents_deletion_changelist")
    parts = (
        (_("Database"), tell(room.database), "", ""),
        ("Redis", f"{tell(room.redis)} {limit}", logs % {"count": room.run_logs}, ""),
        (_("Documents"), tell(room.files), "", documents),
        (_("Page pictures"), tell(room.cache), f"/ {settings.CACHE_MB} MB", ""),
        (_("Logs"), tell(room.logs), "", ""),
        (_("Free disk space"), tell(room.disk_free), f"/ {tell(room.disk_total)}", ""),
        (_("Waiting to be erased"), f"{room.deletions:,}", "", f"{deletions}?state=waiting"),
        (_("Overdue"), f"{room.overdue_deletions:,}", "", f"{deletions}?state=overdue"),
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
                "data": tell(table.rows_bytes),
                "indexes": tell(table.index_bytes),
                "dead": f"{table.dead_rows:,}",
                "bloated": table.is_bloated,
            }
            for table in room.tables
        ],
    }
