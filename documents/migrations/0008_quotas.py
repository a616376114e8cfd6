"""Quotas of users, groups and libraries."""

import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models


class Migration(migrations.Migration):
    """A new table."""

    dependencies = [
        ("auth", "0012_alter_user_first_name_max_length"),
        ("documents", "0007_libraries"),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            name="QuotaRule",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                (
                    "measure",
                    models.CharField(
                        choices=[
                            ("documents", "Documents"),
                            ("bytes", "Storage (MB)"),
                            ("pages", "Pages"),
                            ("messages_today", "Questions a day"),
                            ("tokens_this_month", "Tokens a month"),
                        ],
                        max_length=20,
                        verbose_name="what is counted",
                    ),
                ),
                (
                    "soft",
                    models.PositiveBigIntegerField(
                        blank=True,
                        help_text="Empty: shortly before the limit.",
                        null=True,
                        verbose_name="tells from",
                    ),
                ),
                (
                    "hard",
                    models.PositiveBigIntegerField(
                        blank=True, help_text="Empty: no limit.", null=True, verbose_name="limit"
                    ),
                ),
                (
                    "group",
                    models.ForeignKey(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="quota_rules",
                        to="auth.group",
                        verbose_name="group",
                    ),
                ),
                (
                    "library",
                    models.ForeignKey(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="quota_rules",
                        to="documents.library",
                        verbose_name="library",
                    ),
                ),
                (
                    "user",
                    models.ForeignKey(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="quota_rules",
                        to=settings.AUTH_USER_MODEL,
                        verbose_name="user",
                    ),
                ),
            ],
            options={
                "verbose_name": "quota",
                "verbose_name_plural": "quotas",
                "ordering": ("pk",),
                "constraints": [
                    models.UniqueConstraint(fields=("user", "measure"), name="one_quota_a_user"),
                    models.UniqueConstraint(fields=("group", "measure"), name="one_quota_a_group"),
                    models.UniqueConstraint(
                        fields=("library", "measure"), name="one_quota_a_library"
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            models.Q(("group", None), ("library", None), ("user__isnull", False)),
                            models.Q(("group__isnull", False), ("library", None), ("user", None)),
                            models.Q(("group", None), ("library__isnull", False), ("user", None)),
                            _connector="OR",
                        ),
                        name="quota_of_one_subject",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            ("soft", None),
                            ("hard", None),
                            ("soft__lte", models.F("hard")),
                            _connector="OR",
                        ),
                        name="quota_tells_before_it_refuses",
                        violation_error_message="People must be told before they are refused.",
                    ),
                ],
            },
        ),
    ]
