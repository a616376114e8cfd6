"""The codes of the vectors that were there before; it goes on where it was cut off."""

from django.db import migrations, transaction

DOCUMENTS_AT_ONCE = 200
"""They are held meanwhile, so that nobody writes their vectors: some tenths of a second."""
LACKING = """
    SELECT id FROM documents_document
     WHERE id > %s AND chunk_count > 0
     ORDER BY id LIMIT %s FOR NO KEY UPDATE
"""
FILL = """
    SELECT write_vector_codes(document_id, space_id)
      FROM (SELECT DISTINCT document_id, space_id FROM documents_chunkembedding
             WHERE document_id = ANY(%s)) AS documents
"""


def fill_codes(apps, schema_editor):
    """A transaction for some documents at a time."""
    last = "00000000-0000-0000-0000-000000000000"
    with schema_editor.connection.cursor() as cursor:
        while True:
            with transaction.atomic(schema_editor.connection.alias):
                cursor.execute(LACKING, [last, DOCUMENTS_AT_ONCE])
                documents = [key for (key,) in cursor.fetchall()]
                if not documents:
                    return
                cursor.execute(FILL, [documents])
            last = documents[-1]


class Migration(migrations.Migration):
    """Not in one transaction, so that searches and uploads go on."""

    atomic = False
    dependencies = [("documents", "0015_codes_follow_vectors")]
    operations = [migrations.RunPython(fill_codes, migrations.RunPython.noop)]
