"""How an answer ended: what an answers worker hands over to be stored."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from chats.models import Message

SCOPE = ("document_ids", "reason", "follows", "widened", "standalone_query")
"""What an answer's trace may say of the scope in the end."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """How an answer ended.

    `passages` are the texts shown, whole, by chunk id, as far as they are known; `method` is how
    they were found. `bearing` are documents that bore on the question, best first. `candidates`
    hold `rag.conversation.DocRef` as plain JSON.
    """

    status: Message.Status
    content: str
    mode: str = ""
    label: str = ""
    question_type: str = ""
    sources: list[dict[str, Any]] | None = None
    bearing: Collection[UUID] = ()
    passages: Mapping[str, str] = field(default_factory=dict)
    method: str = ""
    candidates: list[dict[str, Any]] = field(default_factory=list)
    view: dict[str, Any] | None = None
    usage: dict[str, Any] | None = None
    reasoning: str = ""
    grounding: list[dict[str, Any]] | None = None
    notices: Collection[str] = ()
    error_code: str = ""
    error_params: Mapping[str, object] = field(default_factory=dict)
    trace: Mapping[str, object] = field(default_factory=dict)

    @property
    def scope(self) -> dict[str, Any]:
        """What was searched in the end, and why, as far as the trace knows."""
        return {name: self._told[name] for name in SCOPE if name in self._told}

    @property
    def forgets(self) -> bool:
        """Whether the question put away what the conversation was about."""
        return self.question_type == "reset" or bool(self._told.get("forgets"))

    @property
    def _told(self) -> Mapping[str, Any]:
        told = self.trace.get("scope")
        return told if isinstance(told, Mapping) else {}
