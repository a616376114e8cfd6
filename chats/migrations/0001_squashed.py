"""Tables of conversations. Takes the place of the migrations from before the first release."""

import django.contrib.postgres.fields
import django.db.models.deletion
import pgvector.django.halfvec
import uuid
from django.conf import settings
from django.db import migrations, models


class Migration(migrations.Migration):

    replaces = [('chats', '0001_initial'), ('chats', '0002_turns'), ('chats', '0003_fill_turns'), ('chats', '0004_strength'), ('chats', '0005_daily_messages'), ('chats', '0006_label'), ('chats', '0007_jobs')]

    initial = True

    dependencies = [
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
        ('documents', '0001_squashed'),
    ]

    operations = [
        migrations.CreateModel(
            name='Category',
            fields=[
                ('id', models.UUIDField(default=uuid.uuid4, editable=False, primary_key=True, serialize=False)),
                ('name', models.CharField(max_length=100, verbose_name='name')),
                ('owner', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='categories', to=settings.AUTH_USER_MODEL, verbose_name='owner')),
            ],
            options={
                'verbose_name': 'category',
                'verbose_name_plural': 'categories',
                'ordering': ('name', 'id'),
                'constraints': [models.UniqueConstraint(fields=('owner', 'name'), name='one_category_a_name')],
            },
        ),
        migrations.CreateModel(
            name='Chat',
            fields=[
                ('id', models.UUIDField(default=uuid.uuid4, editable=False, primary_key=True, serialize=False)),
                ('title', models.CharField(max_length=200, verbose_name='title')),
                ('history_pairs', models.PositiveSmallIntegerField(blank=True, null=True, verbose_name='remembered pairs')),
                ('external_id', models.CharField(blank=True, default='', max_length=200, verbose_name='id in another program')),
                ('memory_cleared_at', models.DateTimeField(editable=False, null=True)),
                ('deleted_at', models.DateTimeField(blank=True, null=True, verbose_name='deleted at')),
                ('created_at', models.DateTimeField(auto_now_add=True, verbose_name='created at')),
                ('updated_at', models.DateTimeField(auto_now=True, verbose_name='changed at')),
                ('category', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='chats', to='chats.category', verbose_name='category')),
                ('owner', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='chats', to=settings.AUTH_USER_MODEL, verbose_name='owner')),
            ],
            options={
                'verbose_name': 'chat',
                'verbose_name_plural': 'chats',
                'ordering': ('-updated_at', 'id'),
                'indexes': [models.Index(fields=['owner', '-updated_at'], name='chats_chat_owner_i_7e1698_idx')],
                'constraints': [models.UniqueConstraint(condition=models.Q(('external_id', ''), _negated=True), fields=('owner', 'external_id'), name='one_chat_an_external_id')],
            },
        ),
        migrations.CreateModel(
            name='ChatDocument',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('chat', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='document_links', to='chats.chat')),
                ('document', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='chat_links', to='documents.document')),
            ],
            options={
                'constraints': [models.UniqueConstraint(fields=('chat', 'document'), name='one_link_a_document')],
            },
        ),
        migrations.AddField(
            model_name='chat',
            name='documents',
            field=models.ManyToManyField(related_name='chats', through='chats.ChatDocument', to='documents.document'),
        ),
        migrations.CreateModel(
            name='DailyMessages',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('day', models.DateField()),
                ('count', models.PositiveIntegerField(default=0)),
                ('owner', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='+', to=settings.AUTH_USER_MODEL)),
            ],
            options={
                'constraints': [models.UniqueConstraint(fields=('owner', 'day'), name='one_count_a_day')],
            },
        ),
        migrations.CreateModel(
            name='Message',
            fields=[
                ('id', models.UUIDField(default=uuid.uuid4, editable=False, primary_key=True, serialize=False)),
                ('role', models.CharField(choices=[('user', 'User'), ('assistant', 'Assistant')], max_length=9, verbose_name='role')),
                ('content', models.TextField(blank=True, default='', verbose_name='content')),
                ('status', models.CharField(choices=[('STREAMING', 'Answering'), ('COMPLETED', 'Completed'), ('STOPPED', 'Stopped'), ('FAILED', 'Failed'), ('INTERRUPTED', 'Interrupted')], default='COMPLETED', max_length=11, verbose_name='status')),
                ('mode', models.CharField(blank=True, choices=[('documents', 'From documents'), ('general', 'General knowledge'), ('clarify', 'Clarifying question'), ('document', 'Whole document')], default='', max_length=9, verbose_name='mode')),
                ('label', models.CharField(blank=True, choices=[('documents', 'From documents'), ('partial', 'Partly from documents'), ('insufficient', 'Not in the documents'), ('general', 'General knowledge'), ('conversation', 'From this conversation'), ('passages', 'Passages found')], default='', max_length=12, verbose_name='rests on')),
                ('sources', models.JSONField(blank=True, null=True, verbose_name='sources')),
                ('error_code', models.CharField(blank=True, default='', max_length=64, verbose_name='error code')),
                ('error_params', models.JSONField(blank=True, default=dict, verbose_name='error details')),
                ('question_type', models.CharField(blank=True, default='', max_length=9, verbose_name='kind of question')),
                ('scope', models.JSONField(blank=True, null=True, verbose_name='scope')),
                ('candidates', models.JSONField(blank=True, null=True, verbose_name='candidates')),
                ('view', models.JSONField(blank=True, null=True, verbose_name='part shown')),
                ('usage', models.JSONField(blank=True, null=True, verbose_name='usage')),
                ('reasoning', models.TextField(blank=True, default='', verbose_name='reasoning')),
                ('grounding', models.JSONField(blank=True, null=True, verbose_name='grounding')),
                ('notices', models.JSONField(blank=True, default=list, verbose_name='notices')),
                ('created_at', models.DateTimeField(verbose_name='created at')),
                ('chat', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='messages', to='chats.chat', verbose_name='chat')),
                ('parent', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.CASCADE, related_name='children', to='chats.message', verbose_name='parent')),
            ],
            options={
                'verbose_name': 'message',
                'verbose_name_plural': 'messages',
                'ordering': ('created_at', 'id'),
                'indexes': [models.Index(fields=['chat', 'created_at'], name='chats_messa_chat_id_a8ed7c_idx')],
            },
        ),
        migrations.CreateModel(
            name='Feedback',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('value', models.SmallIntegerField(choices=[(1, 'Helpful'), (-1, 'Not helpful')])),
                ('reason', models.CharField(blank=True, default='', max_length=1000)),
                ('updated_at', models.DateTimeField(auto_now=True)),
                ('user', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='+', to=settings.AUTH_USER_MODEL)),
                ('message', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='feedback', to='chats.message')),
            ],
            options={
                'constraints': [models.UniqueConstraint(fields=('message', 'user'), name='one_verdict_a_user')],
            },
        ),
        migrations.CreateModel(
            name='MessageDocument',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('document', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='message_links', to='documents.document')),
                ('message', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='document_links', to='chats.message')),
            ],
            options={
                'constraints': [models.UniqueConstraint(fields=('message', 'document'), name='one_mention_a_document')],
            },
        ),
        migrations.AddField(
            model_name='message',
            name='documents',
            field=models.ManyToManyField(related_name='+', through='chats.MessageDocument', to='documents.document'),
        ),
        migrations.CreateModel(
            name='Run',
            fields=[
                ('claim', models.UUIDField(blank=True, editable=False, null=True, verbose_name='claim')),
                ('lease_until', models.DateTimeField(blank=True, editable=False, null=True, verbose_name='held until')),
                ('attempts', models.PositiveSmallIntegerField(default=0, editable=False, verbose_name='attempts')),
                ('enqueued_at', models.DateTimeField(blank=True, editable=False, null=True, verbose_name='queued at')),
                ('started_at', models.DateTimeField(blank=True, editable=False, null=True)),
                ('id', models.UUIDField(default=uuid.uuid4, editable=False, primary_key=True, serialize=False)),
                ('client_id', models.CharField(blank=True, default='', max_length=100, verbose_name='client id')),
                ('language', models.CharField(default='ko', max_length=8, verbose_name='language')),
                ('sampling', models.JSONField(blank=True, default=dict, verbose_name='wishes')),
                ('ended_at', models.DateTimeField(blank=True, null=True, verbose_name='ended at')),
                ('created_at', models.DateTimeField(auto_now_add=True, verbose_name='created at')),
                ('message', models.OneToOneField(on_delete=django.db.models.deletion.CASCADE, related_name='run', to='chats.message', verbose_name='message')),
                ('owner', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='+', to=settings.AUTH_USER_MODEL, verbose_name='owner')),
            ],
            options={
                'verbose_name': 'run',
                'verbose_name_plural': 'runs',
                'indexes': [models.Index(condition=models.Q(('ended_at', None)), fields=['owner', 'created_at'], name='run_in_turn'), models.Index(fields=['owner', 'started_at'], name='run_last_served')],
                'constraints': [models.UniqueConstraint(condition=models.Q(('client_id', ''), _negated=True), fields=('owner', 'client_id'), name='one_run_a_client_id')],
            },
        ),
        migrations.CreateModel(
            name='Trace',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('steps', models.JSONField(default=dict)),
                ('message', models.OneToOneField(on_delete=django.db.models.deletion.CASCADE, related_name='trace', to='chats.message')),
            ],
        ),
        migrations.CreateModel(
            name='Turn',
            fields=[
                ('claim', models.UUIDField(blank=True, editable=False, null=True, verbose_name='claim')),
                ('lease_until', models.DateTimeField(blank=True, editable=False, null=True, verbose_name='held until')),
                ('attempts', models.PositiveSmallIntegerField(default=0, editable=False, verbose_name='attempts')),
                ('enqueued_at', models.DateTimeField(blank=True, editable=False, null=True, verbose_name='queued at')),
                ('id', models.UUIDField(default=uuid.uuid4, editable=False, primary_key=True, serialize=False)),
                ('number', models.PositiveIntegerField(verbose_name='number')),
                ('ts', models.DateTimeField(verbose_name='asked at')),
                ('user_text', models.TextField(verbose_name='question')),
                ('assistant_text', models.TextField(blank=True, verbose_name='answer')),
                ('question_type', models.CharField(blank=True, default='', max_length=9, verbose_name='kind of question')),
                ('mode', models.CharField(blank=True, choices=[('documents', 'From documents'), ('general', 'General knowledge'), ('clarify', 'Clarifying question'), ('document', 'Whole document')], default='', max_length=9)),
                ('label', models.CharField(blank=True, choices=[('documents', 'From documents'), ('partial', 'Partly from documents'), ('insufficient', 'Not in the documents'), ('general', 'General knowledge'), ('conversation', 'From this conversation'), ('passages', 'Passages found')], default='', max_length=12)),
                ('schema_version', models.PositiveSmallIntegerField(default=1)),
                ('doc_refs', models.JSONField(default=list)),
                ('document_ids', django.contrib.postgres.fields.ArrayField(base_field=models.UUIDField(), default=list, size=None)),
                ('candidates', models.JSONField(default=list)),
                ('view', models.JSONField(null=True)),
                ('forgets', models.BooleanField(default=False)),
                ('remembered', models.JSONField(default=list)),
                ('summary', models.TextField(blank=True, default='', verbose_name='summary')),
                ('summary_model', models.CharField(blank=True, default='', max_length=255)),
                ('summarised_at', models.DateTimeField(null=True)),
                ('terms', models.JSONField(default=dict)),
                ('vector', pgvector.django.halfvec.HalfVectorField(null=True)),
                ('embedding', models.CharField(blank=True, default='', max_length=255)),
                ('running_summary', models.TextField(blank=True, default='')),
                ('running_through', models.PositiveIntegerField(null=True)),
                ('running_model', models.CharField(blank=True, default='', max_length=255)),
                ('created_at', models.DateTimeField(auto_now_add=True)),
                ('chat', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='turns', to='chats.chat', verbose_name='chat')),
                ('message', models.OneToOneField(on_delete=django.db.models.deletion.CASCADE, related_name='turn', to='chats.message', verbose_name='answer')),
                ('parent', models.ForeignKey(null=True, on_delete=django.db.models.deletion.CASCADE, related_name='children', to='chats.turn', verbose_name='turn before')),
                ('shown', models.ForeignKey(null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='+', to='chats.turn')),
            ],
            options={
                'verbose_name': 'turn',
                'verbose_name_plural': 'turns',
                'ordering': ('number', 'ts', 'id'),
                'indexes': [models.Index(fields=['chat', 'number'], name='chats_turn_chat_id_0dd890_idx'), models.Index(condition=models.Q(('summarised_at', None)), fields=['created_at'], name='turn_unsummarised')],
            },
        ),
    ]
