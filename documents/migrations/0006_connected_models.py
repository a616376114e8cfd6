"""Connections to model servers, and which of their models does what."""

import uuid

import django.db.models.deletion
from django.db import migrations, models

import documents.connected.models


class Migration(migrations.Migration):
    """Adds only."""

    dependencies = [
        ("auth", "0012_alter_user_first_name_max_length"),
        ("documents", "0005_picture_place"),
    ]

    operations = [
        migrations.CreateModel(
            name="Connection",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("name", models.CharField(max_length=100, unique=True, verbose_name="name")),
                (
                    "base_url",
                    models.CharField(
                        help_text="With the version, for example http://gpu.example:8000/v1",
                        max_length=500,
                        validators=[documents.connected.models.check_address],
                        verbose_name="address",
                    ),
                ),
                ("sealed_key", models.TextField(blank=True, default="", editable=False)),
                ("sealed_headers", models.TextField(blank=True, default="", editable=False)),
                ("trial", models.JSONField(blank=True, default=dict, editable=False)),
                ("created_at", models.DateTimeField(auto_now_add=True, verbose_name="created at")),
            ],
            options={
                "verbose_name": "model connection",
                "verbose_name_plural": "model connections",
                "ordering": ("name",),
            },
        ),
        migrations.CreateModel(
            name="ModelsVersion",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("number", models.PositiveBigIntegerField(default=0)),
            ],
        ),
        migrations.CreateModel(
            name="ConnectedModel",
            fields=[
                (
                    "id",
                    models.UUIDField(
                        default=uuid.uuid4, editable=False, primary_key=True, serialize=False
                    ),
                ),
                ("slug", models.CharField(editable=False, max_length=60, unique=True)),
                (
                    "role",
                    models.CharField(
                        choices=[
                            ("main", "Writes answers"),
                            ("light", "Understands questions, summarises"),
                            ("vision", "Describes pictures"),
                            ("embedding", "Embeds texts for search"),
                            ("reranker", "Ranks passages"),
                            ("verifier", "Checks sentences against sources"),
                        ],
                        default="main",
                        max_length=10,
                        verbose_name="role",
                    ),
                ),
                (
                    "model",
                    models.CharField(
                        blank=True,
                        help_text="Its name at the server",
                        max_length=200,
                        verbose_name="model",
                    ),
                ),
                (
                    "name",
                    models.CharField(
                        blank=True,
                        help_text="Empty: the name at the server",
                        max_length=100,
                        verbose_name="shown as",
                    ),
                ),
                ("offered", models.BooleanField(default=True, verbose_name="offered")),
                ("is_default", models.BooleanField(default=False, verbose_name="default")),
                (
                    "context_tokens",
                    models.PositiveIntegerField(
                        blank=True,
                        help_text="In tokens. Empty: as the server says",
                        null=True,
                        verbose_name="context length",
                    ),
                ),
                (
                    "thinking",
                    models.BooleanField(
                        blank=True,
                        help_text="Unknown: as the environment says",
                        null=True,
                        verbose_name="thinks first",
                    ),
                ),
                (
                    "languages",
                    models.CharField(
                        blank=True,
                        default="",
                        help_text=(
                            "What an embedding model knows: ko,en or * for all. "
                            "Empty: as known of it"
                        ),
                        max_length=200,
                        verbose_name="languages",
                    ),
                ),
                (
                    "input_price",
                    models.DecimalField(
                        blank=True,
                        decimal_places=4,
                        max_digits=12,
                        null=True,
                        verbose_name="price of a million tokens read",
                    ),
                ),
                (
                    "output_price",
                    models.DecimalField(
                        blank=True,
                        decimal_places=4,
                        max_digits=12,
                        null=True,
                        verbose_name="price of a million tokens written",
                    ),
                ),
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
                (
                    "connection",
                    models.ForeignKey(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="models",
                        to="documents.connection",
                        verbose_name="connection",
                    ),
                ),
            ],
            options={
                "verbose_name": "model",
                "verbose_name_plural": "models",
                "ordering": ("role", "created_at"),
                "constraints": [
                    models.UniqueConstraint(
                        condition=models.Q(("role", "main"), _negated=True),
                        fields=("role",),
                        name="one_model_a_role",
                        violation_error_message=(
                            "There is a model with this role already. Change that one."
                        ),
                    )
                ],
            },
        ),
    ]
