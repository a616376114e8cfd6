"""The passage store as an answers worker hands it to the engine."""

from collections.abc import Collection, Mapping, Sequence
from uuid import UUID

from chats.calls import released
from rag.ports import PassageStore
from rag.types import Excerpt, Hit, Named, Passage


class ReleasingStore:
    """A store that gives its connection back after every search.

    Threads of the loop hold none while tokens arrive.
    """

    def __init__(self, store: PassageStore) -> None:
        self._store = store

    def similar(self, vector: Sequence[float], limit: int) -> list[Hit]:
        """As `PassageStore.similar`."""
        return released(self._store.similar, vector, limit)

    def within(self, document_ids: Collection[UUID]) -> "ReleasingStore":
        """As `PassageStore.within`."""
        return ReleasingStore(self._store.within(document_ids))

    def named(self, names: Sequence[str]) -> list[Named]:
        """As `PassageStore.named`."""
        return released(self._store.named, names)

    def vectors(self, keys: Sequence[int]) -> dict[int, Sequence[float]]:
        """As `PassageStore.vectors`."""
        return released(self._store.vectors, keys)

    def bm25(self, terms: Mapping[str, float], limit: int) -> list[Hit]:
        """As `PassageStore.bm25`."""
        return released(self._store.bm25, terms, limit)

    def opening(self, limit: int) -> list[Passage]:
        """As `PassageStore.opening`."""
        return released(self._store.opening, limit)

    def read_all(self, limit: int) -> list[Passage] | None:
        """As `PassageStore.read_all`."""
        return released(self._store.read_all, limit)

    def at(self, places: Collection[tuple[UUID, int]]) -> list[Passage]:
        """As `PassageStore.at`."""
        return released(self._store.at, places)

    def read(self, document_id: UUID, start: int, length: int) -> Excerpt | None:
        """As `PassageStore.read`."""
        return released(self._store.read, document_id, start, length)
