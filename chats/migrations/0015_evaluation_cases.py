"""Answers that became cases of the evaluation; verdicts are listed by time."""

import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models


class Migration(migrations.Migration):
    """Adds only."""

    dependencies = [
        ("chats", "0014_assistants"),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            name="EvaluationCase",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("facts", models.JSONField(default=list)),
                ("answerable", models.BooleanField(default=True)),
                ("updated_at", models.DateTimeField(auto_now=True)),
            ],
            options={
                "ordering": ("pk",),
            },
        ),
        migrations.AlterModelOptions(
            name="feedback",
            options={"verbose_name": "feedback", "verbose_name_plural": "feedback"},
        ),
        migrations.AddIndex(
            model_name="feedback",
            index=models.Index(fields=["updated_at"], name="verdict_given"),
        ),
        migrations.AddField(
            model_name="evaluationcase",
            name="message",
            field=models.OneToOneField(
                on_delete=django.db.models.deletion.CASCADE, related_name="case", to="chats.message"
            ),
        ),
        migrations.AddField(
            model_name="evaluationcase",
            name="written_by",
            field=models.ForeignKey(
                null=True,
                on_delete=django.db.models.deletion.SET_NULL,
                related_name="+",
                to=settings.AUTH_USER_MODEL,
            ),
        ),
    ]
