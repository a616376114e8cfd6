import pytest
from django.conf import settings
from django.db import connection
from redis import Redis


@pytest.mark.django_db
def test_the_test_database_is_a_postgres_18_with_pgvector():
    with connection.cursor() as cursor:
        cursor.execute("CREATE EXTENSION IF NOT EXISTS vector")
        cursor.execute("SELECT '[1,2]'::vector <-> '[1,3]'::vector")
        assert cursor.fetchone() == (1.0,)
    assert connection.pg_version // 10_000 == 18


def test_the_test_redis_keeps_everything():
    client = Redis.from_url(settings.REDIS_URL)
    assert client.config_get("maxmemory-policy")["maxmemory-policy"] == "noeviction"
    assert client.config_get("appendonly")["appendonly"] == "yes"
