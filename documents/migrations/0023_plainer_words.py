"""The refusal of a quota that warns beyond its limit, in plainer words."""

from django.db import migrations, models


class Migration(migrations.Migration):
    """Changes no table."""

    dependencies = [("documents", "0022_note_unsegmented")]

    operations = [
        migrations.AlterConstraint(
            model_name="quotarule",
            name="quota_tells_before_it_refuses",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    ("soft", None),
                    ("hard", None),
                    ("soft__lte", models.F("hard")),
                    _connector="OR",
                ),
                name="quota_tells_before_it_refuses",
                violation_error_message="“Warn from” must not exceed the limit.",
            ),
        ),
    ]
