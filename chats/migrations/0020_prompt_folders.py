"""Prompts stand in folders."""

from django.db import migrations, models


class Migration(migrations.Migration):
    """Adds only."""

    dependencies = [("chats", "0019_model_statistics")]

    operations = [
        migrations.AddField(
            model_name="prompt",
            name="folder",
            field=models.CharField(
                blank=True, db_default="", default="", max_length=60, verbose_name="folder"
            ),
        ),
        migrations.AlterModelOptions(
            name="prompt",
            options={
                "ordering": ("folder", "title", "id"),
                "verbose_name": "prompt",
                "verbose_name_plural": "prompts",
            },
        ),
    ]
