"""`manage.py up`: runs the whole product on one machine, and defines how each process starts.

Processes that run our own code are forked if there is a fork server (see `nura.forkserver`),
otherwise started by their command.
"""

import argparse
import asyncio
import contextlib
import http.client
import json
import os
import signal
import socket
import sys
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any
from urllib.parse import urlsplit

import structlog
from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from nura import forkserver, schema
from nura.embedded import models, postgres, redis, session, spawn
from nura.forkserver import ProcessForker
from nura.supervisor import (
    LineWriter,
    ProcessSpec,
    SupervisedProcess,
    start_all,
    stop_in_order,
    wait_for_first,
)
from nura.web import SOCKET_FD, open_listener

OUTCOME_FD = "NURA_OUTCOME_FD"
"""Number of the descriptor that `nura.preparation` writes to."""

PYTHON = (sys.executable, "-m")
CELERY_ENTRY = "celery.__main__:main"
CELERY = (*PYTHON, "celery", "--quiet", "-A", "nura")
WORKER = (*CELERY, "worker", "--loglevel", "INFO", "--without-gossip", "--without-mingle")
TASKS_PER_CHILD = 200
"""A documents process is replaced after this many tasks: libraries that parse files leak."""

WORKER_PATIENCE = 8.0
"""Seconds for running tasks at a stop. Interrupted ones are recovered by their leases."""
MODELS_PATIENCE = 8.0
FORK_SERVER_PATIENCE = 2.0
SETTLING_SECONDS = 6.0
"""Extra seconds for workers to record what they cut off, and for web to relay it."""

IMPATIENT_AFTER = 0.7
"""A second Ctrl-C after this many seconds kills; one may arrive twice, from terminal and `make`."""


PORT_TRIES = 10
PATIENCE = 15.0
"""Seconds between reports of what a slow start waits for."""

MAX_OUTCOME_BYTES = 4096

logger = structlog.get_logger()


class Command(BaseCommand):
    """Starts all processes and keeps them alive until Ctrl-C or SIGTERM."""

    help = "Run the product with all its processes."
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """The first three are for the help: `manage.py` has put them into the environment."""
        parser.add_argument("--host", help="address to listen on (NURA_HOST)")
        parser.add_argument("--port", help="port to listen on (NURA_PORT)")
        parser.add_argument("--data-dir", help="folder of all data (NURA_DATA_DIR)")
        parser.add_argument("--no-seed", action="store_true", help="make no admin, no samples")

    def handle(self, *args: Any, **options: Any) -> None:
        """Run; exit status 1 if it cannot start."""
        with contextlib.ExitStack() as stack:
            self._acquire_folder_lock(stack)
            listener = stack.enter_context(self._open_listener(settings.HOST, settings.PORT))
            self._drop_root()
            product = Product(listener, seed=not options["no_seed"])
            status = asyncio.run(product.run())
        sys.exit(status)

    def _acquire_folder_lock(self, stack: contextlib.ExitStack) -> None:
        own_url = make_url(settings.HOST, settings.PORT)
        holder = session.acquire_folder_lock(stack, settings.DATA_DIR, own_url)
        if holder == session.COMMAND:
            raise CommandError(f"{settings.DATA_DIR} is in use by a management command. Try again.")
        if holder is not None:
            raise CommandError(f"Nura runs on {settings.DATA_DIR} already: {holder}")

    def _drop_root(self) -> None:
        """Drop root's privileges, which only a port below 1024 needed."""
        try:
            choice = spawn.choose_user(settings.RUN_AS, settings.BASE_DIR, settings.DATA_DIR)
        except RuntimeError as error:
            raise CommandError(str(error)) from error
        if choice.account:
            spawn.become_account(choice.account, settings.DATA_DIR)
        elif choice.reason:
            spawn.take_ownership(settings.DATA_DIR)
            logger.warning("runs_as_root", reason=choice.reason)

    def _open_listener(self, host: str, port: int) -> socket.socket:
        """Open the port, retrying: a killed web process may hold it for a moment."""
        problem = ""
        for _ in range(PORT_TRIES):
            try:
                return open_listener(host, port)
            except OSError as error:
                problem = error.strerror or str(error)
            time.sleep(0.1)
        raise CommandError(
            f"Cannot listen on {host}:{port}: {problem}."
            " Name others: up --host, --port (NURA_HOST, NURA_PORT)."
        )


