"""The documents that one store may search, and what was found out about them."""

from collections.abc import Collection
from dataclasses import dataclass
from functools import cached_property
from uuid import UUID


@dataclass(frozen=True, slots=True)
class Space:
    """The embedding space that is searched."""

    pk: int
    dimensions: int


@dataclass(frozen=True, slots=True)
class Facts:
    """Chunks in the scope, exactly, and everywhere, by an estimate; the active space.

    They are asked once a store, which lives as long as one question.
    """

    chunks: int
    everywhere: int
    space: Space | None


class Scope:
    """Ids that passed `visible_to(user)`, in order, each once."""

    def __init__(self, document_ids: Collection[UUID]) -> None:
        self.documents = list(dict.fromkeys(document_ids))
        self.facts: Facts | None = None

    @cached_property
    def literal(self) -> str:
        """The ids as Postgres reads an array."""
        return literal(self.documents)


def literal(ids: Collection[UUID]) -> str:
    """The text form of an array of UUIDs."""
    return "{" + ",".join(map(str, ids)) + "}"
