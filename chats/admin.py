"""Administration of conversations. Their contents are shown only when a reason is given."""

import json
from typing import Any
from uuid import UUID

from asgiref.sync import async_to_sync
from django import forms
from django.contrib import admin, messages
from django.contrib.auth.models import Group, User
from django.db import connection as database
from django.db import transaction
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect
from django.utils.formats import number_format
from django.utils.translation import gettext, ngettext
from django.utils.translation import gettext_lazy as _
from django.views.decorators.http import require_POST
from unfold.widgets import (
    UnfoldAdminPasswordWidget,
    UnfoldAdminTextInputWidget,
    UnfoldBooleanSwitchWidget,
)

from chats.errors import ToolServerFailed
from chats.evaluation import list_questions_before
from chats.figures import AnswerResult, list_answers
from chats.models import Chat, EvaluationCase, Feedback, Message, Run, ToolServer, Trace
from chats.services.chats import restore_chats
from chats.services.tools import fetch_tools
from documents.administration import (
    AuditedAdmin,
    ContentsAdmin,
    MenuPlace,
    Section,
    admin_page,
    count_rows,
    render_page,
)
from documents.audit import Action, record_event
from documents.connected.choice import list_main_models
from documents.errors import explain_code

ADVICE = {
    "llm_unreachable": _("Check that its server is running and that NURA_LLM_BASE_URL is correct."),
    "llm_unavailable": _(
        "Check that its server is running: manage.py doctor tests the connection."
    ),
    "llm_timeout": _(
        "If the model is just slow, raise NURA_LLM_TIMEOUT (first word), "
        "NURA_LLM_IDLE_TIMEOUT (between two words) or NURA_LLM_TOTAL_TIMEOUT (whole "
        "answer)."
    ),
    "llm_unauthorized": _("Check NURA_LLM_API_KEY."),
    "llm_rejected": _("Check NURA_LLM_MODEL."),
    "llm_empty_answer": _("If the model spends its tokens on thinking, raise NURA_LLM_MAX_TOKENS."),
    "llm_context_overflow": _(
        "Check that NURA_CONTEXT_TOKENS does not exceed what the model can read."
    ),
    "engine_unavailable": _("manage.py doctor says which part is missing."),
    "answer_cut": _("To allow longer answers, raise NURA_LLM_MAX_TOKENS."),
}
"""What to check when answers fail, by the code of the error or notice."""


class ReadOnly:
    """Rows that only Nura itself writes."""

    def has_add_permission(self, *_arguments: Any) -> bool:
        """Nobody adds."""
        return False

    def has_change_permission(self, *_arguments: Any) -> bool:
        """Nobody changes."""
        return False

    def has_delete_permission(self, *_arguments: Any) -> bool:
        """They go with their chat."""
        return False


class DeletedFilter(admin.SimpleListFilter):
    """Chats that their users see, or those they have deleted."""

    title = _("deleted")
    parameter_name = "deleted"

    def lookups(self, *_arguments: Any) -> list[tuple[str, Any]]:
        """The two states."""
        return [("no", _("Visible")), ("yes", _("Deleted"))]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Chat]) -> QuerySet[Chat]:
        """Narrowed to the chosen state."""
        if self.value() is None:
            return queryset
        return queryset.filter(deleted_at__isnull=self.value() == "no")


@admin.register(Chat)
class ChatAdmin(ReadOnly, ContentsAdmin):
    """Chats of all users, deleted ones included; reading the contents takes a reason."""

    navigation = MenuPlace(Section.QUALITY, "forum", 60)
    list_display = ("id", "owner", "message_count", "is_visible", "updated_at")
    list_filter = (DeletedFilter, "updated_at")
    list_select_related = ("owner",)
    search_fields = ("id", "owner__username")
    fields = ("id", "owner", "message_count", "history_pairs", "deleted_at", "created_at")
    readonly_fields = fields
    actions = ("restore",)
    contents_template = "admin/chat_contents.html"

    def has_restore_permission(self, request: HttpRequest) -> bool:
        """Whoever may change chats may restore them."""
        return request.user.has_perm("chats.change_chat")

    def get_queryset(self, request: HttpRequest) -> QuerySet[Chat]:
        """With the number of messages."""
        chats: QuerySet[Chat] = super().get_queryset(request)
        return chats.annotate(
            count_of_messages=count_rows(Message.objects.all(), "chat")
        ).select_related("owner")

    def get_contents(self, row: Chat) -> dict[str, Any]:
        """All messages of all branches, oldest first."""
        return {"chat": row, "messages_of_chat": row.messages.order_by("created_at", "id")}

    @admin.display(description=_("messages"), ordering="count_of_messages")
    def message_count(self, chat: Chat) -> int:
        """The number of messages."""
        count: int = getattr(chat, "count_of_messages", 0)
        return count

    @admin.display(description=_("Visible"), boolean=True)
    def is_visible(self, chat: Chat) -> bool:
        """Whether its user still sees it."""
        return chat.deleted_at is None

    @admin.action(description=_("Restore deleted chats"), permissions=("restore",))
    def restore(self, request: HttpRequest, chats: QuerySet[Chat]) -> None:
        """Restore deleted chats."""
        deleted = list(chats.exclude(deleted_at=None))
        count = restore_chats(chat_ids=[chat.pk for chat in deleted])
        for chat in deleted:
            record_event(Action.DATA_RESTORED, actor=request.user, subject=chat.owner, target=chat)
        text = ngettext("%(count)d chat restored.", "%(count)d chats restored.", count)
        self.message_user(request, text % {"count": count}, messages.SUCCESS)


