"""What comes out of a chat model, and what may be wished of it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens as the model's server counted them, or as we estimated them."""

    prompt_tokens: int
    completion_tokens: int
    estimated: bool = False


@dataclass(frozen=True, slots=True)
class Piece:
    """Text of a model's stream, its closing usage and reason ("stop", "length"), or a new plan.

    `reasoning` is what the model thinks aloud before it answers; it is no part of the answer.
    """

    text: str = ""
    usage: Usage | None = None
    finish_reason: str = ""
    trimmed: Mapping[str, object] | None = None
    reasoning: str = ""


@dataclass(frozen=True, slots=True)
class Sampling:
    """What a caller wishes of one answer; what is None or empty is as configured.

    `max_tokens` can only lower the configured limit.
    """

    temperature: float | None = None
    max_tokens: int | None = None
    stop: tuple[str, ...] = ()
    seed: int | None = None

    @classmethod
    def read(cls, stored: Mapping[str, Any]) -> Self:
        """From its fields as JSON keeps them; those that are missing are as configured."""
        return cls(**{**stored, "stop": tuple(stored.get("stop", ()))})
