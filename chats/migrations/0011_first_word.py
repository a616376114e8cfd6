"""How long the first word took, and indexes by time for figures and lists."""

from django.db import migrations, models


class Migration(migrations.Migration):
    """Adds only."""

    dependencies = [
        ("chats", "0010_quotas"),
    ]

    operations = [
        migrations.AddField(
            model_name="run",
            name="first_word_ms",
            field=models.PositiveIntegerField(blank=True, editable=False, null=True),
        ),
        migrations.AddIndex(
            model_name="run",
            index=models.Index(fields=["created_at"], name="run_made"),
        ),
        migrations.AddIndex(
            model_name="message",
            index=models.Index(
                fields=["created_at"],
                include=("role", "status", "label", "model", "chat", "usage"),
                name="message_figures",
            ),
        ),
    ]
