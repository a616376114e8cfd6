"""Servers with tools, which chats may use, and what answers called of them."""

import uuid

import django.contrib.postgres.fields
from django.db import migrations, models

import documents.connected.models


class Migration(migrations.Migration):
    """Adds only."""

    dependencies = [
        ("auth", "0012_alter_user_first_name_max_length"),
        ("chats", "0015_evaluation_cases"),
    ]

    operations = [
        migrations.AddField(
            model_name="chat",
            name="tool_ids",
            field=django.contrib.postgres.fields.ArrayField(
                base_field=models.UUIDField(), blank=True, db_default=[], default=list, size=None
            ),
        ),
        migrations.AddField(
            model_name="message",
            name="tool_calls",
            field=models.JSONField(blank=True, editable=False, null=True),
        ),
        migrations.CreateModel(
            name="ToolServer",
            fields=[
                (
                    "id",
                    models.UUIDField(
                        default=uuid.uuid4, editable=False, primary_key=True, serialize=False
                    ),
                ),
                ("name", models.CharField(max_length=100, unique=True, verbose_name="name")),
                (
                    "address",
                    models.CharField(
                        help_text="Of its endpoint for streamable HTTP, for example https://tools.example/mcp",
                        max_length=500,
                        validators=[documents.connected.models.check_address],
                        verbose_name="address",
                    ),
                ),
                ("sealed_key", models.TextField(blank=True, default="", editable=False)),
                ("offered", models.BooleanField(default=True, verbose_name="offered")),
                ("tools", models.JSONField(blank=True, default=list, editable=False)),
                ("created_at", models.DateTimeField(auto_now_add=True, verbose_name="created at")),
                (
                    "groups",
                    models.ManyToManyField(
                        blank=True,
                        help_text="Who may choose it. None: everybody",
                        related_name="+",
                        to="auth.group",
                        verbose_name="groups",
                    ),
                ),
            ],
            options={
                "verbose_name": "tool server",
                "verbose_name_plural": "tool servers",
                "ordering": ("name",),
            },
        ),
    ]
