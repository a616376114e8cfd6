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
    with connection.cursor() as cursor:
        if valid is False:
            cursor.execute(f"DROP INDEX CONCURRENTLY IF EXISTS {spaces.index_name(space)}")
        if not valid:
            cursor.execute(spaces.index_statement(space, "INDEX CONCURRENTLY"))


def drop(space: EmbeddingSpace) -> None:
    """Drop the index. Outside of any transaction."""
    with connection.cursor() as cursor:
        cursor.execute(f"DROP INDEX CONCURRENTLY IF EXISTS {spaces.index_name(space)}")


def _valid(space: EmbeddingSpace) -> bool | None:
    """Whether the index is whole; None when there is none."""
    with connection.cursor() as cursor:
        cursor.execute(VALID, (spaces.index_name(space),))
        row = cursor.fetchone()
    return bool(row[0]) if row else None
