"""What the administration calls the parts of feedback."""

import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models


class Migration(migrations.Migration):
    """Changes no column."""

    dependencies = [
        ("chats", "0020_prompt_folders"),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.AlterField(
            model_name="feedback",
            name="updated_at",
            field=models.DateTimeField(auto_now=True, verbose_name="changed at"),
        ),
        migrations.AlterField(
            model_name="feedback",
            name="user",
            field=models.ForeignKey(
                on_delete=django.db.models.deletion.CASCADE,
                related_name="+",
                to=settings.AUTH_USER_MODEL,
                verbose_name="user",
            ),
        ),
        migrations.AlterField(
            model_name="feedback",
            name="value",
            field=models.SmallIntegerField(
                choices=[(1, "Helpful"), (-1, "Not helpful")], verbose_name="verdict"
            ),
        ),
    ]
