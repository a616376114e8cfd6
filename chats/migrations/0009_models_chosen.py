"""Chats and answers know their language model."""

from django.db import migrations, models


class Migration(migrations.Migration):
    """Adds only."""

    dependencies = [
        ("chats", "0008_follow_ups"),
    ]

    operations = [
        migrations.AddField(
            model_name="chat",
            name="model",
            field=models.CharField(
                blank=True, db_default="", default="", max_length=60, verbose_name="model"
            ),
        ),
        migrations.AddField(
            model_name="message",
            name="model",
            field=models.CharField(
                blank=True, db_default="", default="", max_length=60, verbose_name="model"
            ),
        ),
    ]
