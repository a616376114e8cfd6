"""Requests and responses of the gateway, in OpenAI's format.

Only these fields of a request are read; all others are accepted and ignored.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any

from django.utils.translation import gettext_lazy as _
from pydantic import BaseModel, Field

from chats.errors import NoQuestion, TooLong, WrongChatId
from chats.serializers import MAX_CONTENT_CHARACTERS
from documents.errors import find_status
from rag.conversation import Sampling
from rag.events import ANSWER_CUT
from rag.types import HistoryMessage, Speaker

if TYPE_CHECKING:
    from chats.gateway.completions import PendingAnswer

MAX_MESSAGES = 1_000
MAX_STOPS = 4
MAX_STOP_CHARACTERS = 200
MAX_SEED = 2**63 - 1
MAX_MODEL_NAME_CHARACTERS = 200


class MessagePart(BaseModel):
    """A part of a message; only text parts are read."""

    text: str | None = None


class ChatMessage(BaseModel):
    """One message."""

    role: str
    content: str | list[str | MessagePart] | None = None

    @property
    def text(self) -> str:
        """The text, parts joined by line breaks, without characters that Postgres cannot store."""
        if self.content is None or isinstance(self.content, str):
            return drop_unstorable(self.content or "")
        parts = (part if isinstance(part, str) else part.text for part in self.content)
        return drop_unstorable("\n".join(filter(None, parts)))


class StreamOptions(BaseModel):
    """Options of a stream."""

    include_usage: bool | None = None


Stop = Annotated[str, Field(min_length=1, max_length=MAX_STOP_CHARACTERS)]


class CompletionRequest(BaseModel):
    """`POST /chat/completions`."""

    model: str = Field(max_length=MAX_MODEL_NAME_CHARACTERS)
    messages: list[ChatMessage] = Field(min_length=1, max_length=MAX_MESSAGES)
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    temperature: float | None = Field(None, ge=0, le=2)
    max_tokens: int | None = Field(None, ge=1)
    max_completion_tokens: int | None = Field(None, ge=1)
    stop: Stop | Annotated[list[Stop], Field(max_length=MAX_STOPS)] | None = None
    seed: int | None = Field(None, ge=-MAX_SEED, le=MAX_SEED)
    n: int | None = None
    metadata: Any = None
    use_memory: bool | None = None

    @property
    def sampling(self) -> Sampling:
        """The requested sampling."""
        limits = [limit for limit in (self.max_tokens, self.max_completion_tokens) if limit]
        return Sampling(
            temperature=self.temperature,
            max_tokens=min(limits, default=None),
            stop=(self.stop,) if isinstance(self.stop, str) else tuple(self.stop or ()),
            seed=self.seed,
        )

    @property
    def includes_usage(self) -> bool:
        """Whether a stream ends with a chunk of token counts."""
        return bool(self.stream_options and self.stream_options.include_usage)


class EmbeddingsRequest(BaseModel):
    """`POST /embeddings`."""

    model: str = Field(max_length=MAX_MODEL_NAME_CHARACTERS)
    input: Any
    encoding_format: str | None = Field(None, pattern="^(float|base64)$")
    dimensions: int | None = Field(None, ge=1)


def drop_unstorable(text: str) -> str:
    """The text without NUL and lone surrogates."""
    return text.replace("\0", "").encode("utf-8", "replace").decode("utf-8")


ERROR_TYPES = {401: "authentication_error", 403: "permission_error", 429: "rate_limit_error"}


def to_error_body(
    status: int, code: str, message: str, param: str | None = None
) -> dict[str, dict[str, Any]]:
    """The body of an error in OpenAI's format."""
    default = "invalid_request_error" if status < 500 else "server_error"
    kind = ERROR_TYPES.get(status, default)
    return {"error": {"message": message, "type": kind, "param": param, "code": code}}


