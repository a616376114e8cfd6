"""The Celery app. It carries documents and housekeeping; answers have processes of their own."""

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
# Django's checks import every page and API; `manage.py check` is their place, not each worker.
os.environ.setdefault("CELERY_SKIP_CHECKS", "1")

BEAT = "beat"
BEAT_SECONDS = 5.0
"""Beat looks at its schedule so often."""
app = Celery("nura")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks()

# Said on every start as root; it is about pickled tasks, and ours are JSON.
warnings.filterwarnings("ignore", category=SecurityWarning)
# Said on every lost connection; what is cut off is taken up by its lease, so nothing is cancelled.
warnings.filterwarnings("ignore", category=CPendingDeprecationWarning)


class _Deliveries(QoS):
    """Messages that a worker holds, where Redis may restart while their tasks run.

    Kombu ends the worker with an error when it gives tasks back to a Redis that has just restarted,
    or when a task ends whose message came over a connection that is gone. Nothing is lost without:
    the sweepers find by their leases what nobody works on.
    """

    restore_at_shutdown = False

    def ack(self, delivery_tag: str) -> None:
        """Acknowledge a message if its connection is still open. Raises `RedisError`.

        A message that Redis does not hear of gives its place up all the same: a worker holds only
        as many as it has processes, and would wait for ever for the next one. Redis gives the old
        one out again some day, to a worker that finds nothing to do.
        """
        if self.channel.connection is not None:
            try:
                super().ack(delivery_tag)
            except RedisError:
                super(QoS, self).ack(delivery_tag)  # here, without a word to Redis
                raise


Channel.QoS = _Deliveries

logger = structlog.get_logger()


@signals.setup_logging.connect
def _keep_our_logging(**_: Any) -> None:
    """A receiver is enough: Celery then leaves Django's logging as it is."""


@signals.before_task_publish.connect
def _send_request_id(headers: dict[str, Any], **_: Any) -> None:
    """A task's log lines carry the id of the request that caused it."""
    known = structlog.contextvars.get_contextvars()
    if "request_id" in known:
        headers["request_id"] = known["request_id"]


@signals.task_prerun.connect
def _bind_request_id(task: Any, task_id: str, **_: Any) -> None:
    structlog.contextvars.clear_contextvars()  # of the task that this thread did before
    known = {"task_id": task_id, "request_id": task.request.get("request_id")}
    structlog.contextvars.bind_contextvars(**{k: v for k, v in known.items() if v})


@signals.worker_init.connect
@signals.beat_init.connect
def _require_known_schema(**_: Any) -> None:
    """Celery logs an exception of a receiver and goes on; this ends the process."""
    import django

    django.setup()
    from nura import schema

    schema.exit_unless_known()


@signals.worker_process_init.connect
def _end_with_pool(**_: Any) -> None:
    """A pool process whose parent was killed must not go on as an orphan."""
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
        """Send what is due; seconds until the next look."""
        _send_heartbeat(BEAT)
        return min(float(super().tick(*arguments, **options)), BEAT_SECONDS)


@signals.worker_init.connect
def _lower_priority(**_: Any) -> None:
    """Reading files runs below questions in priority; pool processes inherit it."""
    with suppress(OSError):
        os.nice(spawn.NICENESS - os.nice(0))


@signals.worker_init.connect
def _share_leave_signal(**_: Any) -> None:
    """Before the pool is forked: by it its processes learn that they are to give work back."""
    from documents.ingest import HEARTBEAT

    _LEAVE.append(HEARTBEAT.share_leave_signal())


_LEAVE: list[Callable[[], None]] = []


@signals.worker_shutting_down.connect
def _leave_at_shutdown(sender: str, **_: Any) -> None:
    """What does not end in time is handed to another worker. Celery alone would wait for hours."""
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
