"""Documents in the admin: to look at, and to process again."""

from django.contrib import admin, messages
from django.db.models import QuerySet
from django.http import HttpRequest
from django.template.defaultfilters import filesizeformat
from django.utils.translation import gettext_lazy as _
from django.utils.translation import ngettext
from unfold.decorators import display

from documents import services
from documents.errors import DocumentBusy
from documents.models import Document
from documents.read_only import ReadOnly
from documents.reindexing.admin import EmbeddingSpaceAdmin
from documents.wording import sentence

__all__ = ["DocumentAdmin", "EmbeddingSpaceAdmin"]

COLOURS = {"PROCESSING": "info", "COMPLETED": "success", "FAILED": "danger"}


@admin.register(Document)
class DocumentAdmin(ReadOnly):
    """All users' documents. Deleting takes chunks, vectors and files along."""

    list_display = (
        "name", "owner", "state", "percent", "stage", "reason", "chunk_count", "page_count",
        "bytes", "created_at",
    )  # fmt: skip
    list_filter = ("status", "content_type", "created_at")
    list_select_related = ("owner",)
    search_fields = ("name", "original_name", "owner__username", "sha256")
    date_hierarchy = "created_at"
    actions = ("process_again",)
    exclude = ("file", "error_params")

    @display(  # type: ignore[untyped-decorator] # unfold has no types
        description=_("status"), ordering="status", label=COLOURS
    )
    def state(self, document: Document) -> tuple[str, str]:
        """The status as a coloured label."""
        return document.status, document.get_status_display()

    @admin.display(description=_("progress"), ordering="progress")
    def percent(self, document: Document) -> str:
        """How far the processing is."""
        return f"{document.progress:.0%}"

    @admin.display(description=_("error"))
    def reason(self, document: Document) -> str:
        """What went wrong, in words."""
        code = document.error_code
        return sentence(code, document.error_params) if code else ""

    @admin.display(description=_("size"), ordering="size")
    def bytes(self, document: Document) -> str:
        """The file's size."""
        return filesizeformat(document.size)

    @admin.action(description=_("Process again"), permissions=("process",))
    def process_again(self, request: HttpRequest, queryset: QuerySet[Document]) -> None:
        """Send the chosen documents to the workers; those at work are left alone."""
        started = sum(_started(document) for document in queryset)
        text = ngettext(
            "%(count)d document is being processed again.",
            "%(count)d documents are being processed again.",
            started,
        )
        self.message_user(request, text % {"count": started}, messages.SUCCESS)

    def has_process_permission(self, request: HttpRequest) -> bool:
        """Who may change documents may have them processed."""
        return request.user.has_perm("documents.change_document")

    def delete_model(self, request: HttpRequest, obj: Document) -> None:
        """Delete with files."""
        services.delete_document(document=obj)

    def delete_queryset(self, request: HttpRequest, queryset: QuerySet[Document]) -> None:
        """Delete each with its files."""
        for document in queryset:
            services.delete_document(document=document)


def _started(document: Document) -> bool:
    try:
        services.reprocess(document=document)
    except DocumentBusy:
        return False
    return True
