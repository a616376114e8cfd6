"""Servers of Postgres beside the product's own: a primary, and replicas that stream from it.

They run the binaries that come with pip, with settings of their own, as somebody's database would.
"""

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
from pathlib import Path
from urllib.parse import quote

import psutil
import psycopg

from nura.embedded import spawn
from tests.support import wait_until

SETTINGS = {
    "listen_addresses": "",
    "fsync": "off",
    "full_page_writes": "off",
    "max_connections": "60",
    "shared_buffers": "64MB",
    "dynamic_shared_memory_type": "mmap",
    "jit": "off",
    "log_min_messages": "fatal",
    "wal_receiver_status_interval": "1s",
    "wal_retrieve_retry_interval": "200ms",
}


class PostgresServer:
    """One cluster in a folder of its own. A primary, or made by `clone`."""

    def __init__(self, folder: Path) -> None:
        self._account = spawn.find_service_account(folder)
        self._bin = spawn.find_postgres(self._account)
        self._cluster = folder / "cluster"
        self._socket = Path(tempfile.mkdtemp(prefix="nura-pg-"))  # a socket's path is short
        spawn.prepare_data_folder(folder, self._account)
        for place in (self._cluster, self._socket):
            spawn.make_private_folder(place, self._account)
        self._process: subprocess.Popen[bytes] | None = None

    @classmethod
    def make(cls, folder: Path) -> "PostgresServer":
        """A new cluster with the role and the database of the product, and no passwords."""
        server = cls(folder)
        language = ("--locale=C", "--locale-provider=builtin", "--builtin-locale=C.UTF-8")
        access = ("--username=postgres", "--auth=trust", "--encoding=UTF8")
        server._run("initdb", "-D", spawn.HERE, *access, *language, "--no-sync")
        server.start()
        with server.connect("postgres", "postgres") as connection:
            connection.execute("CREATE ROLE nura LOGIN")
            connection.execute("CREATE DATABASE nura OWNER nura")
        with server.connect("nura", "postgres") as connection:
            connection.execute("CREATE EXTENSION vector")
        return server

    def clone(self, folder: Path) -> "PostgresServer":
        """A replica of it, which streams."""
        other = PostgresServer(folder)
        where = f"host={self._socket} user=postgres"
        other._run(
            "pg_basebackup", "-d", where, "-D", spawn.HERE, "-R", "-X", "stream", "-c", "fast"
        )
        other.start()
        return other

    @property
    def place(self) -> str:
        """Its host, as the query of an address has it."""
        return quote(str(self._socket), safe="")

    @property
    def url(self) -> str:
        """As the product's settings have it."""
        return f"postgresql://nura@/nura?host={self.place}"

    def connect(self, database="nura", user="postgres"):
        """A connection of the superuser's."""
        where = {"host": str(self._socket), "dbname": database, "user": user}
        return psycopg.connect(**where, autocommit=True, connect_timeout=5)

    def execute(self, statement: str):
        """The first value of a statement, if it has one."""
        with self.connect() as connection:
            cursor = connection.execute(statement)
            return cursor.fetchone()[0] if cursor.description else None

    def start(self) -> None:
        """Start, and wait until it takes connections."""
        (self._cluster / "postmaster.pid").unlink(missing_ok=True)
        settings = SETTINGS | {"unix_socket_directories": str(self._socket)}
        options = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
        self._process = self._begin("postgres", "-D", spawn.HERE, *options)
        wait_until(self._answers, 60)

    def stop(self) -> None:
        """Stop it as its keeper would."""
        self._end(signal.SIGINT)

    def kill(self) -> None:
        """End it as a power cut does: all its processes at once."""
        assert self._process is not None
        keeper = psutil.Process(self._process.pid)
        ended = [keeper, *keeper.children(recursive=True)]  # each in a session of its own
        for process in ended:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        self._process.wait()
        psutil.wait_procs(ended, 10)

    def close(self) -> None:
        """Stop it and leave nothing."""
        self._end(signal.SIGQUIT)
        shutil.rmtree(self._socket, ignore_errors=True)

    def _end(self, number: signal.Signals) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(number)
            self._process.wait(30)

    def _answers(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, "Postgres did not start"
        with contextlib.suppress(psycopg.OperationalError):
            self.connect("postgres").close()
            return True
        return False

    def _begin(
        self, program: str, *arguments: str, output: int | None = None
    ) -> subprocess.Popen[bytes]:
        environment = {"PATH": os.environ["PATH"], "LC_ALL": "C"}
        launch = spawn.Launch(
            program,
            [str(self._bin / program), *arguments],
            self._cluster,
            self._account,
            death_signal=signal.SIGQUIT,
            environment=environment,
        )
        return spawn.start_program(launch, output)

    def _run(self, program: str, *arguments: str) -> None:
        process = self._begin(program, *arguments, output=subprocess.DEVNULL)
        assert process.wait(120) == 0, program
