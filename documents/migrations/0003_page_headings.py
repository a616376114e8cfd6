"""Headings of a page, from which a document's outline is shown."""

from django.db import migrations, models


class Migration(migrations.Migration):
    """A column that older nodes leave empty."""

    dependencies = [("documents", "0002_audit_log")]

    operations = [
        migrations.AddField("documentpage", "headings", models.JSONField(null=True)),
    ]
