"""Invitations of people whose name is known."""

from django.db import migrations, models


class Migration(migrations.Migration):
    """Adds the column with a default, for nodes of the version before."""

    dependencies = [
        ("nura", "0007_sign_on"),
    ]

    operations = [
        migrations.AddField(
            model_name="invitation",
            name="name",
            field=models.CharField(
                blank=True, db_default="", default="", max_length=150, verbose_name="name"
            ),
        ),
    ]
