"""Chats, questions and runs know their libraries."""

import django.contrib.postgres.fields
from django.conf import settings
from django.db import migrations, models


class Migration(migrations.Migration):
    """Only adds."""

    dependencies = [
        ("chats", "0011_first_word"),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.AddField(
            model_name="chat",
            name="library_ids",
            field=django.contrib.postgres.fields.ArrayField(
                base_field=models.UUIDField(), blank=True, editable=False, null=True, size=None
            ),
        ),
        migrations.AddField(
            model_name="message",
            name="library_ids",
            field=django.contrib.postgres.fields.ArrayField(
                base_field=models.UUIDField(), blank=True, editable=False, null=True, size=None
            ),
        ),
        migrations.AddField(
            model_name="run",
            name="library_ids",
            field=django.contrib.postgres.fields.ArrayField(
                base_field=models.UUIDField(), editable=False, null=True, size=None
            ),
        ),
        migrations.AddIndex(
            model_name="run",
            index=models.Index(
                condition=models.Q(("library_ids__isnull", False)),
                fields=["ended_at"],
                name="run_of_libraries",
            ),
        ),
    ]
