"""Tools that a model may call, and its calls. Values only; who calls a model is a port."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Tool:
    """A function offered to the model; `parameters` is the JSON schema of its arguments."""

    name: str
    description: str
    parameters: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ToolCall:
    """What the model wants called. `error` says why its arguments could not be read."""

    name: str
    arguments: Mapping[str, object] = field(default_factory=dict)
    error: str = ""


@dataclass(frozen=True, slots=True)
class Choice:
    """A model's reply: text, calls in its order, or both; `cut` where the token limit ended it."""

    text: str = ""
    calls: tuple[ToolCall, ...] = ()
    cut: bool = False
