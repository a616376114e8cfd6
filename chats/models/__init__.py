"""Tables of the conversations."""

from chats.models.chat import Category, Chat, ChatDocument
from chats.models.key import KeyDetails, KeyScope
from chats.models.memory import ProfileChoice, ProfileSlot, Turn
from chats.models.message import (
    CachedAnswer,
    DailyMessages,
    EvaluationCase,
    Feedback,
    Message,
    MessageDocument,
    Run,
    Trace,
)
from chats.models.sharing import Assistant, ChatShare, FolderShare, Prompt
from chats.models.tool import ToolServer

__all__ = [
    "Assistant",
    "CachedAnswer",
    "Category",
    "Chat",
    "ChatDocument",
    "ChatShare",
    "DailyMessages",
    "EvaluationCase",
    "Feedback",
    "FolderShare",
    "KeyDetails",
    "KeyScope",
    "Message",
    "MessageDocument",
    "ProfileChoice",
    "ProfileSlot",
    "Prompt",
    "Run",
    "ToolServer",
    "Trace",
    "Turn",
]
