"""The connection of a search: a short transaction with a time limit, and values in binary."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from uuid import UUID

import numpy as np
import psycopg
from django.db import Error, connection, transaction
from numpy.typing import NDArray

from rag.errors import RetrievalFailed

Cursor = psycopg.Cursor[tuple[Any, ...]]

STATEMENT_TIMEOUT = "10s"
LOCAL_SETTINGS = """
    SELECT set_config('statement_timeout', %s, true),
           set_config('jit', 'off', true),  -- compiling costs more than these queries
           set_config('enable_seqscan', 'off', true)  -- such plans forget what lexemes cost
"""
_ARRAY_HEADER = 20
"""Bytes before the first element of an array of one dimension; an empty one has fewer."""


@contextmanager
def search() -> Iterator[Cursor]:
    """A cursor in a short transaction with a time limit. Raises `RetrievalFailed`.

    It is the driver's own cursor: values travel in their binary form, beside the statement.
    """
    try:
        with transaction.atomic(), connection.wrap_database_errors:
            connection.ensure_connection()
            with psycopg.Cursor(connection.connection) as cursor:
                cursor.execute(LOCAL_SETTINGS, (STATEMENT_TIMEOUT,))
                yield cursor
    except Error as error:
        if not connection.in_atomic_block:
            connection.close_if_unusable_or_obsolete()
        raise RetrievalFailed(str(error)) from error


def fetch(cursor: Cursor, statement: str, parameters: Any) -> list[tuple[Any, ...]]:
    """All rows of a statement."""
    return cursor.execute(statement, parameters, binary=True).fetchall()  # type: ignore[arg-type]


def uuids(ids: Sequence[UUID]) -> str:
    """The text form of an array of UUIDs."""
    return "{" + ",".join(str(one) for one in ids) + "}"


def numbers(sent: bytes | None, kind: str) -> NDArray[Any]:
    """What `array_send` gave: big-endian numbers of a fixed width without NULL, `kind` as in numpy.

    None, the array of no rows, is empty.
    """
    if sent is None or len(sent) <= _ARRAY_HEADER:
        return np.empty(0, dtype=kind)
    layout = np.dtype([("bytes", ">i4"), ("value", kind)])
    return np.frombuffer(sent, layout, offset=_ARRAY_HEADER)["value"]
