"""Segments: the words of large namespaces, term by term."""

from django.db import migrations, models


class Migration(migrations.Migration):
    """Adds only, and holds no table that is there. Workers write the segments afterwards."""

    dependencies = [("documents", "0020_audit_entries")]

    operations = [
        migrations.CreateModel(
            name="PostingSegment",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("namespace", models.BigIntegerField()),
                ("chunk_count", models.PositiveIntegerField()),
                ("keys", models.BinaryField()),
            ],
            options={
                "indexes": [models.Index(fields=["namespace"], name="segment_of_namespace")],
            },
        ),
        migrations.CreateModel(
            name="Postings",
            fields=[
                (
                    "pk",
                    models.CompositePrimaryKey(
                        "segment_id",
                        "place",
                        blank=True,
                        editable=False,
                        primary_key=True,
                        serialize=False,
                    ),
                ),
                ("place", models.PositiveIntegerField()),
                ("chunks", models.BinaryField()),
                (
                    "segment",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=models.deletion.CASCADE,
                        related_name="+",
                        to="documents.postingsegment",
                    ),
                ),
            ],
        ),
        migrations.CreateModel(
            name="UnsegmentedDocument",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("document_id", models.UUIDField()),
            ],
        ),
        # A note of any document has its namespace looked at, and all of its documents noted.
        migrations.RunSQL(
            """
            INSERT INTO documents_unsegmenteddocument (document_id)
            SELECT DISTINCT ON (namespace) id FROM documents_document
             WHERE namespace IS NOT NULL AND chunk_count > 0 ORDER BY namespace;
            """,
            migrations.RunSQL.noop,
        ),
        # Numbers in order hardly compress, and unpacking them would take longer than to read them.
        migrations.RunSQL(
            """
            ALTER TABLE documents_postingsegment ALTER COLUMN keys SET STORAGE EXTERNAL;
            ALTER TABLE documents_postings ALTER COLUMN chunks SET STORAGE EXTERNAL;
            """,
            migrations.RunSQL.noop,
        ),
        # Whoever indexes a document, nodes of the version before among them, writes its row then.
        migrations.RunSQL(
            """
            CREATE FUNCTION note_unsegmented_document() RETURNS trigger LANGUAGE plpgsql AS $$
            BEGIN
                INSERT INTO documents_unsegmenteddocument (document_id) VALUES (NEW.id);
                RETURN NULL;
            END $$;
            """,
            "DROP FUNCTION note_unsegmented_document();",
        ),
    ]
