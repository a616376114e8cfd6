"""How often somebody may do something: token buckets in Redis, shared by all processes.

    verdict = await take([Bucket("ask", f"ask:user:{user.pk}", amount=160, seconds=60)])
    if verdict and not verdict.allowed: ...      # `verdict.wait` seconds

A bucket is one number, the moment at which it will be full again (the "theoretical arrival time"
of GCRA, ITU-T I.371). One script checks and updates all buckets of a request, so that no two
processes hand out the same token. While Redis is away nobody is limited; that is logged once.

Requests allowed by a rule are also paced: after an initial burst they start one after the other at
the rate of the limit, so that nobody spends a whole minute's allowance in its first second.
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
"""Share of an account's limit that one of its keys may use; the rest is left for its owner."""
BURST_SHARE, MIN_BURST = 8, 10
"""The initial burst: the limit of a minute divided by the first, at least the second."""
REDIS_TIMEOUT_SECONDS = 1.0
"""After this, Redis counts as away ..."""
AWAY_SECONDS = 2.0
"""... and is not asked again for this long."""
MAX_CACHED_CALLERS = 10_000
"""Callers whose refusal or pace a process remembers."""

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
local reply = {refused}
for i, key in ipairs(KEYS) do
    local amount, window = tonumber(ARGV[2 * i]), tonumber(ARGV[2 * i + 1])
    local wait = full[i] + math.min(cost, amount) * window / amount - now - window
    if refused == 0 then
        full[i] = full[i] + cost * window / amount
        local ttl = math.ceil(full[i] - now) + 1000
        redis.call('SET', key, string.format('%.3f', full[i]), 'PX', ttl)
    end
    table.insert(reply, string.format('%.0f', math.max(wait, 0)))
    table.insert(reply, string.format('%.0f', full[i] - now))
end
return reply
"""
"""Takes `ARGV[1]` tokens out of every bucket, or of none; amount and milliseconds of each follow.

Returns whether it was refused, then for each bucket the milliseconds to wait and those until it is
full. A cost above a bucket's size is allowed when the bucket is full, and paid off afterwards.
"""


@dataclass(frozen=True, slots=True)
class Bucket:
    """`amount` tokens in `seconds`; they may be used all at once. `key` identifies the caller."""

    name: str
    key: str
    amount: int
    seconds: float = 60.0


@dataclass(frozen=True, slots=True)
class LimitVerdict:
    """The state of the bucket that allows least.

    `left` tokens remain. The same request would be allowed in `wait` seconds, 0 if it was allowed;
    in `refill` seconds the bucket is full.
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
        headers = {
            "RateLimit-Policy": f'"{bucket.name}";q={bucket.amount};w={math.ceil(bucket.seconds)}',
            "RateLimit": f'"{bucket.name}";r={self.left};t={math.ceil(self.refill)}',
        }
        return headers if self.allowed else headers | {"Retry-After": str(self.retry_after)}

    @property
    def retry_after(self) -> int:
        """Whole seconds to wait; at least one."""
        return max(1, math.ceil(self.wait))


class _LimitCache:
    """What this process knows without asking Redis: refusals in force, and whether it is away."""

    def __init__(self) -> None:
        self.refusals: dict[str, tuple[float, LimitVerdict]] = {}
        self.away_until = 0.0
        self.is_away = False

    def find_refusal(self, buckets: Sequence[Bucket]) -> LimitVerdict | None:
        now = time.monotonic()
        for bucket in buckets:
            if (known := self.refusals.get(bucket.key)) is None:
                continue
            ends_at, verdict = known
            if verdict.bucket == bucket and now < ends_at:
                elapsed = verdict.wait - (ends_at - now)
                refill = max(0.0, verdict.refill - elapsed)
                return LimitVerdict(
                    bucket, allowed=False, left=0, wait=ends_at - now, refill=refill
                )
            del self.refusals[bucket.key]
        return None

    def keep_refusal(self, verdict: LimitVerdict) -> None:
        if len(self.refusals) >= MAX_CACHED_CALLERS:
            self.refusals.clear()
        self.refusals[verdict.bucket.key] = time.monotonic() + verdict.wait, verdict


_memory = _LimitCache()


class Pace:
    """Spaces out the requests of each caller within one process. Nobody is refused."""

    def __init__(self) -> None:
        self._busy_until: dict[str, float] = {}
        """When the last reserved request of each caller begins."""

    def reserve_seconds(self, caller: str, interval: float, burst: float = 1) -> float:
        """Reserve a place; seconds to wait for it: `burst` begin at once, then every `interval`."""
        now = time.monotonic()
        if len(self._busy_until) >= MAX_CACHED_CALLERS:
            self._busy_until = {
                key: until for key, until in self._busy_until.items() if until > now
            }
        busy_until = max(now, self._busy_until.get(caller, 0.0)) + interval
        self._busy_until[caller] = busy_until
        return max(0.0, busy_until - now - interval * burst)

    def forget(self) -> None:
        """Forget all callers."""
        self._busy_until.clear()