class ResultFilter(admin.SimpleListFilter):
    """Answers by result, as the overview counts them."""

    title = _("result")
    parameter_name = "result"

    def lookups(self, *_arguments: Any) -> list[tuple[str, Any]]:
        """The possible results."""
        return list(AnswerResult.choices)

    def queryset(self, request: HttpRequest, queryset: QuerySet[Message]) -> QuerySet[Message]:
        """Narrowed to the chosen result."""
        if self.value() not in AnswerResult:
            return queryset
        return queryset.filter(pk__in=list_answers(str(self.value())).values("pk"))


class ModelFilter(admin.SimpleListFilter):
    """Answers of one of the offered models, or of the one in a link."""

    title = _("model")
    parameter_name = "model"

    def lookups(self, *_arguments: Any) -> list[tuple[str, Any]]:
        """The offered models: finding all that messages name would read every message."""
        return [(model.id, model.name) for model in list_main_models()]

    def has_output(self) -> bool:
        """Active even without lookups, as a link may choose a model."""
        return True

    def queryset(self, request: HttpRequest, queryset: QuerySet[Message]) -> QuerySet[Message]:
        """Narrowed to the chosen model."""
        if self.value() is None:
            return queryset
        return queryset.filter(model=self.value())


@admin.register(Message)
class MessageAdmin(ReadOnly, ContentsAdmin):
    """Messages of all users; reading their contents takes a reason."""

    navigation = MenuPlace(Section.QUALITY, "chat_bubble", 50)
    list_display = ("id", "role", "status", "mode", "label", "owner", "created_at")
    list_filter = (ResultFilter, "role", "status", "mode", "label", ModelFilter, "created_at")
    list_select_related = ("chat__owner",)
    search_fields = ("id", "chat__owner__username")
    ordering = ("-created_at",)
    fields = (
        *("chat", "role", "status", "mode", "label", "usage", "error_code", "advice"),
        *("question_type", "created_at"),
    )
    readonly_fields = ("advice",)
    contents_template = "admin/message_contents.html"

    def find_subject(self, row: Message) -> User:
        """Whose chat it is in."""
        return row.chat.owner

    def get_contents(self, row: Message) -> dict[str, Any]:
        """The text, with what it rests on."""
        return {"message": row}

    @admin.display(description=_("what to check"))
    def advice(self, message: Message) -> str:
        """The settings to check for an answer that failed or was cut off."""
        codes = (message.error_code, *message.notices)
        return " ".join(str(ADVICE[code]) for code in codes if code in ADVICE) or "-"

    @admin.display(description=_("owner"), ordering="chat__owner__username")
    def owner(self, message: Message) -> str:
        """Whose chat it is in."""
        return message.chat.owner.get_username()


class CaseFilter(admin.SimpleListFilter):
    """Verdicts by whether the answer has been added as an evaluation case."""

    title = _("case")
    parameter_name = "case"

    def lookups(self, *_arguments: Any) -> list[tuple[str, Any]]:
        """The two states."""
        return [("yes", _("Added as a case")), ("no", _("Not yet"))]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Feedback]) -> QuerySet[Feedback]:
        """Narrowed to the chosen state."""
        if self.value() is None:
            return queryset
        return queryset.filter(message__case__isnull=self.value() == "no")


