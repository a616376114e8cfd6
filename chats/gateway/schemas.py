"""What comes in and how an error goes out, as OpenAI's clients write and read it.

Of a request only these fields are read; all others are accepted and passed over.
"""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from pydantic import BaseModel, Field

from rag.conversation import Sampling

MESSAGES = 1_000
STOPS = 4
STOP_CHARACTERS = 200
BIGGEST_SEED = 2**63 - 1
NAME_CHARACTERS = 200


class Part(BaseModel):
    """A part of a message; only those with text are read."""

    text: str | None = None


class ChatMessage(BaseModel):
    """One message."""

    role: str
    content: str | list[str | Part] | None = None

    @property
    def text(self) -> str:
        """Its text, parts joined by line ends, without what no database keeps."""
        if self.content is None or isinstance(self.content, str):
            return storable(self.content or "")
        parts = (part if isinstance(part, str) else part.text for part in self.content)
        return storable("\n".join(filter(None, parts)))


class StreamOptions(BaseModel):
    """Options of a stream."""

    include_usage: bool | None = None


Stop = Annotated[str, Field(min_length=1, max_length=STOP_CHARACTERS)]


class ChatRequest(BaseModel):
    """`POST /chat/completions`."""

    model: str = Field(max_length=NAME_CHARACTERS)
    messages: list[ChatMessage] = Field(min_length=1, max_length=MESSAGES)
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    temperature: float | None = Field(None, ge=0, le=2)
    max_tokens: int | None = Field(None, ge=1)
    max_completion_tokens: int | None = Field(None, ge=1)
    stop: Stop | Annotated[list[Stop], Field(max_length=STOPS)] | None = None
    seed: int | None = Field(None, ge=-BIGGEST_SEED, le=BIGGEST_SEED)
    n: int | None = None
    metadata: Any = None

    @property
    def sampling(self) -> Sampling:
        """What is wished of the answer."""
        limits = [one for one in (self.max_tokens, self.max_completion_tokens) if one]
        return Sampling(
            temperature=self.temperature,
            max_tokens=min(limits, default=None),
            stop=(self.stop,) if isinstance(self.stop, str) else tuple(self.stop or ()),
            seed=self.seed,
        )

    @property
    def told_usage(self) -> bool:
        """Whether a stream ends with what the answer used."""
        return bool(self.stream_options and self.stream_options.include_usage)


class EmbeddingsRequest(BaseModel):
    """`POST /embeddings`."""

    model: str = Field(max_length=NAME_CHARACTERS)
    input: Any
    encoding_format: str | None = Field(None, pattern="^(float|base64)$")
    dimensions: int | None = Field(None, ge=1)


def storable(text: str) -> str:
    """The text without NUL and without halves of characters."""
    return text.replace("\0", "").encode("utf-8", "replace").decode("utf-8")


ERROR_TYPES = {401: "authentication_error", 403: "permission_error", 429: "rate_limit_error"}


def to_error_body(
    status: int, code: str, message: str, param: str | None = None
) -> dict[str, dict[str, Any]]:
    """An error as OpenAI's clients read it."""
    usual = "invalid_request_error" if status < 500 else "server_error"
    kind = ERROR_TYPES.get(status, usual)
    return {"error": {"message": message, "type": kind, "param": param, "code": code}}


def find_wrong_field(errors: Sequence[Mapping[str, Any]]) -> tuple[str | None, str]:
    """The first field that pydantic refused, as OpenAI writes it, and what is wrong with it."""
    _source, _body, *place = errors[0]["loc"]
    steps = (f"[{step}]" if isinstance(step, int) else f".{step}" for step in place)
    param = "".join(steps).removeprefix(".")
    return param or None, f"{param}: {errors[0]['msg']}".removeprefix(": ")
