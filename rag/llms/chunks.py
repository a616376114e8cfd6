"""The chunks of a streamed reply, whatever shape a server gives them."""

import json
from collections.abc import Mapping
from typing import Any

import jiter

from rag.pieces import Usage

Json = Mapping[str, Any]
NOTHING: Json = {}


def parsed(data: bytes) -> Json:
    """A chunk's JSON object. Raises `ValueError`.

    Half a surrogate pair and broken UTF-8 are no reason to lose an answer: the slower way reads
    them, the first as they are (`Mended` joins them), the second as U+FFFD.
    """
    try:
        value = jiter.from_json(data)
    except ValueError:
        try:
            value = json.loads(data.decode("utf-8", "replace"))
        except RecursionError as error:
            raise ValueError("too deep") from error
    if not isinstance(value, dict):
        raise ValueError("a chunk that is no object")  # noqa: TRY004 - as for other bad JSON
    return value


def first_choice(chunk: Json) -> Json:
    """The first of the choices; empty where there is none."""
    choices = chunk.get("choices")
    choice = choices[0] if isinstance(choices, list) and choices else None
    return choice if isinstance(choice, dict) else NOTHING


def delta(choice: Json) -> Json:
    """What a choice adds; a server that does not stream sends the whole message."""
    added = choice.get("delta") or choice.get("message")
    return added if isinstance(added, dict) else NOTHING


def text(added: Json, name: str) -> str:
    """The text of a field; a field that holds none is empty."""
    value = added.get(name)
    return value if isinstance(value, str) else ""


def usage(value: Any) -> Usage | None:
    """The closing account."""
    if not isinstance(value, dict):
        return None
    return Usage(_count(value.get("prompt_tokens")), _count(value.get("completion_tokens")))


class Mended:
    """Text without what cannot be stored: halves of pairs are joined or replaced, NULs left out."""

    def __init__(self) -> None:
        self._half = ""

    def add(self, more: str) -> str:
        """The next part; half a pair at its end waits for the other half."""
        if not more:
            return ""
        more, self._half = self._half + more, ""
        if "\ud800" <= more[-1] <= "\udbff":
            more, self._half = more[:-1], more[-1]
        try:
            more.encode()
        except UnicodeEncodeError:
            more = more.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        return more.replace("\x00", "")


def _count(value: Any) -> int:
    return value if isinstance(value, int) and value > 0 else 0
