"""The `openai` client as it comes against our own reading of replies: cost and behaviour.

Cost is processor time of the reading process alone, for a chunk and for a short call; the server
speaks at the pace of a model, since a fast one would put many chunks into one packet. Behaviour is
what a user feels where a server fails: how long it takes, how often the server is asked, and how it
ends.
"""

import asyncio
import multiprocessing
import statistics
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, suppress
from multiprocessing.sharedctypes import Synchronized
from typing import Any

from benchmarks import report
from rag.adapters.endpoint import reset_breakers
from rag.adapters.openai import OpenAILLM
from rag.adapters.stream import ReplyReader
from rag.config import Endpoint
from rag.errors import LLMError
from rag.ports import GenerationOptions
from rag.types import HistoryMessage, Speaker
from tests.servers.llm import (
    Behaviour,
    BreakOff,
    Failure,
    Hang,
    LLMServer,
    Raw,
    Stream,
    encode_chunk,
)
from tests.servers.wire import Responder, read_request

STREAMS = 100
MANY = 500
"""Streams at once that the adapter is to bear; the other ways of reading would fall behind."""
TOKENS_PER_SECOND = 30
TOKENS = report.choose_size(60, quick=10)
ROUNDS = report.choose_size(3, quick=1)
WORD = "숙박비 "
OPTIONS = GenerationOptions(max_tokens=1000)
TURNS = (HistoryMessage(Speaker.USER, "안녕"),)

CALLS, CALL_ROUNDS = report.choose_size((40, 7), quick=(5, 1))
"""Short calls one after the other, by turns with the other way."""
WAIT_SECONDS = 1.0
"""For a first word, where a server is silent."""
GIVE_UP_SECONDS = 20.0
QUOTA = {"error": {"code": "insufficient_quota", "message": "You exceeded your current quota"}}
IN_STREAM = Raw(encode_chunk("안녕") + b'data: {"error": {"message": "overloaded"}}\n\n')
BEHAVIOURS: dict[str, tuple[Behaviour, ...]] = {
    "503, then an answer": (Failure(503), Stream()),
    "429, Retry-After 1 s": (Failure(429, headers={"Retry-After": "1"}), Stream()),
    "429, Retry-After 1 h": (Failure(429, headers={"Retry-After": "3600"}),) * 9,
    "429, quota used up": (Failure(429, QUOTA),) * 9,
    "silent": (Hang(),) * 9,
    "cut off": (BreakOff(),) * 9,
    "an error within the stream": (IN_STREAM,) * 9,
}
"""What the server does, request by request."""

Read = Callable[[], Awaitable[int]]


def main() -> None:
    port = multiprocessing.Value("i", 0)
    server = multiprocessing.Process(target=_serve, args=(port,), daemon=True)
    server.start()
    try:
        while not port.value:
            server.join(0.05)
        found = asyncio.run(_measured(f"http://127.0.0.1:{port.value}/v1"))
    finally:
        server.kill()
    found["own reading, no connection"] = _reading_alone()
    with LLMServer() as scripted:
        calls, ends = asyncio.run(_called(scripted))
    circumstances = {"streams": STREAMS, "tokens_per_second": TOKENS_PER_SECOND, "rounds": ROUNDS}
    figures = {"cpu_us_a_chunk": found, "cpu_ms_a_call": calls, "behaviour": ends}
    report.write("llm_parsing", {**circumstances, **figures})
    title = f"Processor time for a chunk of {STREAMS} streams (median of {ROUNDS})"
    report.table(title, ("way of reading", "us"), list(found.items()))
    report.table(
        f"Processor time for a call of one word ({CALL_ROUNDS} x {CALLS})",
        ("way", "ms"),
        [*calls.items()],
    )
    rows = [(what, who, *one.values()) for what, both in ends.items() for who, one in both.items()]
    report.table("Where a server fails", ("what it does", "who", "s", "requests", "end"), rows)


async def _measured(url: str) -> dict[str, float]:
    found = {}
    async with AsyncExitStack() as clients:
        for name, read in _ways(url, clients).items():
            await read()
            found[name] = await _cost(read, STREAMS)
    found[f"the adapter, {MANY} streams"] = await _cost(_adapter(Endpoint(url, "m")), MANY)
    return found


async def _cost(read: Read, streams: int) -> float:
    """Median of the rounds."""
    costs = []
    for _ in range(ROUNDS):
        begun = time.process_time()
        chunks = sum(await asyncio.gather(*(read() for _ in range(streams))))
        costs.append((time.process_time() - begun) / chunks * 1e6)
    return round(statistics.median(costs), 1)


def _ways(url: str, clients: AsyncExitStack) -> dict[str, Read]:
    """From the client as it comes to the adapter as it is."""
    import openai

    plain, quick = openai.DefaultAsyncHttpxClient, openai.DefaultAioHttpClient
    httpx, aiohttp = (_client(url, transport, clients) for transport in (plain, quick))
    return {
        "openai objects, httpx": _objects(httpx),
        "openai objects, aiohttp": _objects(aiohttp),
        "own reading, httpx": _bytes(httpx),
        "own reading, aiohttp": _bytes(aiohttp),
        "the adapter": _adapter(Endpoint(url, "m")),
    }


def _objects(client: Any) -> Read:
    async def read() -> int:
        stream = await _stream(client)
        texts = [choice.delta.content async for chunk in stream for choice in chunk.choices]
        return sum(bool(text) for text in texts)

    return read


