"""Databases of other versions: of ones before the first release, of later ones, and of the next."""

import os
import re
import signal

import psycopg
import pytest
from django.core.exceptions import ImproperlyConfigured
from django.core.management import CommandError, call_command
from django.db import connection, migrations, models
from django.db.migrations import operations as ops
from django.db.migrations.executor import MigrationExecutor
from django.db.migrations.loader import MigrationLoader
from django.db.migrations.recorder import MigrationRecorder

from nura import __version__, preparation, schema
from tests.product.client import Client
from tests.support import Product, copy_prepared_folder, wait_until

pytestmark = pytest.mark.django_db


def test_a_database_with_all_former_migrations_goes_on():
    recorder = MigrationRecorder(connection)
    for app in ("documents", "chats"):
        recorder.record_unapplied(app, "0001_squashed")
    executor = MigrationExecutor(connection)
    assert executor.migration_plan(executor.loader.graph.leaf_nodes()) == []
    preparation.migrate()


@pytest.mark.parametrize(
    ("app", "last"), [("documents", "0010_reindexing_job"), ("chats", "0007_jobs")]
)
def test_a_database_that_lacks_some_of_them_is_refused_with_what_to_do(app, last):
    MigrationRecorder(connection).record_unapplied(app, last)
    with pytest.raises(ImproperlyConfigured, match=f"{app}.{last} and what follows is missing"):
        preparation.migrate()
    with pytest.raises(CommandError, match="only partly migrated"):
        call_command("migrate", verbosity=0, skip_checks=False)


@pytest.fixture
def newer_schema():
    """As a later version leaves the database."""
    MigrationRecorder(connection).record_applied("chats", "9001_of_a_later_version")


NEWER = r"newer version of Nura: chats\.9001_of_a_later_version is unknown to this one"


def test_an_older_version_neither_starts_nor_migrates_on_a_newer_schema(newer_schema):
    with pytest.raises(ImproperlyConfigured, match=NEWER):
        preparation.migrate()
    with pytest.raises(ImproperlyConfigured, match=NEWER):
        schema.require_known_schema()
    with pytest.raises(CommandError, match=NEWER):
        call_command("migrate", verbosity=0, skip_checks=False)


def test_a_process_of_a_node_that_runs_already_starts_again_on_a_newer_schema(
    newer_schema, monkeypatch
):
    monkeypatch.setenv(schema.KNOWN_VARIABLE, "yes")
    schema.require_known_schema()


def test_a_library_that_is_older_than_the_database_is_no_newer_nura():
    MigrationRecorder(connection).record_applied("account", "9001_of_a_later_allauth")
    assert schema.list_unknown_migrations(connection) == []


def test_a_former_migration_that_one_took_over_is_known():
    MigrationRecorder(connection).record_applied("chats", "0007_jobs")
    assert schema.list_unknown_migrations(connection) == []


def reach_database():
    given = connection.get_connection_params()
    return {name: given[name] for name in ("dbname", "user", "password", "host")}


def test_one_node_migrates_while_others_wait():
    with preparation.hold_migration_lock(), psycopg.connect(**reach_database()) as other:
        [(free,)] = other.execute(
            "SELECT pg_try_advisory_lock(%s)", [preparation.MIGRATION_LOCK]
        ).fetchall()
        assert not free


@pytest.mark.product
def test_c98_migrations_that_were_killed_go_on_where_they_were(tmp_path):
    product = Product(tmp_path / "var")

    def count_applied():
        try:
            with psycopg.connect(**product.database) as other:
                return other.execute("SELECT count(*) FROM django_migrations").fetchone()[0]
        except (OSError, psycopg.Error):  # no cluster, server or table yet
            return 0

    reached = []
    for _ in range(2):
        with product.start_command("migrate") as process:
            wait_until(lambda: count_applied() > max([10, *reached]), 120, step=0.02)
            reached.append(count_applied())
            os.killpg(process.pid, signal.SIGKILL)
    product.manage("migrate")
    assert product.manage("migrate", "--check", check=False).returncode == 0
    assert 10 < reached[0] < reached[1] < count_all()


