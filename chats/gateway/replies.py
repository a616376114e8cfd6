"""Answers as OpenAI's clients read them, whole and in chunks."""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from chats.gateway.completions import Opened
from chats.gateway.schemas import to_error_body
from documents.errors import find_status
from rag.events import ANSWER_CUT


@dataclass(frozen=True, slots=True)
class Failed:
    """An answer that ended with an error."""

    status: int
    body: dict[str, Any]

    @classmethod
    def of(cls, data: Mapping[str, Any]) -> "Failed":
        """From the data of the last event."""
        status = find_status(data["code"])
        return cls(status, to_error_body(status, data["code"], data["detail"]))


@dataclass(frozen=True, slots=True)
class Reply:
    """The shapes of one answer, with what is the same in all of them."""

    opened: Opened
    created: int = field(default_factory=lambda: int(time.time()))

    def whole(self, message: Mapping[str, Any]) -> dict[str, Any]:
        """The whole answer."""
        said = {"role": "assistant", "content": message.get("content", "")}
        if thought := message.get("reasoning"):
            said["reasoning_content"] = thought
        choice = {"index": 0, "message": said, "logprobs": None}
        choice["finish_reason"] = finish_reason(message)
        return {
            **self._head("chat.completion"),
            "choices": [choice],
            "usage": usage(message),
            **self._ours(message),
        }

    def delta(self, delta: Mapping[str, Any]) -> dict[str, Any]:
        """A chunk with more of the answer."""
        return self._chunk(delta, None)

    def last(self, message: Mapping[str, Any], streamed: str) -> dict[str, Any]:
        """The chunk that ends the answer; `replaced` is there where other text was streamed."""
        content = message.get("content", streamed)
        replaced = {} if content == streamed else {"replaced": content}
        return {**self._chunk({}, finish_reason(message)), **self._ours(message), **replaced}

    def used(self, message: Mapping[str, Any]) -> dict[str, Any]:
        """The chunk with the usage and nothing else."""
        head = self._head("chat.completion.chunk")
        return {**head, "choices": [], "usage": usage(message)}

    def _chunk(self, delta: Mapping[str, Any], reason: str | None) -> dict[str, Any]:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": reason}
        return {**self._head("chat.completion.chunk"), "choices": [choice]}

    def _head(self, kind: str) -> dict[str, Any]:
        key = f"chatcmpl-{self.opened.run_id.hex}"
        return {"id": key, "object": kind, "created": self.created, "model": self.opened.model}

    def _ours(self, message: Mapping[str, Any]) -> dict[str, Any]:
        chat_id = self.opened.chat_id
        stored = {} if chat_id is None else {"chat_id": str(chat_id)}
        return {"sources": message.get("sources"), **stored}


def finish_reason(message: Mapping[str, Any]) -> str:
    """Why the answer ended: "length" at its limit of tokens, else "stop"."""
    codes = {one["code"] for one in message.get("notices") or ()}
    return "length" if ANSWER_CUT in codes else "stop"


def usage(message: Mapping[str, Any]) -> dict[str, int]:
    """Tokens; none where no model was asked."""
    told = message.get("usage") or {}
    read, written = told.get("prompt_tokens", 0), told.get("completion_tokens", 0)
    return {"prompt_tokens": read, "completion_tokens": written, "total_tokens": read + written}
