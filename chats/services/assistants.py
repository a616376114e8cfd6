"""Assistants and prompts: storing and finding them, and what an assistant adds to a question.

An assistant grants no rights. It searches its libraries as far as the asker may read them; its
model is used if the asker may choose it; its instructions are text in the prompt and nothing else.
"""

import io
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar
from uuid import UUID

from django.contrib.auth.models import User
from django.core.exceptions import ValidationError
from django.db import models, transaction
from django.utils.translation import gettext as _

from chats.errors import NotFound
from chats.models import Assistant, FolderShare, Prompt, ToolServer
from chats.services.audience import Audience, describe_audience, set_audience
from chats.services.tools import find_servers
from documents.audit import Action, record_event
from documents.connected.choice import ModelNotAllowed, find_allowed_model
from documents.models import Document, Library
from documents.notices import announce_shared_change
from documents.representation import get_shown_name
from rag.conversation import Persona, Sampling
from rag.types import Intent

MAX_PICTURE_BYTES = 4 * 1024 * 1024
MAX_PICTURE_PIXELS = 24_000_000
MAX_DECODED_PIXELS = 4_000_000
"""Pixels of a picture held in memory; larger photographs are decoded smaller, which JPEG allows."""
PICTURE_SIDE = 192
"""Side of the stored square in pixels."""
PICTURE_FORMATS = ("PNG", "JPEG", "WEBP")


# What an assistant brings to a question


def find_assistant(*, user: User, assistant_id: UUID | None) -> Assistant | None:
    """The assistant with this id, None where none is named. Raises `NotFound`."""
    if assistant_id is None:
        return None
    rows = Assistant.objects.visible_to(user).defer("picture")
    assistant = rows.filter(pk=assistant_id).first()
    if assistant is None:
        raise NotFound
    return assistant


def list_documents(assistant: Assistant, user: User) -> models.QuerySet[Document]:
    """The documents that a question of this user to the assistant may read."""
    rows = Document.objects.visible_to(user).searchable()
    return rows.filter(library_id__in=assistant.library_ids) if assistant.library_ids else rows


def choose_model(assistant: Assistant, user: User) -> str:
    """The id of the assistant's language model where the user may choose it, else empty."""
    try:
        model = find_allowed_model(user, assistant.model) if assistant.model else None
    except ModelNotAllowed:
        return ""
    return model.id if model else ""


def apply_temperature(sampling: Sampling, assistant: Assistant | None) -> Sampling:
    """The sampling of a question, at the assistant's temperature unless it sets its own."""
    if assistant is None or sampling.temperature is not None:
        return sampling
    return replace(sampling, temperature=assistant.temperature)


def to_persona(assistant: Assistant) -> Persona:
    """The assistant as the engine knows it."""
    intent = Intent(assistant.intent) if assistant.intent else None
    return Persona(assistant.name, assistant.instructions, intent)


# Kept, changed, shared


@transaction.atomic
def save_assistant(
    *,
    actor: User,
    fields: Mapping[str, Any],
    assistant: Assistant | None = None,
    audience: Audience | None = None,
) -> Assistant:
    """Create an assistant, or change one of the actor's; `fields` are those of `Assistant`.

    Raises `NotFound` for a library that the actor may not read or a tool server that he may not
    use, `ModelNotAllowed`.
    """
    row = assistant or Assistant(owner=actor)
    if ids := fields.get("library_ids"):
        _check_libraries(actor, ids, known_ids=row.library_ids)
    if ids := fields.get("tool_ids"):
        find_servers(actor, list(set(ids) - set(row.tool_ids)))
    if fields.get("model"):
        find_allowed_model(actor, fields["model"])
    return _save_prepared(row, actor=actor, fields=fields, audience=audience)


def _check_libraries(
    actor: User, library_ids: Collection[UUID], known_ids: Collection[UUID]
) -> None:
    new_ids = set(library_ids) - set(known_ids)
    if Library.objects.visible_to(actor).filter(pk__in=new_ids).count() != len(new_ids):
        raise NotFound


