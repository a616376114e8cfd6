"""A stand-in for an OpenAI-compatible server, over real sockets, with scripted behaviour.

    def test_something(llm_server):
        llm_server.script(Failure(429, headers={"Retry-After": "1"}), Stream(["안녕", "하세요"]))
        ...                                  # NURA_LLM_BASE_URL = llm_server.url
        assert llm_server.chats[0].json["model"] == "stand-in"

Chat requests take behaviours from the script, then `llm_server.default` (a behaviour, or a function
of the request's JSON that returns one). Embedding requests take from `script_embeddings`, then
deterministic vectors of `dimensions`. Other paths are answered from `replies_by_path`.
"""

import asyncio
import hashlib
import json
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Self

from tests.servers.wire import HttpRequest, Responder, read_request

SSE = {"Content-Type": "text/event-stream; charset=utf-8"}
JSON = {"Content-Type": "application/json"}


@dataclass(frozen=True)
class Stream:
    """A successful reply in pieces.

    The first piece comes after `first_delay` seconds, each other one after `delay`. The last piece
    waits until `hold` is set. `prompt_tokens` is the reported number.
    """

    pieces: Sequence[str] = ("안녕하세요.",)
    delay: float = 0.0
    first_delay: float = 0.0
    finish_reason: str = "stop"
    usage: bool = True
    prompt_tokens: int = 11
    hold: threading.Event | None = None


@dataclass(frozen=True)
class ToolCalls:
    """A whole reply with tool calls, pairs of name and arguments.

    Arguments that are not strings are sent as JSON text, as servers do.
    """

    calls: Sequence[tuple[str, Any]]
    text: str | None = None


@dataclass(frozen=True)
class Failure:
    """An HTTP error, or any other whole response; `body` is sent as JSON, a string as it is."""

    status: int
    body: Any = None
    headers: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Hang:
    """Sends the pieces in `after`, then nothing until the client disconnects."""

    after: Sequence[str] = ()


@dataclass(frozen=True)
class BreakOff:
    """Sends some pieces and cuts the connection."""

    pieces: Sequence[str] = ("안녕",)


@dataclass(frozen=True)
class Raw:
    """A body sent as given, in parts of `part` bytes (0: whole) or cut at the offsets `cuts`."""

    body: bytes
    part: int = 0
    cuts: Sequence[int] = ()
    headers: dict[str, str] = field(default_factory=lambda: dict(SSE))


Behaviour = Stream | ToolCalls | Failure | Hang | BreakOff | Raw

MODELS: dict[str, Behaviour] = {
    "/v1/models": Failure(200, {"object": "list", "data": [{"id": "stand-in"}]})
}


@dataclass
class ReceivedRequest:
    """A request received, and how it ended."""

    request: HttpRequest
    at: float
    peer: tuple[str, int]
    ended: threading.Event = field(default_factory=threading.Event)
    closed_by_client: bool = False

    @property
    def json(self) -> Any:
        """The request's JSON."""
        return self.request.json

    @property
    def path(self) -> str:
        """The path of the request."""
        return self.request.path

    @property
    def prompt(self) -> str:
        """All messages of a chat request, joined."""
        return "\n".join(str(message["content"]) for message in self.json["messages"])

    def wait_closed_by_client(self, timeout: float = 5.0) -> bool:
        """Wait for the end; True if the client hung up before the reply was complete."""
        self.ended.wait(timeout)
        return self.closed_by_client


