import asyncio
from types import SimpleNamespace
from uuid import uuid4

import pytest
import redis

from jobs import connections, limiter
from jobs.limiter import Bucket


@pytest.fixture(autouse=True)
def _fresh():
    limiter.forget_refusals()
    yield
    limiter.forget_refusals()


def make_bucket(amount=5, seconds=60.0, name="ask"):
    return Bucket(name, f"test:{uuid4()}", amount, seconds)


async def test_a_bucket_gives_what_it_holds_at_once_and_then_says_how_long_to_wait():
    one = make_bucket(amount=5, seconds=60)
    told = [await limiter.consume([one]) for _ in range(6)]
    assert [verdict.left for verdict in told[:5]] == [4, 3, 2, 1, 0]
    assert [verdict.allowed for verdict in told] == [True] * 5 + [False]
    assert told[-1].retry_after == 12  # a fifth of a minute for one of five


async def test_a_bucket_refills_with_time():
    one = make_bucket(amount=10, seconds=1)
    while (await limiter.consume([one])).allowed:
        pass
    await asyncio.sleep(0.25)  # two or three of ten a second
    assert (await limiter.consume([one])).allowed


async def test_what_is_refused_is_taken_out_of_no_bucket():
    large, small = make_bucket(amount=5, name="large"), make_bucket(amount=1, name="small")
    assert (await limiter.consume([large, small])).allowed
    for _ in range(3):
        verdict = await limiter.consume([large, small])
        assert not verdict.allowed
        assert verdict.bucket.name == "small"
    assert (await limiter.consume([large])).left == 3


async def test_many_at_once_are_given_no_token_twice():
    one = make_bucket(amount=20)
    told = await asyncio.gather(*(limiter.consume([one]) for _ in range(100)))
    assert sum(verdict.allowed for verdict in told) == 20


async def test_a_cost_above_the_bucket_is_let_in_once_and_paid_off():
    one = make_bucket(amount=10, seconds=60)
    assert (await limiter.consume([one], cost=30)).allowed
    refused = await limiter.consume([one], cost=1)
    assert not refused.allowed
    assert 120 < refused.wait <= 126  # all of three minutes but what one token needs


async def test_the_headers_are_those_of_the_draft():
    one = make_bucket(amount=2, seconds=60)
    assert (await limiter.consume([one])).headers == {
        "RateLimit-Policy": '"ask";q=2;w=60',
        "RateLimit": '"ask";r=1;t=30',
    }
    await limiter.consume([one])
    refused = (await limiter.consume([one])).headers
    assert refused["RateLimit"] == '"ask";r=0;t=60'
    assert refused["Retry-After"] == "30"


async def test_an_amount_of_nought_is_no_limit():
    assert await limiter.consume([make_bucket(amount=0)]) is None


async def test_a_redis_that_is_away_limits_nobody_and_is_not_waited_for(settings, monkeypatch):
    gone = redis.asyncio.Redis.from_url("unix:///nowhere/redis.sock")
    monkeypatch.setattr(connections, "get_async_client", lambda: gone)
    begun = asyncio.get_running_loop().time()
    assert [await limiter.consume([make_bucket(amount=1)]) for _ in range(50)] == [None] * 50
    assert asyncio.get_running_loop().time() - begun < 1


async def test_a_request_that_cannot_be_sent_fails_and_holds_up_none_after_it(monkeypatch):
    async def fail(*_commands):
        raise TypeError

    async with asyncio.timeout(5):
        with monkeypatch.context() as patched:
            patched.setattr(connections, "execute_all", fail)
            with pytest.raises(TypeError):
                await limiter.consume([make_bucket()])
        assert (await limiter.consume([make_bucket()])).allowed


async def test_a_key_has_a_part_of_its_account_and_leaves_the_rest(settings):
    settings.LIMITS = {"ask": 8}
    whose, key = f"user:{uuid4()}", uuid4().hex
    told = [await limiter.consume_by_rule("ask", whose, key=key) for _ in range(7)]
    assert [verdict.allowed for verdict in told] == [True] * 6 + [False]
    assert (await limiter.consume_by_rule("ask", whose)).allowed


async def test_what_a_rule_lets_in_comes_in_a_row_after_the_first_few(settings, monkeypatch):
    waits = []

    async def note(seconds):
        waits.append(seconds)

    monkeypatch.setattr(limiter.asyncio, "sleep", note)
    monkeypatch.setattr(limiter, "time", SimpleNamespace(monotonic=lambda: 1_000_000.0))
    settings.LIMITS = {"ask": 160}
    whose = f"user:{uuid4()}"
    for _ in range(23):
        assert (await limiter.consume_by_rule("ask", whose)).allowed
    assert waits[:20] == [0.0] * 20
    assert [round(one / (60 / 160), 1) for one in waits[20:]] == [1.0, 2.0, 3.0]
    await limiter.consume_by_rule("ask", f"user:{uuid4()}")
    assert waits[-1] == 0.0
