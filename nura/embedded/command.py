"""Embedded services for one management command when the product does not run."""

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path

from nura.embedded import postgres, redis, session, spawn

WITHOUT_SERVICES = {
    *("up", "help", "version", "check", "compilemessages", "makemessages", "collectstatic"),
    *(
        "findstatic",
        "diffsettings",
        "makemigrations",
        "spectacular",
        "test",
        "startapp",
        "--version",
    ),
}
WITHOUT_MIGRATION = {"migrate", "doctor", "showmigrations", "sqlmigrate"}
PATIENCE = 60.0


@contextlib.contextmanager
def services_for(arguments: Sequence[str]) -> Iterator[None]:
    """Run a command, `arguments` being what follows `manage.py`, with database and Redis at hand.

    When `up` holds the data folder its services are used; another command's end is waited for.
    """
    from django.conf import settings

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
        if _hold(stack, data_dir):
            stack.enter_context(
                session.running(
                    data_dir,
                    with_postgres=settings.EMBEDDED_POSTGRES,
                    with_redis=settings.EMBEDDED_REDIS,
                )
            )
        yield


def _hold(stack: contextlib.ExitStack, data_dir: Path) -> bool:
    """Get the lock of the folder (True), or find the services of a running product (False)."""
    held: list[bool] = []

    def settled() -> bool:
        try:
            stack.enter_context(session.folder_lock(data_dir, session.COMMAND))
        except session.FolderBusyError as busy:
            if busy.holder == session.COMMAND or not _product_answers(data_dir):
                return False
            held.append(False)
        else:
            held.append(True)
        return True

    if not spawn.wait_until(settled, PATIENCE, step=0.1):
        raise session.FolderBusyError(f"another process for more than {PATIENCE:g} s")
    return held[0]


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
