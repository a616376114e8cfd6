"""Pages of what people share: chats, assistants, prompts.

They are rendered by the server and work without scripts.
"""

from datetime import timedelta
from typing import Any, cast
from uuid import UUID

from django import forms
from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.contrib.auth.models import User
from django.core.exceptions import ValidationError
from django.core.paginator import Paginator
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.utils import timezone
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from chats.models import Assistant, Chat, ChatShare, FolderShare, Prompt
from chats.models.sharing import (
    MAX_INSTRUCTIONS_CHARACTERS,
    MAX_PROMPT_CHARACTERS,
    MAX_STARTER_CHARACTERS,
    MAX_STARTERS,
    NAME_CHARACTERS,
    SYMBOL_CHARACTERS,
    Shareable,
)
from chats.services import assistants, audience, sharing
from chats.services.audience import Audience
from chats.services.tools import list_servers
from documents.connected.choice import list_allowed_models
from documents.errors import explain_code
from documents.models import Library
from documents.representation import get_shown_name
from rag.errors import NuraError
from rag.types import Intent

SHARES_A_PAGE = 50
SHARED_LIST_DATA = {"lists_shared": True}
"""Tells the page's script that the page lists what others share."""
MAX_NAMES_CHARACTERS = 4_000
LIFETIMES = (
    ("", gettext_lazy("Until I stop sharing")),
    ("1", gettext_lazy("One day")),
    ("7", gettext_lazy("One week")),
    ("30", gettext_lazy("30 days")),
    ("keep", gettext_lazy("As it is now")),
)


class AudienceForm(forms.Form):
    """With whom something is shared."""

    everybody = forms.BooleanField(
        label=gettext_lazy("Everyone who can sign in here"), required=False
    )
    users = forms.CharField(
        label=gettext_lazy("People"),
        required=False,
        max_length=MAX_NAMES_CHARACTERS,
        help_text=gettext_lazy("User names or e-mail addresses, separated by commas."),
        widget=forms.TextInput(
            attrs={"autocomplete": "off", "spellcheck": "false", "data-suggests-people": "several"}
        ),
    )
    groups = forms.MultipleChoiceField(
        label=gettext_lazy("Groups"), required=False, widget=forms.CheckboxSelectMultiple
    )
    needs_audience = False
    """Whether an empty audience is an error."""

    def __init__(
        self, *arguments: Any, user: User, row: Shareable | None = None, **kwargs: Any
    ) -> None:
        current = audience.describe_audience(row) if row is not None else {}
        initial = {**current, "users": ", ".join(current.get("users", ()))}
        kwargs["initial"] = {**initial, **kwargs.get("initial", {})}
        super().__init__(*arguments, **kwargs)
        self.user = user
        self.audience = Audience()
        names = {group.name for group in audience.list_nameable_groups(user)}
        choices = [(name, name) for name in sorted(names | set(current.get("groups", ())))]
        cast("forms.MultipleChoiceField", self.fields["groups"]).choices = choices
        if not choices:
            del self.fields["groups"]

    def clean(self) -> dict[str, Any]:
        """Validate, and look up the named people and groups."""
        cleaned = super().clean() or {}
        try:
            self.audience = audience.find_audience(
                user=self.user,
                everybody=cleaned.get("everybody", False),
                usernames=cleaned.get("users", "").replace("，", ",").split(","),
                group_names=cleaned.get("groups", ()),
            )
        except ValidationError as error:
            self.add_error(None, error)
            return cleaned
        if self.needs_audience and self.audience.is_empty:
            self.add_error("users", _("Choose someone to share with."))
        return cleaned


INTENT_LABELS = {
    Intent.LOOKUP: gettext_lazy("Look-up"),
    Intent.COMPARE: gettext_lazy("Comparison"),
    Intent.SUMMARY: gettext_lazy("Summary"),
    Intent.PROCEDURE: gettext_lazy("Procedure"),
    Intent.TABLE: gettext_lazy("Table"),
}


