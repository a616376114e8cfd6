"""Empties the database after a test that committed, without making anew what nobody changed."""

from django.core.management.color import no_style
from django.db import connection

KEPT = {"django_content_type", "auth_permission"}
"""Made by the migrations. A flush empties both and makes them again with some 80 statements."""


def empty(_case: object = None) -> None:
    """What `TransactionTestCase` does with `flush`, but for what is kept."""
    names = connection.introspection.django_table_names(only_existing=True, include_views=False)
    tables = [name for name in names if name not in KEPT]
    statements = connection.ops.sql_flush(
        no_style(), tables, reset_sequences=False, allow_cascade=False
    )
    connection.ops.execute_sql_flush(statements)
