"""The administration's pages of models: connections, roles of models, and who may use them."""

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

from documents import reindex, spaces
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
from documents.reindex import ReindexBusyError
from rag.adapters.encoders import EMBEDDED_NAME

HEADER_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,100}")
MAX_HEADERS = 20
RESERVED_HEADERS = frozenset(
    ("authorization", "content-type", "content-length", "host", "connection")
)
"""Headers that Nura sets itself."""


class ConnectionForm(forms.ModelForm[Connection]):
    """A connection. A stored key is not shown; leaving the field empty keeps it."""

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
        """Everything but the secrets."""

        model = Connection
        fields = ("name", "base_url")
        widgets = {
            "name": UnfoldAdminTextInputWidget,
            "base_url": UnfoldAdminTextInputWidget(attrs={"inputmode": "url"}),
        }

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        hint = _("One is stored. Leave this empty to keep it.")
        self.fields["api_key"].help_text = hint if self.instance.sealed_key else ""
        lines = _("One per line, as Name: value. They are stored like the key and not shown again.")
        self.fields["headers"].help_text = hint if self.instance.sealed_headers else lines
        if not self.instance.sealed_key:
            del self.fields["forget_key"]
        if not self.instance.sealed_headers:
            del self.fields["forget_headers"]

    def clean_base_url(self) -> str:
        """The address without a slash at its end."""
        return str(self.cleaned_data["base_url"]).rstrip("/")

    def clean_api_key(self) -> str:
        """A key that is valid in a header."""
        key = str(self.cleaned_data["api_key"]).strip()
        if not key.isascii() or not key.isprintable():
            raise forms.ValidationError(_("A key cannot contain these characters."))
        return key

    def clean_headers(self) -> dict[str, str]:
        """Names and values of the headers."""
        headers: dict[str, str] = {}
        for line in str(self.cleaned_data["headers"]).splitlines():
            if not line.strip():
                continue
            name, colon, value = line.partition(":")
            name, value = name.strip(), value.strip()
            is_valid = (
                colon and HEADER_NAME.fullmatch(name) and value.isascii() and value.isprintable()
            )
            if not is_valid or name.lower() in RESERVED_HEADERS:
                raise forms.ValidationError(_("This line is not a header: %s") % line[:40])
            headers[name] = value
        if len(headers) > MAX_HEADERS:
            raise forms.ValidationError(_("At most %s headers.") % MAX_HEADERS)
        return headers

    def save(self, commit: bool = True) -> Connection:
        """Save, replacing or removing key and headers as entered."""
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
        """All fields that can be edited."""

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
        if self.instance.slug:  # the role cannot be changed: chats and spaces depend on it
            del self.fields["role"]
            role = self.instance.role
        else:
            role = self.data.get("role") or self.initial.get("role") or ModelRole.MAIN
        surplus: tuple[str, ...] = MAIN_ONLY if role != ModelRole.MAIN else ("languages",)
        if role == ModelRole.EMBEDDING:
            surplus = tuple(name for name in MAIN_ONLY if name != "languages")
        if self.instance.slug:
            for name in surplus:
                del self.fields[name]

    def clean(self) -> dict[str, Any]:
        """Check that everybody may use the default model."""
        cleaned = super().clean() or self.cleaned_data
        if cleaned.get("is_default") and (cleaned.get("groups") or not cleaned.get("offered")):
            raise forms.ValidationError(
                _("The default model answers everyone, so offer it, and not to groups only.")
            )
        return cleaned


MAIN_ONLY = ("offered", "is_default", "groups", "context_tokens", "thinking", "languages")
"""Fields of main models; `languages` of embedding models, too."""


# The overview


@admin_page("models", MenuPlace(Section.MODELS, "neurology", 10, gettext_lazy("Models")))
def show_models(request: HttpRequest) -> HttpResponse:
    """Show connections, models with their roles, and those of the environment."""
    return render_page(request, "admin/models.html", describe_models())


