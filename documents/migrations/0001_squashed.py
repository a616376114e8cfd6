"""Tables of documents. Takes the place of the migrations from before the first release."""

import django.contrib.postgres.indexes
import django.contrib.postgres.search
import django.db.models.deletion
import django.utils.timezone
import pgvector.django.halfvec
import pgvector.django.sparsevec
import uuid
from django.conf import settings
from django.db import migrations, models
from pgvector.django import VectorExtension


class Migration(migrations.Migration):

    replaces = [('documents', '0001_initial'), ('documents', '0002_chunkterms'), ('documents', '0003_reindexing'), ('documents', '0004_documentlabel'), ('documents', '0005_reading'), ('documents', '0006_versions'), ('documents', '0007_queue'), ('documents', '0008_lean_indexes'), ('documents', '0009_terms_version'), ('documents', '0010_reindexing_job')]

    initial = True

    dependencies = [
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        VectorExtension(),
        migrations.CreateModel(
            name='Document',
            fields=[
                ('claim', models.UUIDField(blank=True, editable=False, null=True, verbose_name='claim')),
                ('lease_until', models.DateTimeField(blank=True, editable=False, null=True, verbose_name='held until')),
                ('attempts', models.PositiveSmallIntegerField(default=0, editable=False, verbose_name='attempts')),
                ('enqueued_at', models.DateTimeField(blank=True, editable=False, null=True, verbose_name='queued at')),
                ('started_at', models.DateTimeField(blank=True, editable=False, null=True)),
                ('id', models.UUIDField(default=uuid.uuid4, editable=False, primary_key=True, serialize=False)),
                ('name', models.CharField(max_length=255, verbose_name='name')),
                ('original_name', models.CharField(max_length=1024, verbose_name='original name')),
                ('file', models.FileField(max_length=255, upload_to='', verbose_name='file')),
                ('content_type', models.CharField(max_length=127, verbose_name='content type')),
                ('size', models.BigIntegerField(verbose_name='size')),
                ('sha256', models.CharField(max_length=64, verbose_name='SHA-256')),
                ('status', models.CharField(choices=[('PROCESSING', 'Processing'), ('COMPLETED', 'Completed'), ('FAILED', 'Failed')], default='PROCESSING', max_length=10, verbose_name='status')),
                ('stage', models.CharField(choices=[('queued', 'Queued'), ('parsing', 'Reading'), ('chunking', 'Splitting'), ('embedding', 'Embedding'), ('indexing', 'Indexing'), ('paused', 'Paused'), ('done', 'Done')], default='queued', max_length=10, verbose_name='stage')),
                ('progress', models.FloatField(default=0.0, verbose_name='progress')),
                ('error_code', models.CharField(blank=True, default='', max_length=64, verbose_name='error code')),
                ('error_params', models.JSONField(blank=True, default=dict, verbose_name='error details')),
                ('warnings', models.JSONField(blank=True, default=list, verbose_name='warnings')),
                ('page_count', models.PositiveIntegerField(blank=True, null=True, verbose_name='pages')),
                ('chunk_count', models.PositiveIntegerField(default=0, verbose_name='chunks')),
                ('metadata', models.JSONField(blank=True, default=dict, verbose_name='metadata')),
                ('stated', models.JSONField(blank=True, default=dict, editable=False)),
                ('terms_version', models.PositiveSmallIntegerField(default=0, editable=False)),
                ('pages_done', models.PositiveIntegerField(default=0, editable=False)),
                ('indexed_at', models.DateTimeField(blank=True, editable=False, null=True)),
                ('seconds', models.JSONField(blank=True, default=dict, editable=False)),
                ('version', models.PositiveIntegerField(default=1, verbose_name='version')),
                ('received_at', models.DateTimeField(default=django.utils.timezone.now, editable=False)),
                ('created_at', models.DateTimeField(auto_now_add=True, verbose_name='created at')),
                ('updated_at', models.DateTimeField(auto_now=True, verbose_name='changed at')),
                ('owner', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='documents', to=settings.AUTH_USER_MODEL, verbose_name='owner')),
            ],
            options={
                'verbose_name': 'document',
                'verbose_name_plural': 'documents',
                'ordering': ('-created_at', 'id'),
                'indexes': [models.Index(fields=['owner', '-created_at'], name='documents_d_owner_i_13f3b4_idx'), models.Index(fields=['owner', 'status'], name='documents_d_owner_i_683479_idx'), models.Index(fields=['owner', 'sha256'], name='document_same_bytes'), models.Index(fields=['owner', 'started_at'], name='document_last_served'), models.Index(condition=models.Q(('status', 'PROCESSING')), fields=['owner', 'created_at'], name='document_in_turn'), models.Index(condition=models.Q(('claim__isnull', False), ('status', 'PROCESSING')), fields=['owner'], name='document_at_work'), models.Index(condition=models.Q(('status', 'COMPLETED')), fields=['indexed_at'], name='document_read_last')],
            },
        ),
        migrations.CreateModel(
            name='Chunk',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('owner_id', models.BigIntegerField()),
                ('index', models.PositiveIntegerField()),
                ('text', models.TextField()),
                ('start', models.PositiveIntegerField()),
                ('end', models.PositiveIntegerField()),
                ('page', models.PositiveIntegerField(null=True)),
                ('page_end', models.PositiveIntegerField(null=True)),
                ('section', models.TextField(blank=True, default='')),
                ('boxes', models.JSONField(default=list)),
                ('kind', models.CharField(default='text', max_length=12)),
                ('header', models.TextField(blank=True, default='')),
                ('term_count', models.PositiveIntegerField(default=0)),
                ('lexemes', django.contrib.postgres.search.SearchVectorField()),
                ('document', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='chunks', to='documents.document')),
            ],
            options={
                'ordering': ('document', 'index'),
                'indexes': [django.contrib.postgres.indexes.GinIndex(fastupdate=False, fields=['lexemes'], name='chunk_lexemes')],
                'constraints': [models.UniqueConstraint(fields=('document', 'index'), name='one_row_a_chunk')],
            },
        ),
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
        migrations.CreateModel(
            name='DocumentPage',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('number', models.PositiveIntegerField()),
                ('start', models.PositiveIntegerField()),
                ('text', models.TextField()),
                ('margins', models.JSONField(default=list)),
                ('document', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='pages', to='documents.document')),
            ],
            options={
                'ordering': ('document', 'number'),
                'constraints': [models.UniqueConstraint(fields=('document', 'number'), name='one_row_a_page')],
            },
        ),
        migrations.CreateModel(
            name='DocumentPicture',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('index', models.PositiveIntegerField()),
                ('page', models.PositiveIntegerField(null=True)),
                ('digest', models.CharField(max_length=64)),
                ('width', models.PositiveIntegerField()),
                ('height', models.PositiveIntegerField()),
                ('box', models.JSONField(null=True)),
                ('rejected', models.CharField(blank=True, default='', max_length=20)),
                ('file', models.FileField(blank=True, default='', max_length=255, upload_to='')),
                ('content_type', models.CharField(blank=True, default='', max_length=40)),
                ('description', models.TextField(null=True)),
                ('model', models.CharField(blank=True, default='', max_length=255)),
                ('document', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='pictures', to='documents.document')),
            ],
            options={
                'ordering': ('document', 'index'),
                'constraints': [models.UniqueConstraint(fields=('document', 'index'), name='one_row_a_picture')],
            },
        ),
        migrations.CreateModel(
            name='DocumentVersion',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('number', models.PositiveIntegerField()),
                ('state', models.CharField(choices=[('pending', 'Waiting'), ('old', 'Replaced'), ('refused', 'Refused')], default='pending', max_length=8)),
                ('name', models.CharField(max_length=255)),
                ('original_name', models.CharField(max_length=1024)),
                ('file', models.FileField(max_length=255, upload_to='')),
                ('content_type', models.CharField(max_length=127)),
                ('size', models.BigIntegerField()),
                ('sha256', models.CharField(max_length=64)),
                ('page_count', models.PositiveIntegerField(null=True)),
                ('text', models.TextField(blank=True, default='')),
                ('page_starts', models.JSONField(default=list)),
                ('error_code', models.CharField(blank=True, default='', max_length=64)),
                ('error_params', models.JSONField(blank=True, default=dict)),
                ('created_at', models.DateTimeField()),
                ('document', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='versions', to='documents.document')),
            ],
            options={
                'ordering': ('document', '-number'),
                'constraints': [models.UniqueConstraint(fields=('document', 'number'), name='one_row_a_version')],
            },
        ),
        migrations.CreateModel(
            name='EmbeddingSpace',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('model', models.CharField(max_length=255, verbose_name='model')),
                ('dimensions', models.PositiveIntegerField(verbose_name='dimensions')),
                ('languages', models.JSONField(default=list, verbose_name='languages')),
                ('base_url', models.CharField(blank=True, default='', editable=False, max_length=500)),
                ('active', models.BooleanField(default=False, verbose_name='active')),
                ('retired_at', models.DateTimeField(editable=False, null=True, verbose_name='in use until')),
                ('unrelated', models.FloatField(editable=False, null=True)),
                ('created_at', models.DateTimeField(auto_now_add=True, verbose_name='created at')),
            ],
            options={
                'verbose_name': 'embedding space',
                'verbose_name_plural': 'embedding spaces',
                'constraints': [models.UniqueConstraint(fields=('model', 'dimensions'), name='one_space_a_model'), models.UniqueConstraint(condition=models.Q(('active', True)), fields=('active',), name='one_active')],
            },
        ),
        migrations.CreateModel(
            name='ChunkEmbedding',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('vector', pgvector.django.halfvec.HalfVectorField()),
                ('chunk', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='embeddings', to='documents.chunk')),
                ('document', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='+', to='documents.document')),
                ('space', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='embeddings', to='documents.embeddingspace')),
            ],
            options={
                'constraints': [models.UniqueConstraint(fields=('chunk', 'space'), name='one_vector_a_space')],
            },
        ),
        migrations.CreateModel(
            name='Reindexing',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('claim', models.UUIDField(blank=True, editable=False, null=True, verbose_name='claim')),
                ('lease_until', models.DateTimeField(blank=True, editable=False, null=True, verbose_name='held until')),
                ('attempts', models.PositiveSmallIntegerField(default=0, editable=False, verbose_name='attempts')),
                ('enqueued_at', models.DateTimeField(blank=True, editable=False, null=True, verbose_name='queued at')),
                ('model', models.CharField(max_length=255, verbose_name='model')),
                ('base_url', models.CharField(blank=True, default='', max_length=500)),
                ('languages', models.JSONField(default=list)),
                ('background', models.BooleanField(default=False)),
                ('open', models.BooleanField(default=True)),
                ('state', models.CharField(choices=[('waiting', 'Waiting'), ('filling', 'Embedding'), ('indexing', 'Indexing'), ('comparing', 'Comparing'), ('swapped', 'Done'), ('refused', 'Refused'), ('failed', 'Failed'), ('replaced', 'Replaced by another')], default='waiting', max_length=10, verbose_name='state')),
                ('done', models.PositiveBigIntegerField(default=0)),
                ('total', models.PositiveBigIntegerField(default=0)),
                ('report', models.JSONField(default=dict)),
                ('error', models.CharField(blank=True, default='', max_length=500)),
                ('created_at', models.DateTimeField(auto_now_add=True)),
                ('updated_at', models.DateTimeField(auto_now=True)),
                ('space', models.ForeignKey(null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='reindexings', to='documents.embeddingspace')),
            ],
            options={
                'verbose_name': 're-embedding',
                'verbose_name_plural': 're-embeddings',
                'ordering': ('-pk',),
                'constraints': [models.UniqueConstraint(condition=models.Q(('open', True)), fields=('open',), name='one_open_reindexing')],
            },
        ),
        migrations.CreateModel(
            name='ChunkTerms',
            fields=[
                ('chunk', models.OneToOneField(on_delete=django.db.models.deletion.CASCADE, primary_key=True, related_name='+', serialize=False, to='documents.chunk')),
                ('length', models.PositiveIntegerField()),
                ('marks', pgvector.django.sparsevec.SparseVectorField(dimensions=1000000000)),
                ('surplus', pgvector.django.sparsevec.SparseVectorField(dimensions=1000000000, null=True)),
                ('document', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='+', to='documents.document')),
            ],
        ),
        # A search reads terms by the thousand: they stay whole and uncompressed in their row, as do
        # vectors. Of a chunk it reads only the short values: text and lexemes are out of their way.
        migrations.RunSQL(
            """
            ALTER TABLE documents_chunk ALTER COLUMN lexemes SET STORAGE EXTERNAL;
            ALTER TABLE documents_chunk SET (toast_tuple_target = 128);
            ALTER TABLE documents_chunkembedding ALTER COLUMN vector SET STORAGE MAIN;
            ALTER TABLE documents_chunkterms ALTER COLUMN marks SET STORAGE EXTERNAL;
            ALTER TABLE documents_chunkterms ALTER COLUMN surplus SET STORAGE EXTERNAL;
            ALTER TABLE documents_chunkterms SET (toast_tuple_target = 8160);
            """,
            migrations.RunSQL.noop,
        ),
    ]
