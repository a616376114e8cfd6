"""How a URL of Sentinels is read (that they are asked, `tests/product/test_nodes.py` tries), a
Redis whose machine vanishes, and queries that are kept."""

import asyncio
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
from django.core.cache import cache
from redis import Redis
from redis.asyncio.connection import AbstractConnection
from redis.exceptions import ResponseError

from jobs import connections
from jobs.connections import ANYBODY, KEYS, KeptQuery, SentinelAddress, run_and_release
from nura.embedded.locations import build_celery_options, to_celery_url

URL = "redis+sentinel://nura:a%40b@one:26380,two/main?db=2&sentinel_password=c"


def test_each_part_of_an_address_of_sentinels_is_found():
    assert SentinelAddress.from_url(URL) == SentinelAddress(
        (("one", 26380), ("two", 26379)), "main", 2, "nura", "a@b", "c"
    )
    bare = SentinelAddress.from_url("redis+sentinel://one/main")
    assert bare == SentinelAddress((("one", 26379),), "main", 0, None, None, None)


async def test_commands_are_packed_as_the_library_packs_them_for_coroutines():
    connection = connections.get_async_client().connection_pool.make_connection()
    command = ("CONFIG GET", "이름", b"\0\r\n", "", 3, 1.5)
    by_library = AbstractConnection.pack_command(connection, *command)
    assert b"".join(connection.pack_command(*command)) == b"".join(by_library)


async def test_commands_sent_together_are_all_answered_before_the_first_error_is_raised():
    with pytest.raises(ResponseError, match="wrong number"):
        await connections.execute_all(("GET",), ("ECHO", "other"))
    assert await connections.execute_all(("ECHO", "one"), ("ECHO", "two")) == ["one", "two"]


async def test_a_script_that_redis_has_forgotten_is_sent_whole():
    script = connections.Script("return {KEYS[1], ARGV[1]}")
    for _ in range(2):
        await connections.execute("SCRIPT", "FLUSH")
        assert await script.run(["key"], ["argument"]) == ["key", "argument"]


async def test_a_connection_that_redis_has_closed_is_opened_anew():
    known = await connections.execute("CLIENT", "ID")
    connections.get_client().client_kill_filter(_id=known)
    async with asyncio.timeout(5):
        idle = connections.get_async_client().connection_pool._available_connections[-1]
        while not await idle.can_read_destructive():
            await asyncio.sleep(0.001)
    assert await connections.execute("CLIENT", "ID") > known


async def test_a_connection_that_was_reset_is_opened_anew():
    known = await connections.execute("CLIENT", "ID")
    idle = connections.get_async_client().connection_pool._available_connections[-1]
    idle._reader.set_exception(ConnectionResetError())
    assert await connections.execute("CLIENT", "ID") > known


def test_the_cache_makes_no_client_for_a_command(monkeypatch):
    cache.get("something")
    monkeypatch.setattr(Redis, "__init__", None)
    cache.set("something", "말", 10)
    assert cache.get("something") == "말"


@pytest.mark.parametrize("url", ["redis+sentinel://one", "redis+sentinel:///main"])
def test_an_address_without_hosts_or_service_is_none(url):
    with pytest.raises(ValueError, match="SERVICE"):
        SentinelAddress.from_url(url)


def test_celery_gets_the_same_in_its_own_words():
    one, two = to_celery_url(URL).split(";")
    assert one == "sentinel://nura:a%40b@one:26380/2"
    assert two == "sentinel://nura:a%40b@two:26379/2"
    assert to_celery_url("redis+sentinel://one/main") == "sentinel://one:26379/0"
    options = build_celery_options(URL)
    assert options["master_name"] == "main"
    assert options["sentinel_kwargs"]["password"] == "c"
    assert build_celery_options("redis://127.0.0.1/0") == {}


def test_who_waits_for_a_redis_whose_machine_vanished_is_told_after_seconds():
    network = ["unshare", "--net"]
    try:
        subprocess.run([*network, "ip", "link", "set", "lo", "up"], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("no network of its own to be had here")
    told = subprocess.run(
        [*network, sys.executable, "-m", "tests.servers.vanishing"],
        check=True,
        capture_output=True,
        text=True,
        timeout=60,
    )
    ended = {name: int(seconds) for name, seconds, _ in map(str.split, told.stdout.splitlines())}
    assert set(ended) == {"waits", "writes"}
    assert all(5 <= seconds <= 12 for seconds in ended.values())


def test_a_kept_query_is_made_once_and_tells_what_is_so_now(errands):
    made = []

    def make(owner):
        made.append(owner)
        return errands.filter(owner=owner, ended=False).order_by("pk")

    kept = KeptQuery(make, ANYBODY)
    first = errands.create(owner=1, place="here")
    second = errands.create(owner=2)
    assert kept.fetch(1) == [first]
    assert kept.fetch(1)[0].place == "here"
    assert kept.fetch(2) == [second]
    errands.filter(pk=first.pk).update(ended=True)
    assert kept.fetch(1) == []
    assert made == [ANYBODY]


def test_a_kept_query_serves_all_threads_each_with_its_own_values(errands):
    rows = {owner: errands.create(owner=owner).pk for owner in range(1, 9)}
    kept = KeptQuery(lambda owner: errands.filter(owner=owner).values_list("pk", "owner"), ANYBODY)
    with ThreadPoolExecutor(4) as threads:
        found = list(threads.map(lambda owner: run_and_release(kept.fetch, owner), [*rows] * 5))
    assert found == [[(rows[owner], owner)] for owner in [*rows] * 5]


def test_a_kept_query_takes_a_list_of_keys(errands):
    keys = [errands.create().pk for _ in range(3)]
    kept = KeptQuery(
        lambda wanted: errands.order_by("pk").extra(where=["id = ANY(%s)"], params=[wanted]), KEYS
    )
    assert [one.pk for one in kept.fetch(keys[:2])] == keys[:2]
    assert kept.fetch([]) == []
