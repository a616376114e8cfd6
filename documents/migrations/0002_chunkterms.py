import django.db.models.deletion
import pgvector.django.sparsevec
from django.db import migrations, models

K1, B = 1.2, 0.75
FORMER_LENGTH, REFERENCE_LENGTH = 500.0, 250.0
"""What the stored weights were made with, and what the new ones are."""

COPY = "COPY documents_chunkterms (chunk_id, document_id, length, marks, surplus) FROM STDIN"
AT_ONCE = 1000


def fill(apps, schema_editor):
    """From the weights, which tell how often a term stands."""
    with schema_editor.connection.cursor() as reading, schema_editor.connection.cursor() as writing:
        reading.execute(
            "DECLARE old_chunks CURSOR FOR"
            " SELECT id, document_id, term_count, weights::text FROM documents_chunk"
        )
        while True:
            reading.execute("FETCH %s FROM old_chunks", (AT_ONCE,))
            rows = reading.fetchall()
            if not rows:
                break
            with writing.copy(COPY) as copy:
                for key, document, length, weights in rows:
                    copy.write_row((key, document, length, *marks_and_surplus(weights, length)))
        reading.execute("CLOSE old_chunks")


def marks_and_surplus(weights, length):
    former = K1 * (1 - B + B * length / FORMER_LENGTH)
    norm = K1 * (1 - B + B * length / REFERENCE_LENGTH)
    once = (K1 + 1) / (1 + norm)
    body, _, dimensions = weights.partition("}/")
    pairs = [pair.split(":") for pair in body.lstrip("{").split(",") if pair]
    counts = {
        place: round(float(weight) * former / (K1 + 1 - float(weight))) for place, weight in pairs
    }
    more = {
        place: count * (K1 + 1) / (count + norm) - once
        for place, count in counts.items()
        if count > 1
    }
    marks = ",".join(f"{place}:{2 if place in more else 1}" for place, _ in pairs)
    surplus = ",".join(f"{place}:{value:.9g}" for place, value in more.items())
    return f"{{{marks}}}/{dimensions}", f"{{{surplus}}}/{dimensions}" if more else None


class Migration(migrations.Migration):

    dependencies = [("documents", "0001_initial")]

    operations = [
        migrations.CreateModel(
            name="ChunkTerms",
            fields=[
                ("chunk", models.OneToOneField(on_delete=django.db.models.deletion.CASCADE, primary_key=True, related_name="+", serialize=False, to="documents.chunk")),
                ("length", models.PositiveIntegerField()),
                ("marks", pgvector.django.sparsevec.SparseVectorField(dimensions=1000000000)),
                ("surplus", pgvector.django.sparsevec.SparseVectorField(dimensions=1000000000, null=True)),
                ("document", models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name="+", to="documents.document")),
            ],
        ),
        # A search reads these rows by the thousand: they stay whole and uncompressed in their place.
        # Of a chunk it reads only the short values: text and lexemes are always out of their way.
        migrations.RunSQL(
            """
            ALTER TABLE documents_chunkterms ALTER COLUMN marks SET STORAGE EXTERNAL;
            ALTER TABLE documents_chunkterms ALTER COLUMN surplus SET STORAGE EXTERNAL;
            ALTER TABLE documents_chunkterms SET (toast_tuple_target = 8160);
            ALTER TABLE documents_chunk SET (toast_tuple_target = 128);
            """,
            migrations.RunSQL.noop,
        ),
        migrations.RunPython(fill, migrations.RunPython.noop),
        migrations.RemoveField(model_name="chunk", name="weights"),
    ]
