"""Prometheus metrics, for staff only; others get a 404."""

import os
import time
from collections import Counter as Counts
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any, ClassVar

from asgiref.sync import iscoroutinefunction, markcoroutinefunction
from django.db import DatabaseError
from django.db.models import Count, Min, QuerySet
from django.http import Http404, HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.utils import timezone
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe
from knox.models import AuthToken
from prometheus_client import (
    CONTENT_TYPE_LATEST,
    REGISTRY,
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    generate_latest,
)
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.multiprocess import MultiProcessCollector
from prometheus_client.registry import Collector
from redis.exceptions import RedisError
from rest_framework.exceptions import APIException
from rest_framework.request import Request
from rest_framework.settings import api_settings

from chats.models import CachedAnswer, KeyScope, Message, Run
from chats.models.key import list_scopes
from chats.services import answer_cache
from documents.models import Document
from documents.sources.services import count_sources
from jobs import replica
from jobs.lease import OwnedJob, select_open_jobs, select_waiting_jobs
from nura.health import BEAT, WORKERS, list_processes
from nura.housekeeping import measure_storage

REQUESTS = Counter("nura_http_requests", "HTTP requests", ["method", "route", "status"])
SECONDS = Histogram("nura_http_request_seconds", "Time to the response's start", ["route"])
SOCKETS = Gauge("nura_open_sockets", "Open WebSockets", multiprocess_mode="livesum")

Response = Callable[[HttpRequest], HttpResponseBase | Awaitable[HttpResponseBase]]


class MetricsMiddleware:
    """Counts and times every request by its route, never by its path: paths hold ids."""

    sync_capable = True
    async_capable = True

    def __init__(self, get_response: Response) -> None:
        self.get_response = get_response
        if iscoroutinefunction(get_response):
            markcoroutinefunction(self)

    def __call__(self, request: HttpRequest) -> HttpResponseBase | Awaitable[HttpResponseBase]:
        """Handle one request."""
        started = time.perf_counter()
        response = self.get_response(request)
        if isinstance(response, HttpResponseBase):
            return _count_request(request, response, started)
        return _count_async(request, response, started)


class CountedSockets:
    """An ASGI application that counts the open WebSockets of the one it wraps."""

    def __init__(self, application: Callable[..., Awaitable[None]]) -> None:
        self._application = application

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Serve one socket."""
        with SOCKETS.track_inprogress():
            await self._application(scope, receive, send)


async def _count_async(
    request: HttpRequest, response: Awaitable[HttpResponseBase], started: float
) -> HttpResponseBase:
    return _count_request(request, await response, started)


def _count_request(
    request: HttpRequest, response: HttpResponseBase, started: float
) -> HttpResponseBase:
    match = request.resolver_match
    route = match.route if match else "(none)"
    method = request.method if request.method in {"GET", "POST", "PATCH", "DELETE"} else "other"
    REQUESTS.labels(method, route, response.status_code).inc()
    SECONDS.labels(route).observe(time.perf_counter() - started)
    return response


class RowCollector(Collector):
    """Documents and answers by status, counted on each scrape."""

    def collect(self) -> Iterable[GaugeMetricFamily]:
        """One family each."""
        answers = Message.objects.filter(role=Message.Role.ASSISTANT)
        rows: dict[str, QuerySet[Any]] = {"documents": Document.objects.all(), "answers": answers}
        for name, queryset in rows.items():
            family = GaugeMetricFamily(f"nura_{name}", f"{name} by status", labels=["status"])
            for status, count in queryset.order_by().values_list("status").annotate(Count("pk")):
                family.add_metric([status], count)
            yield family
        sources = GaugeMetricFamily("nura_sources", "sources by state", labels=["state"])
        for state, count in count_sources().items():
            sources.add_metric([state], count)
        yield sources
        cached = CachedAnswer.objects.count()
        yield GaugeMetricFamily("nura_answer_cache_answers", "answers kept", value=cached)


class QueueCollector(Collector):
    """Waiting and running jobs by kind: signals for scaling the number of processes."""

    KINDS: ClassVar[Mapping[str, type[OwnedJob]]] = {"documents": Document, "answers": Run}

    def collect(self) -> Iterable[GaugeMetricFamily]:
        """Counts, and the age of the oldest job that has not been attempted yet."""
        waiting = GaugeMetricFamily("nura_jobs_waiting", "jobs that wait", labels=["kind"])
        running = GaugeMetricFamily("nura_jobs_running", "jobs at work", labels=["kind"])
        oldest = GaugeMetricFamily(
            "nura_job_oldest_seconds", "age of the oldest new job that waits", labels=["kind"]
        )
        now = timezone.now()
        for kind, model in self.KINDS.items():
            rows = select_waiting_jobs(model)
            waiting.add_metric([kind], rows.count())
            running.add_metric([kind], select_open_jobs(model).filter(claim__isnull=False).count())
            since = rows.filter(started_at=None).aggregate(since=Min("created_at"))["since"]
            oldest.add_metric([kind], (now - since).total_seconds() if since else 0.0)
        return waiting, running, oldest


class ProcessCollector(Collector):
    """Live workers of all nodes."""

    def collect(self) -> Iterable[GaugeMetricFamily]:
        """One family; nothing while Redis is away."""
        family = GaugeMetricFamily("nura_processes", "living processes", labels=["kind"])
        try:
            counts = Counts(process.kind for process in list_processes())
        except RedisError:
            return
        for kind in (*WORKERS, BEAT):
            family.add_metric([kind], counts[kind])
        yield family


class CacheCollector(Collector):
    """Questions looked up in the answer cache, by result, since Redis was last emptied."""

    def collect(self) -> Iterable[CounterMetricFamily]:
        """One family; nothing while Redis is away."""
        family = CounterMetricFamily(
            "nura_answer_cache_lookups", "questions by result", labels=["result"]
        )
        try:
            counts = answer_cache.read_counts()
        except RedisError:
            return
        for result, count in counts.items():
            family.add_metric([result], count)
        yield family


class ReplicaCollector(Collector):
    """The database's replica: whether it follows, its lag, and where reads go."""

    def collect(self) -> Iterable[GaugeMetricFamily | CounterMetricFamily]:
        """Three families; none without a replica."""
        if not replica.has_replica():
            return
        try:
            state = replica.read_replica_state()
        except DatabaseError:
            follows = 0
        else:
            follows = int(state.is_replica)
            behind = max(0, replica.read_primary_position() - state.position)
            yield GaugeMetricFamily(
                "nura_replica_behind_bytes", "log not replayed there yet", value=behind
            )
        yield GaugeMetricFamily("nura_replica_follows", "1 while it can be read", value=follows)
        family = CounterMetricFamily(
            "nura_replica_reads", "searches and lists, read there or why not", labels=["result"]
        )
        with suppress(RedisError):
            for result, count in replica.read_counts().items():
                family.add_metric([result], count)
        yield family