class PromptForm(AudienceForm):
    """A prompt and who has it."""

    FIELDS = ("title", "folder", "text")
    field_order = FIELDS
    title = forms.CharField(label=gettext_lazy("Title"), max_length=NAME_CHARACTERS)
    folder = forms.CharField(
        label=gettext_lazy("Folder"),
        required=False,
        max_length=NAME_CHARACTERS,
        widget=forms.TextInput(attrs={"autocomplete": "off", "list": "prompt-folders"}),
        help_text=gettext_lazy(
            "Choose a folder or type a new name. Leave it empty for none. Everyone a folder is "
            "shared with can use everything in it."
        ),
    )
    text = forms.CharField(
        label=gettext_lazy("Text"),
        max_length=MAX_PROMPT_CHARACTERS,
        strip=False,
        widget=forms.Textarea(attrs={"rows": 8}),
        help_text=gettext_lazy(
            "Put anything to be filled in between double braces. In a chat, type “/” to find "
            "the prompt."
        ),
    )

    def __init__(self, *arguments: Any, row: Prompt | None = None, **kwargs: Any) -> None:
        initial = {name: getattr(row, name) for name in self.FIELDS} if row else {}
        super().__init__(*arguments, row=row, initial=initial, **kwargs)

    @property
    def values(self) -> dict[str, Any]:
        """Fields of the row."""
        return {name: self.cleaned_data[name] for name in self.FIELDS}


