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
"""A search by a vector index would meet the deleted rows first, and find less for it."""

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


def empty(_case: object = None) -> None:
    """What `TransactionTestCase` does with `flush`, but for what is kept.

    Fails where something that the test began still works in the database: it would meet an empty
    one, or wait for us while we wait for it.
    """
    try:
        wait_until(lambda: not _others_at_work(), PATIENCE_SECONDS, step=0.02)
    except AssertionError:
        raise AssertionError(f"still at work in the database: {_others_at_work()}") from None
    names = connection.introspection.django_table_names(only_existing=True, include_views=False)
    rows = "".join(f'DELETE FROM "{name}";' for name in names if name not in {*KEPT, *TRUNCATED})
    with connection.cursor() as cursor:
        cursor.execute(LEFT)
        held_chunks, indexes = cursor.fetchone()
        if held_chunks:  # of this test, or of some before that were rolled back
            cursor.execute(f"TRUNCATE {', '.join(TRUNCATED)}")
        if indexes:  # of the spaces of this test
            cursor.execute(f"DROP INDEX {', '.join(indexes)}")
        with transaction.atomic():
            cursor.execute("SET LOCAL session_replication_role = replica")  # no order of tables
            cursor.execute(rows)


def _others_at_work() -> list[str]:
    """What other connections do, or have begun and not ended."""
    with connection.cursor() as cursor:
        cursor.execute(AT_WORK)
        return [query for (query,) in cursor.fetchall()]
