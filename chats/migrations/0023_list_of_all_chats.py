"""The administration lists the chats of everybody, latest first."""

from django.conf import settings
from django.db import migrations, models


class Migration(migrations.Migration):
    """Adds only."""

    dependencies = [
        ('chats', '0022_shared_folders'),
        ('documents', '0011_met_entries'),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.AddIndex(
            model_name='chat',
            index=models.Index(fields=['-updated_at'], name='chat_changed'),
        ),
    ]