class AssistantForm(AudienceForm):
    """An assistant and who has it."""

    field_order = (
        *("name", "symbol", "picture", "description", "instructions", "starters"),
        *("libraries", "tools", "intent", "model", "temperature"),
    )
    name = forms.CharField(label=gettext_lazy("Name"), max_length=NAME_CHARACTERS)
    symbol = forms.CharField(
        label=gettext_lazy("Emoji"),
        required=False,
        max_length=SYMBOL_CHARACTERS,
        widget=forms.TextInput(attrs={"autocomplete": "off", "placeholder": "🙂"}),
    )
    picture = forms.FileField(
        label=gettext_lazy("Picture"),
        required=False,
        help_text=gettext_lazy("PNG, JPEG or WebP, at most 4 MB. It is shown as a small square."),
        widget=forms.FileInput(attrs={"accept": "image/png,image/jpeg,image/webp"}),
    )
    description = forms.CharField(
        label=gettext_lazy("What it is good for"), required=False, max_length=200
    )
    instructions = forms.CharField(
        label=gettext_lazy("Instructions"),
        required=False,
        max_length=MAX_INSTRUCTIONS_CHARACTERS,
        widget=forms.Textarea(attrs={"rows": 8}),
        help_text=gettext_lazy(
            "Role, tone, format, subject. They cannot change what people may read, how sources are "
            "cited, or what keeps answers safe."
        ),
    )
    starters = forms.CharField(
        label=gettext_lazy("First questions"),
        required=False,
        widget=forms.Textarea(attrs={"rows": 4}),
        help_text=gettext_lazy("One per line, at most six."),
    )
    libraries = forms.MultipleChoiceField(
        label=gettext_lazy("Searches in"),
        required=False,
        widget=forms.CheckboxSelectMultiple,
        help_text=gettext_lazy(
            "People get answers only from those of these libraries that they may read "
            "themselves. If none is chosen, from everything they may read."
        ),
    )
    tools = forms.MultipleChoiceField(
        label=gettext_lazy("Tools"),
        required=False,
        widget=forms.CheckboxSelectMultiple,
        help_text=gettext_lazy("People who ask need permission to use them."),
    )
    intent = forms.ChoiceField(
        label=gettext_lazy("Usually answers with"),
        required=False,
        choices=[("", gettext_lazy("Whatever the question asks for")), *INTENT_LABELS.items()],
        help_text=gettext_lazy("A question that says what it wants takes precedence."),
    )
    model = forms.ChoiceField(label=gettext_lazy("Model"), required=False)
    temperature = forms.FloatField(
        label=gettext_lazy("Temperature"),
        required=False,
        min_value=0,
        max_value=2,
        widget=forms.NumberInput(attrs={"step": "0.1"}),
        help_text=gettext_lazy(
            "0 keeps to the point; 1 and above is freer. Leave empty for the default."
        ),
    )

    def __init__(
        self, *arguments: Any, user: User, row: Assistant | None = None, **kwargs: Any
    ) -> None:
        initial = {} if row is None else self._to_initial(row)
        super().__init__(*arguments, user=user, row=row, initial=initial, **kwargs)
        self.old_library_ids = () if row is None else tuple(row.library_ids)
        self.old_tool_ids = () if row is None else tuple(row.tool_ids)
        tools = cast("forms.MultipleChoiceField", self.fields["tools"])
        tools.choices = [(item["id"], item["name"]) for item in list_servers(user)]
        if not tools.choices:
            del self.fields["tools"]
        libraries = cast("forms.MultipleChoiceField", self.fields["libraries"])
        rows = Library.objects.visible_to(user).values_list("pk", "name")
        libraries.choices = [(str(pk), name) for pk, name in rows]
        if not libraries.choices:
            del self.fields["libraries"]
        models = list_allowed_models(user)
        model = cast("forms.ChoiceField", self.fields["model"])
        model.choices = [("", _("Default model")), *((item.id, item.name) for item in models)]
        if len(models) < 2:
            del self.fields["model"]

    @staticmethod
    def _to_initial(row: Assistant) -> dict[str, Any]:
        names = ("name", "symbol", "description", "instructions", "intent", "model", "temperature")
        return {
            **{name: getattr(row, name) for name in names},
            "starters": "\n".join(row.starters),
            "libraries": [str(pk) for pk in row.library_ids],
            "tools": [str(pk) for pk in row.tool_ids],
        }

    def clean_starters(self) -> list[str]:
        """The non-empty lines."""
        lines = [line.strip() for line in self.cleaned_data["starters"].splitlines()]
        starters = [line for line in lines if line]
        if len(starters) > MAX_STARTERS or any(
            len(starter) > MAX_STARTER_CHARACTERS for starter in starters
        ):
            raise ValidationError(_("At most six questions of at most 200 characters each."))
        return starters

    def clean_picture(self) -> bytes | None:
        """The uploaded picture as a small square; None without one."""
        file = self.cleaned_data["picture"]
        if file is None:
            return None
        return assistants.make_picture(file.read(assistants.MAX_PICTURE_BYTES + 1))

    @property
    def values(self) -> dict[str, Any]:
        """Fields of the row; libraries and tools that its owner can no longer see stay."""
        names = ("name", "symbol", "description", "instructions", "intent", "starters")
        changes = {name: self.cleaned_data[name] for name in names}
        changes["temperature"] = self.cleaned_data["temperature"]
        if "model" in self.fields:
            changes["model"] = self.cleaned_data["model"]
        if "libraries" in self.fields:
            visible = {str(pk) for pk, _name in self.fields["libraries"].choices}  # type: ignore[attr-defined]
            hidden = [pk for pk in self.old_library_ids if str(pk) not in visible]
            changes["library_ids"] = [*map(UUID, self.cleaned_data["libraries"]), *hidden]
        if "tools" in self.fields:
            visible = {str(pk) for pk, _name in self.fields["tools"].choices}  # type: ignore[attr-defined]
            hidden = [pk for pk in self.old_tool_ids if str(pk) not in visible]
            changes["tool_ids"] = [*map(UUID, self.cleaned_data["tools"]), *hidden]
        if self.cleaned_data["picture"]:
            changes["picture"] = self.cleaned_data["picture"]
        return changes


class FolderForm(AudienceForm):
    """Who has a folder of prompts."""

    needs_audience = True


class ShareForm(AudienceForm):
    """With whom a chat is shared, and for how long."""

    needs_audience = True
    days = forms.ChoiceField(label=gettext_lazy("Shared for"), choices=LIFETIMES, required=False)
    update = forms.BooleanField(label=gettext_lazy("Also show what was said since"), required=False)

    def __init__(self, *arguments: Any, row: ChatShare | None = None, **kwargs: Any) -> None:
        super().__init__(*arguments, row=row, **kwargs)
        days = cast("forms.ChoiceField", self.fields["days"])
        if row is None or row.expires_at is None:
            days.choices = LIFETIMES[:-1]
        else:
            days.initial = "keep"
        if row is None:
            del self.fields["update"]


