"""Signs of life of runs: an event loop renews the leases of all runs that it works on at once."""

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import Context
from functools import partial
from itertools import count
from weakref import WeakKeyDictionary

import structlog
from django.db import Error as DatabaseError

from chats.calls import released
from chats.errors import RunLost
from chats.runs.writer import RunWriter
from chats.services import leases
from chats.services.leases import Claim

logger = structlog.get_logger()

TURNS_A_TEXT = 3
"""The text so far is stored with one sign of life in so many."""


class Held:
    """One run that we hold."""

    def __init__(self, claim: Claim, writer: RunWriter, turn: int) -> None:
        self.claim = claim
        self.lost: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Raises `RunLost` when somebody else has the run."""
        self._writer = writer
        self._turn = turn
        self._kept = ""

    def unsaved(self, turn: int) -> str | None:
        """The text so far, in its turn and where it grew."""
        if (turn - self._turn) % TURNS_A_TEXT or self._writer.text == self._kept:
            return None
        self._kept = self._writer.text
        return self._kept


class Keeper:
    """Renews leases until nobody holds a run here any more."""

    def __init__(self) -> None:
        self.held: dict[Claim, Held] = {}
        self.turns = count()
        # A thread of its own: leases end where they wait for everything else that is to be done.
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="leases")
        # A context of its own: it serves all runs, not only the one that came first.
        self._task = asyncio.create_task(self._run(), context=Context())

    async def _run(self) -> None:
        try:
            while True:
                await asyncio.sleep(leases.HEARTBEAT_SECONDS)
                if self.held:
                    await self._renew(list(self.held.values()), next(self.turns))
        finally:
            await asyncio.to_thread(self._thread.shutdown)

    async def _renew(self, held: list[Held], turn: int) -> None:
        """A database that is away is waited for."""
        texts = {one.claim: one.unsaved(turn) for one in held}
        try:
            ours = await asyncio.get_running_loop().run_in_executor(
                self._thread, partial(released, leases.renew, texts=texts)
            )
        except DatabaseError as error:
            logger.warning("leases_not_renewed", runs=len(held), error=str(error)[:200])
            return
        for one in held:
            if one.claim not in ours and not one.lost.done():
                one.lost.set_exception(RunLost())


_keepers: WeakKeyDictionary[asyncio.AbstractEventLoop, Keeper] = WeakKeyDictionary()


@contextmanager
def held(claim: Claim, writer: RunWriter) -> Iterator[asyncio.Future[None]]:
    """Keep the lease of a run; a future that raises `RunLost` when somebody else has it."""
    loop = asyncio.get_running_loop()
    keeper = _keepers.get(loop)
    if keeper is None:
        keeper = _keepers[loop] = Keeper()
    one = keeper.held[claim] = Held(claim, writer, len(keeper.held))
    try:
        yield one.lost
    finally:
        del keeper.held[claim]
        if not one.lost.cancel():
            one.lost.exception()  # seen, also where it came too late to matter
