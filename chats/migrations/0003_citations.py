"""What each marker of an answer stands for."""

from django.db import migrations, models


class Migration(migrations.Migration):
    """A column that older nodes leave empty."""

    dependencies = [("chats", "0002_sidebar")]

    operations = [
        migrations.AddField(
            "message", "citations", models.JSONField(blank=True, editable=False, null=True)
        ),
    ]