@never_cache
@login_required
@require_safe
def list_shared_chats(request: HttpRequest) -> HttpResponse:
    """Chats that others share, and those the user shares."""
    user = cast("User", request.user)
    with_me = ChatShare.objects.shown_to(user).select_related("chat__owner")
    own = ChatShare.objects.owned_by(user).select_related("chat")
    context = {
        "area": "shared",
        "with_me": Paginator(with_me, SHARES_A_PAGE).get_page(request.GET.get("page")),
        "mine": own.prefetch_related("users", "groups"),
        "now": timezone.now(),
        "page": SHARED_LIST_DATA,
    }
    return render(request, "team/shared_list.html", context)


@never_cache
@login_required
@require_safe
def show_shared_chat(request: HttpRequest, share_id: UUID) -> HttpResponse:
    """A shared chat, with the sources that the reader may read."""
    user = cast("User", request.user)
    share = _find_shared(user, share_id)
    context = {
        "area": "shared",
        "share": share,
        "owner": get_shown_name(share.chat.owner),
        "is_own": share.chat.owner_id == user.pk,
        "shown": sharing.read_share(share=share, reader=user),
        "page": {"share_id": str(share.pk)},
    }
    return render(request, "team/shared_chat.html", context)


@login_required
@require_POST
def copy_shared_chat(request: HttpRequest, share_id: UUID) -> HttpResponse:
    """Continue in a chat of one's own."""
    user = cast("User", request.user)
    chat = sharing.copy_shared_chat(reader=user, share=_find_shared(user, share_id))
    return redirect("chats:chat", chat_id=chat.pk)


def _find_shared(user: User, share_id: UUID) -> ChatShare:
    return get_object_or_404(
        ChatShare.objects.visible_to(user).select_related("chat__owner"), pk=share_id
    )


@login_required
@require_POST
def end_share(request: HttpRequest, share_id: UUID) -> HttpResponse:
    """Stop sharing a chat."""
    user = cast("User", request.user)
    share = get_object_or_404(ChatShare.objects.owned_by(user), pk=share_id)
    sharing.end_shares(user=user, shares=[share])
    messages.success(request, _("The chat is no longer shared."))
    return redirect("chats:shared")


@never_cache
@login_required
@require_http_methods(["GET", "HEAD", "POST"])
def edit_share(request: HttpRequest, chat_id: UUID) -> HttpResponse:
    """The dialog for sharing a chat; POST shares it."""
    user = cast("User", request.user)
    chat = get_object_or_404(Chat.objects.visible_to(user), pk=chat_id)
    share = ChatShare.objects.owned_by(user).filter(chat=chat).first()
    is_sent = request.method == "POST"
    form = ShareForm(request.POST if is_sent else None, user=user, row=share)
    is_done = False
    if share is not None and "end" in request.POST:
        sharing.end_shares(user=user, shares=[share])
        share, form = None, ShareForm(user=user)
    elif is_sent and form.is_valid():
        try:
            share = _save_share(user, chat, share, form)
        except NuraError as error:
            form.add_error(None, explain_code(error.code, error.params))
        else:
            form, is_done = ShareForm(user=user, row=share), True
    context: dict[str, Any] = {"chat": chat, "share": share, "form": form, "is_done": is_done}
    if share is not None:
        context["address"] = request.build_absolute_uri(
            reverse("chats:shared-chat", kwargs={"share_id": share.pk})
        )
    return render(request, "team/share_panel.html", context)


def _save_share(user: User, chat: Chat, share: ChatShare | None, form: ShareForm) -> ChatShare:
    days = form.cleaned_data["days"]
    expires_at = None
    if days == "keep" and share is not None:
        expires_at = share.expires_at
    elif days:
        expires_at = timezone.now() + timedelta(days=int(days))
    if share is None:
        return sharing.share_chat(
            user=user, chat=chat, audience=form.audience, expires_at=expires_at
        )
    return sharing.change_share(
        user=user,
        share=share,
        audience=form.audience,
        expires_at=expires_at,
        is_updated=form.cleaned_data["update"],
    )


# Assistants and prompts


@never_cache
@login_required
@require_safe
def list_assistants(request: HttpRequest) -> HttpResponse:
    """The assistants that the user may ask."""
    user = cast("User", request.user)
    rows = Assistant.objects.visible_to(user).select_related("owner")
    context = {
        "area": "assistants",
        "tab": "assistants",
        "assistants": rows,
        "page": SHARED_LIST_DATA,
    }
    return render(request, "team/assistant_list.html", context)


