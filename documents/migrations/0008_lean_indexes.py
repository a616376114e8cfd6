"""Indexes for what is asked of the queue, and none on what a worker writes every moment."""

import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("documents", "0007_queue"),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.RemoveIndex(model_name="document", name="document_processing_lease"),
        migrations.AlterField(
            model_name="document",
            name="owner",
            field=models.ForeignKey(
                db_index=False,
                on_delete=django.db.models.deletion.CASCADE,
                related_name="documents",
                to=settings.AUTH_USER_MODEL,
                verbose_name="owner",
            ),
        ),
        migrations.AlterField(
            model_name="document",
            name="sha256",
            field=models.CharField(max_length=64, verbose_name="SHA-256"),
        ),
        migrations.AddIndex(
            model_name="document",
            index=models.Index(fields=["owner", "sha256"], name="document_same_bytes"),
        ),
        migrations.AddIndex(
            model_name="document",
            index=models.Index(
                condition=models.Q(("claim__isnull", False), ("status", "PROCESSING")),
                fields=["owner"],
                name="document_at_work",
            ),
        ),
        migrations.AddIndex(
            model_name="document",
            index=models.Index(
                condition=models.Q(("status", "COMPLETED")),
                fields=["indexed_at"],
                name="document_read_last",
            ),
        ),
    ]
