"""The embedded Postgres 18 with pgvector: one cluster in the data folder, behind a socket."""

import os
import shutil
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import psycopg
from psycopg import sql

from nura.embedded import programs, spawn
from nura.embedded.locations import find_socket_dir
from nura.embedded.programs import Account, find_service_account, give_folder, open_data_folder

SOCKET = ".s.PGSQL.5432"
STATUS_LINE = 7  # of postmaster.pid
SETTINGS = {
    "listen_addresses": "",
    "unix_socket_permissions": "0700",
    "max_connections": "100",
    "shared_buffers": "512MB",
    "work_mem": "16MB",
    "jit": "off",
    "idle_in_transaction_session_timeout": "30s",
    "dynamic_shared_memory_type": "mmap",  # containers give /dev/shm 64 MB: too little for an index
    "log_checkpoints": "off",
    "log_line_prefix": "",
    "log_min_messages": "warning",
    # statements and the details of errors hold what people wrote and what their files say
    "log_min_error_statement": "panic",
    "log_error_verbosity": "terse",
}
FOR_TESTS = {
    "fsync": "off",
    "synchronous_commit": "off",
    "full_page_writes": "off",
    "autovacuum": "off",  # it sees no rows of a test that is rolled back, and changes its plans
    "idle_in_transaction_session_timeout": "180s",
}


def prepare(data_dir: Path, durable: bool = True) -> spawn.Launch:
    """Make the cluster when there is none, clear what a crash left, and say how to start it.

    The caller holds the lock of the data folder.
    """
    account = find_service_account(data_dir)
    programs_dir = programs.find_postgres(account)
    folder = data_dir / "postgres"
    open_data_folder(data_dir, account)
    if not folder.exists():
        _make_cluster(programs_dir, folder, account, durable)
    sockets = find_socket_dir(data_dir)
    give_folder(sockets, account)
    launch = spawn.Launch(
        name="postgres",
        command=_command(programs_dir, _seen_from(folder, sockets), durable),
        folder=folder,
        account=account,
        stop_signal=signal.SIGINT,  # "fast": sessions are ended, everything is written
        death_signal=signal.SIGINT,
        environment=_environment(),
    )
    spawn.clear_leftovers(launch, "postgres")
    for stale in (folder / "postmaster.pid", sockets / SOCKET, sockets / f"{SOCKET}.lock"):
        stale.unlink(missing_ok=True)
    return launch


def wait_ready(data_dir: Path, alive: Callable[[], bool], timeout: float = 60.0) -> None:
    """Wait for the first connection and make the database `nura`. Raises `RuntimeError`."""
    pid_file = data_dir / "postgres" / "postmaster.pid"
    if not spawn.wait_until(lambda: not alive() or _says_ready(pid_file), timeout) or not alive():
        raise RuntimeError("Postgres did not start; its last lines above say why")
    with connect(data_dir, "postgres") as connection:
        found = connection.execute("SELECT 1 FROM pg_database WHERE datname = 'nura'").fetchone()
        if not found:
            connection.execute(sql.SQL("CREATE DATABASE nura"))
    with connect(data_dir) as connection:
        connection.execute("CREATE EXTENSION IF NOT EXISTS vector")


def connect(data_dir: Path, name: str = "nura") -> psycopg.Connection[tuple[object, ...]]:
    """A connection outside Django. Raises `psycopg.OperationalError`."""
    return psycopg.connect(
        host=str(find_socket_dir(data_dir)),
        dbname=name,
        user="nura",
        connect_timeout=5,
        autocommit=True,
    )


def answers(data_dir: Path) -> bool:
    """Whether it takes connections now."""
    try:
        connect(data_dir, "postgres").close()
    except psycopg.OperationalError:
        return False
    return True


def _says_ready(pid_file: Path) -> bool:
    """Asked without a connection: each refused one would be a line in the log."""
    try:
        lines = pid_file.read_text(encoding="ascii", errors="replace").splitlines()
    except FileNotFoundError:
        return False
    return len(lines) > STATUS_LINE and lines[STATUS_LINE].strip() == "ready"


def _command(programs_dir: Path, sockets: str, durable: bool) -> list[str]:
    settings = SETTINGS | {"unix_socket_directories": sockets} | ({} if durable else FOR_TESTS)
    options = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
    return [str(programs_dir / "postgres"), "-D", spawn.HERE, *options]


def _seen_from(folder: Path, sockets: Path) -> str:
    return "../run" if sockets == folder.parent / "run" else str(sockets)


def _environment() -> dict[str, str]:
    return {"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C"}


def _make_cluster(programs_dir: Path, folder: Path, account: Account | None, durable: bool) -> None:
    """Run initdb in another folder and rename it, so that an existing cluster is complete."""
    draft = folder.with_name("postgres.new")
    shutil.rmtree(draft, ignore_errors=True)
    give_folder(draft, account)
    command = [
        *(str(programs_dir / "initdb"), "-D", spawn.HERE, "--username=nura", "--auth=trust"),
        *("--encoding=UTF8", "--locale=C", "--locale-provider=builtin", "--builtin-locale=C.UTF-8"),
        *(() if durable else ("--no-sync",)),
    ]
    launch = spawn.Launch("initdb", command, draft, account, environment=_environment())
    process = spawn.start_program(launch, subprocess.PIPE)
    output, _ = process.communicate(timeout=120)
    if process.returncode:
        raise RuntimeError(f"initdb failed: {output.decode(errors='replace').strip()}")
    draft.rename(folder)
