"""The administrators' pages of tool servers: what they offer, and what of it is allowed."""

from typing import Any
from uuid import UUID

from asgiref.sync import async_to_sync
from django import forms
from django.contrib import messages
from django.contrib.auth.models import Group
from django.db import connection as database
from django.db import transaction
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from django.views.decorators.http import require_POST
from unfold.widgets import (
    UnfoldAdminPasswordWidget,
    UnfoldAdminTextInputWidget,
    UnfoldBooleanSwitchWidget,
)

from chats.errors import ToolServerFailed
from chats.models import ToolServer
from chats.services.tools import fetch_tools
from documents.administration import MenuPlace, Section, admin_page, render_page
from documents.audit import Action, record_event
from documents.errors import explain_code


class ToolServerForm(forms.ModelForm[ToolServer]):
    """A tool server. A key that is there is not shown: the empty field keeps it."""

    api_key = forms.CharField(
        label=gettext_lazy("API key"),
        required=False,
        max_length=4000,
        widget=UnfoldAdminPasswordWidget(attrs={"autocomplete": "new-password"}),
    )
    groups = forms.ModelMultipleChoiceField(
        Group.objects.none(),
        label=gettext_lazy("Groups"),
        required=False,
        widget=forms.CheckboxSelectMultiple,
        help_text=gettext_lazy("Who may choose it. None: everybody"),
    )

    class Meta:
        """What is no secret."""

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
            kept = _("One is stored. Leave this empty to keep it.")
            self.fields["api_key"].help_text = kept

    def save(self, commit: bool = True) -> ToolServer:
        """With the key; another address needs its own, and offers tools that nobody has allowed."""
        key = str(self.cleaned_data["api_key"]).strip()
        if key or "address" in self.changed_data:
            self.instance.set_key(key)
        if "address" in self.changed_data:
            self.instance.tools = []
        return super().save(commit=commit)


@admin_page("tools", MenuPlace(Section.MODELS, "build", 30, gettext_lazy("Tools")))
def show_tool_servers(request: HttpRequest) -> HttpResponse:
    """The servers, with how many of their tools are allowed."""
    servers = ToolServer.objects.prefetch_related("groups")
    return render_page(request, "admin/tools.html", {"servers": servers})


@admin_page("tools/add", name="tools_add")
def add_tool_server(request: HttpRequest) -> HttpResponse:
    """A new server."""
    return _edit(request, ToolServer(), _("Add a tool server"))


@admin_page("tools/<uuid:pk>", name="tools_server")
def edit_tool_server(request: HttpRequest, pk: UUID) -> HttpResponse:
    """What it is and which tools are allowed."""
    return _edit(request, get_object_or_404(ToolServer, pk=pk), _("Change a tool server"))


def _edit(request: HttpRequest, row: ToolServer, title: str) -> HttpResponse:
    is_new = row._state.adding  # noqa: SLF001 - its key is drawn before it is stored
    form = ToolServerForm(request.POST or None, instance=row)
    if request.method == "POST" and form.is_valid():
        with transaction.atomic():
            row = form.save()
            _record(request, row, {"added": True} if is_new else {"changed": form.changed_data})
        if not row.tools:
            _ask(request, row)
        return redirect("admin:tools_server", pk=row.pk)
    context = {"form": form, "title": title, "row": None if is_new else row}
    return render_page(request, "admin/tools_server.html", context)


@admin_page("tools/<uuid:pk>/refresh", name="tools_refresh")
@require_POST
def refresh_tools(request: HttpRequest, pk: UUID) -> HttpResponse:
    """Ask the server what it offers now."""
    row = get_object_or_404(ToolServer, pk=pk)
    _ask(request, row)
    return redirect("admin:tools_server", pk=row.pk)


def _ask(request: HttpRequest, row: ToolServer) -> None:
    if not database.in_atomic_block:
        database.close()  # a server may take its time: hold no connection meanwhile
    try:
        row.tools = async_to_sync(fetch_tools)(row)
    except ToolServerFailed as error:
        messages.error(request, explain_code(error.code))
        return
    row.save(update_fields=("tools",))
    messages.success(request, _("The server offers %(count)s tools.") % {"count": len(row.tools)})


@admin_page("tools/<uuid:pk>/allow", name="tools_allow")
@require_POST
def allow_tools(request: HttpRequest, pk: UUID) -> HttpResponse:
    """Say which of its tools may be called."""
    wanted = set(request.POST.getlist("tool"))
    with transaction.atomic():
        row = get_object_or_404(ToolServer.objects.select_for_update(), pk=pk)
        row.tools = [one | {"allowed": one["name"] in wanted} for one in row.tools]
        row.save(update_fields=("tools",))
        _record(request, row, {"allowed": [one["name"] for one in row.allowed_tools]})
    messages.success(request, _("Saved."))
    return redirect("admin:tools_server", pk=row.pk)


@admin_page("tools/<uuid:pk>/delete", name="tools_delete")
@require_POST
def delete_tool_server(request: HttpRequest, pk: UUID) -> HttpResponse:
    """Gone with its key; chats that used it go without."""
    row = get_object_or_404(ToolServer, pk=pk)
    with transaction.atomic():
        _record(request, row, {}, Action.DATA_DELETED)
        row.delete()
    messages.success(request, _("The tool server and its key are deleted."))
    return redirect("admin:tools")


def _record(
    request: HttpRequest,
    row: ToolServer,
    details: dict[str, Any],
    action: Action = Action.SETTING_CHANGED,
) -> None:
    """Names of fields and tools, never a key."""
    told = {"name": row.name} | details
    record_event(action, actor=request.user, target=row, details=told)