FORMER_INSTALLATION = """
from hashlib import sha256
from django.contrib.auth.models import User
from django.contrib.postgres.search import SearchVector
from django.core.files.base import ContentFile
from django.core.files.storage import default_storage
from django.db import connection
from django.db.migrations.executor import MigrationExecutor
from django.db.models import Value
from django.utils import timezone
from knox.models import AuthToken
from nura import schema

executor = MigrationExecutor(connection)
ours = schema.list_our_apps()
first = [("documents", "0001_squashed"), ("chats", "0001_squashed")]
libraries = [node for node in executor.loader.graph.leaf_nodes() if node[0] not in ours]
executor.migrate([*libraries, *first])
models = executor.loader.project_state(first).apps
assert "documents_library" not in connection.introspection.table_names()

user, now = User.objects.create_user("former"), timezone.now()
def keep(name, text, **fields):
    return models.get_model("documents", "Document").objects.create(
        name=name, original_name=name, content_type="text/markdown", owner_id=user.pk,
        size=len(text.encode()), sha256=sha256(text.encode()).hexdigest(),
        file=default_storage.save(name, ContentFile(text.encode())), **fields,
    )

read = "The Kestrel pump is serviced every 40 days."
done = {"status": "COMPLETED", "stage": "done", "indexed_at": now}
kept = keep("kestrel.md", read, chunk_count=1, page_count=1, **done)
models.get_model("documents", "DocumentPage").objects.create(
    document=kept, number=1, start=0, text=read
)
models.get_model("documents", "Chunk").objects.create(
    document=kept, owner_id=user.pk, index=0, text=read, start=0, end=len(read),
    lexemes=SearchVector(Value(read), config="simple"),
)
keep("heron.md", "The Heron valve is replaced after 700 hours.", status="PROCESSING")

chat = models.get_model("chats", "Chat").objects.create(owner_id=user.pk, title="Pumps")
models.get_model("chats", "ChatDocument").objects.create(chat=chat, document=kept)
messages = models.get_model("chats", "Message").objects
asked = messages.create(
    chat=chat, role="user", content="When is the pump serviced?", created_at=now
)
told = messages.create(
    chat=chat, role="assistant", parent=asked, content="Every 40 days [1].", mode="documents",
    label="documents", created_at=timezone.now(),
    sources=[
        {
            "slot": 1, "document_id": str(kept.pk), "document_name": kept.name, "chunk_id": "1",
            "page": None, "similarity": 0.8, "content_preview": read, "section": "",
            "cited": True, "boxes": [], "version": 1, "spans": [],
        }
    ],
)
models.get_model("chats", "Run").objects.create(message=told, owner_id=user.pk, ended_at=now)
models.get_model("chats", "Turn").objects.create(
    chat=chat, message=told, number=1, ts=now, user_text=asked.content,
    assistant_text=told.content, mode="documents", label="documents", document_ids=[kept.pk],
)
print("key", AuthToken.objects.create(user)[1])
"""
"""Run by `manage.py shell`: the tables as they first were, and what was in them."""


@pytest.mark.product
@pytest.mark.timeout(300)
def test_c98_an_installation_of_a_former_schema_goes_on_with_all_that_is_in_it(
    tmp_path, small_models
):
    product = Product(tmp_path / "var", **small_models)
    copy_prepared_folder(product.data_dir)  # the script takes back what has been migrated
    key = product.manage("shell", "-v0", "-c", FORMER_INSTALLATION).stdout.split()[-1]
    with product:
        client = Client(product.url, key)
        wait_until(lambda: not get(client, "documents?status=PROCESSING")["count"], 90)
        documents = {one["name"]: one for one in get(client, "documents")["results"]}
        assert {one["status"] for one in documents.values()} == {"COMPLETED"}
        assert set(documents) == {"kestrel.md", "heron.md"}
        [kept] = get(client, f"documents/{documents['kestrel.md']['id']}/chunks")["results"]
        assert kept["text"] == "The Kestrel pump is serviced every 40 days."
        found = client.call("POST", "/search", {"query": "When is the Heron valve replaced?"})[1]
        assert "after 700 hours" in found["hits"][0]["text"]
        [chat] = get(client, "chats")["results"]
        assert (chat["title"], chat["document_ids"]) == ("Pumps", [documents["kestrel.md"]["id"]])
        asked, told = get(client, f"chats/{chat['id']}/messages")["results"]
        assert (asked["content"], told["content"]) == (
            "When is the pump serviced?",
            "Every 40 days [1].",
        )
        assert told["sources"][0]["document_name"] == "kestrel.md"
        turn = client.ask("And the Heron valve?", chat_id=chat["id"], topic="all")
        wait_until(lambda: client.message(turn)["status"] != "STREAMING", 60)
        assert client.message(turn)["status"] == "COMPLETED"


