"""The `openai` clients of an endpoint: connection, authentication, requests and errors."""

import asyncio
import threading
from typing import Any

from rag.config import Endpoint


class Clients:
    """One client per event loop: its connections belong to the loop that opened them.

    They end with the loop. The transport is aiohttp: it takes less than half of the processor time
    for a chunk that the default one takes (`benchmarks/llm_parsing.py`).
    """

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self._lock = threading.Lock()
        self._clients: dict[asyncio.AbstractEventLoop, tuple[Any, asyncio.Task[None]]] = {}

    def get(self) -> Any:
        """The client of the running loop."""
        loop = asyncio.get_running_loop()
        with self._lock:
            if loop not in self._clients:
                client = self._connect()
                self._clients[loop] = client, loop.create_task(self._keep(loop, client))
            return self._clients[loop][0]

    async def _keep(self, loop: asyncio.AbstractEventLoop, client: Any) -> None:
        """Whoever ends a loop cancels its tasks first; then the sockets must go, too."""
        try:
            await asyncio.Event().wait()
        finally:
            with self._lock:
                self._clients.pop(loop, None)
            await client.close()

    def _connect(self) -> Any:
        import openai

        limit = self._endpoint.connect_timeout  # for the name, the connection and a free place
        timeout = openai.Timeout(None, connect=limit, pool=limit)
        return openai.AsyncOpenAI(
            base_url=self._endpoint.base_url,
            api_key=self._endpoint.api_key or "none",
            max_retries=0,
            timeout=timeout,
            http_client=openai.DefaultAioHttpClient(follow_redirects=False, timeout=timeout),
        )
