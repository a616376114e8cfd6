"""Rights that end while something is open: a socket, server-sent events, a stream of the gateway.

All that is open on an event loop is looked at together.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from contextvars import Context
from typing import TypeVar
from weakref import WeakKeyDictionary

import structlog
from django.db import Error as DatabaseError

from chats import access
from chats.access import Credential
from chats.calls import in_database

logger = structlog.get_logger()

RECHECK_SECONDS = 3.0
"""Rights are looked up so often, and ..."""
CLOSE_SECONDS = 0.5
"""... that long may what ends by it keep the others waiting: together less than five seconds."""

Part = TypeVar("Part")
Ended = Callable[[], Awaitable[None]]


class Watcher:
    """Looks now and then whether everybody may still be here."""

    def __init__(self) -> None:
        self.credentials: dict[Ended, Credential] = {}
        """What to call when a credential holds no longer."""
        # A context of its own: it serves all that is open, not only what came first.
        self._task = asyncio.create_task(self._run(), context=Context())

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(RECHECK_SECONDS)
            credentials = dict(self.credentials)
            if not credentials:
                continue
            try:
                users = await in_database(access.users_of, [*credentials.values()])
            except DatabaseError as error:  # nobody is sent away for that
                logger.warning("rights_unknown", error=str(error)[:200])
                continue
            except Exception:  # one credential must not end the looking at all others
                logger.exception("rights_unknown")
                continue
            ended = [end for end, user in zip(credentials, users, strict=True) if user is None]
            # A reader that takes nothing may take no close either: it is tried again.
            closing = [asyncio.wait_for(end(), CLOSE_SECONDS) for end in ended]
            await asyncio.gather(*closing, return_exceptions=True)


_watchers: WeakKeyDictionary[asyncio.AbstractEventLoop, Watcher] = WeakKeyDictionary()


def watch(credential: Credential, ended: Ended) -> None:
    """Call `ended` when the credential has no active user any more."""
    loop = asyncio.get_running_loop()
    if loop not in _watchers:
        _watchers[loop] = Watcher()
    _watchers[loop].credentials[ended] = credential


def forget(ended: Ended) -> None:
    """Watch no longer."""
    if watcher := _watchers.get(asyncio.get_running_loop()):
        watcher.credentials.pop(ended, None)


async def while_held(
    credential: Credential,
    parts: AsyncGenerator[Part, None],
    then: Callable[[], None] = lambda: None,
) -> AsyncGenerator[Part, None]:
    """The parts of a stream while the credential holds; `then` is called when it no longer does.

    That comes even while the reader takes nothing, so that nothing more is made for him.
    """
    gone = asyncio.Event()
    waiting: asyncio.Timeout | None = None

    async def end() -> None:
        gone.set()
        forget(end)
        then()
        if waiting is not None:
            waiting.reschedule(0)

    watch(credential, end)
    try:
        async with aclosing(parts):
            while not gone.is_set():
                try:
                    async with asyncio.timeout(None) as waiting:  # `end` sets the time
                        part = await anext(parts)
                except StopAsyncIteration:
                    return
                waiting = None
                yield part
    except TimeoutError:
        if not gone.is_set():
            raise
    finally:
        forget(end)
