"""Which codes a document has comes from an index alone."""

from django.db import migrations, models


class Migration(migrations.Migration):
    """One table; for a million chunks a tenth of a second, during which its readers wait."""

    dependencies = [("documents", "0024_library_statistics")]

    operations = [
        migrations.RemoveConstraint(model_name="vectorcodes", name="one_row_of_codes_a_document"),
        migrations.AddConstraint(
            model_name="vectorcodes",
            constraint=models.UniqueConstraint(
                fields=("document_id", "space_id"), include=("id",), name="codes_of_a_document"
            ),
        ),
    ]
