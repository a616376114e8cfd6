"""Connections to Redis: one pool a process for threads, one an event loop for coroutines."""

import asyncio
import functools
from typing import Any
from weakref import WeakKeyDictionary

import redis
import redis.asyncio
from django.conf import settings

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
