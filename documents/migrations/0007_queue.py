"""Indexes of the queue; documents that failed over an index that still serves are complete."""

from django.conf import settings
from django.db import migrations, models


def complete(apps, _editor):
    """What `documents.claims.give_up` makes of them today."""
    failed = apps.get_model("documents", "Document").objects.filter(
        status="FAILED", indexed_at__isnull=False
    )
    failed.update(status="COMPLETED", progress=1.0, warnings=["reprocess_failed"])


class Migration(migrations.Migration):
    dependencies = [
        ("documents", "0006_versions"),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.AddIndex(
            model_name="document",
            index=models.Index(fields=["owner", "started_at"], name="document_last_served"),
        ),
        migrations.AddIndex(
            model_name="document",
            index=models.Index(
                condition=models.Q(("status", "PROCESSING")),
                fields=["owner", "created_at"],
                name="document_in_turn",
            ),
        ),
        migrations.RunPython(complete, migrations.RunPython.noop, elidable=True),
    ]
