"""Empties the database after a test that committed, without making anew what nobody changed."""

from django.core.management.color import no_style
from django.db import connection

from tests.support import wait_until

KEPT = {"django_content_type", "auth_permission"}
"""Made by the migrations. A flush empties both and makes them again with some 80 statements."""

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
    tables = [name for name in names if name not in KEPT]
    statements = connection.ops.sql_flush(
        no_style(), tables, reset_sequences=False, allow_cascade=False
    )
    connection.ops.execute_sql_flush(statements)


def _others_at_work() -> list[str]:
    """What other connections do, or have begun and not ended."""
    with connection.cursor() as cursor:
        cursor.execute(AT_WORK)
        return [query for (query,) in cursor.fetchall()]