def list_folders(user: User) -> list[str]:
    """The user's own folders by name: those with prompts, and those shared with others."""
    folders = Prompt.objects.owned_by(user).exclude(folder="").values_list("folder")
    return sorted(
        name for (name,) in folders.union(FolderShare.objects.owned_by(user).values_list("name"))
    )


@transaction.atomic
def save_prompt(
    *,
    actor: User,
    fields: Mapping[str, Any],
    prompt: Prompt | None = None,
    audience: Audience | None = None,
) -> Prompt:
    """Create a prompt, or change one of the actor's; `fields` are those of `Prompt`.

    A prompt that moves is shared with the readers of its new folder, and no longer with those of
    the old one.
    """
    was_shown = prompt is not None and _is_shown(prompt)
    row = _save_prepared(
        prompt or Prompt(owner=actor), actor=actor, fields=fields, audience=audience
    )
    if was_shown or _is_shown(row):
        announce_shared_change()
    return row


def _is_shown(row: Assistant | Prompt | FolderShare) -> bool:
    """Whether the stored row is shared with others, by itself or through its folder."""
    if row.is_shared or not isinstance(row, Prompt):
        return row.is_shared
    return Prompt.objects.with_folder_shares().get(pk=row.pk).is_in_shared_folder


Prepared = TypeVar("Prepared", Assistant, Prompt)


def _save_prepared(
    row: Prepared, *, actor: User, fields: Mapping[str, Any], audience: Audience | None
) -> Prepared:
    for name, value in fields.items():
        setattr(row, name, value)
    is_new = row._state.adding  # noqa: SLF001 - whether it is stored, as Django knows it
    row.save()
    if audience is not None and not (is_new and audience.is_empty):
        set_audience(row, audience, actor=actor)
    elif row.is_shared:
        details = {"fields": sorted(fields)}
        record_event(Action.SHARE_CHANGED, actor=actor, subject=actor, target=row, details=details)
    return row


@transaction.atomic
def delete_prepared(*, actor: User, row: Assistant | Prompt | FolderShare) -> None:
    """Delete an assistant or a prompt of the actor's; chats with it go on without it.

    A shared folder only stops being shared.
    """
    if row.is_shared:
        record_event(Action.DATA_DELETED, actor=actor, subject=actor, target=row)
    if _is_shown(row):
        announce_shared_change()
    row.delete()


# Folders of prompts that are shown


@transaction.atomic
def share_folder(*, actor: User, name: str, audience: Audience) -> FolderShare:
    """Share a folder of the actor's prompts, now and later, with exactly this audience."""
    share, _created = FolderShare.objects.get_or_create(owner=actor, name=name)
    set_audience(share, audience, actor=actor)
    return share


@dataclass(frozen=True, slots=True)
class PromptFolder:
    """The prompts in one folder of one owner; `name` is "" for those in no folder."""

    name: str
    owner: User
    prompts: Sequence[Prompt]
    is_shared: bool = False


def group_prompts(user: User) -> list[PromptFolder]:
    """All prompts that the user may use, by folder and owner, his own first.

    His own shared folders are listed even when empty.
    """
    visible = Prompt.objects.visible_to(user).select_related("owner")
    own_shares = FolderShare.objects.owned_by(user).prefetch_related("users", "groups")
    shared = {share.name for share in own_shares if share.is_shared}
    by_folder: dict[tuple[str, int], list[Prompt]] = {(name, user.pk): [] for name in shared}
    owners = {user.pk: user}
    for prompt in visible:
        owners[prompt.owner_id] = prompt.owner
        by_folder.setdefault((prompt.folder, prompt.owner_id), []).append(prompt)
    folders = [
        PromptFolder(name, owners[pk], rows, is_shared=pk == user.pk and name in shared)
        for (name, pk), rows in by_folder.items()
    ]
    return sorted(
        folders, key=lambda folder: (folder.name, folder.owner != user, folder.owner.get_username())
    )


# As others see them


