"""Servers of Postgres beside the product's own: a primary, and replicas that stream from it.

They run the bundled binaries with settings of their own, like an external database.
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
from tests.support import copy_prepared_folder, wait_until

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
    """A cluster in a folder of its own: a primary, or a replica made by `clone`."""

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
    def create(cls, folder: Path) -> "PostgresServer":
        """A new cluster with the role and the database of the product, and no passwords."""
        server = cls(folder)
        language = ("--locale=C", "--locale-provider=builtin", "--builtin-locale=C.UTF-8")
        access = ("--username=postgres", "--auth=trust", "--encoding=UTF8")
        server._run_program("initdb", "-D", spawn.HERE, *access, *language, "--no-sync")
        server.start()
        with server.connect("postgres", "postgres") as connection:
            connection.execute("CREATE ROLE nura LOGIN")
            connection.execute("CREATE DATABASE nura OWNER nura")
        with server.connect("nura", "postgres") as connection:
            connection.execute("CREATE EXTENSION vector")
        return server

    @classmethod
    def create_migrated(cls, folder: Path) -> "PostgresServer":
        """A copy of the cluster that the test run has prepared: the same with all tables."""
        server = cls(folder)
        copy_prepared_folder(folder, "postgres")
        (folder / "postgres").rename(server._cluster)
        access = "local all all trust\nlocal replication all trust\n"
        spawn.write_private(server._cluster / "pg_hba.conf", access, server._account)
        server.start()
        return server

    def clone(self, folder: Path) -> "PostgresServer":
        """A streaming replica of it."""
        replica = PostgresServer(folder)
        where = f"host={self._socket} user=postgres"
        replica._run_program(
            "pg_basebackup", "-d", where, "-D", spawn.HERE, "-R", "-X", "stream", "-c", "fast"
        )
        replica.start()
        return replica

    @property
    def quoted_host(self) -> str:
        """Its host, quoted for the query of a URL."""
        return quote(str(self._socket), safe="")

    @property
    def url(self) -> str:
        """Its URL, for the product's settings."""
        return f"postgresql://nura@/nura?host={self.quoted_host}"

    def connect(self, database="nura", user="postgres"):
        """A connection, by default as superuser."""
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
        self._process = self._start_program("postgres", "-D", spawn.HERE, *options)
        wait_until(self._is_answering, 60)

    def stop(self) -> None:
        """Stop it as its supervisor would."""
        self._stop_by_signal(signal.SIGINT)

    def kill(self) -> None:
        """End it as a power cut does: all its processes at once."""
        assert self._process is not None
        postmaster = psutil.Process(self._process.pid)
        # each in a session of its own
        processes = [postmaster, *postmaster.children(recursive=True)]
        for process in processes:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        self._process.wait()
        psutil.wait_procs(processes, 10)

    def close(self) -> None:
        """Stop it and delete its socket folder."""
        self._stop_by_signal(signal.SIGQUIT)
        shutil.rmtree(self._socket, ignore_errors=True)

    def _stop_by_signal(self, number: signal.Signals) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(number)
            self._process.wait(30)

    def _is_answering(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, "Postgres did not start"
        with contextlib.suppress(psycopg.OperationalError):
            self.connect("postgres").close()
            return True
        return False

    def _start_program(
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

    def _run_program(self, program: str, *arguments: str) -> None:
        process = self._start_program(program, *arguments, output=subprocess.DEVNULL)
        assert process.wait(120) == 0, program
