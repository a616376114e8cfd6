"""The help beside a banner that can be dismissed, in plainer words."""

from django.db import migrations, models


class Migration(migrations.Migration):
    """Changes no table."""

    dependencies = [("nura", "0012_wording")]

    operations = [
        migrations.AlterField(
            model_name="banner",
            name="dismissible",
            field=models.BooleanField(
                default=True,
                help_text="Once dismissed, it stays hidden in that browser.",
                verbose_name="can be dismissed",
            ),
        ),
    ]
