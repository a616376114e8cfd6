"""Embedded services for one management command when the product does not run."""

import contextlib
import functools
from collections.abc import Iterator, Sequence
from pathlib import Path

from nura.embedded import postgres, redis, session, spawn

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
"""`up` starts its own services; those that it does not start it needs like any other command."""

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
    needed = settings.EMBEDDED_POSTGRES or settings.EMBEDDED_REDIS
    if not needed or not arguments or arguments[0] in WITHOUT_SERVICES or _asks_help(arguments):
        yield
        return
    with _services(settings.DATA_DIR):
        if arguments[0] not in WITHOUT_MIGRATION:
            _migrate()
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
