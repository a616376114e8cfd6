"""Services that are not ours are asked before a start."""

import pytest
from django.core.exceptions import ImproperlyConfigured

from nura import health
from nura.embedded import locations
from nura.management.commands import up

NOBODY = "127.0.0.1:1"


def test_an_unreachable_database_is_named_and_its_password_is_not(tmp_path):
    url = f"postgresql://me:hunter2@{NOBODY}/nura"
    with pytest.raises(ImproperlyConfigured, match="DATABASE_URL") as caught:
        health.require_database(locations.build_database_settings(tmp_path, url))
    assert "hunter2" not in str(caught.value)


def test_an_unreachable_redis_is_named_and_its_password_is_not():
    with pytest.raises(ImproperlyConfigured, match="REDIS_URL") as caught:
        health.require_redis(f"redis://:hunter2@{NOBODY}/0")
    assert "hunter2" not in str(caught.value)


def test_services_of_our_own_are_not_asked(settings):
    settings.EMBEDDED_POSTGRES = settings.EMBEDDED_REDIS = True
    settings.REDIS_URL = f"redis://{NOBODY}/0"
    health.require_services()


@pytest.mark.parametrize(
    ("host", "address"),
    [
        ("127.0.0.1", "http://127.0.0.1:8203"),
        ("0.0.0.0", "http://127.0.0.1:8203"),
        ("::", "http://[::1]:8203"),
        ("::1", "http://[::1]:8203"),
        ("fd00::7", "http://[fd00::7]:8203"),
    ],
)
def test_the_address_that_is_printed_can_be_typed_into_a_browser(host, address):
    assert up.make_url(host, 8203) == address
