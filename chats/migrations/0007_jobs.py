"""Runs and turns are jobs: see `jobs.lease`. A run knows itself when it has ended."""

from django.conf import settings
from django.db import migrations, models

END = """
    UPDATE chats_run SET ended_at = coalesce(chats_run.lease_until, chats_run.created_at)
      FROM chats_message
     WHERE chats_message.id = chats_run.message_id AND chats_message.status <> 'STREAMING'
"""


class Migration(migrations.Migration):
    dependencies = [
        ("chats", "0006_label"),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.AddField(
            model_name="run",
            name="ended_at",
            field=models.DateTimeField(blank=True, null=True, verbose_name="ended at"),
        ),
        migrations.AddField(
            model_name="run",
            name="started_at",
            field=models.DateTimeField(blank=True, editable=False, null=True),
        ),
        migrations.AlterField(
            model_name="run",
            name="enqueued_at",
            field=models.DateTimeField(
                blank=True, editable=False, null=True, verbose_name="queued at"
            ),
        ),
        migrations.AlterField(
            model_name="run",
            name="claim",
            field=models.UUIDField(blank=True, editable=False, null=True, verbose_name="claim"),
        ),
        migrations.AlterField(
            model_name="run",
            name="lease_until",
            field=models.DateTimeField(
                blank=True, editable=False, null=True, verbose_name="held until"
            ),
        ),
        migrations.AlterField(
            model_name="run",
            name="attempts",
            field=models.PositiveSmallIntegerField(
                default=0, editable=False, verbose_name="attempts"
            ),
        ),
        migrations.RunSQL(END, migrations.RunSQL.noop),
        migrations.AddIndex(
            model_name="run",
            index=models.Index(
                condition=models.Q(("ended_at", None)),
                fields=["owner", "created_at"],
                name="run_in_turn",
            ),
        ),
        migrations.AddIndex(
            model_name="run",
            index=models.Index(fields=["owner", "started_at"], name="run_last_served"),
        ),
        migrations.RenameField(model_name="turn", old_name="note_attempts", new_name="attempts"),
        migrations.AlterField(
            model_name="turn",
            name="attempts",
            field=models.PositiveSmallIntegerField(
                default=0, editable=False, verbose_name="attempts"
            ),
        ),
        migrations.AddField(
            model_name="turn",
            name="claim",
            field=models.UUIDField(blank=True, editable=False, null=True, verbose_name="claim"),
        ),
        migrations.AddField(
            model_name="turn",
            name="lease_until",
            field=models.DateTimeField(
                blank=True, editable=False, null=True, verbose_name="held until"
            ),
        ),
        migrations.AddField(
            model_name="turn",
            name="enqueued_at",
            field=models.DateTimeField(
                blank=True, editable=False, null=True, verbose_name="queued at"
            ),
        ),
    ]