def _bytes(client: Any) -> Read:
    async def read() -> int:
        stream = await _stream(client)
        reply = ReplyReader(Endpoint("", ""), OPTIONS, time.monotonic() + 600)
        said = 0
        async for part in stream.response.aiter_bytes():
            said += sum(len(piece.text) for piece in reply.parse_part(part))
        await stream.response.aclose()
        return said // len(WORD)

    return read


def _adapter(endpoint: Endpoint) -> Read:
    model = OpenAILLM(endpoint)

    async def read() -> int:
        pieces = [piece.text async for piece in model.stream(TURNS, OPTIONS)]
        return len("".join(pieces)) // len(WORD)

    return read


def _client(
    url: str,
    transport: Any,
    clients: AsyncExitStack,
    *,
    retries: int = 0,
    seconds: float | None = None,
) -> Any:
    import openai

    client = openai.AsyncOpenAI(
        base_url=url,
        api_key="none",
        max_retries=retries,
        timeout=seconds,
        http_client=transport(timeout=seconds),
    )
    clients.push_async_callback(client.close)
    return client


async def _stream(client: Any) -> Any:
    messages = [{"role": "user", "content": "안녕"}]
    return await client.chat.completions.create(model="m", messages=messages, stream=True)


async def _called(server: LLMServer) -> tuple[dict[str, float], dict[str, dict[str, Any]]]:
    """What a short call costs, and how calls end where a server fails, for each way."""
    found: dict[str, float] = {}
    ends: dict[str, dict[str, Any]] = {name: {} for name in (*BEHAVIOURS, "stopped")}
    async with AsyncExitStack() as clients:
        client = _client(server.url, _aiohttp(), clients, retries=2, seconds=WAIT_SECONDS)
        endpoint = Endpoint(server.url, "m", first_token_timeout=WAIT_SECONDS)
        ways = {"openai objects": _objects(client), "adapter": _adapter(endpoint)}
        costs: dict[str, list[float]] = {name: [] for name in ways}
        for _ in range(CALL_ROUNDS + 1):
            for name, read in ways.items():
                costs[name].append(await _cost_of_calls(read))
        for name, read in ways.items():
            found[name] = round(statistics.median(costs[name][1:]), 2)  # the first one loads
            for what, script in BEHAVIOURS.items():
                reset_breakers()
                server.reset()
                server.script(*script)
                ends[what][name] = await _end(server, read)
            server.reset()
            server.script(Hang(after=[WORD]))
            ends["stopped"][name] = await _stop(server, read)
    return found, ends


async def _cost_of_calls(read: Read) -> float:
    """Milliseconds a call."""
    begun = time.thread_time()  # the server runs in another thread of this process
    for _ in range(CALLS):
        await read()
    return (time.thread_time() - begun) / CALLS * 1000


async def _end(server: LLMServer, read: Read) -> dict[str, Any]:
    """Seconds, requests, and how it ended."""
    begun, end = time.perf_counter(), "answered"
    try:
        async with asyncio.timeout(GIVE_UP_SECONDS):
            await read()
    except TimeoutError:
        end = "given up"
    except LLMError as error:
        end = error.code
    except Exception as error:  # noqa: BLE001 - whatever the client raises
        end = type(error).__name__
    seconds = round(time.perf_counter() - begun, 1)
    return {"seconds": seconds, "requests": len(server.chats), "end": end}


async def _stop(server: LLMServer, read: Read) -> dict[str, Any]:
    """Seconds from a user's stop to the end of the request at the server."""
    reading = asyncio.ensure_future(read())
    while not server.chats:
        await asyncio.sleep(0.01)
    await asyncio.sleep(0.2)
    begun = time.perf_counter()
    reading.cancel()
    closed = await asyncio.to_thread(server.chats[0].wait_closed_by_client)
    seconds = round(time.perf_counter() - begun, 3)
    return {"seconds": seconds, "requests": 1, "end": "closed" if closed else "left open"}


def _aiohttp() -> Any:
    import openai

    return openai.DefaultAioHttpClient


def _reading_alone() -> float:
    """Microseconds for a chunk in packets of one chunk each, without sockets and loop."""
    packet, rounds = encode_chunk(WORD), 20_000
    reply = ReplyReader(
        Endpoint("", ""), GenerationOptions(max_tokens=rounds), time.monotonic() + 600
    )
    begun = time.process_time()
    for _ in range(rounds):
        for _piece in reply.parse_part(packet):
            pass
    return round((time.process_time() - begun) / rounds * 1e6, 1)


def _serve(port: "Synchronized[int]") -> None:
    async def serve() -> None:
        server = await asyncio.start_server(_speak, "127.0.0.1", 0, backlog=1024)
        port.value = server.sockets[0].getsockname()[1]
        await server.serve_forever()

    with suppress(KeyboardInterrupt):
        asyncio.run(serve())


async def _speak(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    loop = asyncio.get_running_loop()
    end = encode_chunk("", "stop") + b"data: [DONE]\n\n"
    with suppress(ConnectionError):
        while await read_request(reader):
            out = Responder(writer)
            out.send_head(200, {"Content-Type": "text/event-stream"}, length=None)
            begun = loop.time()
            for number in range(TOKENS):
                await asyncio.sleep(begun + number / TOKENS_PER_SECOND - loop.time())
                await out.send(encode_chunk(WORD))
            await out.send(end)
            await out.finish()
    writer.close()


if __name__ == "__main__":
    main()
