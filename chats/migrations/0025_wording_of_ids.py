"""The label of an id is "ID", in lists and forms; the columns stay as they are."""

import uuid

from django.db import migrations, models


class Migration(migrations.Migration):
    """Changes no table."""

    dependencies = [("chats", "0024_wording")]

    operations = [
        migrations.AlterField(
            model_name=name,
            name="id",
            field=models.UUIDField(
                default=uuid.uuid4,
                editable=False,
                primary_key=True,
                serialize=False,
                verbose_name="ID",
            ),
        )
        for name in ("chat", "message", "run")
    ]