class StorageCollector(Collector):
    """Storage in use, measured at most a minute ago."""

    def collect(self) -> Iterable[GaugeMetricFamily]:
        """Bytes by part, tables, run logs, disk, and pending deletions."""
        storage = measure_storage()
        parts = GaugeMetricFamily("nura_bytes", "bytes taken by part", labels=["part"])
        for name, size in storage.list_parts():
            parts.add_metric([name], size)
        yield parts
        tables = GaugeMetricFamily(
            "nura_table_bytes", "bytes of the largest tables", labels=["table", "of"]
        )
        dead = GaugeMetricFamily("nura_table_dead_rows", "dead rows", labels=["table"])
        for table in storage.tables:
            tables.add_metric([table.name, "rows"], table.rows_bytes)
            tables.add_metric([table.name, "indexes"], table.index_bytes)
            dead.add_metric([table.name], table.dead_rows)
        yield tables
        yield dead
        for name, words, value in (
            ("disk_free_bytes", "free bytes of the data folder's disk", storage.disk_free),
            ("redis_keys", "keys in Redis", storage.redis_keys),
            ("run_logs", "logs of answers in Redis", storage.run_logs),
            ("deletions_waiting", "deletions whose copies are kept still", storage.deletions),
            ("deletions_overdue", "deletions that should be done", storage.overdue_deletions),
        ):
            yield GaugeMetricFamily(f"nura_{name}", words, value=value)


@require_safe
@never_cache
def metrics(request: HttpRequest) -> HttpResponse:
    """Metrics of this node's web processes and counts from the database."""
    if not _is_staff(request):
        raise Http404
    rows = CollectorRegistry()
    rows.register(RowCollector())
    rows.register(QueueCollector())
    rows.register(ProcessCollector())
    rows.register(StorageCollector())
    rows.register(CacheCollector())
    rows.register(ReplicaCollector())
    body = generate_latest(_make_process_registry()) + generate_latest(rows)
    return HttpResponse(body, content_type=CONTENT_TYPE_LATEST)


def _make_process_registry() -> CollectorRegistry:
    if "PROMETHEUS_MULTIPROC_DIR" not in os.environ:
        return REGISTRY
    registry = CollectorRegistry()
    MultiProcessCollector(registry)  # type: ignore[no-untyped-call]
    return registry


def _is_staff(request: HttpRequest) -> bool:
    kinds: Any = api_settings.DEFAULT_AUTHENTICATION_CLASSES
    api_request = Request(request, authenticators=[kind() for kind in kinds])
    try:
        user = api_request.user
    except APIException:
        return False
    if isinstance(api_request.auth, AuthToken) and KeyScope.READ not in list_scopes(
        api_request.auth
    ):
        return False
    return bool(user and user.is_active and user.is_staff)
