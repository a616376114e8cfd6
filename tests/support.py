"""Helpers that more than one kind of test needs."""

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
"""Larger test data beside the checkout; tests that need it skip where it is absent."""
NO_DATA = "../shared/data is not there"
"""Why they skip; the last lines of a test run count them."""

_tick = threading.Event()


def wait_until(
    predicate: Callable[[], object], timeout: float = 20.0, step: float = 0.05
) -> object:
    """What the predicate gives once that is true. Raises `AssertionError` when the time is over."""
    deadline = time.monotonic() + timeout
    while not (value := predicate()):
        assert time.monotonic() < deadline, f"not true within {timeout:g} s: {predicate}"
        _tick.wait(step)
    return value


def free_port() -> int:
    """A port of 127.0.0.1 that nobody listens on now."""
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

What is loaded is frozen: a process that ends would look through all of it for garbage, and the
kernel would copy it for that, most of a processor second. The password that most people of tests
have is hashed once a test run: that takes longer than all else that makes an account.
"""
PASSWORD = "correct-horse-9"


@functools.cache
def encode_password() -> str:
    """`PASSWORD` as the product stores it."""
    hasher = Argon2PasswordHasher()
    return hasher.encode(PASSWORD, hasher.salt())


NO_LIMITS = {
    f"NURA_LIMIT_{name}": "0"
    for name in (
        *("QUESTIONS", "SEARCHES", "UPLOADS", "EXPORTS", "EMBEDDING_TOKENS", "VISITORS"),
        *("SOCKETS", "AT_ONCE", "ANSWERS"),
    )
}
"""One account of a test or benchmark stands for many people."""


class Product:
    """The whole product on a free port with its own data folder, as `manage.py up` runs it.

    Unless it is to be no `prepared` one, it begins with collected static files and, where it has no
    other, a migrated database, both made once a test run: they take 13 seconds of the processor.
    Nobody's requests are limited unless it is to be `limited`. It runs the `code` that lies in a
    folder, from its next start on; a management command runs it at once.
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
        except BaseException:  # a time-out or Ctrl-C too: nobody else would end what was started
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
        """Start, and wait until it is ready. It ends with the test process, however that ends."""
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
        """Wait for `/readyz`; the log is in the failure."""
        with self._log_on_failure():
            wait_until(self._settled, timeout, step=0.1)
            assert self.status("/readyz") == 200

    def stop(self, timeout: float = 40.0) -> int:
        """Stop it as Ctrl-C does; the exit status."""
        self._end_commands()
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
        """End only `up` itself, as a crash does."""
        assert self.process is not None
        self._end_commands()
        self.process.kill()
        self.process.wait()

    def processes(self) -> list[psutil.Process]:
        """All living processes of this product, those that lost their parents too."""
        place = str(self.data_dir)
        found = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                if process.status() != psutil.STATUS_ZOMBIE and self._is_ours(process, place):
                    found.append(process)
        return found

    def process_of(self, name: str) -> psutil.Process:
        """The process that `up` started under this name."""
        assert self.process is not None
        for process in psutil.Process(self.process.pid).children():
            with contextlib.suppress(psutil.Error):
                if name_part(process) == name:
                    return process
        raise AssertionError(f"{name} does not run\n{self.log}")

    def create_user(self, name: str, password: str = PASSWORD, *, staff: bool = False) -> str:
        """A user of this name, by the command; the new API key."""
        return self.manage(
            "create_user", name, "--password", password, *(["--staff"] if staff else [])
        ).stdout.split()[-1]

    def add_user(self, name: str, password: str = PASSWORD, *, staff: bool = False) -> str:
        """What `create_user` does, while the product runs."""
        return self.call(
            "create_user", name, "--password", password, *(["--staff"] if staff else [])
        ).stdout.split()[-1]

    def manage(self, *arguments: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        """Run a management command on this data folder."""
        return subprocess.run(
            self._manage(*arguments),
            env=self.environment(),
            capture_output=True,
            text=True,
            check=check,
            timeout=120,
        )

    def call(self, *arguments: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        """What `manage` does, much faster: it is forked from a process that has loaded the code.

        Where the product does not run, its services run on until `stop`.
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
            asked = json.dumps([str(output), str(errors), *arguments])
            print(asked, file=self._commands.stdin, flush=True)
            told = next(filter(lambda line: line.startswith("status "), self._commands.stdout))
            done = subprocess.CompletedProcess(
                arguments, int(told.split()[1]), output.read_text(), errors.read_text()
            )
        if check:
            done.check_returncode()
        return done

    def begin(self, *arguments: str) -> subprocess.Popen[bytes]:
        """Begin a management command, as the leader of a process group that can be killed."""
        return subprocess.Popen(
            self._manage(*arguments),
            env=self.environment(),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    @property
    def database(self) -> dict[str, str]:
        """How `psycopg.connect` reaches its database."""
        where = {"host": str(find_socket_dir(self.data_dir)), "dbname": "nura", "user": "nura"}
        return where | {"password": self._service_password}

    @property
    def redis_url(self) -> str:
        """Its own Redis."""
        return build_redis_url(self.data_dir, self._service_password)

    @property
    def _service_password(self) -> str:
        given = self.environment().get("SECRET_KEY")
        return derive_password(given or (self.data_dir / "secret-key").read_text(encoding="ascii"))

    def status(self, path: str) -> int:
        """The status of one GET; 0 when nobody answers."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=10)
        try:
            connection.request("GET", path)
            return connection.getresponse().status
        except (OSError, http.client.HTTPException):
            return 0
        finally:
            connection.close()

    def environment(self) -> dict[str, str]:
        """Nothing of the test run's own settings."""
        kept = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("NURA_", "DJANGO_", "PYTEST_", "DATABASE_", "REDIS_URL"))
        }
        own = {"NURA_DATA_DIR": str(self.data_dir), "NURA_DOTENV": os.devnull}
        return kept | own | self._environment

    @property
    def log(self) -> str:
        """All that it said so far."""
        return self._log.read_text(errors="replace") if self._log.exists() else ""

    def _end_commands(self) -> None:
        if self._commands is not None:
            self._commands.communicate()
            self._commands = None

    def _settled(self) -> bool:
        assert self.process is not None
        return self.process.poll() is not None or self.status("/readyz") == 200

    def _manage(self, *arguments: str) -> list[str]:
        return [*self._python, str(self.code / "manage.py"), *arguments]

    def _is_ours(self, process: psutil.Process, place: str) -> bool:
        if process.cwd().startswith(place):
            return True
        return process.cwd() == str(self.code) and process.environ().get("NURA_DATA_DIR") == place

    @contextlib.contextmanager
    def _log_on_failure(self):
        try:
            yield
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.log[-8000:]}") from error


def copy_prepared_folder(data_dir: Path, part: str = "") -> None:
    """Fill a data folder, or one folder in it.

    Does nothing outside a test run, which has a place for what it shares.
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
"""What `up` starts, but for the fork server."""


def name_part(process: psutil.Process) -> str:
    """Which part of the product this process is, or was forked by; "up" is all the rest."""
    forked = process.name().removeprefix("nura-")
    if forked != process.name():
        return forked
    line = " ".join(process.cmdline())
    words = {"postgres": "postgres", "redis": "redis-server", "models": "nura.models_server"}
    words["forkserver"] = "nura.forkserver"
    return next((name for name, word in words.items() if word in line), "up")
