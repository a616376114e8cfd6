"""Groups with their name in a directory; invitations for several people, who join groups."""

import django.core.validators
import django.db.models.deletion
import django.db.models.functions.text
from django.db import migrations, models


class Migration(migrations.Migration):
    """Adds the columns with defaults, so that a node of the version before goes on inviting."""

    dependencies = [
        ("auth", "0012_alter_user_first_name_max_length"),
        ("nura", "0005_auditors"),
    ]

    operations = [
        migrations.AddField(
            model_name="invitation",
            name="groups",
            field=models.ManyToManyField(
                blank=True, related_name="+", to="auth.group", verbose_name="joins these groups"
            ),
        ),
        migrations.AddField(
            model_name="invitation",
            name="max_uses",
            field=models.PositiveIntegerField(
                db_default=1,
                default=1,
                validators=[
                    django.core.validators.MinValueValidator(1),
                    django.core.validators.MaxValueValidator(10000),
                ],
                verbose_name="number of accounts",
            ),
        ),
        migrations.AddField(
            model_name="invitation",
            name="uses",
            field=models.PositiveIntegerField(
                db_default=0, default=0, editable=False, verbose_name="used"
            ),
        ),
        migrations.CreateModel(
            name="GroupDetails",
            fields=[
                (
                    "group",
                    models.OneToOneField(
                        on_delete=django.db.models.deletion.CASCADE,
                        primary_key=True,
                        related_name="details",
                        serialize=False,
                        to="auth.group",
                        verbose_name="group",
                    ),
                ),
                (
                    "description",
                    models.CharField(
                        blank=True, default="", max_length=200, verbose_name="description"
                    ),
                ),
                (
                    "directory_name",
                    models.CharField(
                        blank=True,
                        default="",
                        help_text=(
                            "Its members then come from the sign-on server at each sign-"
                            "in. Empty: you choose them."
                        ),
                        max_length=250,
                        verbose_name="name in the directory",
                    ),
                ),
            ],
            options={
                "verbose_name": "details",
                "verbose_name_plural": "details",
                "constraints": [
                    models.UniqueConstraint(
                        django.db.models.functions.text.Lower("directory_name"),
                        condition=models.Q(("directory_name", ""), _negated=True),
                        name="one_group_a_directory_name",
                    )
                ],
            },
        ),
    ]
