"""Banners, backups that were taken, versions that ran."""

import django.utils.timezone
from django.db import migrations, models


class Migration(migrations.Migration):
    """Adds only."""

    dependencies = [
        ("nura", "0008_invited_names"),
    ]

    operations = [
        migrations.CreateModel(
            name="BackupRecord",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                (
                    "kind",
                    models.CharField(
                        choices=[("taken", "Taken"), ("verified", "Verified")], max_length=8
                    ),
                ),
                ("at", models.DateTimeField(auto_now_add=True)),
                ("place", models.CharField(max_length=500)),
                ("name", models.CharField(blank=True, default="", max_length=100)),
                ("succeeded", models.BooleanField()),
                ("detail", models.TextField(blank=True, default="")),
            ],
            options={
                "ordering": ("-at", "-pk"),
            },
        ),
        migrations.CreateModel(
            name="InstalledVersion",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("version", models.CharField(max_length=40, unique=True)),
                ("since", models.DateTimeField(auto_now_add=True)),
            ],
            options={
                "ordering": ("-since", "-pk"),
            },
        ),
        migrations.CreateModel(
            name="Banner",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("text_ko", models.TextField(max_length=500, verbose_name="text in Korean")),
                (
                    "text_en",
                    models.TextField(
                        blank=True, default="", max_length=500, verbose_name="text in English"
                    ),
                ),
                (
                    "level",
                    models.CharField(
                        choices=[
                            ("info", "Information"),
                            ("warning", "Warning"),
                            ("error", "Urgent"),
                        ],
                        default="info",
                        max_length=7,
                        verbose_name="level",
                    ),
                ),
                (
                    "starts_at",
                    models.DateTimeField(
                        default=django.utils.timezone.now, verbose_name="shown from"
                    ),
                ),
                (
                    "ends_at",
                    models.DateTimeField(blank=True, null=True, verbose_name="shown until"),
                ),
                (
                    "dismissible",
                    models.BooleanField(
                        default=True,
                        help_text="For each person until the next banner",
                        verbose_name="can be put away",
                    ),
                ),
            ],
            options={
                "verbose_name": "banner",
                "verbose_name_plural": "banners",
                "ordering": ("starts_at", "pk"),
                "constraints": [
                    models.CheckConstraint(
                        condition=models.Q(
                            ("ends_at", None),
                            ("ends_at__gt", models.F("starts_at")),
                            _connector="OR",
                        ),
                        name="banner_ends_after_it_begins",
                        violation_error_message="It must end after it begins.",
                    )
                ],
            },
        ),
    ]
