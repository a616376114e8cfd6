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
from tests.support import Product, wait_until

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
    monkeypatch.setenv(schema.KNOWN, "yes")
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
    product = Product(tmp_path / "var", prepared=False)

    def count_applied():
        try:
            with psycopg.connect(**product.database) as other:
                return other.execute("SELECT count(*) FROM django_migrations").fetchone()[0]
        except (OSError, psycopg.Error):  # no cluster, server or table yet
            return 0

    reached = []
    for _ in range(2):
        with product.begin("migrate") as process:
            wait_until(lambda: count_applied() > 10 + sum(reached), 60, step=0.005)
            reached.append(count_applied())
            os.killpg(process.pid, signal.SIGKILL)
    product.manage("migrate")
    assert product.manage("migrate", "--check", check=False).returncode == 0
    assert 10 < reached[0] < reached[1] < count_all()


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