def describe_models() -> dict[str, Any]:
    """The context of the overview."""
    rows = list(ConnectedModel.objects.select_related("connection").prefetch_related("groups"))
    in_use = {item.id for item in list_main_models()}
    default = next((item.id for item in list_main_models() if item.is_default), "")
    mains = [
        _describe_main(row, row.slug in in_use or row.connection_id is None, default)
        for row in rows
        if row.role == ModelRole.MAIN and (row.connection_id or settings.RAG.llm)
    ]
    if settings.RAG.llm and not any(item["of_environment"] for item in mains):
        environment_row = ConnectedModel(slug=ENVIRONMENT, name=settings.RAG.llm.model)
        mains.insert(0, _describe_main(environment_row, in_use=True, default=default))
    connections = Connection.objects.annotate(count=Count("models"))
    return {
        "mains": mains,
        "roles": [_describe_role(role, rows) for role in ModelRole if role != ModelRole.MAIN],
        "connections": [
            {
                "row": item,
                "count": getattr(item, "count", 0),
                "unreadable": not item.is_readable,
                "tested_at": parse_datetime(item.trial.get("at", "")) if item.trial else None,
                "is_good": item.trial.get("good"),
            }
            for item in connections
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
    """The model of a role: a connected one, one of the environment, or none."""
    row = next((model for model in rows if model.role == role), None)
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
    """Why Korean questions are searched by words alone, as a sentence; "" if they are not."""
    in_use = spaces.get_space_in_use()
    languages = frozenset(in_use.space.languages) if in_use.space else frozenset[str]()
    if knows_korean(in_use.config, languages):
        return ""
    model = in_use.space.model if in_use.space else in_use.config.embedding_model or EMBEDDED_NAME
    return _(
        "The embedding model in use, %(model)s, does not know Korean. Korean questions are "
        "searched by words alone, and passages that put it in other words are missed."
    ) % {"model": model}


def _describe_waiting_embedder() -> str:
    """The chosen embedding model while another one is still in use; "" if they are the same."""
    target, space = reindex.get_configured_target(), spaces.get_active_space()
    if space is None or space.model == target.model or not spaces.has_vectors(space):
        return ""
    return target.model


# Connections


@admin_page("models/connections/add", name="models_connection_add")
def add_connection(request: HttpRequest) -> HttpResponse:
    """Add a connection."""
    return _edit_connection(request, Connection(), _("Add a connection"))


@admin_page("models/connections/<int:pk>", name="models_connection")
def edit_connection(request: HttpRequest, pk: int) -> HttpResponse:
    """Change name, address or key."""
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
    """Delete a connection with its key, unless it has models."""
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
    """Test the connection, and one of its models in a role if one is named."""
    row = get_object_or_404(Connection, pk=pk)
    known = [model["id"] for model in row.trial.get("models", ())]
    first_model = row.models.first()
    parameters = request.POST if request.method == "POST" else request.GET
    model = parameters.get("model", first_model.model if first_model else "").strip()[:200]
    role = parameters.get("role", first_model.role if first_model else "")
    role = role if role in ModelRole.values else ModelRole.MAIN
    trial: Trial | None = None
    if request.method == "POST":
        endpoint = to_endpoint(row, model)
        if not database.in_atomic_block:
            database.close()  # the test may take long: hold no database connection meanwhile
        trial = async_to_sync(try_endpoint)(endpoint, role)
        row.trial = {
            "at": timezone.now().isoformat(),
            "good": trial.is_good,
            "models": list(trial.models),
        }
        row.save(update_fields=("trial",))
        known = [model["id"] for model in trial.models]
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
    """Add a model of a connection for a role."""
    parameters = {
        name: request.GET[name] for name in ("role", "connection", "model") if name in request.GET
    }
    connection = Connection.objects.filter(pk=parameters.get("connection") or 0).first()
    models = connection.trial.get("models", ()) if connection else ()
    lengths = {model["id"]: model["context_tokens"] for model in models}
    initial = parameters | {"context_tokens": lengths.get(parameters.get("model"))}
    return _edit_model(request, ConnectedModel(), _("Add a model"), initial=initial)


@admin_page("models/<uuid:pk>", name="models_model")
def edit_model(request: HttpRequest, pk: UUID) -> HttpResponse:
    """Change a model."""
    row = get_object_or_404(ConnectedModel, pk=pk, connection__isnull=False)
    return _edit_model(request, row, _("Change a model"))


@admin_page("models/environment", name="models_environment")
def edit_environment_model(request: HttpRequest) -> HttpResponse:
    """Change who may use the environment's main model, and whether it is offered."""
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
        is_new = row._state.adding  # noqa: SLF001 - its key exists before it is stored
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
        {
            model["id"]
            for connection in Connection.objects.all()
            for model in connection.trial.get("models", ())
        }
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
    """Save the model; there is at most one default model."""
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
    """Remove a model; the environment's model of the role replaces it."""
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
    """Re-embed the documents if the chosen embedding model is not the one in use."""
    if not _describe_waiting_embedder():
        return
    try:
        reindex.start_change(reindex.get_configured_target())
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
    """Record a change: names of fields, never a key."""
    all_details = {"name": str(row)} | details
    record_event(action, actor=request.user, target=row, details=all_details)