class LLMServer:
    """The server, in a thread of its own; a context manager."""

    def __init__(self) -> None:
        self.default: Behaviour | Callable[[Any], Behaviour] = Stream()
        self.dimensions = 8
        self.calls: list[ReceivedRequest] = []
        self.replies_by_path: dict[str, Behaviour] = dict(MODELS)
        self._script: deque[Behaviour] = deque()
        self._embed_script: deque[Behaviour] = deque()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="llm-server", daemon=True)
        self._ready = threading.Event()
        self.port = 0

    @property
    def url(self) -> str:
        """The base URL, with /v1."""
        return f"http://127.0.0.1:{self.port}/v1"

    @property
    def chats(self) -> list[ReceivedRequest]:
        """Chat requests, oldest first."""
        return [call for call in self.calls if call.path.endswith("/chat/completions")]

    @property
    def embeddings(self) -> list[ReceivedRequest]:
        """Embedding requests, oldest first."""
        return [call for call in self.calls if call.path.endswith("/embeddings")]

    def script(self, *behaviours: Behaviour) -> None:
        """Set the replies to the next chat requests, one each."""
        self._script.extend(behaviours)

    def script_embeddings(self, *behaviours: Behaviour) -> None:
        """Set the replies to the next embedding requests, one each."""
        self._embed_script.extend(behaviours)

    def reset(self) -> None:
        """Forget scripts and calls; the default is a successful reply again."""
        self._script.clear()
        self._embed_script.clear()
        self.calls.clear()
        self.default = Stream()
        self.dimensions = 8
        self.replies_by_path = dict(MODELS)

    def __enter__(self) -> Self:
        self._thread.start()
        if not self._ready.wait(10):
            raise RuntimeError("the stand-in did not start")
        return self

    def __exit__(self, *exc: object) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        server = self._loop.run_until_complete(asyncio.start_server(self._serve, "127.0.0.1", 0))
        self.port = server.sockets[0].getsockname()[1]
        self._ready.set()
        self._loop.run_forever()
        server.close()
        tasks = asyncio.all_tasks(self._loop)
        for task in tasks:
            task.cancel()
        self._loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
        self._loop.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while request := await read_request(reader):
                call = ReceivedRequest(request, time.monotonic(), writer.get_extra_info("peername"))
                self.calls.append(call)
                if not await self._reply(call, reader, writer):
                    break
        finally:
            writer.close()

    async def _reply(
        self, call: ReceivedRequest, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> bool:
        """Reply unless the client disconnects; True if the connection may serve another request."""
        work = asyncio.ensure_future(self._respond(call, Responder(writer)))
        disconnect = asyncio.ensure_future(_wait_for_disconnect(reader))
        try:
            await asyncio.wait({work, disconnect}, return_when=asyncio.FIRST_COMPLETED)
            call.closed_by_client = not work.done()
            return work.done() and not work.exception() and work.result()
        finally:
            for task in (work, disconnect):
                task.cancel()
            await asyncio.wait({work, disconnect})
            call.ended.set()

    async def _respond(self, call: ReceivedRequest, out: Responder) -> bool:
        if call.path in self.replies_by_path:
            return await perform_behaviour(self.replies_by_path[call.path], None, out)
        if call.path.endswith("/embeddings"):
            behaviour = self._embed_script.popleft() if self._embed_script else None
            if behaviour is None:
                body = build_embeddings(call.json["input"], self.dimensions)
                await out.send_response(200, JSON, _encode_json(body))
                return True
        else:
            behaviour = self._take_behaviour(call)
        return await perform_behaviour(behaviour, call.json, out)

    def _take_behaviour(self, call: ReceivedRequest) -> Behaviour:
        if self._script:
            return self._script.popleft()
        return self.default(call.json) if callable(self.default) else self.default


async def perform_behaviour(behaviour: Behaviour, request: Any, out: Responder) -> bool:
    """Carry out a behaviour; True if the response was complete."""
    match behaviour:
        case Failure(status, body, headers):
            await out.send_response(status, {**JSON, **headers}, _encode_body(body))
            return True
        case ToolCalls(calls, text):
            await out.send_response(200, JSON, _encode_json(build_completion(text, calls)))
            return True
        case Raw():
            await _send_raw(behaviour, out)
            return True
        case Stream() if not (request or {}).get("stream"):
            await asyncio.sleep(behaviour.first_delay)
            await out.send_response(
                200, JSON, _encode_json(build_completion("".join(behaviour.pieces)))
            )
            return True
        case Stream():
            await _send_stream(behaviour, out)
            return True
        case Hang(pieces) | BreakOff(pieces):
            if pieces:
                out.send_head(200, SSE, length=None)
            for piece in pieces:
                await out.send(encode_chunk(piece))
            if isinstance(behaviour, Hang):
                await asyncio.Event().wait()
            return False


async def _send_raw(behaviour: Raw, out: Responder) -> None:
    body, part = behaviour.body, behaviour.part or len(behaviour.body)
    places = behaviour.cuts or range(part, len(body), part or 1)
    out.send_head(200, behaviour.headers, length=None)
    for start, end in pairwise((0, *places, len(body))):
        await out.send(body[start:end])
    await out.finish()


async def _send_stream(behaviour: Stream, out: Responder) -> None:
    out.send_head(200, SSE, length=None)
    await out.writer.drain()
    for index, piece in enumerate(behaviour.pieces):
        await asyncio.sleep(behaviour.delay if index else behaviour.first_delay)
        if behaviour.hold and index == len(behaviour.pieces) - 1:
            await _wait_until_set(behaviour.hold)
        await out.send(encode_chunk(piece))
    await out.send(encode_chunk("", finish_reason=behaviour.finish_reason))
    if behaviour.usage:
        count = len(behaviour.pieces)
        read = behaviour.prompt_tokens
        usage = {"prompt_tokens": read, "completion_tokens": count, "total_tokens": read + count}
        await out.send(_encode_event({**_CHUNK, "choices": [], "usage": usage}))
    await out.send(b"data: [DONE]\n\n")
    await out.finish()


async def _wait_until_set(event: threading.Event) -> None:
    """Wait for an event of another thread, which cannot wake the loop."""
    while not event.is_set():
        await asyncio.sleep(0.01)


_CHUNK = {"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": "stand-in"}


def encode_chunk(text: str, finish_reason: str | None = None) -> bytes:
    """One server-sent chunk."""
    delta = {"content": text} if text else {}
    return _encode_event(
        {**_CHUNK, "choices": [{"index": 0, "delta": delta, "finish_reason": finish_reason}]}
    )


def build_completion(text: str | None, calls: Sequence[tuple[str, Any]] = ()) -> dict[str, Any]:
    """A whole reply, not streamed."""
    message: dict[str, Any] = {"role": "assistant", "content": text}
    if calls:
        message["tool_calls"] = [
            _build_tool_call(number, *call) for number, call in enumerate(calls)
        ]
    reason = "tool_calls" if calls else "stop"
    return {
        **_CHUNK,
        "object": "chat.completion",
        "choices": [{"index": 0, "message": message, "finish_reason": reason}],
        "usage": {"prompt_tokens": 11, "completion_tokens": 3, "total_tokens": 14},
    }


def _build_tool_call(number: int, name: str, arguments: Any) -> dict[str, Any]:
    arguments_json = (
        arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
    )
    function = {"name": name, "arguments": arguments_json}
    return {"id": f"call_{number}", "type": "function", "function": function}


def build_embeddings(texts: str | Sequence[str], dimensions: int) -> dict[str, Any]:
    """Vectors that depend only on the texts."""
    rows = [texts] if isinstance(texts, str) else texts
    data = [
        {"object": "embedding", "index": index, "embedding": list(_make_vector(text, dimensions))}
        for index, text in enumerate(rows)
    ]
    return {
        "object": "list",
        "data": data,
        "model": "stand-in",
        "usage": {"prompt_tokens": 1, "total_tokens": 1},
    }


def _make_vector(text: str, dimensions: int) -> Iterator[float]:
    for index in range(dimensions):
        digest = hashlib.sha256(f"{index}:{text}".encode()).digest()
        yield int.from_bytes(digest[:4], "big") / 2**31 - 1


def _encode_body(body: Any) -> bytes:
    return (
        body.encode()
        if isinstance(body, str)
        else _encode_json(body or {"error": {"message": "no"}})
    )


def _encode_event(value: Any) -> bytes:
    return b"data: " + _encode_json(value) + b"\n\n"


def _encode_json(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False).encode()


async def _wait_for_disconnect(reader: asyncio.StreamReader) -> None:
    """Wait until the client hangs up: while waiting for a reply, it sends nothing else."""
    await reader.read(1)