@admin.register(Feedback)
class FeedbackAdmin(ReadOnly, ContentsAdmin):
    """Users' verdicts on answers; reading them and the answers takes a reason.

    An opened answer can be added as a case for `manage.py evaluate`.
    """

    navigation = MenuPlace(Section.QUALITY, "thumbs_up_down", 10)
    list_display = ("updated_at", "value", "user", "label", "served_by", "has_case")
    list_filter = ("value", CaseFilter, "message__label", "updated_at")
    list_select_related = ("user", "message__case")
    search_fields = ("user__username",)
    ordering = ("-updated_at",)
    fields = ("updated_at", "value", "user", "label", "served_by", "has_case")
    readonly_fields = fields
    contents_template = "admin/feedback_contents.html"

    def find_subject(self, row: Feedback) -> User:
        """Whose verdict it is."""
        return row.user

    def get_contents(self, row: Feedback) -> dict[str, Any]:
        """The questions up to the answer, the answer with its sources, and how it was made."""
        answer = row.message
        case = EvaluationCase.objects.filter(message=answer).first()
        trace = Trace.objects.filter(message=answer).first()
        return {
            "verdict": row,
            "message": answer,
            "questions": list_questions_before(answer),
            "trace": json.dumps(trace.steps, ensure_ascii=False, indent=2) if trace else "",
            "case": case,
            "facts": write_facts(case.facts) if case else "",
        }

    @admin.display(description=_("rests on"), ordering="message__label")
    def label(self, verdict: Feedback) -> str:
        """What the answer rests on."""
        return verdict.message.get_label_display() or "-"

    @admin.display(description=_("model"), ordering="message__model")
    def served_by(self, verdict: Feedback) -> str:
        """What wrote it."""
        return (verdict.message.usage or {}).get("model") or verdict.message.model or "-"

    @admin.display(description=_("case"), boolean=True)
    def has_case(self, verdict: Feedback) -> bool:
        """Whether the answer has been added as an evaluation case."""
        return hasattr(verdict.message, "case")


BETWEEN_ALTERNATIVES = " || "


def write_facts(facts: list[list[str]]) -> str:
    """Facts as text: one per line, alternatives separated by double bars."""
    return "\n".join(BETWEEN_ALTERNATIVES.join(fact) for fact in facts)


def read_facts(text: str) -> list[list[str]]:
    """Parse the text of `write_facts`."""
    facts = []
    for line in text.splitlines():
        fact = [
            alternative.strip()
            for alternative in line.split(BETWEEN_ALTERNATIVES.strip())
            if alternative.strip()
        ]
        if fact:
            facts.append(fact)
    return facts


class OpenFilter(admin.SimpleListFilter):
    """Runs by whether they are still open."""

    title = _("progress")
    parameter_name = "open"

    def lookups(self, *_arguments: Any) -> list[tuple[str, Any]]:
        """The two states."""
        return [("yes", _("Answering")), ("no", _("Ended"))]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Run]) -> QuerySet[Run]:
        """Narrowed to the chosen state."""
        if self.value() is None:
            return queryset
        return queryset.filter(ended_at__isnull=self.value() == "yes")


@admin.register(Run)
class RunAdmin(ReadOnly, AuditedAdmin):
    """Runs, with their state and times."""

    navigation = MenuPlace(Section.OPERATIONS, "bolt", 60)
    list_display = ("id", "owner", "state", "attempts", "created_at", "first_word")
    list_filter = ("message__status", OpenFilter, "created_at")
    list_select_related = ("owner", "message")
    search_fields = ("id", "owner__username")
    ordering = ("-created_at",)

    @admin.display(description=_("first word"), ordering="first_word_ms")
    def first_word(self, run: Run) -> str:
        """The wait for the first word."""
        if run.first_word_ms is None:
            return "-"
        return _("%(count)s s") % {"count": number_format(round(run.first_word_ms / 1000, 1), 1)}

    @admin.display(description=_("status"), ordering="message__status")
    def state(self, run: Run) -> str:
        """The status of the message being written."""
        return run.message.get_status_display()


class ToolServerForm(forms.ModelForm[ToolServer]):
    """A tool server. A stored key is not shown; leaving the field empty keeps it."""

    api_key = forms.CharField(
        label=_("API key"),
        required=False,
        max_length=4000,
        widget=UnfoldAdminPasswordWidget(attrs={"autocomplete": "new-password"}),
    )
    groups = forms.ModelMultipleChoiceField(
        Group.objects.none(),
        label=_("Groups"),
        required=False,
        widget=forms.CheckboxSelectMultiple,
        help_text=_("Who may choose it. Leave empty for everyone"),
    )

    class Meta:
        """The fields that are not secret."""

        model = ToolServer
        fields = ("name", "address", "offered", "groups")
        widgets = {
            "name": UnfoldAdminTextInputWidget,
            "address": UnfoldAdminTextInputWidget(attrs={"inputmode": "url"}),
            "offered": UnfoldBooleanSwitchWidget,
        }

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.fields["groups"].queryset = Group.objects.order_by("name")  # type: ignore[attr-defined]
        if self.instance.sealed_key:
            hint = gettext("One is stored. Leave this empty to keep it.")
            self.fields["api_key"].help_text = hint

    def save(self, commit: bool = True) -> ToolServer:
        """Save with the key; a new address drops the old key and the allowed tools."""
        key = str(self.cleaned_data["api_key"]).strip()
        if key or "address" in self.changed_data:
            self.instance.set_key(key)
        if "address" in self.changed_data:
            self.instance.tools = []
        return super().save(commit=commit)


