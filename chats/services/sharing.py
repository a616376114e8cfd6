"""Sharing a chat with others, and what its readers see.

Sharing gives readers no further rights. The text of a chat is what its owner chose to share;
sources are shown only as far as the reader may read the documents. An answer that consists only of
document text is shown only to readers of all those documents. How an answer was made is never
shown: no trace, no reasoning, no memory, no names of the documents searched.
"""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from typing import Any
from uuid import UUID

from django.contrib.auth.models import User
from django.db import transaction
from django.utils import timezone
from django.utils.html import escape
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _
from markdown_it import MarkdownIt
from markdown_it.renderer import RendererHTML
from markdown_it.token import Token
from markdown_it.utils import OptionsDict

from chats.errors import NotFound
from chats.models import Chat, ChatShare, Message, Turn
from chats.runs.dispatch import dispatch_summary
from chats.services import turn_store
from chats.services.audience import Audience, set_audience
from chats.services.branches import TITLE_CHARACTERS, list_branch, refuse_unfinished
from chats.services.erasure import is_copy
from chats.services.turn_store import AnswerOutcome
from documents.audit import Action, record_event
from documents.models import Document
from documents.notices import announce_rights_change, announce_shared_change
from documents.parsers.markdown import let_stars_close_before_hangul

# Sharing a chat


@transaction.atomic
def share_chat(
    *, user: User, chat: Chat, audience: Audience, expires_at: datetime | None = None
) -> ChatShare:
    """Share a chat as it is now; replaces the audience if it is shared already.

    Raises `NotFound` for a chat without an answer, `StillAnswering`.
    """
    locked = Chat.objects.visible_to(user).select_for_update().filter(pk=chat.pk).first()
    if locked is None:
        raise NotFound
    share, _created = ChatShare.objects.update_or_create(
        chat=locked,
        defaults={
            "last_message": _find_last_answer(locked),
            "shown_at": timezone.now(),
            "expires_at": expires_at,
        },
    )
    set_audience(share, audience, actor=user)
    return share


@transaction.atomic
def change_share(
    *,
    user: User,
    share: ChatShare,
    audience: Audience | None = None,
    expires_at: datetime | None = None,
    is_updated: bool = False,
) -> ChatShare:
    """Change audience or expiry of a share; `is_updated`: include what was said since.

    Raises `NotFound`, `StillAnswering`.
    """
    locked = ChatShare.objects.owned_by(user).select_for_update().filter(pk=share.pk).first()
    if locked is None:
        raise NotFound
    if is_updated:
        locked.last_message, locked.shown_at = _find_last_answer(locked.chat), timezone.now()
    locked.expires_at = expires_at
    locked.save()
    if audience is not None:
        set_audience(locked, audience, actor=user)
    else:
        announce_rights_change()
    return locked


def _find_last_answer(chat: Chat) -> Message:
    """The newest finished answer. Raises `NotFound`, `StillAnswering`."""
    answers = Message.objects.filter(chat=chat, role=Message.Role.ASSISTANT)
    finished = answers.exclude(status=Message.Status.STREAMING)
    last = finished.order_by("-created_at", "-id").first()
    if last is None:
        refuse_unfinished(answers)
        raise NotFound
    return last


@transaction.atomic
def end_shares(*, user: User, shares: Iterable[ChatShare]) -> None:
    """Stop sharing these chats; their open pages end within two seconds."""
    for share in shares:
        details = {"ended": True}
        record_event(Action.SHARE_CHANGED, actor=user, subject=user, target=share, details=details)
        share.delete()
    announce_rights_change()
    announce_shared_change()


# What a reader sees


