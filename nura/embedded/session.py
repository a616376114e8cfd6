"""Runs the embedded services for one management command or test session.

Whoever holds the lock of the data folder runs them.
"""

import contextlib
import fcntl
import functools
import os
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

from nura.embedded import models, postgres, redis, spawn
from nura.embedded.locations import find_socket_dir

COMMAND = "a management command"

WITHOUT_SERVICES = {
    *("up", "help", "version", "check", "compilemessages", "makemessages", "collectstatic"),
    *(
        "findstatic",
        "diffsettings",
        "settings_reference",
        "makemigrations",
        "spectacular",
        "test",
        "startapp",
        "--version",
    ),
}
WITHOUT_DATABASE = WITHOUT_SERVICES - {"up"}
"""Without `up`, which starts its own services but needs external ones like any command."""

WITH_MODELS = {"ask", "evaluate", "reindex"}
"""Commands that search or embed in their own process."""

WITHOUT_MIGRATION = {"migrate", "doctor", "showmigrations", "sqlmigrate"}
PATIENCE_SECONDS = 60.0


class FolderBusyError(Exception):
    """Another process holds the data folder; `holder` is what it wrote there (its URL)."""

    def __init__(self, holder: str) -> None:
        super().__init__(f"This data folder is in use: {holder or 'another process'}")
        self.holder = holder


@contextlib.contextmanager
def lock_folder(data_dir: Path, note: str) -> Iterator[None]:
    """Lock the data folder exclusively. Raises `FolderBusyError`."""
    data_dir.mkdir(parents=True, exist_ok=True)
    with (data_dir / "lock").open("a+", encoding="utf-8") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            file.seek(0)
            raise FolderBusyError(file.read().strip()) from error
        file.truncate(0)
        file.write(note)
        file.flush()
        yield


def read_holder(data_dir: Path) -> str:
    """What the folder's holder wrote there (its URL); empty if nobody holds it."""
    try:
        with lock_folder(data_dir, ""):
            return ""
    except FolderBusyError as busy:
        return busy.holder


def acquire_folder_lock(
    stack: contextlib.ExitStack, data_dir: Path, note: str, timeout: float = 30.0
) -> str | None:
    """Lock the folder for the life of `stack`, waiting for a management command if necessary.

    None once it is locked, else what its holder wrote there.
    """
    holders: list[str | None] = []

    def is_settled() -> bool:
        try:
            stack.enter_context(lock_folder(data_dir, note))
        except FolderBusyError as busy:
            holders.append(busy.holder)
            return busy.holder not in {COMMAND, ""}
        holders.append(None)
        return True

    spawn.wait_until(is_settled, timeout, step=0.1)
    return holders[-1]


@contextlib.contextmanager
def run_services(
    data_dir: Path,
    *,
    with_postgres: bool = True,
    with_redis: bool = True,
    durable: bool = True,
    makes_databases: bool = False,
) -> Iterator[None]:
    """Start the services, and stop them afterwards. The caller holds the lock of the folder.

    `makes_databases`: the role may create further databases, as benchmarks do.
    """
    with contextlib.ExitStack() as stack:
        log = stack.enter_context((data_dir / "services.log").open("ab"))
        if with_postgres:
            launch = postgres.prepare_launch(data_dir, durable, makes_databases=makes_databases)
            process = spawn.start_program(launch, log)
            stack.callback(spawn.stop_program, process, launch)
            postgres.wait_ready(data_dir, functools.partial(_is_alive, process))
        if with_redis:
            launch = redis.prepare_launch(data_dir, durable)
            process = spawn.start_program(launch, log)
            stack.callback(spawn.stop_program, process, launch)
            redis.wait_ready(data_dir, functools.partial(_is_alive, process))
        yield


@contextlib.contextmanager
def run_models(data_dir: Path, path: str) -> Iterator[None]:
    """Start the models process on the socket at `path`, and stop it afterwards."""
    data_dir.mkdir(parents=True, exist_ok=True)
    with (data_dir / "services.log").open("ab") as log:
        launch = models.prepare_launch(data_dir, path, {**os.environ, "NURA_PROCESS": "models"})
        process = spawn.start_program(launch, log)
        try:
            models.wait_ready(path, functools.partial(_is_alive, process))
            yield
        finally:
            spawn.stop_program(process, launch)
            Path(path).unlink(missing_ok=True)


def _is_alive(process: subprocess.Popen[bytes]) -> bool:
    return process.poll() is None


@contextlib.contextmanager
def start_services_for(arguments: Sequence[str]) -> Iterator[None]:
    """Provide database and Redis for a command; `arguments` are what follows `manage.py`.

    If `up` holds the data folder, its services are used; another command is waited for.
    """
    from django.conf import settings

    from nura import health
    from nura.embedded import spawn

    if (
        arguments
        and arguments[0] not in WITHOUT_DATABASE | {"doctor"}
        and not _asks_for_help(arguments)
    ):
        health.require_services()
    if not arguments or arguments[0] in WITHOUT_SERVICES or _asks_for_help(arguments):
        yield
        return
    with contextlib.ExitStack() as stack:
        stack.callback(spawn.restore_ownership, settings.DATA_DIR)
        if settings.EMBEDDED_POSTGRES or settings.EMBEDDED_REDIS:
            stack.enter_context(_run_or_join_services(settings.DATA_DIR))
            if arguments[0] not in WITHOUT_MIGRATION:
                _run_migrations()
        elif arguments[0] not in WITHOUT_MIGRATION:
            _require_known_schema()
        if arguments[0] in WITH_MODELS and not models.is_answering(settings.RAG.models_socket):
            stack.enter_context(_run_own_models())
        yield


@contextlib.contextmanager
def _run_own_models() -> Iterator[None]:
    """Run a models process for this command alone, on a socket of its own.

    A command may need a local model even if the settings name an endpoint: `reindex` compares with
    the previous model.
    """
    from django.conf import settings

    path = str(find_socket_dir(settings.DATA_DIR) / f"models-{os.getpid()}.sock")
    os.environ["NURA_MODELS_SOCKET"] = path
    settings.RAG = settings.BUILD_RAG()
    with run_models(settings.DATA_DIR, path):
        yield


@contextlib.contextmanager
def _run_or_join_services(data_dir: Path) -> Iterator[None]:
    from django.conf import settings

    with contextlib.ExitStack() as stack:
        holder = acquire_folder_lock(stack, data_dir, COMMAND, PATIENCE_SECONDS)
        if holder is not None:
            _wait_for_product(data_dir, holder)
        else:
            stack.enter_context(
                run_services(
                    data_dir,
                    with_postgres=settings.EMBEDDED_POSTGRES,
                    with_redis=settings.EMBEDDED_REDIS,
                )
            )
        yield


def _wait_for_product(data_dir: Path, holder: str) -> None:
    if holder == COMMAND or not spawn.wait_until(
        functools.partial(_is_product_answering, data_dir), PATIENCE_SECONDS, step=0.1
    ):
        raise FolderBusyError(holder)


def _is_product_answering(data_dir: Path) -> bool:
    from django.conf import settings

    return (not settings.EMBEDDED_POSTGRES or postgres.is_answering(data_dir)) and (
        not settings.EMBEDDED_REDIS or redis.is_answering(data_dir)
    )


def _run_migrations() -> None:
    import django

    django.setup()
    from nura.preparation import migrate

    migrate()


def _require_known_schema() -> None:
    import django

    django.setup()
    from nura import schema

    schema.require_known_schema()


def _asks_for_help(arguments: Sequence[str]) -> bool:
    return "--help" in arguments or "-h" in arguments