@admin_page("tools", MenuPlace(Section.MODELS, "build", 30, _("Tools")))
def show_tool_servers(request: HttpRequest) -> HttpResponse:
    """The tool servers, with the number of allowed tools."""
    servers = ToolServer.objects.prefetch_related("groups")
    return render_page(request, "admin/tools.html", {"servers": servers})


@admin_page("tools/add", name="tools_add")
def add_tool_server(request: HttpRequest) -> HttpResponse:
    """A new server."""
    return _show_form(request, ToolServer(), gettext("Add a tool server"))


@admin_page("tools/<uuid:pk>", name="tools_server")
def edit_tool_server(request: HttpRequest, pk: UUID) -> HttpResponse:
    """Edit a server, and choose which of its tools are allowed."""
    return _show_form(
        request, get_object_or_404(ToolServer, pk=pk), gettext("Change a tool server")
    )


def _show_form(request: HttpRequest, row: ToolServer, title: str) -> HttpResponse:
    is_new = row._state.adding  # noqa: SLF001 - its key is drawn before it is stored
    form = ToolServerForm(request.POST or None, instance=row)
    if request.method == "POST" and form.is_valid():
        with transaction.atomic():
            row = form.save()
            _record_change(
                request, row, {"added": True} if is_new else {"changed": form.changed_data}
            )
        if not row.tools:
            _fetch_offered_tools(request, row)
        return redirect("admin:tools_server", pk=row.pk)
    context = {"form": form, "title": title, "row": None if is_new else row}
    return render_page(request, "admin/tools_server.html", context)


@admin_page("tools/<uuid:pk>/refresh", name="tools_refresh")
@require_POST
def refresh_tools(request: HttpRequest, pk: UUID) -> HttpResponse:
    """Ask the server what it offers now."""
    row = get_object_or_404(ToolServer, pk=pk)
    _fetch_offered_tools(request, row)
    return redirect("admin:tools_server", pk=row.pk)


def _fetch_offered_tools(request: HttpRequest, row: ToolServer) -> None:
    if not database.in_atomic_block:
        database.close()  # the server may be slow: hold no connection meanwhile
    try:
        row.tools = async_to_sync(fetch_tools)(row)
    except ToolServerFailed as error:
        messages.error(request, explain_code(error.code))
        return
    row.save(update_fields=("tools",))
    messages.success(
        request, gettext("The server offers %(count)s tools.") % {"count": len(row.tools)}
    )


@admin_page("tools/<uuid:pk>/allow", name="tools_allow")
@require_POST
def allow_tools(request: HttpRequest, pk: UUID) -> HttpResponse:
    """Set which of the server's tools may be called."""
    names = set(request.POST.getlist("tool"))
    with transaction.atomic():
        row = get_object_or_404(ToolServer.objects.select_for_update(), pk=pk)
        row.tools = [tool | {"allowed": tool["name"] in names} for tool in row.tools]
        row.save(update_fields=("tools",))
        _record_change(request, row, {"allowed": [tool["name"] for tool in row.allowed_tools]})
    messages.success(request, gettext("Saved."))
    return redirect("admin:tools_server", pk=row.pk)


@admin_page("tools/<uuid:pk>/delete", name="tools_delete")
@require_POST
def delete_tool_server(request: HttpRequest, pk: UUID) -> HttpResponse:
    """Delete a server with its key; chats that used it continue without."""
    row = get_object_or_404(ToolServer, pk=pk)
    with transaction.atomic():
        _record_change(request, row, {}, Action.DATA_DELETED)
        row.delete()
    messages.success(request, gettext("The tool server and its key are deleted."))
    return redirect("admin:tools")


def _record_change(
    request: HttpRequest,
    row: ToolServer,
    details: dict[str, Any],
    action: Action = Action.SETTING_CHANGED,
) -> None:
    """Audit a change: names of fields and tools, never a key."""
    entry = {"name": row.name} | details
    record_event(action, actor=request.user, target=row, details=entry)