def get(client, path):
    status, body = client.call("GET", f"/{path}")
    assert status == 200, body
    return body


def count_all():
    return len(MigrationLoader(None).graph.nodes)


# Nodes of the version before work on while a newer one migrates: migrations expand the schema, and
# contract it only when no released version uses what they take away.


def list_contractions(migration, state):
    """What the migration does that would stop a node of the version before, in words."""
    state = state.clone()
    found = []
    created = {op.name_lower for op in migration.operations if isinstance(op, ops.CreateModel)}
    for operation in migration.operations:
        described = operation.describe()
        model = getattr(operation, "model_name_lower", "")
        match operation:
            case ops.RemoveField() | ops.DeleteModel() | ops.RenameField() | ops.RenameModel():
                found.append(described)
            case ops.AlterModelTable() if operation.name_lower not in created:
                found.append(described)
            case ops.AddField(field=field) if model not in created:
                if not (field.null or field.has_db_default() or field.many_to_many):
                    found.append(f"{described}: neither null nor db_default, older nodes give none")
            case ops.AlterField(field=field) if model not in created:
                old = state.models[migration.app_label, model].fields[operation.name]
                bare = field.clone(), old.clone()
                for one, name in zip(bare, (operation.name,) * 2, strict=True):
                    one.set_attributes_from_name(name)
                if (old.null and not field.null) or (
                    not field.is_relation
                    and bare[0].db_type(connection) != bare[1].db_type(connection)
                ):
                    found.append(described)
            case ops.RunSQL(sql=sql) if CONTRACTING_SQL.search(str(sql)):
                found.append(described)
        operation.state_forwards(migration.app_label, state)
    return found


CONTRACTING_SQL = re.compile(
    r"\bDROP\s+(TABLE|COLUMN)|\bRENAME\b|\bSET\s+NOT\s+NULL|\bALTER\s+(COLUMN\s+)?\w+\s+(SET\s+DATA\s+)?TYPE",
    re.IGNORECASE,
)


def parse_version(text):
    return tuple(int(part) for part in text.split("."))


def list_unfit(migration, state):
    """What is wrong with a migration that contracts: it must say since when nothing uses it."""
    contractions = list_contractions(migration, state)
    since = getattr(migration, "unused_since", "")
    if not contractions or (since and parse_version(since) < parse_version(__version__)):
        return []
    return [f"{migration.app_label}.{migration.name}: {what}" for what in contractions]


def test_migrations_expand_the_schema_only():
    loader = MigrationLoader(connection)
    unfit = []
    for app, name in loader.graph.nodes:
        if app in schema.list_our_apps() and not loader.graph.nodes[app, name].replaces:
            state = loader.project_state((app, name), at_end=False)
            unfit += list_unfit(loader.graph.nodes[app, name], state)
    assert unfit == []


def make_migration(*operations, **attributes):
    body = {"operations": list(operations), **attributes}
    return type("Migration", (migrations.Migration,), body)("9001_later", "chats")


@pytest.mark.parametrize(
    "operation",
    [
        ops.RemoveField("chat", "title"),
        ops.RenameField("chat", "title", "name"),
        ops.DeleteModel("Run"),
        ops.RenameModel("Run", "Making"),
        ops.AlterModelTable("chat", "talks"),
        ops.AddField("chat", "colour", models.CharField(max_length=9, default="")),
        ops.AlterField("chat", "title", models.IntegerField()),
        ops.RunSQL("ALTER TABLE chats_chat DROP COLUMN title"),
        ops.RunSQL("ALTER TABLE chats_chat ALTER COLUMN title TYPE text"),
    ],
    ids=lambda operation: type(operation).__name__,
)
def test_a_migration_that_would_stop_the_version_before_is_flagged(operation):
    state = MigrationLoader(connection).project_state()
    assert list_unfit(make_migration(operation), state)
    assert list_unfit(make_migration(operation, unused_since="0.0.9"), state) == []
    assert list_unfit(make_migration(operation, unused_since=__version__), state)


@pytest.mark.parametrize(
    "operation",
    [
        ops.AddField("chat", "colour", models.CharField(max_length=9, db_default="")),
        ops.AddField("chat", "colour", models.CharField(max_length=9, null=True)),
        ops.RunSQL("CREATE INDEX CONCURRENTLY i ON chats_chat (title)"),
    ],
)
def test_a_migration_that_only_adds_is_not_flagged(operation):
    assert list_unfit(make_migration(operation), MigrationLoader(connection).project_state()) == []