_REASONS = {
    "missing": _("missing"),
    "too_short": _("must not be empty"),
    "string_too_short": _("must not be empty"),
    "too_long": _("at most %(max_length)s entries"),
    "string_too_long": _("at most %(max_length)s characters"),
    "greater_than_equal": _("at least %(ge)s"),
    "less_than_equal": _("at most %(le)s"),
}
"""What is wrong with a field, by pydantic's type of error, for "Please check: field (reason)."."""


def find_wrong_field(errors: Sequence[Mapping[str, Any]]) -> tuple[str | None, str]:
    """The first field that pydantic refused, written as OpenAI does, and what is wrong with it.

    pydantic's own words are English only.
    """
    path = errors[0]["loc"][2:]  # after the source and the body
    steps = (f"[{step}]" if isinstance(step, int) else f".{step}" for step in path)
    param = "".join(steps).removeprefix(".")
    reason = str(_REASONS.get(errors[0]["type"], _("not a valid value")))
    words = f"{param} ({reason % errors[0].get('ctx', {})})" if param else reason
    return param or None, words


MAX_HISTORY_MESSAGES = 200
"""Of a longer conversation, the last messages are read."""
SPEAKERS = (Speaker.USER, Speaker.ASSISTANT)


@dataclass(frozen=True, slots=True)
class AskedQuestion:
    """A question and the messages before it, without instructions and tool messages."""

    question: str
    history: tuple[HistoryMessage, ...] = ()

    @property
    def last_answer(self) -> str | None:
        """The answer before the question, None if there is none."""
        return next(
            (m.content for m in reversed(self.history) if m.role == Speaker.ASSISTANT), None
        )

    @property
    def last_question(self) -> str:
        """The question that `last_answer` answers."""
        answered = False
        for message in reversed(self.history):
            if answered and message.role == Speaker.USER:
                return message.content
            answered = answered or message.role == Speaker.ASSISTANT
        return ""


def read_question(messages: Sequence[ChatMessage]) -> AskedQuestion:
    """The last user message and everything before it. Raises `NoQuestion`, `TooLong`."""
    conversation = [HistoryMessage(Speaker(m.role), m.text) for m in messages if m.role in SPEAKERS]
    conversation = [message for message in conversation if message.content.strip()]
    index = next(
        (i for i in reversed(range(len(conversation))) if conversation[i].role == Speaker.USER),
        None,
    )
    if index is None:
        raise NoQuestion
    question = conversation[index].content
    if len(question) > MAX_CONTENT_CHARACTERS:
        raise TooLong(param="messages")
    history = conversation[max(0, index - MAX_HISTORY_MESSAGES) : index]
    return AskedQuestion(question, tuple(HistoryMessage(m.role, _shorten(m)) for m in history))


def _shorten(message: HistoryMessage) -> str:
    return message.content[:MAX_CONTENT_CHARACTERS]


MAX_CHAT_KEY_CHARACTERS = 200
CHAT_HEADER = "X-Chat-Id"
WHOLE_CONVERSATION_HEADERS = ("X-OpenWebUI-Chat-Id", "X-LibreChat-Conversation-Id")
"""Headers sent by programs that send the whole conversation with every question."""
NO_CHAT = frozenset({"", "new", "null", "none", "undefined"})
"""What programs send for a conversation without an id."""
TEMPORARY_CHATS = ("local", "{{")
"""How the ids of Open WebUI's temporary chats begin, and unfilled templates."""


@dataclass(frozen=True, slots=True)
class ChatKey:
    """A program's id for a chat, and whether it sends the whole conversation every time."""

    value: str
    sends_whole_conversation: bool


def read_chat_key(headers: Mapping[str, str], metadata: Any) -> ChatKey | None:
    """The program's id for the chat: from the first header that has one, else `metadata.chat_id`.

    Raises `WrongChatId`.
    """
    for name in (CHAT_HEADER, *WHOLE_CONVERSATION_HEADERS):
        if value := _to_chat_name(headers.get(name, ""), name):
            return ChatKey(value, sends_whole_conversation=name in WHOLE_CONVERSATION_HEADERS)
    chat_id = metadata.get("chat_id") if isinstance(metadata, dict) else None
    if chat_id is not None and not isinstance(chat_id, str):
        raise WrongChatId(param="metadata.chat_id")
    value = _to_chat_name(chat_id or "", "metadata.chat_id")
    return ChatKey(value, sends_whole_conversation=False) if value else None


