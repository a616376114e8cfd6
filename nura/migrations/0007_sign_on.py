"""Servers of OpenID Connect by which people sign in."""

import django.core.validators
from django.db import migrations, models


class Migration(migrations.Migration):
    """Adds the table of servers."""

    dependencies = [
        ("nura", "0006_groups"),
    ]

    operations = [
        migrations.CreateModel(
            name="SignOnServer",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                (
                    "name",
                    models.CharField(
                        help_text="As the button of the sign-in page calls it.",
                        max_length=40,
                        verbose_name="name",
                    ),
                ),
                (
                    "slug",
                    models.SlugField(
                        help_text=(
                            "A part of the address that the server sends people back to. It stays."
                        ),
                        max_length=40,
                        unique=True,
                        validators=[django.core.validators.RegexValidator("^(?!openid_connect$)")],
                        verbose_name="short name",
                    ),
                ),
                (
                    "issuer",
                    models.URLField(
                        help_text=(
                            "The server's address, as its /.well-known/openid-"
                            "configuration says it."
                        ),
                        max_length=500,
                        verbose_name="issuer",
                    ),
                ),
                ("client_id", models.CharField(max_length=191, verbose_name="client id")),
                ("sealed_secret", models.TextField(blank=True, default="", editable=False)),
                (
                    "groups_claim",
                    models.CharField(
                        blank=True,
                        default="",
                        help_text=(
                            "Often: groups. Empty: the server has no say in groups and roles."
                        ),
                        max_length=100,
                        verbose_name="claim with the groups",
                    ),
                ),
                (
                    "administrators",
                    models.CharField(
                        blank=True,
                        default="",
                        max_length=250,
                        verbose_name="group of administrators",
                    ),
                ),
                (
                    "auditors",
                    models.CharField(
                        blank=True, default="", max_length=250, verbose_name="group of auditors"
                    ),
                ),
                (
                    "sign_up",
                    models.CharField(
                        choices=[
                            ("everybody", "Everybody who signs in there"),
                            ("invited", "Those who are invited"),
                            ("nobody", "Nobody: accounts exist before"),
                        ],
                        default="invited",
                        max_length=10,
                        verbose_name="who gets an account",
                    ),
                ),
                (
                    "domains",
                    models.CharField(
                        blank=True,
                        default="",
                        help_text=(
                            "Only people with a verified address there come in. Several: "
                            "with commas."
                        ),
                        max_length=500,
                        verbose_name="e-mail domains",
                    ),
                ),
                (
                    "vouches_for_email",
                    models.BooleanField(
                        default=False,
                        help_text=(
                            "Take addresses as verified that the server does not call so."
                            " Only for a server of your own, such as one tenant of Entra "
                            "ID."
                        ),
                        verbose_name="vouches for all addresses",
                    ),
                ),
                (
                    "link_by_email",
                    models.BooleanField(
                        default=False,
                        help_text=(
                            "Who signs in there with a verified address gets the account "
                            "that has it, unless that is an administrator's."
                        ),
                        verbose_name="link accounts by address",
                    ),
                ),
                ("is_active", models.BooleanField(default=True, verbose_name="active")),
                ("created_at", models.DateTimeField(auto_now_add=True, verbose_name="created at")),
            ],
            options={
                "verbose_name": "sign-on server",
                "verbose_name_plural": "sign-on servers",
                "ordering": ("name",),
            },
        ),
    ]
