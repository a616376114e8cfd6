"""Who reads the audit log and the usage."""

import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models


class Migration(migrations.Migration):
    """Adds the table of auditors."""

    dependencies = [
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
        ("nura", "0004_imports"),
    ]

    operations = [
        migrations.CreateModel(
            name="Auditor",
            fields=[
                (
                    "user",
                    models.OneToOneField(
                        on_delete=django.db.models.deletion.CASCADE,
                        primary_key=True,
                        related_name="auditor",
                        serialize=False,
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
                ("since", models.DateTimeField(auto_now_add=True)),
            ],
        ),
    ]
