"""A name for documents that wait and hold pictures to be recognised; the column stays as it is."""

from django.db import migrations, models


class Migration(migrations.Migration):
    """Changes no table."""

    dependencies = [("documents", "0016_fill_vector_codes")]
    operations = [
        migrations.AlterField(
            "document",
            "stage",
            models.CharField(
                choices=[
                    ("queued", "Queued"),
                    ("pictured", "Waiting for its pictures to be read"),
                    ("parsing", "Reading"),
                    ("chunking", "Splitting"),
                    ("embedding", "Embedding"),
                    ("indexing", "Indexing"),
                    ("paused", "Paused"),
                    ("done", "Done"),
                ],
                default="queued",
                max_length=10,
                verbose_name="stage",
            ),
        )
    ]
