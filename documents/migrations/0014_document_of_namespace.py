"""What a search asks of the documents of a namespace comes from an index alone."""

from django.db import migrations, models


class Migration(migrations.Migration):
    """The old index goes first: it takes the stronger lock, and none is taken after a weaker one."""

    dependencies = [("documents", "0013_vector_codes")]

    operations = [
        migrations.RemoveIndex(model_name="document", name="document_in_namespace"),
        migrations.AddIndex(
            model_name="document",
            index=models.Index(
                fields=("namespace",),
                include=("id", "terms_version", "chunk_count"),
                name="document_of_namespace",
            ),
        ),
    ]
