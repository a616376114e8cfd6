import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [("documents", "0002_chunkterms")]

    operations = [
        migrations.AddField(
            model_name="embeddingspace",
            name="base_url",
            field=models.CharField(blank=True, default="", editable=False, max_length=500),
        ),
        migrations.AddField(
            model_name="embeddingspace",
            name="retired_at",
            field=models.DateTimeField(editable=False, null=True, verbose_name="in use until"),
        ),
        migrations.AddField(
            model_name="embeddingspace",
            name="unrelated",
            field=models.FloatField(editable=False, null=True),
        ),
        migrations.CreateModel(
            name="Reindexing",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("model", models.CharField(max_length=255, verbose_name="model")),
                ("base_url", models.CharField(blank=True, default="", max_length=500)),
                ("languages", models.JSONField(default=list)),
                ("background", models.BooleanField(default=False)),
                ("open", models.BooleanField(default=True)),
                (
                    "state",
                    models.CharField(
                        choices=[
                            ("waiting", "Waiting"),
                            ("filling", "Embedding"),
                            ("indexing", "Indexing"),
                            ("comparing", "Comparing"),
                            ("swapped", "Done"),
                            ("refused", "Refused"),
                            ("failed", "Failed"),
                            ("replaced", "Replaced by another"),
                        ],
                        default="waiting",
                        max_length=10,
                        verbose_name="state",
                    ),
                ),
                ("done", models.PositiveBigIntegerField(default=0)),
                ("total", models.PositiveBigIntegerField(default=0)),
                ("report", models.JSONField(default=dict)),
                ("error", models.CharField(blank=True, default="", max_length=500)),
                ("claim", models.UUIDField(null=True)),
                ("lease_until", models.DateTimeField(null=True)),
                ("attempts", models.PositiveSmallIntegerField(default=0)),
                ("enqueued_at", models.DateTimeField(null=True)),
                ("created_at", models.DateTimeField(auto_now_add=True)),
                ("updated_at", models.DateTimeField(auto_now=True)),
                (
                    "space",
                    models.ForeignKey(
                        null=True,
                        on_delete=django.db.models.deletion.SET_NULL,
                        related_name="reindexings",
                        to="documents.embeddingspace",
                    ),
                ),
            ],
            options={
                "verbose_name": "re-embedding",
                "verbose_name_plural": "re-embeddings",
                "ordering": ("-pk",),
            },
        ),
        migrations.AddConstraint(
            model_name="reindexing",
            constraint=models.UniqueConstraint(
                condition=models.Q(("open", True)), fields=("open",), name="one_open_reindexing"
            ),
        ),
    ]
