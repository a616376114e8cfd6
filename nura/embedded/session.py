"""Runs the embedded services for the length of one command, or of one test session."""

import contextlib
import fcntl
import functools
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

from nura.embedded import models, postgres, redis, spawn

COMMAND = "a management command"


class FolderBusyError(Exception):
    """Another process holds the data folder; `holder` is what it wrote there (its URL)."""

    def __init__(self, holder: str) -> None:
        super().__init__(f"This data folder is in use: {holder or 'another process'}")
        self.holder = holder


@contextlib.contextmanager
def folder_lock(data_dir: Path, note: str) -> Iterator[None]:
    """Hold the data folder alone until the end of this process. Raises `FolderBusyError`."""
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


def holder(data_dir: Path) -> str:
    """What the folder's holder wrote there (its URL); empty if nobody holds it."""
    try:
        with folder_lock(data_dir, ""):
            return ""
    except FolderBusyError as busy:
        return busy.holder


def hold(
    stack: contextlib.ExitStack, data_dir: Path, note: str, patience: float = 30.0
) -> str | None:
    """Get the lock for the life of `stack`, after a management command's end if need be.

    None when it is ours, else what its holder wrote about itself.
    """
    holders: list[str | None] = []

    def settled() -> bool:
        try:
            stack.enter_context(folder_lock(data_dir, note))
        except FolderBusyError as busy:
            holders.append(busy.holder)
            return busy.holder not in {COMMAND, ""}
        holders.append(None)
        return True

    spawn.wait_until(settled, patience, step=0.1)
    return holders[-1]


@contextlib.contextmanager
def running(
    data_dir: Path, *, with_postgres: bool = True, with_redis: bool = True, durable: bool = True
) -> Iterator[None]:
    """Start the services, and stop them afterwards. The caller holds the lock of the folder."""
    with contextlib.ExitStack() as stack:
        log = stack.enter_context((data_dir / "services.log").open("ab"))
        if with_postgres:
            launch = postgres.prepare(data_dir, durable)
            process = spawn.start(launch, log)
            stack.callback(spawn.stop, process, launch)
            postgres.wait_ready(data_dir, functools.partial(_lives, process))
        if with_redis:
            launch = redis.prepare(data_dir)
            process = spawn.start(launch, log)
            stack.callback(spawn.stop, process, launch)
            redis.wait_ready(data_dir, functools.partial(_lives, process))
        yield


@contextlib.contextmanager
def running_models(data_dir: Path, path: str) -> Iterator[None]:
    """Start the models process on the socket at `path`, and stop it afterwards."""
    data_dir.mkdir(parents=True, exist_ok=True)
    with (data_dir / "services.log").open("ab") as log:
        launch = models.prepare(data_dir, path, {**os.environ, "NURA_PROCESS": "models"})
        process = spawn.start(launch, log)
        try:
            models.wait_ready(path, functools.partial(_lives, process))
            yield
        finally:
            spawn.stop(process, launch)
            Path(path).unlink(missing_ok=True)


def _lives(process: subprocess.Popen[bytes]) -> bool:
    return process.poll() is None
