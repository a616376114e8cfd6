"""A chat that is shown to others, and what a reader gets to see of it.

A reader has his own rights and no more. The words of a chat are what its owner chose to show;
what they rest on is shown as far as the reader may read the documents himself. An answer that is
nothing but text of documents is shown only to whoever may read all of them. Nothing is shown of
how an answer came about: no trace, no thoughts, no memory, no names of documents that were asked.
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
from chats.services.turn_store import Outcome
from documents.audit import Action, record_event
from documents.models import Document
from documents.notices import announce_rights_change, announce_shared_change
from documents.parsers.markdown import let_stars_close_before_hangul

# A chat that is shown


@transaction.atomic
def share_chat(
    *, user: User, chat: Chat, audience: Audience, expires_at: datetime | None = None
) -> ChatShare:
    """Show a chat as it is now, or show it to others from now on.

    Raises `NotFound` for a chat in which nothing was said, `StillAnswering`.
    """
    held = Chat.objects.visible_to(user).select_for_update().filter(pk=chat.pk).first()
    if held is None:
        raise NotFound
    share, _created = ChatShare.objects.update_or_create(
        chat=held,
        defaults={
            "last_message": _find_last_answer(held),
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
    """Show a chat to others, or until another time; `is_updated`: with all that was said since.

    Raises `NotFound`, `StillAnswering`.
    """
    held = ChatShare.objects.owned_by(user).select_for_update().filter(pk=share.pk).first()
    if held is None:
        raise NotFound
    if is_updated:
        held.last_message, held.shown_at = _find_last_answer(held.chat), timezone.now()
    held.expires_at = expires_at
    held.save()
    if audience is not None:
        set_audience(held, audience, actor=user)
    else:
        announce_rights_change()
    return held


def _find_last_answer(chat: Chat) -> Message:
    """The newest answer that is whole. Raises `NotFound`, `StillAnswering`."""
    answers = Message.objects.filter(chat=chat, role=Message.Role.ASSISTANT)
    whole = answers.exclude(status=Message.Status.STREAMING)
    last = whole.order_by("-created_at", "-id").first()
    if last is None:
        refuse_unfinished(answers)
        raise NotFound
    return last


@transaction.atomic
def end_shares(*, user: User, shares: Iterable[ChatShare]) -> None:
    """Show these chats to nobody any more: open pages of them end within two seconds."""
    for share in shares:
        details = {"ended": True}
        record_event(Action.SHARE_CHANGED, actor=user, subject=user, target=share, details=details)
        share.delete()
    announce_rights_change()
    announce_shared_change()


# What a reader sees


@dataclass(frozen=True, slots=True)
class SharedSource:
    """What an answer rests on. Of a document that the reader may not read only `slot` is known."""

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
    """A message as a reader sees it; `is_withheld`: its text is of documents that he may not."""

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
        """The content as a page shows it; markers lead to the sources below."""
        return render_markdown(self.content, anchor=str(self.id))

    def to_json(self) -> dict[str, Any]:
        """As the API shows it."""
        return {
            "id": str(self.id),
            "role": self.role,
            "content": self.content,
            "label": self.label or None,
            "sources": [one.to_json() for one in self.sources],
            "created_at": self.created_at,
        }


def read_share(*, share: ChatShare, reader: User) -> list[SharedMessage]:
    """The messages of a shared chat as this reader may see them, oldest first."""
    branch = list_branch(share.last_message_id)
    named = {UUID(str(pk)) for one in branch for pk in _list_documents(one)}
    visible = Document.objects.visible_to(reader).filter(pk__in=named)
    readable = {str(pk) for pk in visible.values_list("pk", flat=True)}
    return [_to_shared(one, readable) for one in branch]


def _list_documents(message: Message) -> set[str]:
    rows = (*(message.sources or ()), *(message.candidates or ()))
    viewed = [message.view["document_id"]] if message.view else []
    return {str(row["document_id"]) for row in rows} | {str(pk) for pk in viewed}


def _to_shared(message: Message, readable: Collection[str]) -> SharedMessage:
    copies = is_copy(message.label, message.mode) or message.mode == Message.Mode.CLARIFY
    is_withheld = copies and not _list_documents(message) <= set(readable)
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
    """What is cited, in order; a document that may not be read once, by its number alone."""
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


# A copy of one's own


@transaction.atomic
def copy_shared_chat(*, reader: User, share: ChatShare) -> Chat:
    """A chat of the reader's own that goes on where the shared one ends, with his own rights.

    It holds what he was shown: sources of documents that he may not read are left out, and nothing
    of what is said in it counts as said by him.
    """
    shown = read_share(share=share, reader=reader)
    chat = Chat(owner=reader, title=share.chat.title[:TITLE_CHARACTERS])
    chat.save(force_insert=True)
    above: Message | None = None
    for one in shown:
        above = _copy_message(one, chat, above)
        if above.role == Message.Role.ASSISTANT:
            _record_copy(one, above)
    return chat


def _copy_message(shown: SharedMessage, chat: Chat, above: Message | None) -> Message:
    original = shown.original
    kept = {one.chunk_id for one in shown.sources if one.is_available}
    sources = [one for one in original.sources or () if one["chunk_id"] in kept]
    cites_all = not any(not one.is_available for one in shown.sources)
    message = Message(
        chat=chat,
        parent=above,
        role=original.role,
        content=shown.content,
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


def _record_copy(shown: SharedMessage, answer: Message) -> None:
    """The turn of a copied answer. Its question is not the reader's: nothing is noted of it."""
    original = shown.original
    kept = {one["chunk_id"] for one in answer.sources or ()}
    passages = turn_store.read_whole_passages(original)
    outcome = Outcome(
        status=Message.Status(answer.status),
        content=answer.content,
        mode=answer.mode,
        label=answer.label,
        question_type=answer.question_type,
        sources=answer.sources,
        passages={key: text for key, text in passages.items() if key in kept},
    )
    turn = turn_store.record_turn(answer=answer, outcome=outcome)
    Turn.objects.filter(pk=turn.pk).update(profile_read_at=timezone.now())
    transaction.on_commit(partial(dispatch_summary, turn.pk))


# The words as a page


_MARKER = re.compile(r"\[(\d{1,3})\]")
_LINK = re.compile(r"^(https?://|mailto:)", re.IGNORECASE)


def _render_text(
    _renderer: RendererHTML,
    tokens: Sequence[Token],
    index: int,
    _options: OptionsDict,
    env: dict[str, Any],
) -> str:
    """A text whose markers lead to the sources of its message."""
    link = rf'<a class="shared-cite" href="#{env["anchor"]}-\1">\1</a>'
    return _MARKER.sub(link, str(escape(tokens[index].content)))


def _render_image(
    _renderer: RendererHTML,
    tokens: Sequence[Token],
    index: int,
    _options: OptionsDict,
    _env: dict[str, Any],
) -> str:
    """Of a picture only what it is called: nothing is fetched."""
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
    """A message as HTML that holds no script, no markup of its own and no foreign address to load.

    A marker `[n]` leads to the element `{anchor}-n`.
    """
    return SafeString(_MARKDOWN.render(text, {"anchor": anchor}))
