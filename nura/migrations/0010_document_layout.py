"""How the list of documents is drawn."""

from django.db import migrations, models


class Migration(migrations.Migration):
    """Adds only."""

    dependencies = [
        ("nura", "0009_records"),
    ]

    operations = [
        migrations.AddField(
            model_name="preferences",
            name="document_layout",
            field=models.CharField(
                choices=[("table", "Table"), ("cards", "Cards")],
                db_default="table",
                default="table",
                max_length=8,
            ),
        ),
    ]
