"""The part of a conversation that goes into every prompt."""

from collections.abc import Sequence

from rag.types import HistoryMessage, Role


def window(
    messages: Sequence[HistoryMessage], *, pairs: int, characters: int
) -> tuple[HistoryMessage, ...]:
    """The last `pairs` pairs, oldest first, each message cut at `characters`.

    A pair begins with the user.
    """
    if pairs <= 0:
        return ()
    spoken = [message for message in messages if message.role is not Role.SYSTEM]
    starts = [index for index, message in enumerate(spoken) if message.role is Role.USER]
    first = starts[-pairs] if len(starts) >= pairs else 0
    return tuple(
        HistoryMessage(message.role, message.content[:characters]) for message in spoken[first:]
    )
