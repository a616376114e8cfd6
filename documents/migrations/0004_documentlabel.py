import django.db.models.deletion
from django.db import migrations, models

from documents.metadata import list_labels

AT_ONCE = 1000


def fill(apps, schema_editor):
    """The names of documents that are there already."""
    documents, labels = apps.get_model("documents", "Document"), []
    model = apps.get_model("documents", "DocumentLabel")
    for pk, name, metadata in documents.objects.values_list("pk", "name", "metadata").iterator():
        for (field, compared), shown in list_labels(name, metadata).items():
            labels.append(model(document_id=pk, field=field, value=shown, name=compared))
    model.objects.bulk_create(labels, batch_size=AT_ONCE)


class Migration(migrations.Migration):

    dependencies = [
        ('documents', '0003_reindexing'),
    ]

    operations = [
        migrations.CreateModel(
            name='DocumentLabel',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('field', models.CharField(max_length=20)),
                ('value', models.CharField(max_length=200)),
                ('name', models.CharField(db_index=True, max_length=200)),
                ('document', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='labels', to='documents.document')),
            ],
            options={
                'constraints': [models.UniqueConstraint(fields=('document', 'field', 'name'), name='one_row_a_label')],
            },
        ),
        migrations.RunPython(fill, migrations.RunPython.noop),
    ]
