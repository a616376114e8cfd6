"""A kind of job that no product has, with a table for the time of the tests."""

from datetime import timedelta

import pytest
from django.db import connection, models
from django.db.models import Q

from jobs import connections
from jobs.lease import OwnedJob


class Errand(OwnedJob):
    """Its owner is a number."""

    OPEN = Q(ended=False)
    LEASE = timedelta(seconds=10)
    MAX_ATTEMPTS = 3

    owner = models.IntegerField(default=1)
    ended = models.BooleanField(default=False)
    place = models.CharField(max_length=20, default="")
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        """Of no installed app: it has no migrations."""

        app_label = "tests_jobs"


@pytest.fixture(scope="session")
def _table(django_db_setup, django_db_blocker):
    with django_db_blocker.unblock():
        with connection.schema_editor() as editor:
            editor.create_model(Errand)
        yield
        with connection.schema_editor() as editor:
            editor.delete_model(Errand)


@pytest.fixture
def errands(_table, transactional_db):
    connections.get_client().flushdb()
    yield Errand.objects
    Errand.objects.all().delete()
