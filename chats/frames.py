"""Events of a run as clients get them: the envelope around data that is JSON already."""

import zlib
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from uuid import UUID

from chats import follow
from chats.runs import RunEvent

GZIP = 16
WINDOW_BITS, MEMORY_LEVEL = 12, 5
"""As for sockets: 32 kB each, and the envelope is hardly sent twice."""


class Framer:
    """Puts the events of one run into the public envelope."""

    def __init__(self, chat_id: UUID, run_id: UUID) -> None:
        self._ids = f'"chat_id": "{chat_id}", "run_id": "{run_id}"'

    def frame(self, event: RunEvent) -> str:
        """As `dumps(envelope(...))` writes it, without a look into the data."""
        return (
            f'{{"v": 1, "type": "{event.type}", {self._ids}, '
            f'"seq": {event.seq}, "data": {event.encoded}}}'
        )


async def server_sent(chat_id: UUID, run_id: UUID, after_seq: int) -> AsyncGenerator[bytes, None]:
    """The events of a run as server-sent events, with a comment where nothing happens."""
    framer = Framer(chat_id, run_id)
    yield b": nura\n\n"
    async for event in follow.follow(run_id, after_seq):
        if event is None:
            yield b": still here\n\n"
            continue
        frame = framer.frame(event)
        yield f"id: {event.seq}\nevent: {event.type}\ndata: {frame}\n\n".encode()


async def squeezed(parts: AsyncGenerator[bytes, None]) -> AsyncIterator[bytes]:
    """The same as gzip; each part can be read as soon as it is there."""
    packer = zlib.compressobj(wbits=GZIP + WINDOW_BITS, memLevel=MEMORY_LEVEL)
    async with aclosing(parts) as whole:
        async for part in whole:
            yield packer.compress(part) + packer.flush(zlib.Z_SYNC_FLUSH)
    yield packer.flush()
