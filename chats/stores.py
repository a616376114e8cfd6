"""The passage store as an answers worker hands it to the engine."""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TypeVar
from uuid import UUID

from jobs.connections import released
from rag.ports import PassageStore
from rag.types import Excerpt, Hit, Named, Passage

T = TypeVar("T")


class ReleasingStore:
    """A store that gives its connection back after every search.

    Threads of the loop hold none while tokens arrive.
    """

    def __init__(self, store: PassageStore) -> None:
        self._store = store

    def find_similar(self, vector: Sequence[float], limit: int) -> list[Hit]:
        """As `PassageStore.find_similar`."""
        return released(self._store.find_similar, vector, limit)

    def within(self, document_ids: Collection[UUID]) -> "ReleasingStore":
        """As `PassageStore.within`."""
        return ReleasingStore(self._store.within(document_ids))

    def find_named(self, names: Sequence[str]) -> list[Named]:
        """As `PassageStore.find_named`."""
        return released(self._store.find_named, names)

    def read_vectors(self, keys: Sequence[int]) -> dict[int, Sequence[float]]:
        """As `PassageStore.read_vectors`."""
        return released(self._store.read_vectors, keys)

    def find_by_terms(self, terms: Mapping[str, float], limit: int) -> list[Hit]:
        """As `PassageStore.find_by_terms`."""
        return released(self._store.find_by_terms, terms, limit)

    def read_openings(self, limit: int) -> list[Passage]:
        """As `PassageStore.read_openings`."""
        return released(self._store.read_openings, limit)

    def read_all(self, limit: int) -> list[Passage] | None:
        """As `PassageStore.read_all`."""
        return released(self._store.read_all, limit)

    def read_places(self, places: Collection[tuple[UUID, int]]) -> list[Passage]:
        """As `PassageStore.read_places`."""
        return released(self._store.read_places, places)

    def read(self, document_id: UUID, start: int, length: int) -> Excerpt | None:
        """As `PassageStore.read`."""
        return released(self._store.read, document_id, start, length)

    def run_beside(self, work: Callable[[], T]) -> Callable[[], T]:
        """As `PassageStore.run_beside`."""
        return self._store.run_beside(work)