class Product:
    """All processes of the product on one machine."""

    def __init__(self, listener: socket.socket, *, seed: bool) -> None:
        self._listener = listener
        self._seed = seed
        self._output = LineWriter(as_json=settings.LOG_FORMAT == "json")
        self._forks = ProcessForker() if ProcessForker.is_possible() else None
        self._fork_servers = self._make_children(
            [describe_fork_server(self._forks.descriptor)] if self._forks else []
        )
        self._services = self._make_children(list_services())
        self._models = self._make_children([describe_models_process()])
        self._webs = self._make_children(list_webs(listener.fileno()))
        self._workers = self._make_children(list_workers())
        self._beat = self._make_children([describe_beat()])

    async def run(self) -> int:
        """Start, wait until told to stop, stop; the exit status."""
        started = time.monotonic()
        ending = self._watch_for_end()
        work = asyncio.create_task(self._start_all(started))
        await wait_for_first(ending.wait(), self._wait_for_failure(work))
        failed = work.done() and not work.cancelled() and work.exception()
        work.cancel()
        if failed:
            logger.error("start_failed", exc_info=failed)
        self._output.write_line("up", f"Cannot start: {failed}" if failed else "Stopping")
        self._listener.close()  # otherwise new connections would wait in vain
        groups = [
            [*self._webs, *self._workers],
            self._beat,
            self._models,
            self._fork_servers,
            self._services[::-1][:1],
            self._services[:1],
        ]
        await stop_in_order(groups)
        self._output.write_line("up", "Stopped")
        return 1 if failed else 0

    async def _start_all(self, started: float) -> None:
        for child in self._fork_servers:
            child.start()
        await start_all(self._services)
        outcome = await self._run_preparation()
        if settings.RAG.needs_models_process or outcome["is_model_local"]:
            self._models[0].start()
        for child in [*self._webs, *self._workers, *self._beat]:
            child.start()
        reminder = time.monotonic() + PATIENCE
        while missing := await asyncio.to_thread(find_missing_parts):
            if time.monotonic() > reminder:
                self._output.write_line("up", f"Not ready yet, waiting for: {', '.join(missing)}")
                reminder += PATIENCE
            await asyncio.sleep(0.1)
        self._print_address(time.monotonic() - started, is_first_run=outcome["seeded"])

    async def _run_preparation(self) -> dict[str, bool]:
        """The outcome of the preparation. Raises `RuntimeError`; its output says more."""
        read_end, write_end = os.pipe()
        try:
            [child] = self._make_children([describe_preparation(write_end, seed=self._seed)])
            reason = await child.run_once()
            os.set_blocking(read_end, False)
            with contextlib.suppress(BlockingIOError):  # nothing was written
                outcome: dict[str, bool] = json.loads(os.read(read_end, MAX_OUTCOME_BYTES))
                return outcome
        finally:
            os.close(read_end)
            os.close(write_end)
        raise RuntimeError(f"the preparation {reason}; its last lines say why")

    def _print_address(self, seconds: float, *, is_first_run: bool) -> None:
        self._output.write_line(
            "up", f"Ready after {seconds:.1f} s: {make_url(settings.HOST, settings.PORT)}"
        )
        credentials = settings.DATA_DIR / "admin-credentials"
        in_journal = "JOURNAL_STREAM" in os.environ  # a unit of systemd: a log that others read
        if is_first_run and credentials.is_file() and not in_journal:
            for line in credentials.read_text(encoding="utf-8").splitlines():
                self._output.write_line("up", line)
            self._output.write_line("up", f"(kept in {credentials})")
        if settings.HOST in {"0.0.0.0", "::"}:  # noqa: S104 - a comparison
            self._output.write_line(
                "up", f"Answers to these names only: {', '.join(settings.ALLOWED_HOSTS)}"
            )

    def _make_children(self, specs: list[ProcessSpec]) -> list[SupervisedProcess]:
        return [SupervisedProcess(spec, self._output, self._forks) for spec in specs]

    def _watch_for_end(self) -> asyncio.Event:
        ending = asyncio.Event()
        loop = asyncio.get_running_loop()
        times: list[float] = []

        def end() -> None:
            times.append(loop.time())
            if times[-1] - times[0] > IMPATIENT_AFTER:
                for child in [*self._webs, *self._workers, *self._beat, *self._models]:
                    child.abandon()
            ending.set()

        for signal_number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            loop.add_signal_handler(signal_number, end)
        return ending

    @staticmethod
    async def _wait_for_failure(work: "asyncio.Task[None]") -> None:
        """Return only if the start fails; a started product keeps running."""
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.wait([work])
            if work.exception() is None:
                await asyncio.Event().wait()


def list_services() -> list[ProcessSpec]:
    """The embedded Postgres and Redis, if used; first to start, last to stop."""
    data_dir = settings.DATA_DIR
    parts = []
    if settings.EMBEDDED_POSTGRES:
        wait_ready = partial(postgres.wait_ready, data_dir)
        parts.append(
            ProcessSpec("postgres", partial(postgres.prepare_launch, data_dir), wait_ready)
        )
    if settings.EMBEDDED_REDIS:
        wait_ready = partial(redis.wait_ready, data_dir)
        parts.append(ProcessSpec("redis", partial(redis.prepare_launch, data_dir), wait_ready))
    return parts


def describe_fork_server(descriptor: int) -> ProcessSpec:
    """The fork server, reading requests from this descriptor."""
    descriptors = {forkserver.SOCKET_FD: descriptor}
    launch = _describe_launch("forkserver", (*PYTHON, "nura.forkserver"), descriptors=descriptors)
    return ProcessSpec("forkserver", lambda: launch, patience=FORK_SERVER_PATIENCE)


