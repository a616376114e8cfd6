"""Exports of all of one's data."""

import uuid

import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models


class Migration(migrations.Migration):
    """A new table."""

    dependencies = [
        ("nura", "0002_invitations"),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            name="DataExport",
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
                (
                    "status",
                    models.CharField(
                        choices=[
                            ("WAITING", "Being made"),
                            ("READY", "Ready"),
                            ("FAILED", "Failed"),
                        ],
                        default="WAITING",
                        max_length=7,
                    ),
                ),
                ("language", models.CharField(default="ko", max_length=8)),
                ("size", models.BigIntegerField(default=0)),
                ("created_at", models.DateTimeField(auto_now_add=True)),
                ("expires_at", models.DateTimeField(null=True)),
                (
                    "owner",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="exports",
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
                        name="data_export_waiting",
                    ),
                    models.Index(fields=["owner", "started_at"], name="data_export_served"),
                ],
                "constraints": [
                    models.UniqueConstraint(
                        condition=models.Q(("status", "WAITING")),
                        fields=("owner",),
                        name="one_export_at_a_time",
                    )
                ],
            },
        ),
    ]
