"""A dry run notes which entries it met under another name."""

from django.db import migrations, models


class Migration(migrations.Migration):
    """Adds only."""

    dependencies = [("documents", "0010_queue_order")]

    operations = [
        migrations.AddField(
            model_name="sourceentry",
            name="met_in",
            field=models.UUIDField(null=True),
        ),
        migrations.AddField(
            model_name="sourceentry",
            name="met_as",
            field=models.TextField(db_default="", default=""),
        ),
    ]
