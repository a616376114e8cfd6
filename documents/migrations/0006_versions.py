"""When the current file came, when the index of older documents was written, what was said of them."""

import django.utils.timezone
from django.db import migrations, models
from django.db.models import F


def fill(apps, _editor):
    """The times that the rows know."""
    documents = apps.get_model("documents", "Document").objects
    documents.update(received_at=F("created_at"))
    documents.filter(chunk_count__gt=0, indexed_at=None).update(indexed_at=F("updated_at"))
    # Nobody knows any more which of it people wrote: all of it stays when files are read anew.
    documents.update(stated=F("metadata"))


class Migration(migrations.Migration):
    """The field and its values."""

    dependencies = [("documents", "0005_reading")]

    operations = [
        migrations.AddField(
            model_name="document",
            name="received_at",
            field=models.DateTimeField(default=django.utils.timezone.now, editable=False),
        ),
        migrations.RunPython(fill, migrations.RunPython.noop),
    ]
