"""Postgres expects that a user reads few of all documents, so that it asks the index for them."""

from django.db import migrations


class Migration(migrations.Migration):
    """Statistics alone; nobody waits for it but another ANALYZE.

    The libraries of a user are an array that Postgres does not know when it plans: it expects ten.
    Of ten libraries in all these were everything, and lists of a single document read every row.
    """

    dependencies = [("documents", "0023_plainer_words")]

    operations = [
        migrations.RunSQL(
            """
            ALTER TABLE documents_document ALTER COLUMN library_id SET (n_distinct = 1000);
            ANALYZE documents_document (library_id);
            """,
            "ALTER TABLE documents_document ALTER COLUMN library_id RESET (n_distinct);",
        ),
    ]
