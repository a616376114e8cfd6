"""How a URL of Sentinels is read; that they are asked, `tests/product/test_nodes.py` tries."""

import pytest

from jobs.connections import SentinelAddress
from nura.embedded.locations import build_celery_options, to_celery_url

URL = "redis+sentinel://nura:a%40b@one:26380,two/main?db=2&sentinel_password=c"


def test_each_part_of_an_address_of_sentinels_is_found():
    assert SentinelAddress.read(URL) == SentinelAddress(
        (("one", 26380), ("two", 26379)), "main", 2, "nura", "a@b", "c"
    )
    bare = SentinelAddress.read("redis+sentinel://one/main")
    assert bare == SentinelAddress((("one", 26379),), "main", 0, None, None, None)


@pytest.mark.parametrize("url", ["redis+sentinel://one", "redis+sentinel:///main"])
def test_an_address_without_hosts_or_service_is_none(url):
    with pytest.raises(ValueError, match="SERVICE"):
        SentinelAddress.read(url)


def test_celery_gets_the_same_in_its_own_words():
    one, two = to_celery_url(URL).split(";")
    assert one == "sentinel://nura:a%40b@one:26380/2"
    assert two == "sentinel://nura:a%40b@two:26379/2"
    assert to_celery_url("redis+sentinel://one/main") == "sentinel://one:26379/0"
    options = build_celery_options(URL)
    assert options["master_name"] == "main"
    assert options["sentinel_kwargs"]["password"] == "c"
    assert build_celery_options("redis://127.0.0.1/0") == {}
