"""Databases of versions before the first release, whose migrations are one file an app by now."""

import pytest
from django.core.exceptions import ImproperlyConfigured
from django.core.management import CommandError, call_command
from django.db import connection
from django.db.migrations.executor import MigrationExecutor
from django.db.migrations.recorder import MigrationRecorder

from nura import preparation

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
