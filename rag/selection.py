"""Which documents a question may read: explicit before the chat's before everything."""

from collections.abc import Sequence
from uuid import UUID

from rag.types import Scope, ScopeReason


def select(
    explicit: Sequence[UUID] | None,
    chat: Sequence[UUID],
    everything: Sequence[UUID],
    *,
    chat_named: bool | None = None,
) -> Scope:
    """The scope by priority. Sequences hold ids that the user may read and that are ready.

    `explicit` is None when the question named none. A list that was named and turns out empty (all
    deleted, failed or not ready) finds nothing and never widens; `chat_named` says that the chat
    has documents even if none is left.
    """
    if explicit is not None:
        return _scope(explicit, ScopeReason.EXPLICIT)
    if chat or chat_named:
        return _scope(chat, ScopeReason.CHAT)
    return _scope(everything, ScopeReason.ALL)


def _scope(ids: Sequence[UUID], reason: ScopeReason) -> Scope:
    return Scope(tuple(dict.fromkeys(ids)), reason)
