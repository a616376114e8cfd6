"""The Celery app, for documents and housekeeping; answers have processes of their own."""

import os
import signal
import threading
import warnings
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import structlog
from celery import Celery, signals
from celery.beat import PersistentScheduler
from celery.exceptions import CPendingDeprecationWarning, SecurityWarning
from kombu.transport.redis import Channel, QoS
from redis.exceptions import RedisError

from nura.embedded import spawn

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "nura.settings.prod")
# Django's checks import every page and API; they belong to `manage.py check`, not to each worker.
os.environ.setdefault("CELERY_SKIP_CHECKS", "1")

BEAT = "beat"
BEAT_SECONDS = 5.0
"""How often beat checks its schedule."""
app = Celery("nura")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks()

# Logged on every start as root; it is about pickled tasks, and ours are JSON.
warnings.filterwarnings("ignore", category=SecurityWarning)
# Logged on every lost connection; leases recover interrupted tasks, so none are cancelled.
warnings.filterwarnings("ignore", category=CPendingDeprecationWarning)


class _Deliveries(QoS):
    """Unacknowledged messages of a worker, for a Redis that may restart while tasks run.

    Kombu would end the worker with an error when it returns tasks to a Redis that has just
    restarted, or when a task ends whose connection is gone. Nothing is lost without that: the
    sweepers find abandoned work by its leases.
    """

    restore_at_shutdown = False

    def ack(self, delivery_tag: str) -> None:
        """Acknowledge a message if its connection is still open. Raises `RedisError`.

        The message's slot is freed even if Redis cannot be told: a worker holds only as many as it
        has processes, and would otherwise wait forever. Redis will redeliver the message some day,
        to a worker that finds nothing to do.
        """
        if self.channel.connection is not None:
            try:
                super().ack(delivery_tag)
            except RedisError:
                super(QoS, self).ack(delivery_tag)  # locally, without telling Redis
                raise


Channel.QoS = _Deliveries

logger = structlog.get_logger()


@signals.setup_logging.connect
def _keep_our_logging(**_: Any) -> None:
    """Keep Django's logging: Celery leaves it alone if this signal has a receiver."""


@signals.before_task_publish.connect
def _send_request_id(headers: dict[str, Any], **_: Any) -> None:
    """Give a task's log lines the id of the request that caused it."""
    context = structlog.contextvars.get_contextvars()
    if "request_id" in context:
        headers["request_id"] = context["request_id"]


@signals.task_prerun.connect
def _bind_request_id(task: Any, task_id: str, **_: Any) -> None:
    structlog.contextvars.clear_contextvars()  # left by this thread's previous task
    context = {"task_id": task_id, "request_id": task.request.get("request_id")}
    structlog.contextvars.bind_contextvars(**{k: v for k, v in context.items() if v})


@signals.worker_init.connect
@signals.beat_init.connect
def _require_known_schema(**_: Any) -> None:
    """End the process on an unknown schema; Celery would only log an exception."""
    import django

    django.setup()
    from nura import schema

    schema.exit_unless_known()


@signals.worker_process_init.connect
def _end_with_pool(**_: Any) -> None:
    """Make a pool process die with its parent."""
    from nura.embedded.spawn import set_death_signal

    set_death_signal(os.getppid(), signal.SIGKILL)


@signals.worker_ready.connect
def _report_ready(sender: Any, **_: Any) -> None:
    _send_heartbeat(sender.hostname)


@signals.heartbeat_sent.connect
def _report_heartbeat(sender: Any, **_: Any) -> None:
    _send_heartbeat(sender.eventer.hostname)


class BeatScheduler(PersistentScheduler):
    """The schedule of beat, which sends a heartbeat each time it is checked."""

    def tick(self, *arguments: Any, **options: Any) -> float:
        """Send what is due; seconds until the next check."""
        _send_heartbeat(BEAT)
        return min(float(super().tick(*arguments, **options)), BEAT_SECONDS)


@signals.worker_init.connect
def _lower_priority(**_: Any) -> None:
    """Let reading files run at lower priority than questions; pool processes inherit it."""
    with suppress(OSError):
        os.nice(spawn.NICENESS - os.nice(0))


@signals.worker_init.connect
def _share_leave_signal(**_: Any) -> None:
    """Create, before the pool is forked, the signal that tells its processes to return work."""
    from documents.ingest import HEARTBEAT

    _LEAVE.append(HEARTBEAT.share_leave_signal())


_LEAVE: list[Callable[[], None]] = []


@signals.worker_shutting_down.connect
def _leave_at_shutdown(sender: str, **_: Any) -> None:
    """Hand unfinished tasks to another worker in time. Celery alone would wait for hours."""
    from django.conf import settings

    from nura.health import remove_heartbeat

    for leave in _LEAVE:
        timer = threading.Timer(settings.SHUTDOWN_SECONDS, leave)
        timer.daemon = True
        timer.start()

    try:
        remove_heartbeat(_get_worker_kind(sender))
    except RedisError:
        logger.info("redis_unreachable", note="the sign of life will run out by itself")


def _send_heartbeat(hostname: str) -> None:
    from nura.health import send_heartbeat

    try:
        send_heartbeat(_get_worker_kind(hostname))
    except RedisError as error:
        logger.warning("redis_unreachable", error=type(error).__name__)


def _get_worker_kind(hostname: str) -> str:
    """`documents@machine`, `documents2@machine` -> `documents`."""
    return hostname.partition("@")[0].rstrip("0123456789")
