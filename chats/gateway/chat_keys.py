"""Which chat a request belongs to, as its program calls it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from chats.errors import WrongChatId

KEY_CHARACTERS = 200
PLAIN = "X-Chat-Id"
WHOLE = ("X-OpenWebUI-Chat-Id", "X-LibreChat-Conversation-Id")
"""Headers of programs that send the whole conversation with every question."""
NO_CHAT = frozenset({"", "new", "null", "none", "undefined"})
"""What programs send for a conversation that has no name yet."""
PASSING = ("local", "{{")
"""Open WebUI's temporary chats, and templates that nobody filled in."""


@dataclass(frozen=True, slots=True)
class ChatKey:
    """The name of a chat; `whole` where its program sends the whole conversation every time."""

    value: str
    whole: bool


def of(headers: Mapping[str, str], metadata: Any) -> ChatKey | None:
    """The chat's name by the first header that has one, else by `metadata.chat_id`.

    Raises `WrongChatId`.
    """
    for name in (PLAIN, *WHOLE):
        if value := _named(headers.get(name, ""), name):
            return ChatKey(value, whole=name in WHOLE)
    told = metadata.get("chat_id") if isinstance(metadata, dict) else None
    if told is not None and not isinstance(told, str):
        raise WrongChatId(param="metadata.chat_id")
    value = _named(told or "", "metadata.chat_id")
    return ChatKey(value, whole=False) if value else None


def _named(raw: str, param: str) -> str:
    value = raw.strip()
    if value.lower() in NO_CHAT or value.startswith(PASSING):
        return ""
    if len(value) > KEY_CHARACTERS or not value.isprintable():
        raise WrongChatId(param=param)
    return value
