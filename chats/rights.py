"""Rights that end while a socket is open: all sockets of an event loop are looked at together."""

import asyncio
from collections.abc import Awaitable, Callable
from contextvars import Context
from weakref import WeakKeyDictionary

import structlog
from django.db import Error as DatabaseError

from chats import access
from chats.access import Scope
from chats.calls import in_database

logger = structlog.get_logger()

RECHECK_SECONDS = 4.0
"""Rights that end are noticed within that time on open sockets."""


class Watcher:
    """Looks now and then whether everybody may still be here."""

    def __init__(self) -> None:
        self.sockets: dict[Callable[[], Awaitable[None]], Scope] = {}
        """What to call when the rights of a scope have ended."""
        # A context of its own: it serves all sockets, not only the one that came first.
        self._task = asyncio.create_task(self._run(), context=Context())

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(RECHECK_SECONDS)
            sockets = dict(self.sockets)
            if not sockets:
                continue
            try:
                users = await in_database(access.users_of, [*sockets.values()])
            except DatabaseError as error:  # nobody is sent away for that
                logger.warning("rights_unknown", error=str(error)[:200])
                continue
            ended = [end for end, user in zip(sockets, users, strict=True) if user is None]
            # A reader that takes nothing may take no close either: it is tried again.
            closing = [asyncio.wait_for(end(), RECHECK_SECONDS) for end in ended]
            await asyncio.gather(*closing, return_exceptions=True)


_watchers: WeakKeyDictionary[asyncio.AbstractEventLoop, Watcher] = WeakKeyDictionary()


def watch(scope: Scope, ended: Callable[[], Awaitable[None]]) -> None:
    """Call `ended` when the scope has no active user any more."""
    loop = asyncio.get_running_loop()
    if loop not in _watchers:
        _watchers[loop] = Watcher()
    _watchers[loop].sockets[ended] = scope


def forget(ended: Callable[[], Awaitable[None]]) -> None:
    """Watch no longer."""
    if watcher := _watchers.get(asyncio.get_running_loop()):
        watcher.sockets.pop(ended, None)
