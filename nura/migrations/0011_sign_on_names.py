"""No sign-on server has the name that connections with the directory go by."""

import django.core.validators
from django.db import migrations, models


class Migration(migrations.Migration):
    """A rule for what is entered; no column changes."""

    dependencies = [("nura", "0010_document_layout")]

    operations = [
        migrations.AlterField(
            model_name="signonserver",
            name="slug",
            field=models.SlugField(
                help_text="A part of the address that the server sends people back to. It stays.",
                max_length=40,
                unique=True,
                validators=[django.core.validators.RegexValidator("^(?!(openid_connect|ldap)$)")],
                verbose_name="short name",
            ),
        ),
    ]
