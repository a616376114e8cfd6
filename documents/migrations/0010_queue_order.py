"""The queue of documents can be held, and some go before others."""

from django.conf import settings
from django.db import migrations, models


class Migration(migrations.Migration):
    """Adds only."""

    dependencies = [
        ("documents", "0009_sources"),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            name="QueueHold",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("held_by", models.CharField(max_length=254)),
                ("since", models.DateTimeField(auto_now_add=True)),
            ],
        ),
        migrations.AddField(
            model_name="document",
            name="priority",
            field=models.SmallIntegerField(
                choices=[(-1, "Last"), (0, "In turn"), (1, "First")],
                db_default=0,
                default=0,
                editable=False,
                verbose_name="priority",
            ),
        ),
        migrations.AddIndex(
            model_name="document",
            index=models.Index(
                models.F("owner"),
                models.OrderBy(models.F("priority"), descending=True),
                models.F("created_at"),
                condition=models.Q(("status", "PROCESSING")),
                name="document_by_priority",
            ),
        ),
    ]
