"""Helpers for all kinds of tests: waiting, free ports, and the whole product."""

import contextlib
import fcntl
import functools
import http.client
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Self
from uuid import uuid4

import psutil
from django.contrib.auth.hashers import Argon2PasswordHasher

from nura.embedded import spawn
from nura.embedded.locations import build_redis_url, derive_password, find_socket_dir

ROOT = Path(__file__).resolve().parents[1]
DATA = ROOT.parent / "shared" / "data"
"""Larger test data beside the checkout; tests that need it are skipped if it is missing."""
NO_DATA = "../shared/data is not there"
"""The reason for skipping; the summary of a test run counts these tests."""

_tick = threading.Event()


def wait_until(
    predicate: Callable[[], object], timeout: float = 20.0, step: float = 0.05
) -> object:
    """Wait until the predicate is true; returns its value. Raises `AssertionError` in the end."""
    deadline = time.monotonic() + timeout
    while not (value := predicate()):
        assert time.monotonic() < deadline, f"not true within {timeout:g} s: {predicate}"
        _tick.wait(step)
    return value


def free_port() -> int:
    """A port of 127.0.0.1 on which nothing listens now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


PREPARE = "from nura.preparation import prepare; prepare(seed=False)"
COMMANDS = """
import gc, json, os, sys
from django.contrib.auth.hashers import Argon2PasswordHasher
from django.core.management import call_command
from django.db import connections
compute = Argon2PasswordHasher.encode
known, encoded = json.loads(sys.stdin.readline())
Argon2PasswordHasher.encode = lambda hasher, password, salt: (
    encoded if password == known else compute(hasher, password, salt)
)
gc.freeze()
for line in sys.stdin:
    for one in connections.all():
        one.close()
        one.close_pool()
    if child := os.fork():
        print("status", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
        continue
    output, errors, *words = json.loads(line)
    os.dup2(os.open(output, os.O_WRONLY), 1)
    os.dup2(os.open(errors, os.O_WRONLY), 2)
    call_command(*words)
    sys.exit()
"""
"""Both are run by `manage.py shell`. The second forks a process for each command that it reads.

`gc.freeze` saves most of a second per command: at exit a forked process would collect garbage in
everything that is loaded, and the kernel would copy those pages. `PASSWORD`, which most test
accounts have, is hashed once per test run, because that takes longer than the rest of an account.
"""
PASSWORD = "correct-horse-9"


@functools.cache
def encode_password() -> str:
    """The hash of `PASSWORD` as the product stores it."""
    hasher = Argon2PasswordHasher()
    return hasher.encode(PASSWORD, hasher.salt())


NO_LIMITS = {
    f"NURA_LIMIT_{name}": "0"
    for name in (
        *("QUESTIONS", "SEARCHES", "UPLOADS", "EXPORTS", "EMBEDDING_TOKENS", "VISITORS"),
        *("SOCKETS", "AT_ONCE", "ANSWERS"),
    )
}
"""Settings without rate limits: one account of a test or benchmark stands for many people."""


class Product:
    """The whole product on a free port with its own data folder, run by `manage.py up`.

    `prepared`: it starts with collected static files and, unless it is given a database, a migrated
    one; both are made once per test run, as they take 13 seconds of processor time. `limited`: rate
    limits apply. `code` is the folder of the code to run; a change takes effect at the next start,
    for management commands at once.
    """

    def __init__(
        self,
        data_dir: Path | None = None,
        *,
        seed: bool = False,
        prepared: bool = True,
        python: tuple[str, ...] = (sys.executable,),
        limited: bool = False,
        code: Path = ROOT,
        **environment: str,
    ) -> None:
        self.code = code
        self._python = python
        self._prepared = prepared
        self._own_folder = data_dir is None
        self.data_dir = data_dir or Path(tempfile.mkdtemp(prefix="nura-product-"))
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.process: subprocess.Popen[bytes] | None = None
        self._commands: subprocess.Popen[str] | None = None
        self._options = [] if seed else ["--no-seed"]
        self._environment = environment if limited else NO_LIMITS | environment
        self._log = Path(tempfile.gettempdir()) / f"nura-product-{uuid4().hex[:12]}.log"

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:  # also after a time-out or Ctrl-C: nobody else would stop it
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self.stop()
        finally:
            self._log.unlink(missing_ok=True)
            if self._own_folder:
                shutil.rmtree(self.data_dir, ignore_errors=True)

    def start(self, *, wait: bool = True) -> None:
        """Start it, and wait until it is ready. It stops when the test process ends, however."""
        if self._prepared and not (self.data_dir / "static").exists():
            has_database = (
                "DATABASE_URL" in self._environment or (self.data_dir / "postgres").exists()
            )
            copy_prepared_folder(self.data_dir, "static" if has_database else "")
        with self._log.open("ab") as log:
            self.process = subprocess.Popen(
                [*self._manage("up", "--port", str(self.port)), *self._options],
                env=self.environment(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=functools.partial(  # noqa: PLW1509 - it calls nothing but the kernel
                    spawn.set_death_signal, os.getpid(), signal.SIGINT
                ),
            )
        if wait:
            self.wait_ready()

    def wait_ready(self, timeout: float = 120.0) -> None:
        """Wait for `/readyz`; a failure shows the log."""
        with self._log_on_failure():
            wait_until(self._has_started_or_ended, timeout, step=0.1)
            assert self.status("/readyz") == 200

    def stop(self, timeout: float = 40.0) -> int:
        """Stop it as Ctrl-C does and return the exit status."""
        self.end_commands()
        if self.process is None:
            return 0
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
        try:
            return self.process.wait(timeout)
        finally:
            left = self.processes()
            for process in left:
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.kill()
            psutil.wait_procs(left, 10)

    def kill(self) -> None:
        """Kill only `up` itself, as a crash would."""
        assert self.process is not None
        self.end_commands()
        self.process.kill()
        self.process.wait()

    def processes(self) -> list[psutil.Process]:
        """All running processes of this product, including orphans."""
        data_dir = str(self.data_dir)
        found = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                if process.status() != psutil.STATUS_ZOMBIE and self._is_ours(process, data_dir):
                    found.append(process)
        return found

    def find_process(self, name: str) -> psutil.Process:
        """The process that `up` started by this name, one of `PARTS` or "forkserver"."""
        assert self.process is not None
        for process in psutil.Process(self.process.pid).children():
            with contextlib.suppress(psutil.Error):
                if get_part_name(process) == name:
                    return process
        raise AssertionError(f"{name} does not run\n{self.log}")

    def create_user(self, name: str, password: str = PASSWORD, *, staff: bool = False) -> str:
        """Create a user with `manage`, before the product runs; returns the API key."""
        return self.manage(
            "create_user", name, "--password", password, *(["--staff"] if staff else [])
        ).stdout.split()[-1]

    def add_user(self, name: str, password: str = PASSWORD, *, staff: bool = False) -> str:
        """Create a user with `call`, while the product runs; returns the API key."""
        return self.call(
            "create_user", name, "--password", password, *(["--staff"] if staff else [])
        ).stdout.split()[-1]

    def manage(self, *arguments: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        """Run a management command on this data folder, in a new interpreter."""
        return subprocess.run(
            self._manage(*arguments),
            env=self.environment(),
            capture_output=True,
            text=True,
            check=check,
            timeout=120,
        )

    def call(self, *arguments: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        """Like `manage`, but much faster: forked from a process that has loaded the code.

        If the product is not running, its services keep running until `stop`.
        """
        if self._commands is None or self._commands.poll() is not None:
            self._commands = subprocess.Popen(
                self._manage("shell", "-v0", "-c", COMMANDS),
                env=self.environment(),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            print(json.dumps([PASSWORD, encode_password()]), file=self._commands.stdin, flush=True)
        assert self._commands.stdin is not None
        assert self._commands.stdout is not None
        with tempfile.TemporaryDirectory() as folder:
            output, errors = Path(folder) / "output", Path(folder) / "errors"
            output.touch()
            errors.touch()
            request = json.dumps([str(output), str(errors), *arguments])
            print(request, file=self._commands.stdin, flush=True)
            status_line = next(
                filter(lambda line: line.startswith("status "), self._commands.stdout)
            )
            done = subprocess.CompletedProcess(
                arguments, int(status_line.split()[1]), output.read_text(), errors.read_text()
            )
        if check:
            done.check_returncode()
        return done

    def start_command(self, *arguments: str) -> subprocess.Popen[bytes]:
        """Start a management command, as the leader of a process group that can be killed."""
        return subprocess.Popen(
            self._manage(*arguments),
            env=self.environment(),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    @property
    def database(self) -> dict[str, str]:
        """Arguments of `psycopg.connect` for its database."""
        where = {"host": str(find_socket_dir(self.data_dir)), "dbname": "nura", "user": "nura"}
        return where | {"password": self._service_password}

    @property
    def redis_url(self) -> str:
        """The URL of its Redis."""
        return build_redis_url(self.data_dir, self._service_password)

    @property
    def _service_password(self) -> str:
        given = self.environment().get("SECRET_KEY")
        return derive_password(given or (self.data_dir / "secret-key").read_text(encoding="ascii"))

    def status(self, path: str) -> int:
        """The HTTP status of a GET; 0 if nothing answers."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=10)
        try:
            connection.request("GET", path)
            return connection.getresponse().status
        except (OSError, http.client.HTTPException):
            return 0
        finally:
            connection.close()

    def environment(self) -> dict[str, str]:
        """Environment variables of its processes, without settings of the test run."""
        kept = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("NURA_", "DJANGO_", "PYTEST_", "DATABASE_", "REDIS_URL"))
        }
        own = {"NURA_DATA_DIR": str(self.data_dir), "NURA_DOTENV": os.devnull}
        return kept | own | self._environment

    @property
    def log(self) -> str:
        """Its output so far."""
        return self._log.read_text(errors="replace") if self._log.exists() else ""

    def end_commands(self) -> None:
        """End the process that runs commands for tests."""
        if self._commands is not None:
            self._commands.communicate()
            self._commands = None

    def _has_started_or_ended(self) -> bool:
        assert self.process is not None
        return self.process.poll() is not None or self.status("/readyz") == 200

    def _manage(self, *arguments: str) -> list[str]:
        return [*self._python, str(self.code / "manage.py"), *arguments]

    def _is_ours(self, process: psutil.Process, data_dir: str) -> bool:
        if process.cwd().startswith(data_dir):
            return True
        return (
            process.cwd() == str(self.code) and process.environ().get("NURA_DATA_DIR") == data_dir
        )

    @contextlib.contextmanager
    def _log_on_failure(self):
        try:
            yield
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.log[-8000:]}") from error


