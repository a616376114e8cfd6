"""The HNSW index of a filled space, made while everybody goes on reading and writing."""

from django.db import connection

from documents import spaces
from documents.models import EmbeddingSpace

VALID = """
    SELECT index.indisvalid FROM pg_index index
      JOIN pg_class class ON class.oid = index.indexrelid
     WHERE class.relname = %s AND pg_table_is_visible(class.oid)
"""


def build(space: EmbeddingSpace) -> None:
    """Make the index, unless it is there; what a killed build left is dropped first.

    Outside of any transaction. Spaces too wide for an index are scanned exactly and have none.
    """
    if space.dimensions > spaces.WIDEST_INDEX:
        return
    valid = _valid(space)
    if valid is False:
        drop(space)
    if not valid:
        _patiently(spaces.index_statement(space, "INDEX CONCURRENTLY"))


def drop(space: EmbeddingSpace) -> None:
    """Drop the index. Outside of any transaction."""
    _patiently(f"DROP INDEX CONCURRENTLY IF EXISTS {spaces.index_name(space)}")


def _patiently(statement: str) -> None:
    """Without the time limit that the database may set for statements."""
    with connection.cursor() as cursor:
        cursor.execute("SET statement_timeout = 0")
        try:
            cursor.execute(statement)
        finally:
            cursor.execute("RESET statement_timeout")


def _valid(space: EmbeddingSpace) -> bool | None:
    """Whether the index is whole; None when there is none."""
    with connection.cursor() as cursor:
        cursor.execute(VALID, (spaces.index_name(space),))
        row = cursor.fetchone()
    return bool(row[0]) if row else None
