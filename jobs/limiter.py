"""How often somebody may do something: token buckets in Redis, shared by all processes.

    verdict = await take([Bucket("ask", f"ask:user:{user.pk}", amount=160, seconds=60)])
    if verdict and not verdict.allowed: ...      # `verdict.wait` seconds

A bucket is one number, the moment at which it will be full again (the "theoretical arrival time"
of GCRA, ITU-T I.371): all buckets of one request are looked at and filled by one script, so that no
two processes give out the same token. A Redis that is away limits nobody: that is logged once.

What is let in by a rule comes in a row: after the first few at once, one after the other at the
pace of the limit, so that nobody's minute falls on all others in its first second.
"""

import asyncio
import math
import time
from collections.abc import Sequence
from contextvars import Context
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

import structlog
from django.conf import settings
from redis.exceptions import RedisError

from jobs import connections

logger = structlog.get_logger()

KEY_SHARE = 0.75
"""Of what an account may do, one of its keys may do so much: the rest is its owner's."""
BURST_SHARE, MIN_BURST = 8, 10
"""Of what a rule gives a minute, one part in so many comes at once, and so many at the least."""
PATIENCE_SECONDS = 1.0
"""A Redis that takes longer is not waited for ..."""
AWAY_SECONDS = 2.0
"""... and not asked again before."""
MAX_REMEMBERED = 10_000
"""Refusals that a process remembers, so that it need not ask again before they end."""

SCRIPT = """
local clock = redis.call('TIME')
local now = clock[1] * 1000 + clock[2] / 1000
local cost = tonumber(ARGV[1])
local full, refused = {}, 0
for i, key in ipairs(KEYS) do
    local amount, window = tonumber(ARGV[2 * i]), tonumber(ARGV[2 * i + 1])
    full[i] = math.max(tonumber(redis.call('GET', key) or 0), now)
    local wait = full[i] + math.min(cost, amount) * window / amount - now - window
    if wait > 0 then refused = 1 end
end
local told = {refused}
for i, key in ipairs(KEYS) do
    local amount, window = tonumber(ARGV[2 * i]), tonumber(ARGV[2 * i + 1])
    local wait = full[i] + math.min(cost, amount) * window / amount - now - window
    if refused == 0 then
        full[i] = full[i] + cost * window / amount
        local kept = math.ceil(full[i] - now) + 1000
        redis.call('SET', key, string.format('%.3f', full[i]), 'PX', kept)
    end
    table.insert(told, string.format('%.0f', math.max(wait, 0)))
    table.insert(told, string.format('%.0f', full[i] - now))
end
return told
"""
"""Takes `ARGV[1]` tokens out of every bucket, or of none; amount and milliseconds of each follow.

Answers whether it was refused, then for each bucket the milliseconds to wait and those until it is
full. A cost above what a bucket can hold is let in when it is full, and paid off afterwards.
"""


@dataclass(frozen=True, slots=True)
class Bucket:
    """`amount` tokens in `seconds`, all of them at once if need be. `key` says whose they are."""

    name: str
    key: str
    amount: int
    seconds: float = 60.0


@dataclass(frozen=True, slots=True)
class LimitVerdict:
    """Of the bucket that allows least: what is left in it, and what there is to wait for.

    `wait` seconds are left until the same would be allowed, 0 where it was; after `refill` seconds
    the bucket is full.
    """

    bucket: Bucket
    allowed: bool
    left: int
    wait: float
    refill: float

    @property
    def headers(self) -> dict[str, str]:
        """As draft-ietf-httpapi-ratelimit-headers-10 has them; `Retry-After` with a refusal."""
        bucket = self.bucket
        told = {
            "RateLimit-Policy": f'"{bucket.name}";q={bucket.amount};w={math.ceil(bucket.seconds)}',
            "RateLimit": f'"{bucket.name}";r={self.left};t={math.ceil(self.refill)}',
        }
        return told if self.allowed else told | {"Retry-After": str(self.retry_after)}

    @property
    def retry_after(self) -> int:
        """Whole seconds to wait; at least one."""
        return max(1, math.ceil(self.wait))


class _KnownLimits:
    """What this process knows without asking: until when a bucket is empty, and Redis away."""

    def __init__(self) -> None:
        self.refusals: dict[str, tuple[float, LimitVerdict]] = {}
        self.away_until = 0.0
        self.is_away = False

    def find_refusal(self, buckets: Sequence[Bucket]) -> LimitVerdict | None:
        now = time.monotonic()
        for bucket in buckets:
            if (known := self.refusals.get(bucket.key)) is None:
                continue
            until, verdict = known
            if verdict.bucket == bucket and now < until:
                passed = verdict.wait - (until - now)
                refill = max(0.0, verdict.refill - passed)
                return LimitVerdict(bucket, allowed=False, left=0, wait=until - now, refill=refill)
            del self.refusals[bucket.key]
        return None

    def keep_refusal(self, verdict: LimitVerdict) -> None:
        if len(self.refusals) >= MAX_REMEMBERED:
            self.refusals.clear()
        self.refusals[verdict.bucket.key] = time.monotonic() + verdict.wait, verdict


_memory = _KnownLimits()


