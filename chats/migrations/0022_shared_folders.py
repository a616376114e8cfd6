"""Folders of prompts that are shown to others."""
import uuid

import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models


class Migration(migrations.Migration):
    """Only adds."""

    dependencies = [
        ('auth', '0012_alter_user_first_name_max_length'),
        ('chats', '0021_names_of_feedback'),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            name='FolderShare',
            fields=[
                ('for_everybody', models.BooleanField(default=False, verbose_name='everybody')),
                ('id', models.UUIDField(default=uuid.uuid4, editable=False, primary_key=True, serialize=False)),
                ('name', models.CharField(max_length=60, verbose_name='folder')),
                ('created_at', models.DateTimeField(auto_now_add=True, verbose_name='created at')),
                ('groups', models.ManyToManyField(blank=True, related_name='+', to='auth.group', verbose_name='groups')),
                ('owner', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='+', to=settings.AUTH_USER_MODEL, verbose_name='owner')),
                ('users', models.ManyToManyField(blank=True, related_name='+', to=settings.AUTH_USER_MODEL, verbose_name='people')),
            ],
            options={
                'verbose_name': 'shared folder',
                'verbose_name_plural': 'shared folders',
                'ordering': ('name', 'id'),
                'constraints': [models.UniqueConstraint(fields=('owner', 'name'), name='one_share_a_folder'), models.CheckConstraint(condition=models.Q(('name', ''), _negated=True), name='shared_folder_has_a_name')],
            },
        ),
    ]