def describe_preparation(outcome: int, *, seed: bool) -> ProcessSpec:
    """The preparation, which writes its outcome to this descriptor."""
    command = (*PYTHON, "nura.preparation", *(() if seed else ("--no-seed",)))
    launch = _describe_launch("prepare", command, "nura.preparation:main", {OUTCOME_FD: outcome})
    return ProcessSpec("prepare", lambda: launch)


def describe_models_process() -> ProcessSpec:
    """The process with the local models."""
    path = settings.RAG.models_socket
    return ProcessSpec(
        "models",
        partial(models.prepare_launch, settings.DATA_DIR, path, _build_environment("models")),
        partial(models.wait_ready, path),
        patience=MODELS_PATIENCE,
    )


def list_webs(listener: int) -> list[ProcessSpec]:
    """The web processes, which share one listening socket."""
    command = (*PYTHON, "nura.web")
    launches = [
        _describe_launch(name, command, "nura.web:main", {SOCKET_FD: listener})
        for name in _make_names("web", settings.WEB_WORKERS)
    ]
    return [
        ProcessSpec(launch.name, partial(_as_it_is, launch), patience=_get_patience())
        for launch in launches
    ]


def list_workers() -> list[ProcessSpec]:
    """The two kinds of workers."""
    answers = [
        _describe_launch(name, (*PYTHON, "nura.answers"), "nura.answers:main")
        for name in _make_names("answers", settings.ANSWER_WORKERS)
    ]
    command = (
        *(*WORKER, "-n", "documents@%h", "-Q", "documents", "--pool", "prefork"),
        *("--concurrency", str(settings.DOCUMENT_WORKERS)),
        *("--max-tasks-per-child", str(TASKS_PER_CHILD)),
    )
    documents = _describe_launch("documents", command, CELERY_ENTRY)
    return [
        *(
            ProcessSpec(launch.name, partial(_as_it_is, launch), patience=_get_patience())
            for launch in answers
        ),
        ProcessSpec("documents", lambda: documents, patience=_get_patience()),
    ]


def describe_beat() -> ProcessSpec:
    """Beat, which schedules the sweepers."""
    schedule = settings.CELERY_BEAT_SCHEDULE_FILENAME
    command = (*CELERY, "beat", "--pidfile=", "--schedule", schedule)
    launch = _describe_launch("beat", command, CELERY_ENTRY)
    return ProcessSpec("beat", lambda: launch, patience=WORKER_PATIENCE)


def _get_patience() -> float:
    return float(settings.SHUTDOWN_SECONDS) + SETTLING_SECONDS


def _make_names(kind: str, count: int) -> list[str]:
    return [kind] if count == 1 else [f"{kind}{number}" for number in range(1, count + 1)]


def _as_it_is(launch: spawn.Launch) -> spawn.Launch:
    return launch


def _describe_launch(
    name: str,
    command: tuple[str, ...],
    entry: str = "",
    descriptors: Mapping[str, int] = MappingProxyType({}),
) -> spawn.Launch:
    """How to start a process of our own code; `descriptors` by their environment variables."""
    return spawn.Launch(
        name=name,
        command=command,
        folder=settings.BASE_DIR,
        environment=_build_environment(name)
        | {key: str(number) for key, number in descriptors.items()},
        descriptors=tuple(descriptors.values()),
        entry=entry,
    )


def _build_environment(name: str) -> dict[str, str]:
    variables: Mapping[str, str] = {
        "NURA_PROCESS": name,
        schema.KNOWN_VARIABLE: "no"
        if name == "prepare"
        else "yes",  # nothing else is started on an unknown schema
        "NURA_DATA_DIR": str(settings.DATA_DIR),
        **models.ENVIRONMENT,
        "OPENBLAS_NUM_THREADS": "1",  # numpy would start threads, which do not survive a fork
    }
    colour = {"NURA_LOG_COLOUR": "1"} if sys.stdout.isatty() else {}
    return {**os.environ, **variables, **colour, **_prepare_metrics(settings.DATA_DIR)}


def _prepare_metrics(data_dir: Path) -> dict[str, str]:
    if settings.WEB_WORKERS == 1:
        return {}
    return {"PROMETHEUS_MULTIPROC_DIR": str(data_dir / "metrics")}


def make_url(host: str, port: int) -> str:
    """The address to open in the browser."""
    name = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104 - a comparison
    return f"http://{f'[{name}]' if ':' in name else name}:{port}{settings.URL_PREFIX}"


def find_missing_parts() -> list[str]:
    """The parts that are not ready yet, from `/readyz`."""
    host = urlsplit(make_url(settings.HOST, settings.PORT)).netloc
    own_host = settings.ALLOWED_HOSTS[0].lstrip(".") if settings.ALLOWED_HOSTS else "localhost"
    connection = http.client.HTTPConnection(host, timeout=5)
    try:
        connection.request("GET", "/readyz", headers={"Host": own_host.replace("*", "localhost")})
        checks = json.load(connection.getresponse())["checks"]
    except (OSError, http.client.HTTPException, ValueError, KeyError):
        return ["web"]
    else:
        return [name for name, is_passing in checks.items() if not is_passing]
    finally:
        connection.close()
