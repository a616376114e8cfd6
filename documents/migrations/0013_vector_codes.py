"""The signs of a document's vectors in one row, which follow the vectors by themselves."""

from django.db import migrations, models


class Migration(migrations.Migration):
    """Adds only, and holds no table that is there.

    Each of the migrations that follow holds one: searches and uploads go on meanwhile, and whoever
    holds two tables waits for somebody who holds the other.
    """

    dependencies = [("documents", "0012_namespace")]

    operations = [
        migrations.CreateModel(
            name="VectorCodes",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("document_id", models.UUIDField()),
                ("space_id", models.BigIntegerField()),
                ("codes", models.BinaryField()),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(
                        fields=("document_id", "space_id"), name="one_row_of_codes_a_document"
                    )
                ],
            },
        ),
        # Signs do not compress, and a row out of line takes a second index to read.
        migrations.RunSQL(
            """
            ALTER TABLE documents_vectorcodes ALTER COLUMN codes SET STORAGE EXTERNAL;
            ALTER TABLE documents_vectorcodes SET (toast_tuple_target = 8160);
            """,
            migrations.RunSQL.noop,
        ),
        # Whoever writes or deletes vectors, and however, nodes of the version before among them. One
        # statement a document: a plan for all of them at once might read the whole table.
        migrations.RunSQL(
            """
            CREATE FUNCTION write_vector_codes(of_document uuid, of_space bigint) RETURNS void
                LANGUAGE sql AS $$
                DELETE FROM documents_vectorcodes
                 WHERE document_id = of_document AND space_id = of_space;
                INSERT INTO documents_vectorcodes (document_id, space_id, codes)
                SELECT of_document, of_space,
                       string_agg(int8send(chunk_id)
                                  || substring(bit_send(binary_quantize(vector)) FROM 5), '')
                  FROM documents_chunkembedding
                 WHERE document_id = of_document AND space_id = of_space
                HAVING count(*) > 0;
            $$;
            CREATE FUNCTION follow_vectors() RETURNS trigger LANGUAGE plpgsql AS $$
            BEGIN
                PERFORM write_vector_codes(document_id, space_id)
                   FROM (SELECT DISTINCT document_id, space_id FROM changed) AS documents;
                RETURN NULL;
            END $$;
            """,
            """
            DROP FUNCTION follow_vectors();
            DROP FUNCTION write_vector_codes(uuid, bigint);
            """,
        ),
    ]
