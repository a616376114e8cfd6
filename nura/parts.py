"""The processes of the product and how each is started."""

import os
import signal
import socket
import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path

from django.conf import settings

from nura.embedded import models, postgres, redis, spawn
from nura.supervisor import Part
from nura.web import SOCKET_FD

CELERY = (sys.executable, "-m", "celery", "--quiet", "-A", "nura")
WORKER = (*CELERY, "worker", "--loglevel", "INFO", "--without-gossip", "--without-mingle")
TASKS_PER_CHILD = 200
"""A documents process is replaced now and then: libraries that parse files leak."""

WORKER_PATIENCE = 8.0
"""Seconds for running tasks at a stop. What is cut off is taken up again by its lease."""
MODELS_PATIENCE = 8.0
SETTLING_SECONDS = 6.0
"""So long an answers worker has besides to settle what becomes of runs that it cuts off."""


def services() -> list[Part]:
    """Postgres and Redis, as far as they are ours; first to start, last to stop."""
    data_dir = settings.DATA_DIR
    parts = []
    if settings.EMBEDDED_POSTGRES:
        ready = partial(postgres.wait_ready, data_dir)
        parts.append(Part("postgres", partial(postgres.prepare, data_dir), ready))
    if settings.EMBEDDED_REDIS:
        ready = partial(redis.wait_ready, data_dir)
        parts.append(Part("redis", partial(redis.prepare, data_dir), ready))
    return parts


def models_process() -> Part:
    """The local models, for all others."""
    path = settings.RAG.models_socket
    return Part(
        "models",
        partial(models.prepare, settings.DATA_DIR, path, _environment("models")),
        partial(models.wait_ready, path),
        patience=MODELS_PATIENCE,
    )


def webs(listener: socket.socket) -> list[Part]:
    """The web processes; they share one listening socket, which outlives each of them."""
    names = _names("web", settings.WEB_WORKERS)
    return [_python(name, "-m", "nura.web", listener=listener) for name in names]


def _names(kind: str, count: int) -> list[str]:
    return [kind] if count == 1 else [f"{kind}{number}" for number in range(1, count + 1)]


def workers() -> list[Part]:
    """The two kinds of workers."""
    concurrency = str(settings.DOCUMENT_WORKERS)
    documents = ("-n", "documents@%h", "-Q", "documents", "--pool", "prefork")
    patience = settings.SHUTDOWN_SECONDS + SETTLING_SECONDS
    return [
        *(
            _command(name, sys.executable, "-m", "nura.answers", patience=patience)
            for name in _names("answers", settings.ANSWER_WORKERS)
        ),
        _command(
            *("documents", *WORKER, *documents, "--concurrency", concurrency),
            *("--max-tasks-per-child", str(TASKS_PER_CHILD)),
        ),
    ]


def beat() -> Part:
    """The clock of the sweepers."""
    schedule = settings.CELERY_BEAT_SCHEDULE_FILENAME
    return _command("beat", *CELERY, "beat", "--pidfile=", "--schedule", schedule)


def _python(name: str, *arguments: str, listener: socket.socket) -> Part:
    descriptor = listener.fileno()
    launch = spawn.Launch(
        name=name,
        command=(sys.executable, *arguments),
        folder=settings.BASE_DIR,
        environment=_environment(name) | {SOCKET_FD: str(descriptor)},
        descriptors=(descriptor,),
    )
    return Part(name, lambda: launch, patience=6.0)


def _command(name: str, *command: str, patience: float = WORKER_PATIENCE) -> Part:
    launch = spawn.Launch(
        name=name,
        command=command,
        folder=settings.BASE_DIR,
        stop_signal=signal.SIGTERM,
        environment=_environment(name),
    )
    return Part(name, lambda: launch, patience=patience)


def _environment(name: str) -> dict[str, str]:
    own: Mapping[str, str] = {
        "NURA_PROCESS": name,
        "NURA_DATA_DIR": str(settings.DATA_DIR),
        **models.ENVIRONMENT,
    }
    colour = {"NURA_LOG_COLOUR": "1"} if sys.stdout.isatty() else {}
    return {**os.environ, **own, **colour, **_metrics(settings.DATA_DIR)}


def _metrics(data_dir: Path) -> dict[str, str]:
    if settings.WEB_WORKERS == 1:
        return {}
    return {"PROMETHEUS_MULTIPROC_DIR": str(data_dir / "metrics")}