@dataclass(frozen=True, slots=True)
class SharedSource:
    """A source of an answer. For a document the reader may not read, only `slot` is set."""

    slot: int
    is_available: bool = False
    document_id: str = ""
    document_name: str = ""
    chunk_id: str = ""
    page: int | None = None
    section: str = ""
    content_preview: str = ""

    def to_json(self) -> dict[str, Any]:
        """As the API shows it."""
        if not self.is_available:
            return {"slot": self.slot, "available": False}
        return {
            "slot": self.slot,
            "available": True,
            "document_id": self.document_id,
            "document_name": self.document_name,
            "chunk_id": self.chunk_id,
            "page": self.page,
            "section": self.section,
            "content_preview": self.content_preview,
        }


@dataclass(frozen=True, slots=True)
class SharedMessage:
    """A message as a reader sees it; `is_withheld`: it consists of unreadable documents' text."""

    id: UUID
    role: str
    content: str
    created_at: datetime
    label: str = ""
    sources: tuple[SharedSource, ...] = ()
    is_withheld: bool = False
    original: Message = field(repr=False, kw_only=True)

    @property
    def html(self) -> SafeString:
        """The content as HTML; citation markers link to the sources below."""
        return render_markdown(self.content, anchor=str(self.id))

    def to_json(self) -> dict[str, Any]:
        """As the API shows it."""
        return {
            "id": str(self.id),
            "role": self.role,
            "content": self.content,
            "label": self.label or None,
            "sources": [source.to_json() for source in self.sources],
            "created_at": self.created_at,
        }


def read_share(*, share: ChatShare, reader: User) -> list[SharedMessage]:
    """The messages of a shared chat as this reader may see them, oldest first."""
    branch = list_branch(share.last_message_id)
    document_ids = {UUID(str(pk)) for message in branch for pk in _list_documents(message)}
    visible = Document.objects.visible_to(reader).filter(pk__in=document_ids)
    readable = {str(pk) for pk in visible.values_list("pk", flat=True)}
    return [_to_shared(message, readable) for message in branch]


def _list_documents(message: Message) -> set[str]:
    rows = (*(message.sources or ()), *(message.candidates or ()))
    viewed_ids = [message.view["document_id"]] if message.view else []
    return {str(row["document_id"]) for row in rows} | {str(pk) for pk in viewed_ids}


def _to_shared(message: Message, readable: Collection[str]) -> SharedMessage:
    is_copied_text = is_copy(message.label, message.mode) or message.mode == Message.Mode.CLARIFY
    is_withheld = is_copied_text and not _list_documents(message) <= set(readable)
    content = message.content
    if is_withheld:
        content = _("This answer shows documents that are not available to you.")
    return SharedMessage(
        id=message.pk,
        role=message.role,
        content=content,
        created_at=message.created_at,
        label=message.label,
        sources=tuple(_list_sources(message.sources or (), readable)),
        is_withheld=is_withheld,
        original=message,
    )


def _list_sources(
    sources: Sequence[Mapping[str, Any]], readable: Collection[str]
) -> Iterable[SharedSource]:
    """The cited sources, in order; an unreadable document appears once, as a bare number."""
    hidden: set[int] = set()
    for source in sources:
        slot = int(source["slot"])
        if not source.get("cited"):
            continue
        if str(source["document_id"]) in readable:
            yield SharedSource(
                slot=slot,
                is_available=True,
                document_id=str(source["document_id"]),
                document_name=str(source["document_name"]),
                chunk_id=str(source["chunk_id"]),
                page=source.get("page"),
                section=str(source.get("section", "")),
                content_preview=str(source.get("content_preview", "")),
            )
        elif slot not in hidden:
            hidden.add(slot)
            yield SharedSource(slot=slot)


# Copying


@transaction.atomic
def copy_shared_chat(*, reader: User, share: ChatShare) -> Chat:
    """Copy a shared chat into one of the reader's own, to continue with the reader's own rights.

    It contains what the reader could see: sources of unreadable documents are left out. Nothing in
    it is learned about the reader.
    """
    messages = read_share(share=share, reader=reader)
    chat = Chat(owner=reader, title=share.chat.title[:TITLE_CHARACTERS])
    chat.save(force_insert=True)
    parent: Message | None = None
    for message in messages:
        parent = _copy_message(message, chat, parent)
        if parent.role == Message.Role.ASSISTANT:
            _record_copy(message, parent)
    return chat


