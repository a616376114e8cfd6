"""What reading one chunk of a model's stream costs: the client's objects, and our own reading.

The server speaks at the pace of a model, since a fast one would put many chunks into one packet.
Figures are processor time of the reading process alone.
"""

import asyncio
import multiprocessing
import statistics
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, suppress
from multiprocessing.sharedctypes import Synchronized
from typing import Any

from benchmarks import report
from rag.adapters.openai import OpenAILLM
from rag.adapters.stream import ReplyReader
from rag.config import Endpoint
from rag.ports import GenerationOptions
from rag.types import HistoryMessage, Speaker
from tests.servers.llm import event
from tests.servers.wire import Responder, read_request

STREAMS = 100
MANY = 500
"""Streams at once that the adapter is to bear; the other ways of reading would fall behind."""
TOKENS_PER_SECOND = 30
TOKENS = 60
ROUNDS = 3
WORD = "숙박비 "
OPTIONS = GenerationOptions(max_tokens=1000)
TURNS = (HistoryMessage(Speaker.USER, "안녕"),)

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
    circumstances = {"streams": STREAMS, "tokens_per_second": TOKENS_PER_SECOND, "rounds": ROUNDS}
    report.write("llm_parsing", {**circumstances, "cpu_us_a_chunk": found})
    title = f"Processor time for a chunk of {STREAMS} streams (median of {ROUNDS})"
    report.table(title, ("way of reading", "us"), list(found.items()))


async def _measured(url: str) -> dict[str, float]:
    found = {}
    async with AsyncExitStack() as clients:
        for name, read in _ways(url, clients).items():
            await read()
            found[name] = await _cost(read, STREAMS)
    found[f"the adapter, {MANY} streams"] = await _cost(_adapter(url), MANY)
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
        "the adapter": _adapter(url),
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
        body: AsyncIterator[bytes] = stream.response.aiter_bytes()
        said = 0
        while (part := await reply.next_part(body)) is not None:
            said += sum(len(piece.text) for piece in reply.take(part))
        await stream.response.aclose()
        return said // len(WORD)

    return read


def _adapter(url: str) -> Read:
    model = OpenAILLM(Endpoint(url, "m"))

    async def read() -> int:
        pieces = [piece.text async for piece in model.stream(TURNS, OPTIONS)]
        return len("".join(pieces)) // len(WORD)

    return read


def _client(url: str, transport: Any, clients: AsyncExitStack) -> Any:
    import openai

    client = openai.AsyncOpenAI(
        base_url=url, api_key="none", max_retries=0, http_client=transport(timeout=None)
    )
    clients.push_async_callback(client.close)
    return client


async def _stream(client: Any) -> Any:
    messages = [{"role": "user", "content": "안녕"}]
    return await client.chat.completions.create(model="m", messages=messages, stream=True)


def _reading_alone() -> float:
    """Microseconds for a chunk in packets of one chunk each, without sockets and loop."""
    packet, rounds = event(WORD), 20_000
    reply = ReplyReader(
        Endpoint("", ""), GenerationOptions(max_tokens=rounds), time.monotonic() + 600
    )
    begun = time.process_time()
    for _ in range(rounds):
        for _piece in reply.take(packet):
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
    end = event("", "stop") + b"data: [DONE]\n\n"
    with suppress(ConnectionError):
        while await read_request(reader):
            out = Responder(writer)
            out.head(200, {"Content-Type": "text/event-stream"}, length=None)
            begun = loop.time()
            for number in range(TOKENS):
                await asyncio.sleep(begun + number / TOKENS_PER_SECOND - loop.time())
                await out.send(event(WORD))
            await out.send(end)
            await out.end()
    writer.close()


if __name__ == "__main__":
    main()
