"""Where in the word index a document's chunks stand together."""

from django.db import migrations, models


class Migration(migrations.Migration):
    """Adds only."""

    dependencies = [("documents", "0011_met_entries")]

    operations = [
        migrations.AddField(
            model_name="document",
            name="namespace",
            field=models.BigIntegerField(editable=False, null=True),
        ),
        migrations.AddIndex(
            model_name="document",
            index=models.Index(
                fields=("id",),
                include=("terms_version", "namespace", "chunk_count"),
                name="document_namespace_of",
            ),
        ),
        migrations.AddIndex(
            model_name="document",
            index=models.Index(
                fields=("namespace",), include=("chunk_count",), name="document_in_namespace"
            ),
        ),
    ]
