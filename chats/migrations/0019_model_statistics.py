"""How many models answers were written with: the figures of months are grouped by it."""

from django.db import migrations


class Migration(migrations.Migration):
    """Without it, the planner takes every answer for a group of its own, and sorts them all."""

    dependencies = [("chats", "0018_label_of_tools")]

    operations = [
        migrations.RunSQL(
            "CREATE STATISTICS chats_message_model ON (usage ->> 'model') FROM chats_message",
            "DROP STATISTICS chats_message_model",
        ),
        migrations.RunSQL("ANALYZE chats_message", migrations.RunSQL.noop),
    ]