def describe_assistants(rows: Collection[Assistant], user: User) -> list[dict[str, Any]]:
    """Assistants as the API shows them to this user, with the libraries and servers he may use."""
    libraries = {pk for row in rows for pk in row.library_ids}
    servers = {pk for row in rows for pk in row.tool_ids}
    usable = set[UUID]()
    if libraries:
        readable = Library.objects.visible_to(user).filter(pk__in=libraries)
        usable |= set(readable.values_list("pk", flat=True))
    if servers:
        allowed = ToolServer.objects.allowed_to(user).filter(pk__in=servers)
        usable |= set(allowed.values_list("pk", flat=True))
    return [_describe_assistant(row, user, usable) for row in rows]


def _describe_assistant(
    assistant: Assistant, user: User, usable: Collection[UUID]
) -> dict[str, Any]:
    is_own = assistant.owner_id == user.pk
    return {
        "id": str(assistant.pk),
        "name": assistant.name,
        "symbol": assistant.symbol,
        "description": assistant.description,
        "instructions": assistant.instructions,
        "library_ids": [str(pk) for pk in assistant.library_ids if pk in usable],
        "is_limited": bool(assistant.library_ids),
        "tool_ids": [str(pk) for pk in assistant.tool_ids if pk in usable],
        "model": assistant.model or None,
        "intent": assistant.intent or None,
        "temperature": assistant.temperature,
        "starters": list(assistant.starters),
        "shared": assistant.is_shared,
        "audience": describe_audience(assistant) if is_own else None,
        "is_own": is_own,
        "owner": get_shown_name(assistant.owner),
        "created_at": assistant.created_at,
        "updated_at": assistant.updated_at,
    }


# To take along


def export_assistants(user: User) -> list[dict[str, Any]]:
    """The user's own assistants, without their pictures."""
    rows = Assistant.objects.owned_by(user).defer("picture").select_related("owner")
    return describe_assistants(list(rows), user)


def export_prompts(user: User) -> list[Mapping[str, str]]:
    """The user's own prompts, for export."""
    rows = Prompt.objects.owned_by(user).values_list("title", "folder", "text")
    return [{"title": title, "folder": folder, "text": text} for title, folder, text in rows]


def export_folders(user: User) -> list[dict[str, Any]]:
    """The user's own shared folders, and their audiences."""
    rows = FolderShare.objects.owned_by(user).prefetch_related("users", "groups")
    return [{"name": row.name, "audience": describe_audience(row)} for row in rows]


@transaction.atomic
def import_prompts(*, owner: User, prompts: Collection[Mapping[str, str]]) -> int:
    """Store the prompts that the owner does not have yet; how many."""
    existing = set(Prompt.objects.owned_by(owner).values_list("title", "text"))
    by_content = {(prompt["title"], prompt["text"]): prompt.get("folder", "") for prompt in prompts}
    rows = [
        Prompt(owner=owner, title=title, folder=folder, text=text)
        for (title, text), folder in by_content.items()
        if (title, text) not in existing
    ]
    Prompt.objects.bulk_create(rows)
    folders = {row.folder for row in rows}
    if FolderShare.objects.owned_by(owner).filter(name__in=folders).exists():
        announce_shared_change()
    return len(rows)


# Pictures


def make_picture(data: bytes) -> bytes:
    """A small square picture, encoded anew, so that nothing of the uploaded file is kept.

    Raises `ValidationError` if it is not a PNG, JPEG or WebP, or is too large.
    """
    from PIL import Image, ImageOps

    refusal = ValidationError(
        _("Choose a PNG, JPEG or WebP picture of at most 4 MB and 4 megapixels.")
    )
    if len(data) > MAX_PICTURE_BYTES:
        raise refusal
    try:
        with Image.open(io.BytesIO(data), formats=PICTURE_FORMATS) as picture:
            if picture.width * picture.height > MAX_PICTURE_PIXELS:
                raise refusal
            if not picture.info.get("progressive"):  # a progressive one is held whole
                picture.draft("RGB", (2 * PICTURE_SIDE, 2 * PICTURE_SIDE))
            if picture.width * picture.height > MAX_DECODED_PIXELS:
                raise refusal
            square = ImageOps.fit(picture.convert("RGBA"), (PICTURE_SIDE, PICTURE_SIDE))
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        raise refusal from error
    clean = Image.frombytes("RGBA", square.size, square.tobytes())
    out = io.BytesIO()
    clean.save(out, "PNG", optimize=True)
    return out.getvalue()
