"""Labels and help texts in plainer English; the columns stay as they are."""

from django.db import migrations, models


class Migration(migrations.Migration):
    """Changes no table."""

    dependencies = [
        ("auth", "0012_alter_user_first_name_max_length"),
        ("chats", "0023_list_of_all_chats"),
    ]

    operations = [
        migrations.AlterField(
            model_name="profileslot",
            name="status",
            field=models.CharField(
                choices=[
                    ("active", "known"),
                    ("proposed", "to be confirmed"),
                    ("past", "no longer true"),
                ],
                default="active",
                max_length=8,
            ),
        ),
        migrations.AlterField(
            model_name="toolserver",
            name="groups",
            field=models.ManyToManyField(
                blank=True,
                help_text="Who may choose it. Leave empty for everyone",
                related_name="+",
                to="auth.group",
                verbose_name="groups",
            ),
        ),
    ]
