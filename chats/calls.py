"""Calls into the database from asynchronous code.

In a thread, the connection given back at once.
"""

import asyncio
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from django.db import connection

P = ParamSpec("P")
R = TypeVar("R")


async def in_database(function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
    """Run `function` in a thread and return its connection to the pool, whatever happens."""
    return await asyncio.to_thread(lambda: released(function, *args, **kwargs))


def released(function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
    """Call `function` and return this thread's connection to the pool.

    Nothing is held while tokens arrive.
    """
    try:
        return function(*args, **kwargs)
    finally:
        connection.close()
