"""Labels and help texts in plainer English; the columns stay as they are."""

import django.core.validators
from django.db import migrations, models


class Migration(migrations.Migration):
    """Changes no table."""

    dependencies = [
        ("nura", "0011_sign_on_names"),
    ]

    operations = [
        migrations.AlterField(
            model_name="banner",
            name="dismissible",
            field=models.BooleanField(
                default=True,
                help_text="For each person until the next banner",
                verbose_name="can be dismissed",
            ),
        ),
        migrations.AlterField(
            model_name="groupdetails",
            name="directory_name",
            field=models.CharField(
                blank=True,
                default="",
                help_text="Its members then come from the sign-on server at each sign-in. Leave empty to choose them yourself.",
                max_length=250,
                verbose_name="name in the directory",
            ),
        ),
        migrations.AlterField(
            model_name="preferences",
            name="theme",
            field=models.CharField(
                choices=[("system", "Same as the system"), ("light", "Light"), ("dark", "Dark")],
                default="system",
                max_length=8,
            ),
        ),
        migrations.AlterField(
            model_name="signonserver",
            name="domains",
            field=models.CharField(
                blank=True,
                default="",
                help_text="Only people with a verified address there may sign in. Separate several with commas.",
                max_length=500,
                verbose_name="e-mail domains",
            ),
        ),
        migrations.AlterField(
            model_name="signonserver",
            name="groups_claim",
            field=models.CharField(
                blank=True,
                default="",
                help_text="Often “groups”. Leave empty if the server has no say in groups and roles.",
                max_length=100,
                verbose_name="claim with the groups",
            ),
        ),
        migrations.AlterField(
            model_name="signonserver",
            name="issuer",
            field=models.URLField(
                help_text="The server's address, as given in its /.well-known/openid-configuration.",
                max_length=500,
                verbose_name="issuer",
            ),
        ),
        migrations.AlterField(
            model_name="signonserver",
            name="link_by_email",
            field=models.BooleanField(
                default=False,
                help_text="Whoever signs in there with a verified address gets the account with that address, unless it is an administrator's.",
                verbose_name="link accounts by address",
            ),
        ),
        migrations.AlterField(
            model_name="signonserver",
            name="name",
            field=models.CharField(
                help_text="As shown on the button of the sign-in page.",
                max_length=40,
                verbose_name="name",
            ),
        ),
        migrations.AlterField(
            model_name="signonserver",
            name="sign_up",
            field=models.CharField(
                choices=[
                    ("everybody", "Everybody who signs in there"),
                    ("invited", "Those who are invited"),
                    ("nobody", "Nobody: accounts must already exist"),
                ],
                default="invited",
                max_length=10,
                verbose_name="who gets an account",
            ),
        ),
        migrations.AlterField(
            model_name="signonserver",
            name="slug",
            field=models.SlugField(
                help_text="Part of the address that the server sends people back to. It cannot be changed later.",
                max_length=40,
                unique=True,
                validators=[django.core.validators.RegexValidator("^(?!(openid_connect|ldap)$)")],
                verbose_name="short name",
            ),
        ),
        migrations.AlterField(
            model_name="signonserver",
            name="vouches_for_email",
            field=models.BooleanField(
                default=False,
                help_text="Treat addresses as verified even if the server does not say so. Only for a server of your own, such as a single tenant of Entra ID.",
                verbose_name="treat all addresses as verified",
            ),
        ),
    ]
