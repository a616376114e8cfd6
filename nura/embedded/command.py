"""Embedded services for one management command when the product does not run."""

import contextlib
import functools
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from nura.embedded import locations, models, postgres, redis, session, spawn

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
"""`up` starts its own services, and needs the others like any command."""

WITH_MODELS = {"ask", "evaluate", "reindex"}
"""Commands that search or embed in their own process."""

WITHOUT_MIGRATION = {"migrate", "doctor", "showmigrations", "sqlmigrate"}
PATIENCE = 60.0


@contextlib.contextmanager
def services_for(arguments: Sequence[str]) -> Iterator[None]:
    """Run a command, `arguments` being what follows `manage.py`, with database and Redis at hand.

    When `up` holds the data folder its services are used; another command's end is waited for.
    """
    from django.conf import settings

    from nura import health

    if (
        arguments
        and arguments[0] not in WITHOUT_DATABASE | {"doctor"}
        and not _asks_help(arguments)
    ):
        health.require_services()
    if not arguments or arguments[0] in WITHOUT_SERVICES or _asks_help(arguments):
        yield
        return
    with contextlib.ExitStack() as stack:
        if settings.EMBEDDED_POSTGRES or settings.EMBEDDED_REDIS:
            stack.enter_context(_services(settings.DATA_DIR))
            if arguments[0] not in WITHOUT_MIGRATION:
                _migrate()
        if arguments[0] in WITH_MODELS and not models.answers(settings.RAG.models_socket):
            stack.enter_context(_own_models())
        yield


@contextlib.contextmanager
def _own_models() -> Iterator[None]:
    """A models process for this command alone, on a socket of its own.

    A command may need a local model though the settings name an endpoint: `reindex` compares with
    the model that served before.
    """
    from django.conf import settings

    path = str(locations.socket_dir(settings.DATA_DIR) / f"models-{os.getpid()}.sock")
    os.environ["NURA_MODELS_SOCKET"] = path
    settings.RAG = settings.BUILD_RAG()
    with session.running_models(settings.DATA_DIR, path):
        yield


@contextlib.contextmanager
def _services(data_dir: Path) -> Iterator[None]:
    from django.conf import settings

    with contextlib.ExitStack() as stack:
        holder = session.hold(stack, data_dir, session.COMMAND, PATIENCE)
        if holder is not None:
            _wait_for_product(data_dir, holder)
        else:
            stack.enter_context(
                session.running(
                    data_dir,
                    with_postgres=settings.EMBEDDED_POSTGRES,
                    with_redis=settings.EMBEDDED_REDIS,
                )
            )
        yield


def _wait_for_product(data_dir: Path, holder: str) -> None:
    if holder == session.COMMAND or not spawn.wait_until(
        functools.partial(_product_answers, data_dir), PATIENCE, step=0.1
    ):
        raise session.FolderBusyError(holder)


def _product_answers(data_dir: Path) -> bool:
    from django.conf import settings

    return (not settings.EMBEDDED_POSTGRES or postgres.answers(data_dir)) and (
        not settings.EMBEDDED_REDIS or redis.answers(data_dir)
    )


def _migrate() -> None:
    import django

    django.setup()
    from nura.preparation import migrate

    migrate()


def _asks_help(arguments: Sequence[str]) -> bool:
    return "--help" in arguments or "-h" in arguments
