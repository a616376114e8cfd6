"""Documents, libraries, quotas and embedding spaces in the admin."""

from collections.abc import Mapping
from typing import Any

from django.contrib import admin, messages
from django.contrib.auth.models import User
from django.core.exceptions import PermissionDenied, ValidationError
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseNotAllowed
from django.shortcuts import redirect
from django.template.defaultfilters import filesizeformat
from django.urls import URLPattern, path
from django.utils.translation import gettext_lazy as _
from django.utils.translation import ngettext
from unfold.admin import TabularInline
from unfold.decorators import display

from documents import reindex, renewal, services, spaces
from documents.administration import (
    AuditedAdmin,
    AuditedFormSet,
    ContentsAdmin,
    MenuPlace,
    Section,
    count_rows,
)
from documents.audit import Action, describe_target, record_event
from documents.connected import pages  # noqa: F401 - registers its pages
from documents.errors import DocumentBusy, explain_code
from documents.libraries import record_membership
from documents.models import (
    Chunk,
    ChunkEmbedding,
    Document,
    EmbeddingSpace,
    Library,
    LibraryMember,
    QuotaMeasure,
    QuotaRule,
    Reindexing,
)
from documents.notices import announce_rights_change
from documents.reindex import ReindexBusyError, ReindexTarget


