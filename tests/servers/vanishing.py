"""A Redis on a machine that vanishes: `python -m tests.servers.vanishing`, in a network of its own.

Nobody hangs up: packets just do not arrive any more, as when a machine loses its power. One task
waits for entries then, another one writes; what ends each of them is printed with its seconds.
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
    """Start it, lose it, and tell."""
    django.setup()
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    server = RedisServer(Path(tempfile.mkdtemp(prefix="nura-redis-")))
    settings.REDIS_URL = server.url
    try:
        asyncio.run(_lose())
    finally:
        server.kill()


async def _lose() -> None:
    client = connections.get_async_client()
    waiting = asyncio.create_task(_time("waits", client.xread({"entries": "0"}, block=0)))
    await client.ping()  # by a second connection, which the writer uses
    down = ["ip", "link", "set", "lo", "down"]
    await asyncio.to_thread(subprocess.run, down, check=True)
    await asyncio.gather(waiting, _time("writes", client.set("key", "value")))


async def _time(name: str, work: Awaitable[object]) -> None:
    begun = time.monotonic()
    try:
        await work
    except (RedisError, OSError) as error:
        print(name, round(time.monotonic() - begun), type(error).__name__)


if __name__ == "__main__":
    main()
