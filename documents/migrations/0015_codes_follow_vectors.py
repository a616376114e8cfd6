"""Codes come and go with the vectors, whoever writes them."""

from django.db import migrations


class Migration(migrations.Migration):
    """Nodes of the version before write codes as well, without knowing."""

    dependencies = [("documents", "0014_document_of_namespace")]

    operations = [
        migrations.RunSQL(
            """
            CREATE TRIGGER vectors_come_with_codes AFTER INSERT ON documents_chunkembedding
                REFERENCING NEW TABLE AS changed
                FOR EACH STATEMENT EXECUTE FUNCTION follow_vectors();
            CREATE TRIGGER vectors_go_with_codes AFTER DELETE ON documents_chunkembedding
                REFERENCING OLD TABLE AS changed
                FOR EACH STATEMENT EXECUTE FUNCTION follow_vectors();
            """,
            """
            DROP TRIGGER vectors_come_with_codes ON documents_chunkembedding;
            DROP TRIGGER vectors_go_with_codes ON documents_chunkembedding;
            """,
        ),
    ]