_pace = Pace()


async def consume_by_rule(
    rule: str, caller: str, *, key: str = "", cost: int = 1
) -> LimitVerdict | None:
    """Count a request against a rule of `settings.LIMITS`, for the caller and for their API `key`.

    An allowed request waits here for its turn in the caller's pace. None: there is no limit.
    """
    amount = settings.LIMITS[rule]
    buckets = [Bucket(rule, f"{rule}:{caller}", amount)]
    if key and amount:
        share = max(1, int(amount * KEY_SHARE))
        buckets.append(Bucket(f"{rule}-key", f"{rule}:key:{key[:32]}", share))
    verdict = await consume(buckets, cost)
    if verdict is not None and verdict.allowed:
        burst = max(MIN_BURST, amount // BURST_SHARE)
        interval = cost * buckets[0].seconds / amount
        await asyncio.sleep(_pace.reserve_seconds(buckets[0].key, interval, max(1.0, burst / cost)))
    return verdict


async def consume(buckets: Sequence[Bucket], cost: int = 1) -> LimitVerdict | None:
    """Take `cost` tokens out of each bucket, or of none where one has too few.

    Buckets of amount 0 are no limit. None if there is no limit, and while Redis is away.
    """
    limited_buckets = [bucket for bucket in buckets if bucket.amount]
    if not limited_buckets or time.monotonic() < _memory.away_until:
        return None
    if cost == 1 and (refusal := _memory.find_refusal(limited_buckets)):
        return refusal
    try:
        reply = await _RequestBatcher.of_running_loop().consume(limited_buckets, cost)
    except (RedisError, OSError) as error:  # a time-out is an OSError too
        _memory.away_until = time.monotonic() + AWAY_SECONDS
        if not _memory.is_away:  # once an outage
            logger.warning("limits_not_kept", error=f"{type(error).__name__}: {error}"[:200])
        _memory.is_away = True
        return None
    _memory.is_away = False
    verdict = _to_verdict(limited_buckets, reply)
    if not verdict.allowed and cost == 1:
        _memory.keep_refusal(verdict)
    return verdict


def forget_refusals() -> None:
    """Forget what this process knows, so that it asks Redis again."""
    _memory.refusals.clear()
    _pace.forget()
    _memory.away_until = 0.0


class _RequestBatcher:
    """Sends the requests of one event loop to Redis; those that come meanwhile go in one batch.

    So a flood of requests takes one connection, and only Redis itself can cause the time-out.
    """

    def __init__(self) -> None:
        self._requests: list[tuple[Sequence[Any], asyncio.Future[list[Any]]]] = []
        self._sender: asyncio.Task[None] | None = None

    @classmethod
    def of_running_loop(cls) -> "_RequestBatcher":
        """The batcher of the running loop, created at its first request."""
        loop = asyncio.get_running_loop()
        if loop not in _batchers:
            _batchers[loop] = cls()
        return _batchers[loop]

    async def consume(self, buckets: Sequence[Bucket], cost: int) -> list[Any]:
        """The script's reply. Raises `RedisError`, `OSError`."""
        limits = [
            part for bucket in buckets for part in (bucket.amount, int(bucket.seconds * 1000))
        ]
        keys = [f"nura:limit:{bucket.key}" for bucket in buckets]
        answer: asyncio.Future[list[Any]] = asyncio.get_running_loop().create_future()
        self._requests.append(((len(keys), *keys, cost, *limits), answer))
        if self._sender is None or self._sender.done():
            self._sender = asyncio.create_task(self._send_all(), context=Context())
        return await answer

    async def _send_all(self) -> None:
        while requests := self._requests:
            self._requests = []
            try:
                async with asyncio.timeout(REDIS_TIMEOUT_SECONDS):
                    commands = [("EVAL", SCRIPT, *arguments) for arguments, _answer in requests]
                    replies = await connections.execute_all(*commands)
            except Exception as error:  # noqa: BLE001 - raised where each request waits
                for _arguments, answer in requests:
                    if not answer.done():
                        answer.set_exception(error)
                continue
            for (_arguments, answer), reply in zip(requests, replies, strict=True):
                if not answer.done():
                    answer.set_result(reply)


_batchers: WeakKeyDictionary[asyncio.AbstractEventLoop, _RequestBatcher] = WeakKeyDictionary()


def _to_verdict(buckets: Sequence[Bucket], reply: Sequence[Any]) -> LimitVerdict:
    is_allowed = not int(reply[0])
    verdicts = []
    for bucket, wait, refill in zip(buckets, reply[1::2], reply[2::2], strict=True):
        full = float(refill) / 1000
        share = 1 - full / bucket.seconds
        left = max(0, math.floor(bucket.amount * share + 1e-3))
        verdicts.append(LimitVerdict(bucket, is_allowed, left, float(wait) / 1000, full))
    return max(verdicts, key=lambda verdict: (verdict.wait, -verdict.left, verdict.refill))
