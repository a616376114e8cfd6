"""The administrators' pages of models: connections, what is used for what, and for whom."""

import re
from typing import Any
from uuid import UUID

from asgiref.sync import async_to_sync
from django import forms
from django.conf import settings
from django.contrib import messages
from django.contrib.auth.models import Group
from django.db import connection as database
from django.db import transaction
from django.db.models import Count, ProtectedError
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect
from django.utils import timezone
from django.utils.dateparse import parse_datetime
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from django.views.decorators.http import require_POST
from unfold.widgets import (
    UnfoldAdminPasswordWidget,
    UnfoldAdminSelectWidget,
    UnfoldAdminTextareaWidget,
    UnfoldAdminTextInputWidget,
    UnfoldBooleanSwitchWidget,
)

from documents import spaces
from documents.administration import MenuPlace, Section, admin_page, render_page
from documents.audit import Action, record_event
from documents.connected.choice import (
    announce_choices,
    knows_korean,
    list_main_models,
    to_endpoint,
)
from documents.connected.models import ENVIRONMENT, ConnectedModel, Connection, ModelRole, make_slug
from documents.connected.trial import Trial, try_endpoint
from documents.models import Reindexing
from documents.reindex import change
from documents.reindex.change import ReindexBusyError
from rag.adapters.encoders import EMBEDDED_NAME

HEADER_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,100}")
MAX_HEADERS = 20
OWN_HEADERS = frozenset(("authorization", "content-type", "content-length", "host", "connection"))
"""Headers that are the product's own."""


class ConnectionForm(forms.ModelForm[Connection]):
    """A connection. A key that is there is not shown: the empty field keeps it."""

    api_key = forms.CharField(
        label=gettext_lazy("API key"),
        required=False,
        max_length=4000,
        widget=UnfoldAdminPasswordWidget(attrs={"autocomplete": "new-password"}),
    )
    forget_key = forms.BooleanField(
        label=gettext_lazy("Remove the key"), required=False, widget=UnfoldBooleanSwitchWidget
    )
    headers = forms.CharField(
        label=gettext_lazy("More headers"),
        required=False,
        max_length=10_000,
        widget=UnfoldAdminTextareaWidget(attrs={"rows": 3, "autocomplete": "off"}),
    )
    forget_headers = forms.BooleanField(
        label=gettext_lazy("Remove the headers"), required=False, widget=UnfoldBooleanSwitchWidget
    )

    class Meta:
        """What is no secret."""

        model = Connection
        fields = ("name", "base_url")
        widgets = {
            "name": UnfoldAdminTextInputWidget,
            "base_url": UnfoldAdminTextInputWidget(attrs={"inputmode": "url"}),
        }

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        kept = _("One is stored. Leave this empty to keep it.")
        self.fields["api_key"].help_text = kept if self.instance.sealed_key else ""
        lines = _("One per line, as Name: value. They are stored like the key and not shown again.")
        self.fields["headers"].help_text = kept if self.instance.sealed_headers else lines
        if not self.instance.sealed_key:
            del self.fields["forget_key"]
        if not self.instance.sealed_headers:
            del self.fields["forget_headers"]

    def clean_base_url(self) -> str:
        """Without the slash at its end."""
        return str(self.cleaned_data["base_url"]).rstrip("/")

    def clean_api_key(self) -> str:
        """A key that can stand in a header."""
        key = str(self.cleaned_data["api_key"]).strip()
        if not key.isascii() or not key.isprintable():
            raise forms.ValidationError(_("A key cannot contain these characters."))
        return key

    def clean_headers(self) -> dict[str, str]:
        """Names and values of the lines."""
        found: dict[str, str] = {}
        for line in str(self.cleaned_data["headers"]).splitlines():
            if not line.strip():
                continue
            name, colon, value = line.partition(":")
            name, value = name.strip(), value.strip()
            fits = colon and HEADER_NAME.fullmatch(name) and value.isascii() and value.isprintable()
            if not fits or name.lower() in OWN_HEADERS:
                raise forms.ValidationError(_("This line is not a header: %s") % line[:40])
            found[name] = value
        if len(found) > MAX_HEADERS:
            raise forms.ValidationError(_("At most %s headers.") % MAX_HEADERS)
        return found

    def save(self, commit: bool = True) -> Connection:
        """With the key and the headers as they were entered."""
        if self.cleaned_data["api_key"]:
            self.instance.set_key(self.cleaned_data["api_key"])
        elif self.cleaned_data.get("forget_key") or "base_url" in self.changed_data:
            self.instance.set_key("")  # a key goes to no other address than its own
        if self.cleaned_data["headers"]:
            self.instance.set_headers(self.cleaned_data["headers"])
        elif self.cleaned_data.get("forget_headers") or "base_url" in self.changed_data:
            self.instance.set_headers({})
        return super().save(commit=commit)


