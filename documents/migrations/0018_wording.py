"""Labels and help texts in plainer English; the columns stay as they are."""

from django.db import migrations, models


class Migration(migrations.Migration):
    """Changes no table."""

    dependencies = [
        ("auth", "0012_alter_user_first_name_max_length"),
        ("documents", "0017_stage_pictured"),
    ]

    operations = [
        migrations.AlterField(
            model_name="connectedmodel",
            name="context_tokens",
            field=models.PositiveIntegerField(
                blank=True,
                help_text="In tokens. Leave empty to take what the server says",
                null=True,
                verbose_name="context length",
            ),
        ),
        migrations.AlterField(
            model_name="connectedmodel",
            name="groups",
            field=models.ManyToManyField(
                blank=True,
                help_text="Who may choose it. Leave empty for everyone",
                related_name="+",
                to="auth.group",
                verbose_name="groups",
            ),
        ),
        migrations.AlterField(
            model_name="connectedmodel",
            name="languages",
            field=models.CharField(
                blank=True,
                default="",
                help_text="Languages that an embedding model knows: ko,en or * for all. Leave empty to take what is known of it",
                max_length=200,
                verbose_name="languages",
            ),
        ),
        migrations.AlterField(
            model_name="connectedmodel",
            name="model",
            field=models.CharField(
                blank=True, help_text="Name on the server", max_length=200, verbose_name="model"
            ),
        ),
        migrations.AlterField(
            model_name="connectedmodel",
            name="name",
            field=models.CharField(
                blank=True,
                help_text="Leave empty to use the name on the server",
                max_length=100,
                verbose_name="shown as",
            ),
        ),
        migrations.AlterField(
            model_name="connectedmodel",
            name="thinking",
            field=models.BooleanField(
                blank=True,
                help_text="If unknown, as set in the environment",
                null=True,
                verbose_name="thinks first",
            ),
        ),
        migrations.AlterField(
            model_name="deletion",
            name="due_at",
            field=models.DateTimeField(verbose_name="copies to be erased at"),
        ),
        migrations.AlterField(
            model_name="deletion",
            name="erased_at",
            field=models.DateTimeField(null=True, verbose_name="copies erased at"),
        ),
        migrations.AlterField(
            model_name="quotarule",
            name="hard",
            field=models.PositiveBigIntegerField(
                blank=True, help_text="Leave empty for no limit.", null=True, verbose_name="limit"
            ),
        ),
        migrations.AlterField(
            model_name="quotarule",
            name="soft",
            field=models.PositiveBigIntegerField(
                blank=True,
                help_text="Leave empty to warn shortly before the limit.",
                null=True,
                verbose_name="warn from",
            ),
        ),
    ]