class Pace:
    """Lets what each caller does begin one after the other. Of one process; nobody is refused."""

    def __init__(self) -> None:
        self._full: dict[str, float] = {}
        """When each caller's row has passed."""

    def reserve_seconds(self, caller: str, apart: float, at_once: float = 1) -> float:
        """How long the next of a caller waits: `at_once` begin together, more `apart` seconds."""
        now = time.monotonic()
        if len(self._full) >= MAX_REMEMBERED:
            self._full = {key: until for key, until in self._full.items() if until > now}
        full = max(now, self._full.get(caller, 0.0)) + apart
        self._full[caller] = full
        return max(0.0, full - now - apart * at_once)

    def forget(self) -> None:
        """Begin anew with everybody."""
        self._full.clear()


_pace = Pace()


async def consume_by_rule(
    rule: str, whose: str, *, key: str = "", cost: int = 1
) -> LimitVerdict | None:
    """Take what a rule of `settings.LIMITS` gives somebody a minute, and a key of his in it.

    Returns when it is to begin.
    """
    amount = settings.LIMITS[rule]
    buckets = [Bucket(rule, f"{rule}:{whose}", amount)]
    if key and amount:
        share = max(1, int(amount * KEY_SHARE))
        buckets.append(Bucket(f"{rule}-key", f"{rule}:key:{key[:32]}", share))
    verdict = await consume(buckets, cost)
    if verdict is not None and verdict.allowed:
        burst = max(MIN_BURST, amount // BURST_SHARE)
        apart = cost * buckets[0].seconds / amount
        await asyncio.sleep(_pace.reserve_seconds(buckets[0].key, apart, max(1.0, burst / cost)))
    return verdict


async def consume(buckets: Sequence[Bucket], cost: int = 1) -> LimitVerdict | None:
    """Take `cost` tokens out of each bucket, or of none where one has too few.

    Buckets of amount 0 are no limit. None where there is none, and while Redis is away.
    """
    limited = [bucket for bucket in buckets if bucket.amount]
    if not limited or time.monotonic() < _memory.away_until:
        return None
    if cost == 1 and (known := _memory.find_refusal(limited)):
        return known
    try:
        told = await _Counter.of_running_loop().consume(limited, cost)
    except (RedisError, OSError) as error:  # a time-out is an OSError too
        _memory.away_until = time.monotonic() + AWAY_SECONDS
        if not _memory.is_away:  # once an outage
            logger.warning("limits_not_kept", error=f"{type(error).__name__}: {error}"[:200])
        _memory.is_away = True
        return None
    _memory.is_away = False
    verdict = _to_verdict(limited, told)
    if not verdict.allowed and cost == 1:
        _memory.keep_refusal(verdict)
    return verdict


def forget_refusals() -> None:
    """Ask Redis about every bucket again, and about Redis."""
    _memory.refusals.clear()
    _pace.forget()
    _memory.away_until = 0.0


class _Counter:
    """Asks Redis for all who ask on one event loop, those who come meanwhile together.

    A flood of requests so takes one connection, and the time-out is that of Redis alone.
    """

    def __init__(self) -> None:
        self._asked: list[tuple[Sequence[Any], asyncio.Future[list[Any]]]] = []
        self._asking: asyncio.Task[None] | None = None

    @classmethod
    def of_running_loop(cls) -> "_Counter":
        """That of the running loop, made at its first request."""
        loop = asyncio.get_running_loop()
        if loop not in _counters:
            _counters[loop] = cls()
        return _counters[loop]

    async def consume(self, buckets: Sequence[Bucket], cost: int) -> list[Any]:
        """The script's answer. Raises `RedisError`, `OSError`."""
        limits = [part for one in buckets for part in (one.amount, int(one.seconds * 1000))]
        keys = [f"nura:limit:{bucket.key}" for bucket in buckets]
        answer: asyncio.Future[list[Any]] = asyncio.get_running_loop().create_future()
        self._asked.append(((len(keys), *keys, cost, *limits), answer))
        if self._asking is None or self._asking.done():
            self._asking = asyncio.create_task(self._send_all(), context=Context())
        return await answer

    async def _send_all(self) -> None:
        while asked := self._asked:
            self._asked = []
            try:
                async with asyncio.timeout(PATIENCE_SECONDS):
                    commands = [("EVAL", SCRIPT, *arguments) for arguments, _answer in asked]
                    told = await connections.execute_all(*commands)
            except (RedisError, OSError) as error:
                for _arguments, answer in asked:
                    if not answer.done():
                        answer.set_exception(error)
                continue
            for (_arguments, answer), one in zip(asked, told, strict=True):
                if not answer.done():
                    answer.set_result(one)


_counters: WeakKeyDictionary[asyncio.AbstractEventLoop, _Counter] = WeakKeyDictionary()


def _to_verdict(buckets: Sequence[Bucket], told: Sequence[Any]) -> LimitVerdict:
    allowed = not int(told[0])
    verdicts = []
    for bucket, wait, refill in zip(buckets, told[1::2], told[2::2], strict=True):
        full = float(refill) / 1000
        share = 1 - full / bucket.seconds
        left = max(0, math.floor(bucket.amount * share + 1e-3))
        verdicts.append(LimitVerdict(bucket, allowed, left, float(wait) / 1000, full))
    return max(verdicts, key=lambda one: (one.wait, -one.left, one.refill))