class ReadOnlyAdmin(AuditedAdmin):
    """Rows that only Nura itself creates and changes."""

    def has_add_permission(self, request: HttpRequest) -> bool:
        """Never."""
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Never: the form is read-only."""
        return False


COLOURS = {"PROCESSING": "info", "COMPLETED": "success", "FAILED": "danger"}


@admin.register(Document)
class DocumentAdmin(ContentsAdmin, ReadOnlyAdmin):
    """All users' documents. Deleting removes chunks, vectors and files; the text needs a reason."""

    navigation = MenuPlace(Section.KNOWLEDGE, "description", 30)
    contents_template = "admin/document_contents.html"

    list_display = (
        "name", "owner", "state", "reason", "chunk_count", "page_count", "bytes", "created_at",
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

    @admin.display(description=_("error"))
    def reason(self, document: Document) -> str:
        """What went wrong, in words."""
        code = document.error_code
        return explain_code(code, document.error_params) if code else ""

    @admin.display(description=_("size"), ordering="size")
    def bytes(self, document: Document) -> str:
        """The file's size."""
        return filesizeformat(document.size)

    @admin.action(description=_("Process again"), permissions=("process",))
    def process_again(self, request: HttpRequest, queryset: QuerySet[Document]) -> None:
        """Process the selected documents again, except those being processed."""
        started = sum(start_processing(document) for document in queryset)
        text = ngettext(
            "%(count)d document is being processed again.",
            "%(count)d documents are being processed again.",
            started,
        )
        self.message_user(request, text % {"count": started}, messages.SUCCESS)

    def has_process_permission(self, request: HttpRequest) -> bool:
        """Who may change documents may have them processed."""
        return request.user.has_perm("documents.change_document")

    def get_contents(self, row: Document) -> dict[str, Any]:
        """The text by pages."""
        return {"document": row, "pages": row.pages.order_by("number")}

    def delete_model(self, request: HttpRequest, obj: Document) -> None:
        """Delete with files."""
        services.delete_document(document=obj)

    def delete_queryset(self, request: HttpRequest, queryset: QuerySet[Document]) -> None:
        """Delete each with its files."""
        for document in queryset:
            services.delete_document(document=document)


def start_processing(document: Document) -> bool:
    """Process a document again; False if it is being processed."""
    try:
        services.reprocess_document(document=document)
    except DocumentBusy:
        return False
    return True


SPACES_LIST = "admin:documents_embeddingspace_changelist"
REFRESH_SECONDS = 2
"""Seconds between reloads of the page while a change is running."""


@admin.register(EmbeddingSpace)
class EmbeddingSpaceAdmin(ReadOnlyAdmin):
    """Which models' vectors are stored, which one is searched, and how far a change is."""

    navigation = MenuPlace(Section.MODELS, "scatter_plot", 60)
    list_display = ("model", "dimensions", "known_languages", "active", "stored", "created_at")
    list_before_template = "admin/reindexing.html"

    def get_queryset(self, request: HttpRequest) -> QuerySet[EmbeddingSpace]:
        """With the number of vectors."""
        spaces_: QuerySet[EmbeddingSpace] = super().get_queryset(request)
        return spaces_.annotate(vectors=count_rows(ChunkEmbedding.objects.all(), "space"))

    @admin.display(description=_("languages"))
    def known_languages(self, space: EmbeddingSpace) -> str:
        """Languages of its model."""
        return ", ".join(space.languages)

    @admin.display(description=_("chunks with a vector"), ordering="vectors")
    def stored(self, space: EmbeddingSpace) -> str:
        """Vectors of all chunks."""
        return f"{getattr(space, 'vectors', 0):,} / {Chunk.objects.count():,}"

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Never: vectors would go with it."""
        return False

    def get_urls(self) -> list[URLPattern]:
        """With the addresses of the two buttons."""
        prefix = "documents_embeddingspace"
        protect = self.admin_site.admin_view
        return [
            path("reindex/", protect(self.reindex), name=f"{prefix}_reindex"),
            path("rollback/", protect(self.roll_back), name=f"{prefix}_rollback"),
            *super().get_urls(),
        ]

    def changelist_view(
        self, request: HttpRequest, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """The list, below the state of the last change; it reloads while a change is running."""
        run = Reindexing.objects.select_related("space").first()
        state = {
            "run": run,
            "going_on": run is not None
            and run.open
            and (run.background or reindex.is_change_at_work(run)),
            "problem": explain_code(run.error, {}) if run and run.error else "",
            "wish": reindex.get_configured_target().model,
            "in_use": spaces.get_active_space(),
            "previous": renewal.get_previous_space(),
            "may_change": can_change_spaces(request),
        }
        response: HttpResponse = super().changelist_view(request, (extra_context or {}) | state)
        if state["going_on"]:
            response.headers["Refresh"] = str(REFRESH_SECONDS)
        return response

    def reindex(self, request: HttpRequest) -> HttpResponse:
        """Start changing to the configured model, or resume the open change."""
        if refusal := _refuse_change(request):
            return refusal
        run = Reindexing.objects.filter(open=True).first()
        target = ReindexTarget(run.model, run.base_url, tuple(run.languages)) if run else None
        try:
            reindex.start_change(target or reindex.get_configured_target())
        except ReindexBusyError:
            self.message_user(
                request, _("Documents are already being re-embedded."), messages.WARNING
            )
        else:
            self.message_user(request, _("Re-embedding has started."), messages.SUCCESS)
        return redirect(SPACES_LIST)

    def roll_back(self, request: HttpRequest) -> HttpResponse:
        """Change back to the previous space."""
        if refusal := _refuse_change(request):
            return refusal
        try:
            swap = reindex.roll_back_change()
        except ReindexBusyError:
            self.message_user(
                request, _("Documents are already being re-embedded."), messages.WARNING
            )
        else:
            self._report_swap_back(request, swap)
        return redirect(SPACES_LIST)

    def _report_swap_back(self, request: HttpRequest, swap: renewal.SwapBack | None) -> None:
        if swap is None:
            self.message_user(request, _("There is no earlier embedding space."), messages.WARNING)
            return
        text = ngettext(
            "%(model)s is in use again. %(count)d chunk uploaded since is being embedded.",
            "%(model)s is in use again. %(count)d chunks uploaded since are being embedded.",
            swap.missing,
        )
        values = {"model": swap.space.model, "count": swap.missing}
        self.message_user(request, text % values, messages.SUCCESS)


def can_change_spaces(request: HttpRequest) -> bool:
    """Whether the user may change the embedding space in use."""
    return request.user.has_perm("documents.change_embeddingspace")


def _refuse_change(request: HttpRequest) -> HttpResponse | None:
    """The response if the request cannot change anything, else None."""
    if not can_change_spaces(request):
        raise PermissionDenied
    return None if request.method == "POST" else HttpResponseNotAllowed(["POST"])


LIBRARY_MEASURES = [(one.value, one.label) for one in (QuotaMeasure.DOCUMENTS, QuotaMeasure.BYTES)]


class QuotaFormSet(AuditedFormSet):
    """The rules of one user or group, one for each measure."""

    def clean(self) -> None:
        """Refuse two rules of one measure."""
        super().clean()
        rows = [form.cleaned_data for form in self.forms if hasattr(form, "cleaned_data")]
        measures = [row["measure"] for row in rows if row.get("measure") and not row.get("DELETE")]
        if len(measures) != len(set(measures)):
            raise ValidationError(_("There is more than one quota of the same kind."))

    def record_changes(self, actor: Any) -> None:
        """One entry for each rule, with its figures, which reveal no contents."""
        changed = [row for row, _fields in self.changed_objects]
        for row in (*self.new_objects, *changed):
            self._record(actor, row, {"soft": row.soft, "hard": row.hard})
        for row in self.deleted_objects:
            self._record(actor, row, {"removed": True})

    def _record(self, actor: Any, row: QuotaRule, figures: dict[str, object]) -> None:
        subject = self.instance if isinstance(self.instance, User) else None
        record_event(
            Action.QUOTA_CHANGED,
            actor=actor,
            subject=subject,
            target=describe_target(self.instance),
            details={"measure": row.measure, **figures},
        )


class QuotaInline(TabularInline):  # type: ignore[misc] # unfold has no types
    """Quota rules in the form of their subject. Whoever may change that may change the rules."""

    model = QuotaRule
    formset = QuotaFormSet
    extra = 0
    fields = ("measure", "soft", "hard")

    def has_view_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """The same as for their subject."""
        return request.user.has_perm(self._name_permission("view"))

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """The same as for their subject."""
        return request.user.has_perm(self._name_permission("change"))

    has_add_permission = has_delete_permission = has_change_permission

    def _name_permission(self, action: str) -> str:
        parent = self.parent_model._meta  # noqa: SLF001 - public in all but its name
        return f"{parent.app_label}.{action}_{parent.model_name}"


class LibraryQuotaInline(QuotaInline):
    """Limits of a whole library: documents and bytes."""

    fk_name = "library"
    verbose_name_plural = _("Quotas of this library")

    def formfield_for_choice_field(
        self, db_field: Any, request: HttpRequest, **options: Any
    ) -> Any:
        """Only the measures of libraries."""
        options["choices"] = [("", "---------"), *LIBRARY_MEASURES]
        return super().formfield_for_choice_field(db_field, request, **options)


class UserQuotaInline(QuotaInline):
    """Rules of one user, which override those of groups."""

    fk_name = "user"
    verbose_name_plural = _("Quotas of this user")


class GroupQuotaInline(QuotaInline):
    """Rules of each member of a group; of several groups the most generous counts."""

    fk_name = "group"
    verbose_name_plural = _("Quotas of each member")


class LibraryMemberFormSet(AuditedFormSet):
    """The members of a library."""

    def record_changes(self, actor: Any) -> None:
        """One entry for each member; lost rights take effect at once.

        Assigning a row to somebody else ends one membership and begins another.
        """
        for row in self.new_objects:
            record_membership(Action.MEMBER_ADDED, row, actor)
        old_values = {form.instance.pk: form.initial for form in self.initial_forms}
        for row, fields in self.changed_objects:
            if {"user", "group"}.isdisjoint(fields):
                record_membership(Action.MEMBER_CHANGED, row, actor)
                continue
            record_membership(
                Action.MEMBER_REMOVED, _to_former_member(row, old_values[row.pk]), actor
            )
            record_membership(Action.MEMBER_ADDED, row, actor)
        for row in self.deleted_objects:
            record_membership(Action.MEMBER_REMOVED, row, actor)
        announce_rights_change()


def _to_former_member(row: LibraryMember, old_values: Mapping[str, Any]) -> LibraryMember:
    """The membership before the row was assigned to somebody else."""
    return LibraryMember(
        library_id=row.library_id,
        user=User.objects.filter(pk=old_values["user"]).first(),
        group_id=old_values["group"],
        role=old_values["role"],
    )


class LibraryMemberInline(TabularInline):  # type: ignore[misc] # unfold has no types
    """The members of a library and their roles."""

    model = LibraryMember
    formset = LibraryMemberFormSet
    extra = 0
    autocomplete_fields = ("user",)


@admin.register(Library)
class LibraryAdmin(AuditedAdmin):
    """Libraries and their members. Reading their documents takes a membership, as elsewhere."""

    navigation = MenuPlace(Section.KNOWLEDGE, "folder_shared", 10)
    addition_action = Action.LIBRARY_CREATED
    change_action = Action.LIBRARY_CHANGED
    list_display = ("name", "held", "described_members", "created_at")
    search_fields = ("name", "description", "members__user__username", "members__group__name")
    fields = ("name", "description")
    inlines = (LibraryMemberInline, LibraryQuotaInline)

    def get_queryset(self, request: HttpRequest) -> QuerySet[Library]:
        """With the numbers of documents and members."""
        rows: QuerySet[Library] = super().get_queryset(request)
        return rows.annotate(
            count_of_documents=count_rows(Document.objects.all(), "library"),
            count_of_members=count_rows(LibraryMember.objects.all(), "library"),
        )

    @admin.display(description=_("documents"), ordering="count_of_documents")
    def held(self, library: Library) -> int:
        """How many documents are in it."""
        return int(getattr(library, "count_of_documents", 0))

    @admin.display(description=_("members"), ordering="count_of_members")
    def described_members(self, library: Library) -> int:
        """How many accounts and groups."""
        return int(getattr(library, "count_of_members", 0))

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Never: its managers decide what becomes of its documents."""
        return False
