import pytest
from django.contrib.auth.models import User
from django.core.cache import cache
from django.test import Client

PASSWORD = "correct horse battery staple"


@pytest.fixture(autouse=True)
def fresh_limits():
    """Counted attempts live in the cache; a test must not inherit another's."""
    cache.clear()


@pytest.fixture
def minsu(db):
    return User.objects.create_user("minsu", "minsu@example.com", PASSWORD)


@pytest.fixture
def stranger(db):
    return User.objects.create_user("stranger", "stranger@example.com", PASSWORD)


@pytest.fixture
def minsus_client(minsu):
    client = Client()
    client.force_login(minsu)
    return client


@pytest.fixture
def trusted_client(minsu):
    """A browser of minsu's that has just shown the password again."""
    client = Client()
    client.force_login(minsu)
    client.post("/accounts/reauthenticate/", {"password": PASSWORD})
    return client


@pytest.fixture
def english_client():
    client = Client()
    client.cookies["django_language"] = "en"
    return client
