"""The `openai` clients of endpoints: connection, authentication, requests and errors."""

import asyncio
import threading
from typing import Any

from rag.config import Endpoint

_clients: dict[tuple[asyncio.AbstractEventLoop, Endpoint], tuple[Any, asyncio.Task[None]]] = {}
_lock = threading.Lock()


def warm() -> None:
    """Load the library now, which takes a second or two: no first question should wait for it."""
    import openai  # noqa: F401


def of(endpoint: Endpoint) -> Any:
    """The endpoint's client for the running loop: its connections belong to the loop.

    They end with the loop. The transport is aiohttp: a chunk takes little more than half of the
    processor time that it takes with the default one (`benchmarks/llm_parsing.py`).
    """
    loop = asyncio.get_running_loop()
    with _lock:
        if (loop, endpoint) not in _clients:
            client = _connect(endpoint)
            _clients[loop, endpoint] = client, loop.create_task(_keep(loop, endpoint, client))
        return _clients[loop, endpoint][0]


async def _keep(loop: asyncio.AbstractEventLoop, endpoint: Endpoint, client: Any) -> None:
    """Whoever ends a loop cancels its tasks first; then the sockets must go, too."""
    try:
        await asyncio.Event().wait()
    finally:
        with _lock:
            del _clients[loop, endpoint]
        await client.close()


def _connect(endpoint: Endpoint) -> Any:
    import openai

    limit = endpoint.connect_timeout  # for the name, the connection and a free place
    timeout = openai.Timeout(None, connect=limit, pool=limit)
    return openai.AsyncOpenAI(
        base_url=endpoint.base_url,
        api_key=endpoint.api_key or "none",
        max_retries=0,
        timeout=timeout,
        http_client=openai.DefaultAioHttpClient(follow_redirects=False, timeout=timeout),
    )