def _to_chat_name(raw: str, param: str) -> str:
    value = raw.strip()
    if value.lower() in NO_CHAT or value.startswith(TEMPORARY_CHATS):
        return ""
    if len(value) > MAX_CHAT_KEY_CHARACTERS or not value.isprintable():
        raise WrongChatId(param=param)
    return value


@dataclass(frozen=True, slots=True)
class ErrorReply:
    """An answer that ended with an error."""

    status: int
    body: dict[str, Any]

    @classmethod
    def from_event_data(cls, data: Mapping[str, Any]) -> "ErrorReply":
        """The error in the data of a run's last event."""
        status = find_status(data["code"])
        return cls(status, to_error_body(status, data["code"], data["detail"]))


@dataclass(frozen=True, slots=True)
class Reply:
    """Builds the response bodies of one answer, which share id, time and model."""

    opened: "PendingAnswer"
    created: int = field(default_factory=lambda: int(time.time()))

    def to_completion(self, message: Mapping[str, Any]) -> dict[str, Any]:
        """The whole answer."""
        reply = {"role": "assistant", "content": message.get("content", "")}
        if reasoning := message.get("reasoning"):
            reply["reasoning_content"] = reasoning
        choice = {"index": 0, "message": reply, "logprobs": None}
        choice["finish_reason"] = find_finish_reason(message)
        return {
            **self._make_head("chat.completion"),
            "choices": [choice],
            "usage": to_usage(message),
            **self._make_own_fields(message),
        }

    def to_delta_chunk(self, delta: Mapping[str, Any]) -> dict[str, Any]:
        """A chunk with more of the answer."""
        return self._make_chunk(delta, None)

    def to_last_chunk(self, message: Mapping[str, Any], streamed: str) -> dict[str, Any]:
        """The last chunk; it has `replaced` if the streamed text differs from the final answer."""
        content = message.get("content", streamed)
        replaced = {} if content == streamed else {"replaced": content}
        return {
            **self._make_chunk({}, find_finish_reason(message)),
            **self._make_own_fields(message),
            **replaced,
        }

    def to_usage_chunk(self, message: Mapping[str, Any]) -> dict[str, Any]:
        """The chunk with nothing but the token counts."""
        head = self._make_head("chat.completion.chunk")
        return {**head, "choices": [], "usage": to_usage(message)}

    def _make_chunk(self, delta: Mapping[str, Any], reason: str | None) -> dict[str, Any]:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": reason}
        return {**self._make_head("chat.completion.chunk"), "choices": [choice]}

    def _make_head(self, kind: str) -> dict[str, Any]:
        key = f"chatcmpl-{self.opened.run_id.hex}"
        return {"id": key, "object": kind, "created": self.created, "model": self.opened.model}

    def _make_own_fields(self, message: Mapping[str, Any]) -> dict[str, Any]:
        chat_id = self.opened.chat_id
        ids = {} if chat_id is None else {"chat_id": str(chat_id)}
        return {"sources": message.get("sources"), **ids}


def find_finish_reason(message: Mapping[str, Any]) -> str:
    """Why the answer ended: "length" at the token limit, else "stop"."""
    codes = {notice["code"] for notice in message.get("notices") or ()}
    return "length" if ANSWER_CUT in codes else "stop"


def to_usage(message: Mapping[str, Any]) -> dict[str, int]:
    """The `usage` of an answer; zeros if no model was asked."""
    usage = message.get("usage") or {}
    read, written = usage.get("prompt_tokens", 0), usage.get("completion_tokens", 0)
    return {"prompt_tokens": read, "completion_tokens": written, "total_tokens": read + written}
