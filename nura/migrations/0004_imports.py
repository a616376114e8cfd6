"""Imports of chats."""

import uuid

import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models


class Migration(migrations.Migration):
    """A new table."""

    dependencies = [
        ("nura", "0003_exports"),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            name="DataImport",
            fields=[
                (
                    "claim",
                    models.UUIDField(blank=True, editable=False, null=True, verbose_name="claim"),
                ),
                (
                    "lease_until",
                    models.DateTimeField(
                        blank=True, editable=False, null=True, verbose_name="held until"
                    ),
                ),
                (
                    "attempts",
                    models.PositiveSmallIntegerField(
                        default=0, editable=False, verbose_name="attempts"
                    ),
                ),
                (
                    "enqueued_at",
                    models.DateTimeField(
                        blank=True, editable=False, null=True, verbose_name="queued at"
                    ),
                ),
                ("started_at", models.DateTimeField(blank=True, editable=False, null=True)),
                (
                    "id",
                    models.UUIDField(
                        default=uuid.uuid4, editable=False, primary_key=True, serialize=False
                    ),
                ),
                ("name", models.CharField(max_length=255)),
                (
                    "status",
                    models.CharField(
                        choices=[
                            ("WAITING", "Being read"),
                            ("DONE", "Imported"),
                            ("FAILED", "Failed"),
                        ],
                        default="WAITING",
                        max_length=7,
                    ),
                ),
                ("total", models.PositiveIntegerField(null=True)),
                ("done", models.PositiveIntegerField(default=0)),
                ("messages", models.PositiveIntegerField(default=0)),
                ("empty", models.PositiveIntegerField(default=0)),
                ("error_code", models.CharField(blank=True, default="", max_length=64)),
                ("created_at", models.DateTimeField(auto_now_add=True)),
                ("ended_at", models.DateTimeField(null=True)),
                (
                    "owner",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="imports",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
            ],
            options={
                "ordering": ("-created_at",),
                "indexes": [
                    models.Index(
                        condition=models.Q(("status", "WAITING")),
                        fields=["owner", "created_at"],
                        name="data_import_waiting",
                    ),
                    models.Index(fields=["owner", "started_at"], name="data_import_served"),
                ],
                "constraints": [
                    models.UniqueConstraint(
                        condition=models.Q(("status", "WAITING")),
                        fields=("owner",),
                        name="one_import_at_a_time",
                    )
                ],
            },
        ),
    ]