def copy_prepared_folder(data_dir: Path, part: str = "") -> None:
    """Copy the prepared data folder, or the folder `part` of it, to `data_dir`.

    Does nothing outside a test run, which alone has a folder for shared data.
    """
    place = os.environ.get("NURA_TEST_DATA_DIR")
    if place is None:
        return
    prepared = Path(place) / "prepared"
    prepared.parent.mkdir(parents=True, exist_ok=True)
    with prepared.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # the others wait for the first
        if not (prepared / "static" / ".stamp").exists():
            made = Product(prepared).manage("shell", "-v0", "-c", PREPARE)
            assert made.stdout == ""  # a command's output is its own, even where it migrates
    (data_dir / part).mkdir(parents=True, exist_ok=True)
    subprocess.run(["cp", "-a", f"{prepared / part}/.", data_dir / part], check=True)


PARTS = ("postgres", "redis", "models", "web", "answers", "documents", "beat")
"""The processes that `up` starts, except for the fork server."""


def get_part_name(process: psutil.Process) -> str:
    """The part of the product that this process, or the one that forked it, is; "up" for others."""
    forked = process.name().removeprefix("nura-")
    if forked != process.name():
        return forked
    line = " ".join(process.cmdline())
    words = {"postgres": "postgres", "redis": "redis-server", "models": "nura.models_server"}
    words["forkserver"] = "nura.forkserver"
    return next((name for name, word in words.items() if word in line), "up")