@never_cache
@login_required
@require_http_methods(["GET", "HEAD", "POST"])
def edit_assistant(request: HttpRequest, assistant_id: UUID | None = None) -> HttpResponse:
    """The form of an own assistant; POST saves or deletes it."""
    user = cast("User", request.user)
    rows = Assistant.objects.owned_by(user)
    row = get_object_or_404(rows, pk=assistant_id) if assistant_id else None
    if row is not None and "delete" in request.POST:
        assistants.delete_prepared(actor=user, row=row)
        messages.success(request, _("Deleted."))
        return redirect("chats:assistants")
    is_sent = request.method == "POST"
    form = AssistantForm(
        request.POST if is_sent else None, request.FILES if is_sent else None, user=user, row=row
    )
    if is_sent and form.is_valid():
        assistant = assistants.save_assistant(
            actor=user, assistant=row, fields=form.values, audience=form.audience
        )
        messages.success(request, _("Saved."))
        return redirect("chats:assistant", assistant_id=assistant.pk)
    context = {"area": "assistants", "tab": "assistants", "form": form, "assistant": row}
    return render(request, "team/assistant.html", context)


@login_required
@require_safe
def serve_assistant_picture(request: HttpRequest, assistant_id: UUID) -> HttpResponse:
    """The picture of an assistant that the user may ask."""
    visible = Assistant.objects.visible_to(cast("User", request.user))
    row = get_object_or_404(visible.exclude(picture=None), pk=assistant_id)
    response = HttpResponse(bytes(row.picture or b""), content_type="image/png")
    response["Cache-Control"] = "private, max-age=300"
    return response


@never_cache
@login_required
@require_safe
def list_prompts(request: HttpRequest) -> HttpResponse:
    """The prompts that the user may use."""
    folders = assistants.group_prompts(cast("User", request.user))
    context = {"area": "assistants", "tab": "prompts", "folders": folders, "page": SHARED_LIST_DATA}
    return render(request, "team/prompt_list.html", context)


@never_cache
@login_required
@require_http_methods(["GET", "HEAD", "POST"])
def edit_prompt(request: HttpRequest, prompt_id: UUID | None = None) -> HttpResponse:
    """The form of an own prompt; POST saves or deletes it."""
    user = cast("User", request.user)
    row = get_object_or_404(Prompt.objects.owned_by(user), pk=prompt_id) if prompt_id else None
    if row is not None and "delete" in request.POST:
        assistants.delete_prepared(actor=user, row=row)
        messages.success(request, _("Deleted."))
        return redirect("chats:prompts")
    is_sent = request.method == "POST"
    form = PromptForm(request.POST if is_sent else None, user=user, row=row)
    if is_sent and form.is_valid():
        assistants.save_prompt(actor=user, prompt=row, fields=form.values, audience=form.audience)
        messages.success(request, _("Saved."))
        return redirect("chats:prompts")
    context = {
        "area": "assistants",
        "tab": "prompts",
        "form": form,
        "prompt": row,
        "folders": assistants.list_folders(user),
    }
    return render(request, "team/prompt.html", context)


@never_cache
@login_required
@require_http_methods(["GET", "HEAD", "POST"])
def edit_folder(request: HttpRequest) -> HttpResponse:
    """The form for sharing an own folder, by its `name`; POST shares it or stops sharing."""
    user, name = cast("User", request.user), request.GET.get("name", "")
    if name not in assistants.list_folders(user):
        raise Http404
    row = FolderShare.objects.owned_by(user).filter(name=name).first()
    if row is not None and "end" in request.POST:
        assistants.delete_prepared(actor=user, row=row)
        messages.success(request, _("The folder is no longer shared."))
        return redirect("chats:prompts")
    is_sent = request.method == "POST"
    form = FolderForm(request.POST if is_sent else None, user=user, row=row)
    if is_sent and form.is_valid():
        assistants.share_folder(actor=user, name=name, audience=form.audience)
        messages.success(request, _("The folder is shared."))
        return redirect("chats:prompts")
    context = {"area": "assistants", "tab": "prompts", "form": form, "name": name, "share": row}
    return render(request, "team/folder.html", context)
