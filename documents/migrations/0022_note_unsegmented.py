"""Documents whose index changes are noted, whoever changes it."""

from django.db import migrations


class Migration(migrations.Migration):
    """A table of its own: who holds two waits for somebody who holds the other."""

    dependencies = [("documents", "0021_posting_segments")]

    operations = [
        migrations.RunSQL(
            """
            CREATE TRIGGER index_changes_are_noted
                AFTER INSERT OR UPDATE OF chunk_count, namespace, terms_version
                ON documents_document FOR EACH ROW WHEN (NEW.chunk_count > 0)
                EXECUTE FUNCTION note_unsegmented_document();
            """,
            "DROP TRIGGER index_changes_are_noted ON documents_document;",
        ),
    ]
