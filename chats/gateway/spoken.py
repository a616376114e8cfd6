"""What the messages of a request say: the question, and the conversation that leads to it."""

from collections.abc import Sequence
from dataclasses import dataclass

from chats.errors import NoQuestion, TooLong
from chats.gateway.schemas import ChatMessage
from chats.serializers import MAX_CONTENT_CHARACTERS
from rag.types import HistoryMessage, Role

HISTORY_MESSAGES = 200
"""The last ones of a longer conversation are read."""
SPEAKERS = (Role.USER, Role.ASSISTANT)


@dataclass(frozen=True, slots=True)
class Spoken:
    """A question and what was said before it; instructions and tools take no part."""

    question: str
    history: tuple[HistoryMessage, ...] = ()

    @property
    def last_answer(self) -> str | None:
        """The answer before the question; None where nothing was answered yet."""
        return next((m.content for m in reversed(self.history) if m.role == Role.ASSISTANT), None)

    @property
    def last_question(self) -> str:
        """The question that was so answered."""
        answered = False
        for message in reversed(self.history):
            if answered and message.role == Role.USER:
                return message.content
            answered = answered or message.role == Role.ASSISTANT
        return ""


def read(messages: Sequence[ChatMessage]) -> Spoken:
    """The last message of the user and all before it. Raises `NoQuestion`, `TooLong`."""
    said = [HistoryMessage(Role(m.role), m.text) for m in messages if m.role in SPEAKERS]
    said = [message for message in said if message.content.strip()]
    asked = next((i for i in reversed(range(len(said))) if said[i].role == Role.USER), None)
    if asked is None:
        raise NoQuestion
    question = said[asked].content
    if len(question) > MAX_CONTENT_CHARACTERS:
        raise TooLong(param="messages")
    before = said[max(0, asked - HISTORY_MESSAGES) : asked]
    return Spoken(question, tuple(HistoryMessage(m.role, _kept(m)) for m in before))


def _kept(message: HistoryMessage) -> str:
    return message.content[:MAX_CONTENT_CHARACTERS]
