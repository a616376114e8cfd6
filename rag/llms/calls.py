"""Tools as the chat-completions wire has them: offered in a request, called in a reply."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from rag.errors import LLMEmptyAnswer, LLMServerError
from rag.llms.failures import told
from rag.llms.thinking import Thinking
from rag.tools import Choice, Tool, ToolCall

NO_PARAMETERS: Mapping[str, object] = {"type": "object", "properties": {}}


def offered(tool: Tool) -> dict[str, object]:
    """A tool in a request."""
    function = {
        "name": tool.name,
        "description": tool.description,
        "parameters": dict(tool.parameters or NO_PARAMETERS),
    }
    return {"type": "function", "function": function}


def read(completion: Any, key: str = "") -> Choice:
    """The text and the calls of a whole reply.

    Raises `LLMServerError` where there is no reply in it, `LLMEmptyAnswer` where it says nothing,
    and what an error in its place means.
    """
    if wrong := getattr(completion, "error", None):
        raise told(wrong, started=False, key=key)
    choices = completion.choices
    message = choices[0].message if choices else None
    if message is None:
        raise LLMServerError("no reply in it")
    _, said = Thinking().feed(str(message.content or ""))
    reason = str(choices[0].finish_reason)
    chosen = Choice(said.strip(), tuple(_calls(message.tool_calls)), cut=reason == "length")
    if not chosen.text and not chosen.calls:
        raise LLMEmptyAnswer(reason, reason=reason)
    return chosen


def _calls(wanted: Any) -> Iterator[ToolCall]:
    for call in wanted or ():
        if (function := getattr(call, "function", None)) is not None:
            yield _call(str(function.name or ""), function.arguments)


def _call(name: str, arguments: Any) -> ToolCall:
    """Arguments come as text that should be JSON; some servers send the object itself."""
    try:
        given = json.loads(arguments) if isinstance(arguments, str) and arguments else arguments
    except (ValueError, RecursionError) as error:
        return ToolCall(name, error=f"the arguments are not JSON: {type(error).__name__}")
    if not given:
        return ToolCall(name)
    if not isinstance(given, dict):
        return ToolCall(name, error="the arguments are not an object")
    return ToolCall(name, given)
