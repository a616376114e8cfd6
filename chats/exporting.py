"""A chat as a file: the branch in which something was said last."""

from collections.abc import Sequence
from typing import Any

from django.utils import timezone
from django.utils.text import get_valid_filename
from django.utils.timezone import localtime
from django.utils.translation import gettext as _

from chats.models import Chat, Turn
from chats.runs import log
from chats.shapes import ChatShape
from chats.turn_shapes import TurnShape

NAME_CHARACTERS = 80


def as_json(chat: Chat, turns: Sequence[Turn]) -> str:
    """The chat and its turns in the shapes of the interface."""
    told: dict[str, Any] = {
        "chat": ChatShape(chat).data,
        "exported_at": timezone.now(),
        "turns": TurnShape(turns, many=True).data,
    }
    return log.to_json(told)


def as_markdown(chat: Chat, turns: Sequence[Turn]) -> str:
    """The chat to read: each question as a quotation, its answer, and what that rests on."""
    parts = [f"# {line(chat.title)}", *(_turn(turn) for turn in turns)]
    return "\n\n".join(parts) + "\n"


def file_name(chat: Chat, ending: str) -> str:
    """What the file is called."""
    title = line(chat.title)[:NAME_CHARACTERS].strip(" .-_")
    return f"{get_valid_filename(title) if title else 'chat'}.{ending}"


def _turn(turn: Turn) -> str:
    asked = "\n".join(f"> {line}".rstrip() for line in turn.user_text.splitlines())
    when = localtime(turn.ts).strftime("%Y-%m-%d %H:%M")
    parts = [f"## {turn.number} · {when}", asked, turn.assistant_text]
    if turn.doc_refs:
        parts.append("\n".join([f"{_('Sources')}:", "", *map(_source, turn.doc_refs)]))
    return "\n\n".join(part for part in parts if part)


def _source(ref: dict[str, Any]) -> str:
    return f"- [{ref['slot']}] {source_line(ref)}"


def source_line(ref: dict[str, Any]) -> str:
    """What a document that was drawn from is called, and the name of its file."""
    return f"{line(ref['title'])} ({line(ref['source'])})"


def line(text: str) -> str:
    """A text without breaks."""
    return " ".join(text.split())