class ConnectedModelForm(forms.ModelForm[ConnectedModel]):
    """A model in its role."""

    groups = forms.ModelMultipleChoiceField(
        Group.objects.none(),
        label=gettext_lazy("Groups"),
        required=False,
        widget=forms.CheckboxSelectMultiple,
        help_text=gettext_lazy("Who may choose it. Leave empty for everyone"),
    )

    class Meta:
        """All that is said of it."""

        model = ConnectedModel
        fields = (
            *("role", "connection", "model", "name", "offered", "is_default", "groups"),
            *("context_tokens", "thinking", "languages", "input_price", "output_price"),
        )
        widgets = {
            "role": UnfoldAdminSelectWidget,
            "connection": UnfoldAdminSelectWidget,
            "model": UnfoldAdminTextInputWidget(attrs={"list": "known-models"}),
            "name": UnfoldAdminTextInputWidget,
            "offered": UnfoldBooleanSwitchWidget,
            "is_default": UnfoldBooleanSwitchWidget,
            "context_tokens": UnfoldAdminTextInputWidget(attrs={"inputmode": "numeric"}),
            "thinking": UnfoldAdminSelectWidget(
                choices=(
                    ("unknown", gettext_lazy("As set in the environment")),
                    ("true", gettext_lazy("Yes")),
                    ("false", gettext_lazy("No")),
                )
            ),
            "languages": UnfoldAdminTextInputWidget,
            "input_price": UnfoldAdminTextInputWidget(attrs={"inputmode": "decimal"}),
            "output_price": UnfoldAdminTextInputWidget(attrs={"inputmode": "decimal"}),
        }

    def __init__(self, *arguments: Any, of_environment: bool = False, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.of_environment = of_environment
        self.fields["groups"].queryset = Group.objects.order_by("name")  # type: ignore[attr-defined]
        if of_environment:
            for name in ("role", "connection", "model", "languages"):
                del self.fields[name]
            return
        self.fields["connection"].required = self.fields["model"].required = True
        if self.instance.slug:  # a role is for good: chats and spaces go by it
            del self.fields["role"]
            role = self.instance.role
        else:
            role = self.data.get("role") or self.initial.get("role") or ModelRole.MAIN
        unfit: tuple[str, ...] = MAIN_ONLY if role != ModelRole.MAIN else ("languages",)
        if role == ModelRole.EMBEDDING:
            unfit = tuple(name for name in MAIN_ONLY if name != "languages")
        if self.instance.slug:
            for name in unfit:
                del self.fields[name]

    def clean(self) -> dict[str, Any]:
        """A default model is one that everybody may use."""
        cleaned = super().clean() or self.cleaned_data
        if cleaned.get("is_default") and (cleaned.get("groups") or not cleaned.get("offered")):
            raise forms.ValidationError(
                _("The default model answers everyone, so offer it, and not to groups only.")
            )
        return cleaned


MAIN_ONLY = ("offered", "is_default", "groups", "context_tokens", "thinking", "languages")
"""What is said of main models; languages of embedding models too."""


# The overview


@admin_page("models", MenuPlace(Section.MODELS, "neurology", 10, gettext_lazy("Models")))
def show_models(request: HttpRequest) -> HttpResponse:
    """What is connected, what it is used for, and what the environment says."""
    return render_page(request, "admin/models.html", describe_models())


def describe_models() -> dict[str, Any]:
    """What the page shows."""
    rows = list(ConnectedModel.objects.select_related("connection").prefetch_related("groups"))
    in_use = {one.id for one in list_main_models()}
    default = next((one.id for one in list_main_models() if one.is_default), "")
    mains = [
        _describe_main(row, row.slug in in_use or row.connection_id is None, default)
        for row in rows
        if row.role == ModelRole.MAIN and (row.connection_id or settings.RAG.llm)
    ]
    if settings.RAG.llm and not any(one["of_environment"] for one in mains):
        unsaid = ConnectedModel(slug=ENVIRONMENT, name=settings.RAG.llm.model)
        mains.insert(0, _describe_main(unsaid, in_use=True, default=default))
    connections = Connection.objects.annotate(count=Count("models"))
    return {
        "mains": mains,
        "roles": [_describe_role(role, rows) for role in ModelRole if role != ModelRole.MAIN],
        "connections": [
            {
                "row": one,
                "count": getattr(one, "count", 0),
                "unreadable": not one.is_readable,
                "tested_at": parse_datetime(one.trial.get("at", "")) if one.trial else None,
                "is_good": one.trial.get("good"),
            }
            for one in connections
        ],
        "korean": describe_korean_search(),
        "reindexing": Reindexing.objects.filter(open=True).first(),
        "pending": _describe_waiting_embedder(),
    }


def _describe_main(row: ConnectedModel, in_use: bool, default: str) -> dict[str, Any]:
    of_environment = row.connection_id is None
    environment = settings.RAG.llm
    server = environment.model if of_environment and environment else row.model
    return {
        "id": ENVIRONMENT if of_environment else row.slug,
        "key": ENVIRONMENT if of_environment else row.pk,
        "name": row.name or server,
        "server_name": server,
        "connection": row.connection,
        "of_environment": of_environment,
        "offered": row.offered and in_use,
        "is_default": default == (ENVIRONMENT if of_environment else row.slug),
        "groups": []
        if row._state.adding  # noqa: SLF001 - a row that was never stored has none
        else [group.name for group in row.groups.all()],
    }


def _describe_role(role: ModelRole, rows: list[ConnectedModel]) -> dict[str, Any]:
    """What does it: a connected model, one of the environment, or nothing."""
    row = next((one for one in rows if one.role == role), None)
    rag = settings.RAG
    environment = {
        ModelRole.LIGHT: rag.light_llm.model if rag.light_llm else "",
        ModelRole.VISION: rag.vision.model if rag.vision else "",
        ModelRole.EMBEDDING: rag.embedding_endpoint.model
        if rag.embedding_endpoint
        else rag.embedding_model or EMBEDDED_NAME,
        ModelRole.RERANKER: rag.reranker_model,
        ModelRole.VERIFIER: rag.verifier_model,
    }[role]
    return {
        "role": role,
        "label": role.label,
        "row": row,
        "environment": environment,
        "without": WITHOUT[role],
    }


WITHOUT = {
    ModelRole.LIGHT: gettext_lazy("Questions are understood by rules alone; nothing is rewritten."),
    ModelRole.VISION: gettext_lazy("Pictures are found by the text around them."),
    ModelRole.EMBEDDING: gettext_lazy("Search relies on words alone."),
    ModelRole.RERANKER: gettext_lazy("Words and vectors rank the passages."),
    ModelRole.VERIFIER: gettext_lazy("Rules check sentences."),
}
"""What the installation does without a model of a role."""


def describe_korean_search() -> str:
    """Why Korean questions are searched by words alone, as a sentence; "" where they are not."""
    used = spaces.get_space_in_use()
    spoken = frozenset(used.space.languages) if used.space else frozenset[str]()
    if knows_korean(used.config, spoken):
        return ""
    named = used.space.model if used.space else used.config.embedding_model or EMBEDDED_NAME
    return _(
        "The embedding model in use, %(model)s, does not know Korean. Korean questions are "
        "searched by words alone, and passages that put it in other words are missed."
    ) % {"model": named}


def _describe_waiting_embedder() -> str:
    """Which model was chosen though another one embeds still; "" where they are the same."""
    wish, space = change.get_configured_wish(), spaces.get_active_space()
    if space is None or space.model == wish.model or not spaces.has_vectors(space):
        return ""
    return wish.model


# Connections


@admin_page("models/connections/add", name="models_connection_add")
def add_connection(request: HttpRequest) -> HttpResponse:
    """A new connection."""
    return _edit_connection(request, Connection(), _("Add a connection"))


@admin_page("models/connections/<int:pk>", name="models_connection")
def edit_connection(request: HttpRequest, pk: int) -> HttpResponse:
    """Another name, address or key."""
    return _edit_connection(request, get_object_or_404(Connection, pk=pk), _("Change a connection"))


def _edit_connection(request: HttpRequest, row: Connection, title: str) -> HttpResponse:
    form = ConnectionForm(request.POST or None, instance=row)
    if request.method == "POST" and form.is_valid():
        is_new = row.pk is None
        with transaction.atomic():
            row = form.save()
            _record_change(
                request, row, {"added": True} if is_new else {"changed": form.changed_data}
            )
            announce_choices()
        messages.success(request, _("Saved. Now test it."))
        return redirect("admin:models_connection_trial", pk=row.pk)
    context = {"form": form, "title": title, "row": row if row.pk else None, "kind": "connection"}
    return render_page(request, "admin/models_form.html", context)


@admin_page("models/connections/<int:pk>/delete", name="models_connection_delete")
@require_POST
def delete_connection(request: HttpRequest, pk: int) -> HttpResponse:
    """Gone with its key, unless models of it are in use."""
    row = get_object_or_404(Connection, pk=pk)
    try:
        with transaction.atomic():
            _record_change(request, row, {}, Action.DATA_DELETED)
            row.delete()
            announce_choices()
    except ProtectedError:
        messages.error(request, _("Remove its models first."))
        return redirect("admin:models")
    messages.success(request, _("The connection and its key are deleted."))
    return redirect("admin:models")


@admin_page("models/connections/<int:pk>/test", name="models_connection_trial")
def test_connection(request: HttpRequest, pk: int) -> HttpResponse:
    """Try the connection, with a model of it in a role where one is named."""
    row = get_object_or_404(Connection, pk=pk)
    known = [one["id"] for one in row.trial.get("models", ())]
    own = row.models.first()
    asked = request.POST if request.method == "POST" else request.GET
    model = asked.get("model", own.model if own else "").strip()[:200]
    role = asked.get("role", own.role if own else "")
    role = role if role in ModelRole.values else ModelRole.MAIN
    trial: Trial | None = None
    if request.method == "POST":
        endpoint = to_endpoint(row, model)
        if not database.in_atomic_block:
            database.close()  # a server may take its time: hold no connection meanwhile
        trial = async_to_sync(try_endpoint)(endpoint, role)
        row.trial = {
            "at": timezone.now().isoformat(),
            "good": trial.is_good,
            "models": list(trial.models),
        }
        row.save(update_fields=("trial",))
        known = [one["id"] for one in trial.models]
    context = {
        "title": _("Test: %(name)s") % {"name": row.name},
        "row": row,
        "trial": trial,
        "known": known,
        "model": model or (known[0] if len(known) == 1 else ""),
        "role": role,
        "roles": ModelRole.choices,
    }
    return render_page(request, "admin/models_trial.html", context)


# Models


@admin_page("models/add", name="models_model_add")
def add_model(request: HttpRequest) -> HttpResponse:
    """A model of a connection for a role."""
    asked = {
        name: request.GET[name] for name in ("role", "connection", "model") if name in request.GET
    }
    found = Connection.objects.filter(pk=asked.get("connection") or 0).first()
    listed = found.trial.get("models", ()) if found else ()
    lengths = {one["id"]: one["context_tokens"] for one in listed}
    initial = asked | {"context_tokens": lengths.get(asked.get("model"))}
    return _edit_model(request, ConnectedModel(), _("Add a model"), initial=initial)


@admin_page("models/<uuid:pk>", name="models_model")
def edit_model(request: HttpRequest, pk: UUID) -> HttpResponse:
    """What is said of a model."""
    row = get_object_or_404(ConnectedModel, pk=pk, connection__isnull=False)
    return _edit_model(request, row, _("Change a model"))


@admin_page("models/environment", name="models_environment")
def edit_environment(request: HttpRequest) -> HttpResponse:
    """Who may use the environment's main model, and whether it is offered."""
    row = ConnectedModel.objects.filter(connection=None).first()
    row = row or ConnectedModel(slug=ENVIRONMENT, role=ModelRole.MAIN)
    return _edit_model(request, row, _("The model of the environment"), of_environment=True)


def _edit_model(
    request: HttpRequest,
    row: ConnectedModel,
    title: str,
    *,
    of_environment: bool = False,
    initial: dict[str, Any] | None = None,
) -> HttpResponse:
    form = ConnectedModelForm(
        request.POST or None, instance=row, initial=initial, of_environment=of_environment
    )
    if request.method == "POST" and form.is_valid():
        is_new = row._state.adding  # noqa: SLF001 - its key is drawn before it is stored
        with transaction.atomic():
            row = save_model(form)
            _record_change(
                request, row, {"added": True} if is_new else {"changed": form.changed_data}
            )
        messages.success(request, _("Saved."))
        if row.role == ModelRole.EMBEDDING:
            _begin_reindexing(request)
        return redirect("admin:models")
    known = sorted(
        {one["id"] for each in Connection.objects.all() for one in each.trial.get("models", ())}
    )
    context = {
        "form": form,
        "title": title,
        "row": None if row._state.adding else row,  # noqa: SLF001
        "kind": "model",
        "known": known,
        "of_environment": of_environment,
    }
    return render_page(request, "admin/models_form.html", context)


@transaction.atomic
def save_model(form: ConnectedModelForm) -> ConnectedModel:
    """Store it; there is one default model at most."""
    row = form.save(commit=False)
    row.slug = row.slug or make_slug(row.model)
    if row.role != ModelRole.MAIN:
        row.is_default = False
    if row.is_default:
        ConnectedModel.objects.exclude(pk=row.pk).update(is_default=False)
    row.save()
    form.save_m2m()
    announce_choices()
    return row


@admin_page("models/<uuid:pk>/delete", name="models_model_delete")
@require_POST
def delete_model(request: HttpRequest, pk: UUID) -> HttpResponse:
    """The environment's model of the role takes its place; chats with it ask for another one."""
    row = get_object_or_404(ConnectedModel, pk=pk)
    with transaction.atomic():
        _record_change(request, row, {"role": row.role, "model": row.model}, Action.DATA_DELETED)
        row.delete()
        announce_choices()
    messages.success(request, _("The model is removed."))
    if row.role == ModelRole.EMBEDDING:
        _begin_reindexing(request)
    return redirect("admin:models")


def _begin_reindexing(request: HttpRequest) -> None:
    """Re-embed the documents where another model embeds them than the one that is chosen now."""
    if not _describe_waiting_embedder():
        return
    try:
        change.start_change(change.get_configured_wish())
    except ReindexBusyError:
        messages.warning(request, _("Documents are already being re-embedded."))
    else:
        messages.success(
            request,
            _("Re-embedding has started. The previous model stays in use until it is done."),
        )


def _record_change(
    request: HttpRequest,
    row: Connection | ConnectedModel,
    details: dict[str, Any],
    action: Action = Action.SETTING_CHANGED,
) -> None:
    """Names of fields, never a key."""
    told = {"name": str(row)} | details
    record_event(action, actor=request.user, target=row, details=told)
