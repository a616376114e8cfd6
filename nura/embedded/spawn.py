"""Starts and stops server programs that die with their parent.

A service starts *inside* its own folder and is told only relative paths. So the folders above may
be closed to the user it runs as: a checkout under /root works without opening /root to anyone.
"""

import contextlib
import ctypes
import functools
import gc
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import psutil

from nura.embedded.programs import Account

HERE = "/proc/self/cwd" if sys.platform == "linux" else "."
"""The folder a process started in, as an absolute path that needs no permission on its parents."""

PR_SET_PDEATHSIG = 1
PR_SET_NAME = 15
PR_SET_CHILD_SUBREAPER = 36
_libc = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None
_tick = threading.Event()


@dataclass(frozen=True)
class Launch:
    """How one server program is started and stopped."""

    name: str
    command: Sequence[str]
    folder: Path
    account: Account | None = None
    stop_signal: signal.Signals = signal.SIGTERM
    death_signal: signal.Signals = signal.SIGKILL
    environment: Mapping[str, str] | None = None
    descriptors: tuple[int, ...] = ()
    entry: str = ""
    """`module:function` that does the same in a process which has loaded our code already."""


def start_program(
    launch: Launch, output: int | IO[bytes], stdin: int = subprocess.DEVNULL
) -> subprocess.Popen[bytes]:
    """Start the program; it gets its death signal when this process dies."""
    options = build_options(launch) | {"stdin": stdin}
    return subprocess.Popen(launch.command, stdout=output, **options)


def build_options(launch: Launch) -> dict[str, Any]:
    """How to start it, for `subprocess` and `asyncio` alike: in its own group, our end its end.

    Start from the main thread: the death signal comes when the *thread* that started it ends.
    """
    account = launch.account
    return {
        "cwd": launch.folder,
        "env": launch.environment,
        "stdin": subprocess.DEVNULL,
        "stderr": subprocess.STDOUT,
        "process_group": 0,
        "user": account.uid if account else None,
        "group": account.gid if account else None,
        "extra_groups": [] if account else None,
        "pass_fds": launch.descriptors,
        "preexec_fn": functools.partial(die_with, os.getpid(), launch.death_signal),
    }


def die_with(parent: int, number: signal.Signals) -> None:
    """Get `number` when the parent dies. Call it after a change of user, which would undo it."""
    if _libc is not None:
        _libc.prctl(PR_SET_PDEATHSIG, int(number))
    if os.getppid() != parent:  # it died before the line above
        os._exit(1)


def adopt_orphans(*, adopt: bool) -> None:
    """Whether processes below this one that lose their parent become children of this one."""
    if _libc is not None:
        _libc.prctl(PR_SET_CHILD_SUBREAPER, int(adopt))


def name_process(name: str) -> None:
    """What `ps -e` and `top` call this process: the first 15 characters."""
    if _libc is not None:
        _libc.prctl(PR_SET_NAME, name.encode())


def give_memory_back() -> None:
    """What was needed only while something was loaded; the C library would keep it."""
    gc.collect()
    if _libc is not None:
        _libc.malloc_trim(0)


def stop_program(process: subprocess.Popen[bytes], launch: Launch, patience: float = 20.0) -> None:
    """Ask the program to end; after `patience` seconds end it and its group by force."""
    if process.poll() is not None:
        return
    process.send_signal(launch.stop_signal)
    try:
        process.wait(patience)
    except subprocess.TimeoutExpired:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def clear_leftovers(launch: Launch, program: str, patience: float = 20.0) -> None:
    """End what an earlier start left running in this folder. The caller holds the folder's lock."""
    old = _leftovers(launch.folder, program)
    for process in old:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.send_signal(launch.stop_signal)
    _, alive = psutil.wait_procs(old, timeout=patience)
    for process in alive:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
    psutil.wait_procs(alive, timeout=patience)


def wait_until(predicate: Callable[[], bool], timeout: float, step: float = 0.02) -> bool:
    """Ask again and again until it is true; False when the time is over."""
    for _ in range(max(1, int(timeout / step))):
        if predicate():
            return True
        _tick.wait(step)
    return predicate()


def _leftovers(folder: Path, program: str) -> list[psutil.Process]:
    place = str(folder.resolve())
    return [
        process
        for process in psutil.process_iter(["name", "cwd"])
        if process.info["name"] == program and process.info["cwd"] == place
    ]