def _copy_message(shared: SharedMessage, chat: Chat, parent: Message | None) -> Message:
    original = shared.original
    chunk_ids = {source.chunk_id for source in shared.sources if source.is_available}
    sources = [source for source in original.sources or () if source["chunk_id"] in chunk_ids]
    cites_all = not any(not source.is_available for source in shared.sources)
    message = Message(
        chat=chat,
        parent=parent,
        role=original.role,
        content=shared.content,
        status=original.status,
        mode=original.mode if sources else (Message.Mode.GENERAL if original.mode else ""),
        label=original.label if sources or not original.sources else "",
        question_type=original.question_type,
        sources=sources or None,
        citations=original.citations if sources and cites_all else None,
        created_at=original.created_at,
    )
    message.save(force_insert=True)
    return message


def _record_copy(shared: SharedMessage, answer: Message) -> None:
    """Record the turn of a copied answer; nothing is learned from it about the reader."""
    original = shared.original
    chunk_ids = {source["chunk_id"] for source in answer.sources or ()}
    passages = turn_store.read_whole_passages(original)
    outcome = AnswerOutcome(
        status=Message.Status(answer.status),
        content=answer.content,
        mode=answer.mode,
        label=answer.label,
        question_type=answer.question_type,
        sources=answer.sources,
        passages={key: text for key, text in passages.items() if key in chunk_ids},
    )
    turn = turn_store.record_turn(answer=answer, outcome=outcome)
    Turn.objects.filter(pk=turn.pk).update(profile_read_at=timezone.now())
    transaction.on_commit(partial(dispatch_summary, turn.pk))


# Rendering


_MARKER = re.compile(r"\[(\d{1,3})\]")
_LINK = re.compile(r"^(https?://|mailto:)", re.IGNORECASE)


def _render_text(
    _renderer: RendererHTML,
    tokens: Sequence[Token],
    index: int,
    _options: OptionsDict,
    env: dict[str, Any],
) -> str:
    """Text whose citation markers link to the message's sources."""
    link = rf'<a class="shared-cite" href="#{env["anchor"]}-\1">\1</a>'
    return _MARKER.sub(link, str(escape(tokens[index].content)))


def _render_image(
    _renderer: RendererHTML,
    tokens: Sequence[Token],
    index: int,
    _options: OptionsDict,
    _env: dict[str, Any],
) -> str:
    """Only the description of a picture: nothing is fetched."""
    return str(escape(tokens[index].content))


def _render_link(
    renderer: RendererHTML,
    tokens: Sequence[Token],
    index: int,
    options: OptionsDict,
    env: dict[str, Any],
) -> str:
    tokens[index].attrSet("rel", "noopener noreferrer nofollow")
    tokens[index].attrSet("target", "_blank")
    return str(renderer.renderToken(tokens, index, options, env))


def _make_markdown() -> MarkdownIt:
    markdown = MarkdownIt("commonmark", {"html": False, "breaks": True})
    markdown.enable(["table", "strikethrough"]).use(let_stars_close_before_hangul)
    markdown.validateLink = lambda url: bool(_LINK.match(url))  # type: ignore[method-assign]
    markdown.add_render_rule("text", _render_text)
    markdown.add_render_rule("image", _render_image)
    markdown.add_render_rule("link_open", _render_link)
    return markdown


_MARKDOWN = _make_markdown()


def render_markdown(text: str, *, anchor: str) -> SafeString:
    """A message as safe HTML: no scripts, no raw markup, nothing loaded from elsewhere.

    A marker `[n]` links to the element `{anchor}-n`.
    """
    return SafeString(_MARKDOWN.render(text, {"anchor": anchor}))
