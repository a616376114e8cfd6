"""The plural name of an entry of the audit log; the columns stay as they are."""

from django.db import migrations


class Migration(migrations.Migration):
    """Changes no table."""

    dependencies = [
        ("documents", "0019_recognised_page"),
    ]

    operations = [
        migrations.AlterModelOptions(
            name="auditevent",
            options={
                "ordering": ("-pk",),
                "verbose_name": "audit entry",
                "verbose_name_plural": "audit entries",
            },
        ),
    ]
