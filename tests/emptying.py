"""Empties the database after a test that committed, without making anew what nobody changed.

A flush truncates each table, which gives every table and index a new file: with some forty tables
that takes a hundred times longer than to delete the few rows of a test.
"""

from django.db import connection, transaction

from tests.support import wait_until

KEPT = {"django_content_type", "auth_permission"}
"""Made by the migrations. A flush empties both and makes them again with some 80 statements."""

TRUNCATED = (
    "documents_vectorcodes",
    "documents_chunkembedding",
    "documents_chunkterms",
    "documents_chunk",
)
"""Truncated, because deleted rows would stay in their vector indexes and crowd out others."""

LEFT = """
    SELECT pg_relation_size('documents_chunk') > 0,
           ARRAY(SELECT indexname::text FROM pg_indexes WHERE indexname ~ '^embedding_space_')
"""
AT_WORK = """
    SELECT state || ': ' || query FROM pg_stat_activity
     WHERE datname = current_database() AND pid <> pg_backend_pid()
       AND backend_type = 'client backend' AND state <> 'idle'
"""
PATIENCE_SECONDS = 10.0


def empty_database(_case: object = None) -> None:
    """Delete all rows, as `TransactionTestCase` does with `flush`, except for what is kept.

    Fails if something that the test started still uses the database: it would find it empty, or
    wait for us while we wait for it.
    """
    try:
        wait_until(lambda: not _list_active_connections(), PATIENCE_SECONDS, step=0.02)
    except AssertionError:
        raise AssertionError(
            f"still at work in the database: {_list_active_connections()}"
        ) from None
    names = connection.introspection.django_table_names(only_existing=True, include_views=False)
    rows = "".join(f'DELETE FROM "{name}";' for name in names if name not in {*KEPT, *TRUNCATED})
    with connection.cursor() as cursor:
        cursor.execute(LEFT)
        held_chunks, indexes = cursor.fetchone()
        if held_chunks:  # of this test, or of earlier ones that were rolled back
            cursor.execute(f"TRUNCATE {', '.join(TRUNCATED)}")
        if indexes:  # of the embedding spaces of this test
            cursor.execute(f"DROP INDEX {', '.join(indexes)}")
        with transaction.atomic():
            # so that the order of tables does not matter
            cursor.execute("SET LOCAL session_replication_role = replica")
            cursor.execute(rows)


def _list_active_connections() -> list[str]:
    """State and query of other connections that are not idle."""
    with connection.cursor() as cursor:
        cursor.execute(AT_WORK)
        return [query for (query,) in cursor.fetchall()]
