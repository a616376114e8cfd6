"""Tables of the conversations."""

from chats.models.chat import Category, Chat, ChatDocument
from chats.models.key import KeyDetails, KeyScope
from chats.models.message import (
    CachedAnswer,
    DailyMessages,
    Feedback,
    Message,
    MessageDocument,
    Trace,
)
from chats.models.profile import ProfileChoice, ProfileSlot
from chats.models.run import Run
from chats.models.turn import Turn

__all__ = [
    "CachedAnswer",
    "Category",
    "Chat",
    "ChatDocument",
    "DailyMessages",
    "Feedback",
    "KeyDetails",
    "KeyScope",
    "Message",
    "MessageDocument",
    "ProfileChoice",
    "ProfileSlot",
    "Run",
    "Trace",
    "Turn",
]
