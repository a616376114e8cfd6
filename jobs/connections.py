"""Connections: to Redis, and to the database for as long as a call takes.

To Redis there is one pool a process for threads and one an event loop for coroutines. A connection
to the database is given back at once: nothing is held while tokens arrive.
"""

import asyncio
import functools
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar
from weakref import WeakKeyDictionary

import redis
import redis.asyncio
from django.conf import settings
from django.db import connection

_by_loop: WeakKeyDictionary[asyncio.AbstractEventLoop, Any] = WeakKeyDictionary()


@functools.cache
def sync() -> Any:
    """The client for threads; gives up after 5 s, since nobody blocks on it by intent."""
    return redis.Redis.from_url(
        settings.REDIS_URL, decode_responses=True, socket_timeout=5.0, socket_connect_timeout=2.0
    )


def asynchronous() -> Any:
    """The client of the running loop. No socket time-out: readers block for seconds by intent."""
    loop = asyncio.get_running_loop()
    client = _by_loop.get(loop)
    if client is None:
        client = redis.asyncio.Redis.from_url(
            settings.REDIS_URL,
            decode_responses=True,
            socket_timeout=None,
            socket_connect_timeout=2.0,
            max_connections=10_000,
        )
        _by_loop[loop] = client
    return client


P = ParamSpec("P")
R = TypeVar("R")


async def in_database(function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
    """Run `function` in a thread and return its connection to the pool, whatever happens."""
    return await asyncio.to_thread(lambda: released(function, *args, **kwargs))


def released(function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
    """Call `function` and return this thread's connection to the pool."""
    try:
        return function(*args, **kwargs)
    finally:
        connection.close()
