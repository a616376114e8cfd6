"""The connection of a search: a short transaction with a time limit, and values in binary."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, LiteralString

import numpy as np
import psycopg
from django.db import Error, connection, transaction
from numpy.typing import NDArray

from documents.searching.scope import Facts, Scope, Space
from rag.errors import RetrievalFailed

STATEMENT_TIMEOUT = "10s"
LIMITS = """
    SELECT set_config('statement_timeout', %(timeout)s, true),
           set_config('jit', 'off', true),  -- compiling costs more than these queries
           set_config('enable_seqscan', 'off', true)  -- such plans forget what wide values cost
"""

FACTS = """
    SELECT (SELECT coalesce(sum(document.chunk_count), 0)::int8
              FROM documents_document document
              JOIN unnest(%(documents)s::uuid[]) AS wanted(id) ON wanted.id = document.id),
           (SELECT reltuples::int8 FROM pg_class WHERE oid = 'documents_chunk'::regclass),
           space.id, space.dimensions
      FROM (VALUES (1)) AS always LEFT JOIN documents_embeddingspace space ON space.active
"""
_ARRAY_HEADER = 20
"""Bytes before the first element of an array of one dimension; an empty one has fewer."""


Cursor = psycopg.Cursor[tuple[Any, ...]]


@dataclass(frozen=True, slots=True)
class Search:
    """An open transaction over a scope, and how much there is to search."""

    cursor: Cursor
    scope: Scope
    facts: Facts

    def rows(self, statement: str, **parameters: Any) -> list[tuple[Any, ...]]:
        """All rows of a statement; the scope's ids are its parameter `documents`."""
        return _rows(self.cursor, statement, {"documents": self.scope.literal, **parameters})

    def settle(self, statement: LiteralString, **parameters: Any) -> None:
        """Make a setting for the rest of the transaction, without waiting for it."""
        _settle(self.cursor.connection, statement, **parameters)


@contextmanager
def search(scope: Scope) -> Iterator[Search]:
    """A short transaction with a time limit. Raises `RetrievalFailed`.

    It speaks through the driver's own cursor, whose values travel in binary beside the statement,
    and in a pipeline, so that what opens the transaction does not wait for its answer.
    """
    try:
        with transaction.atomic(), connection.wrap_database_errors:
            connection.ensure_connection()
            with connection.connection.pipeline(), psycopg.Cursor(connection.connection) as cursor:
                _settle(cursor.connection, LIMITS, timeout=STATEMENT_TIMEOUT)
                facts = scope.facts = scope.facts or _facts(cursor, scope)
                yield Search(cursor, scope, facts)
    except Error as error:
        if not connection.in_atomic_block:
            connection.close_if_unusable_or_obsolete()
        raise RetrievalFailed(str(error)) from error


def _settle(opened: psycopg.Connection[Any], statement: LiteralString, **parameters: Any) -> None:
    """Not by the cursor of the search.

    In a pipeline the answer may come when the next statement was sent; it would pass for its rows.
    """
    psycopg.Cursor(opened).execute(statement, parameters)


def _facts(cursor: Cursor, scope: Scope) -> Facts:
    found = _rows(cursor, FACTS, {"documents": scope.literal})
    ((chunks, everywhere, space, dimensions),) = found
    return Facts(chunks, max(everywhere, chunks), space and Space(space, dimensions))


def _rows(cursor: Cursor, statement: str, parameters: Mapping[str, Any]) -> list[tuple[Any, ...]]:
    cursor.execute(statement, parameters, binary=True)
    return cursor.fetchall()


def numbers(sent: bytes | None, kind: str) -> NDArray[Any]:
    """What `array_send` gave: big-endian numbers of a fixed width without NULL, `kind` as in numpy.

    None, the array of no rows, is empty.
    """
    if sent is None or len(sent) <= _ARRAY_HEADER:
        return np.empty(0, dtype=kind)
    layout = np.dtype([("bytes", ">i4"), ("value", kind)])
    return np.frombuffer(sent, layout, offset=_ARRAY_HEADER)["value"]
