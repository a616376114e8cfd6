"""The documents that one store may search, and how much there is to search."""

from collections.abc import Collection
from dataclasses import dataclass
from functools import cached_property
from uuid import UUID

from documents.searching.database import Cursor, fetch, uuids

SIZES = """
    SELECT coalesce(sum(chunk_count), 0)::int8,
           (SELECT greatest(reltuples, 0)::int8 FROM pg_class
             WHERE oid = 'documents_chunk'::regclass)
      FROM documents_document WHERE id = ANY(%s::uuid[])
"""


@dataclass(frozen=True, slots=True)
class Sizes:
    """Chunks in the scope, exactly, and in the whole library, as Postgres estimates them."""

    scope: int
    library: int


class Scope:
    """Ids that passed `visible_to(user)`, in order, each once."""

    def __init__(self, document_ids: Collection[UUID]) -> None:
        self.documents = list(dict.fromkeys(document_ids))

    @cached_property
    def literal(self) -> str:
        """The ids as Postgres reads an array."""
        return uuids(self.documents)

    def sizes(self, cursor: Cursor) -> Sizes:
        """What decides between a walk through the scope and an index."""
        ((scope, library),) = fetch(cursor, SIZES, (self.literal,))
        return Sizes(scope, max(scope, library))
