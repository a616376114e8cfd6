"""A Redis server that vanishes: `python -m tests.servers.vanishing`, in a network of its own.

Connections are not closed: packets no longer arrive, as when a machine loses its power. Meanwhile
one task waits for entries and another one writes; the error of each is printed with its seconds.
"""

import asyncio
import subprocess
import tempfile
import time
from collections.abc import Awaitable
from pathlib import Path

import django
from django.conf import settings
from redis.exceptions import RedisError

from jobs import connections
from tests.servers.redis import RedisServer


def main() -> None:
    """Start the server, cut the connection, and print how the tasks end."""
    django.setup()
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    server = RedisServer(Path(tempfile.mkdtemp(prefix="nura-redis-")))
    settings.REDIS_URL = server.url
    try:
        asyncio.run(_cut_connection())
    finally:
        server.kill()


async def _cut_connection() -> None:
    client = connections.get_async_client()
    waiting = asyncio.create_task(_print_outcome("waits", client.xread({"entries": "0"}, block=0)))
    await client.ping()  # by a second connection, which the writer uses
    down = ["ip", "link", "set", "lo", "down"]
    await asyncio.to_thread(subprocess.run, down, check=True)
    await asyncio.gather(waiting, _print_outcome("writes", client.set("key", "value")))


async def _print_outcome(name: str, work: Awaitable[object]) -> None:
    begun = time.monotonic()
    try:
        await work
    except (RedisError, OSError) as error:
        print(name, round(time.monotonic() - begun), type(error).__name__)


if __name__ == "__main__":
    main()
