"""Tokens of a day, beside its questions."""

from django.db import migrations, models


class Migration(migrations.Migration):
    """A column with a default in the database."""

    dependencies = [
        ("chats", "0009_models_chosen"),
    ]

    operations = [
        migrations.AddField(
            model_name="dailymessages",
            name="tokens",
            field=models.PositiveBigIntegerField(db_default=0, default=0),
        ),
    ]
