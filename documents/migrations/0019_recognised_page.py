"""Pages that were recognised of documents that wait to be read on, and how long that took."""

from django.db import migrations, models


class Migration(migrations.Migration):
    """Adds a table and a column with a default."""

    dependencies = [("documents", "0018_wording")]

    operations = [
        migrations.AddField(
            model_name="document",
            name="seconds_before",
            field=models.FloatField(db_default=0.0, default=0.0, editable=False),
        ),
        migrations.CreateModel(
            name="RecognisedPage",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("sha256", models.CharField(max_length=64)),
                ("index", models.PositiveIntegerField()),
                ("found", models.BinaryField()),
                (
                    "document",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=models.deletion.CASCADE,
                        related_name="+",
                        to="documents.document",
                    ),
                ),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(
                        fields=("document", "sha256", "index"), name="one_row_a_recognised_page"
                    )
                ],
            },
        ),
    ]
