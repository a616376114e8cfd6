"""The processes of the product and how each is started.

Those that run our own code are forked where there is a fork server (see `nura.forkserver`); the
command of each does the same.
"""

import os
import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from types import MappingProxyType

from django.conf import settings

from nura import forkserver
from nura.embedded import models, postgres, redis, spawn
from nura.supervisor import Part
from nura.web import SOCKET_FD

OUTCOME_FD = "NURA_OUTCOME_FD"
"""Number of the descriptor that `nura.preparation` writes to."""

PYTHON = (sys.executable, "-m")
CELERY_ENTRY = "celery.__main__:main"
CELERY = (*PYTHON, "celery", "--quiet", "-A", "nura")
WORKER = (*CELERY, "worker", "--loglevel", "INFO", "--without-gossip", "--without-mingle")
TASKS_PER_CHILD = 200
"""A documents process is replaced now and then: libraries that parse files leak."""

WORKER_PATIENCE = 8.0
"""Seconds for running tasks at a stop. What is cut off is taken up again by its lease."""
WEB_PATIENCE = 6.0
MODELS_PATIENCE = 8.0
FORK_SERVER_PATIENCE = 2.0
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


def fork_server(descriptor: int) -> Part:
    """The fork server, which reads requests from this descriptor."""
    given = {forkserver.SOCKET_FD: descriptor}
    launch = _launch("forkserver", (*PYTHON, "nura.forkserver"), given=given)
    return Part("forkserver", lambda: launch, patience=FORK_SERVER_PATIENCE)


def preparation(outcome: int, *, seed: bool) -> Part:
    """What is done before the first request; it writes what came of it to this descriptor."""
    command = (*PYTHON, "nura.preparation", *(() if seed else ("--no-seed",)))
    launch = _launch("prepare", command, "nura.preparation:main", {OUTCOME_FD: outcome})
    return Part("prepare", lambda: launch)


def models_process() -> Part:
    """The local models, for all others."""
    path = settings.RAG.models_socket
    return Part(
        "models",
        partial(models.prepare, settings.DATA_DIR, path, _environment("models")),
        partial(models.wait_ready, path),
        patience=MODELS_PATIENCE,
    )


def webs(listener: int) -> list[Part]:
    """The web processes; they share one listening socket, which outlives each of them."""
    command = (*PYTHON, "nura.web")
    launches = [
        _launch(name, command, "nura.web:main", {SOCKET_FD: listener})
        for name in _names("web", settings.WEB_WORKERS)
    ]
    return [Part(one.name, partial(_as_it_is, one), patience=WEB_PATIENCE) for one in launches]


def workers() -> list[Part]:
    """The two kinds of workers."""
    answers = [
        _launch(name, (*PYTHON, "nura.answers"), "nura.answers:main")
        for name in _names("answers", settings.ANSWER_WORKERS)
    ]
    command = (
        *(*WORKER, "-n", "documents@%h", "-Q", "documents", "--pool", "prefork"),
        *("--concurrency", str(settings.DOCUMENT_WORKERS)),
        *("--max-tasks-per-child", str(TASKS_PER_CHILD)),
    )
    documents = _launch("documents", command, CELERY_ENTRY)
    patience = settings.SHUTDOWN_SECONDS + SETTLING_SECONDS
    return [
        *(Part(one.name, partial(_as_it_is, one), patience=patience) for one in answers),
        Part("documents", lambda: documents, patience=WORKER_PATIENCE),
    ]


def beat() -> Part:
    """The clock of the sweepers."""
    schedule = settings.CELERY_BEAT_SCHEDULE_FILENAME
    command = (*CELERY, "beat", "--pidfile=", "--schedule", schedule)
    launch = _launch("beat", command, CELERY_ENTRY)
    return Part("beat", lambda: launch, patience=WORKER_PATIENCE)


def _names(kind: str, count: int) -> list[str]:
    return [kind] if count == 1 else [f"{kind}{number}" for number in range(1, count + 1)]


def _as_it_is(launch: spawn.Launch) -> spawn.Launch:
    return launch


def _launch(
    name: str,
    command: tuple[str, ...],
    entry: str = "",
    given: Mapping[str, int] = MappingProxyType({}),
) -> spawn.Launch:
    """A process of our own code; `given` are descriptors, by the variable that tells each."""
    return spawn.Launch(
        name=name,
        command=command,
        folder=settings.BASE_DIR,
        environment=_environment(name) | {key: str(number) for key, number in given.items()},
        descriptors=tuple(given.values()),
        entry=entry,
    )


def _environment(name: str) -> dict[str, str]:
    own: Mapping[str, str] = {
        "NURA_PROCESS": name,
        "NURA_DATA_DIR": str(settings.DATA_DIR),
        **models.ENVIRONMENT,
        "OPENBLAS_NUM_THREADS": "1",  # numpy would start threads, which a fork does not take along
    }
    colour = {"NURA_LOG_COLOUR": "1"} if sys.stdout.isatty() else {}
    return {**os.environ, **own, **colour, **_metrics(settings.DATA_DIR)}


def _metrics(data_dir: Path) -> dict[str, str]:
    if settings.WEB_WORKERS == 1:
        return {}
    return {"PROMETHEUS_MULTIPROC_DIR": str(data_dir / "metrics")}
