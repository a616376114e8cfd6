"""What can be wrong with a request to the gateway, and the one shape in which that is told."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rag.errors import NuraError

TYPES = {401: "authentication_error", 403: "permission_error", 429: "rate_limit_error"}
INTERRUPTED = {"interrupted": 503}
"""Codes of answers that are no exception of ours."""


class ModelNotFound(NuraError):
    """No such model, or one of another user: nobody can tell which."""

    code = "model_not_found"
    status = 404

    def __init__(self) -> None:
        super().__init__(param="model")


class NoQuestion(NuraError):
    """No message of the user holds text."""

    code = "no_question"
    status = 400

    def __init__(self) -> None:
        super().__init__(param="messages")


class TooLong(NuraError):
    """A text is longer than a question may be."""

    code = "text_too_long"
    status = 400


class OneAnswerOnly(NuraError):
    """More than one answer was asked for."""

    code = "one_answer_only"
    status = 400

    def __init__(self) -> None:
        super().__init__(param="n")


class WrongChatId(NuraError):
    """The name of a chat that cannot be one."""

    code = "wrong_chat_id"
    status = 400


class WrongInput(NuraError):
    """Something other than texts was to be embedded, or nothing."""

    code = "wrong_input"
    status = 400

    def __init__(self) -> None:
        super().__init__(param="input")


class WrongDimensions(NuraError):
    """Vectors of another width than the model's were asked for."""

    code = "wrong_dimensions"
    status = 400

    def __init__(self) -> None:
        super().__init__(param="dimensions")


def error_body(
    status: int, code: str, message: str, param: str | None = None
) -> dict[str, dict[str, Any]]:
    """An error as OpenAI's clients read it."""
    kind = TYPES.get(status, "invalid_request_error" if status < 500 else "server_error")
    return {"error": {"message": message, "type": kind, "param": param, "code": code}}


def first_wrong(errors: Sequence[Mapping[str, Any]]) -> tuple[str | None, str]:
    """The first field that pydantic refused, as OpenAI writes it, and what is wrong with it."""
    _source, _body, *place = errors[0]["loc"]
    steps = (f"[{step}]" if isinstance(step, int) else f".{step}" for step in place)
    param = "".join(steps).removeprefix(".")
    return param or None, f"{param}: {errors[0]['msg']}".removeprefix(": ")


def status_of(code: str) -> int:
    """The HTTP status that fits an answer which failed with this code."""
    known = {kind.code: kind.status for kind in _kinds(NuraError)}
    return (INTERRUPTED | known).get(code, NuraError.status)


def _kinds(kind: type[NuraError]) -> Iterator[type[NuraError]]:
    yield kind
    for one in kind.__subclasses__():
        yield from _kinds(one)
