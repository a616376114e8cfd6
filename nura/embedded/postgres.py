"""The embedded Postgres 18 with pgvector: one cluster in the data folder, behind a socket.

The product's role owns its database and is no superuser. The superuser cannot sign in: whatever
needs it (roles, extensions) is done before a start, in Postgres' single-user mode.
"""

import hashlib
import os
import re
import shutil
import signal
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import psycopg

from nura.embedded import spawn
from nura.embedded.locations import ROLE, find_socket_dir, read_password
from nura.embedded.spawn import (
    Account,
    find_service_account,
    make_private_folder,
    prepare_data_folder,
    write_private,
)

SOCKET = ".s.PGSQL.5432"
STATUS_LINE = 7  # of postmaster.pid
MIN_BUFFER_MEGABYTES, MAX_BUFFER_MEGABYTES = 512, 8192
MEMORY_LIMIT = Path("/sys/fs/cgroup/memory.max")
"""A container's memory limit; "max" without one."""


def choose_buffer_megabytes(limit: Path = MEMORY_LIMIT) -> int:
    """A quarter of the memory of the machine or container, within bounds; allocated as used.

    Searches over a million chunks read 5 GB (`documents.search.buffers`); pages that are not in the
    buffers have to be copied there from the system's cache.
    """
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    maximum = limit.read_text(encoding="ascii").strip() if limit.exists() else ""
    if maximum.isdecimal():
        memory = min(memory, int(maximum))
    return min(max(memory // 4 // 2**20, MIN_BUFFER_MEGABYTES), MAX_BUFFER_MEGABYTES)


SETTINGS = {
    "listen_addresses": "",
    "unix_socket_permissions": "0700",
    "max_connections": "100",
    "shared_buffers": f"{choose_buffer_megabytes()}MB",
    "work_mem": "16MB",
    "jit": "off",
    "idle_in_transaction_session_timeout": "30s",
    "dynamic_shared_memory_type": "mmap",  # containers give /dev/shm 64 MB: too little for an index
    "log_checkpoints": "off",
    "log_line_prefix": "",
    "log_min_messages": "warning",
    # statements and error details contain people's texts
    "log_min_error_statement": "panic",
    "log_error_verbosity": "terse",
}
FOR_TESTS = {
    "fsync": "off",
    "synchronous_commit": "off",
    "full_page_writes": "off",
    "autovacuum": "off",  # it does not see the rows of a rolled-back test, and changes query plans
    "idle_in_transaction_session_timeout": "180s",
}

ACCESS = f"""\
# Written by Nura at each start. Nobody else signs in, the superuser neither.
local all {ROLE} scram-sha-256
"""
SUPERUSER = "postgres"
PREPARED = "nura-roles"
"""File in the cluster with a digest of the statements that were run to set up the roles."""

CREATE_ROLE = """
DO $$ BEGIN
  IF (SELECT rolname FROM pg_roles WHERE oid = 10) = 'nura' THEN
    CREATE ROLE nura_setup SUPERUSER;
    SET SESSION AUTHORIZATION nura_setup;
    ALTER ROLE nura RENAME TO postgres;
    SET SESSION AUTHORIZATION postgres;
    DROP ROLE nura_setup;
  END IF;
  IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'nura') THEN
    CREATE ROLE nura LOGIN;
  END IF;
  SET LOCAL scram_iterations = 1;
  ALTER ROLE nura {rights} PASSWORD '{password}';
END $$;
"""
"""If an earlier version made the role a superuser, that one is renamed: a cluster's first superuser
cannot become an ordinary role. Iterations would protect a password that can be guessed; this one is
32 random bytes, and each new connection would compute them."""

EXTENSION = "CREATE EXTENSION IF NOT EXISTS vector;"
CREATE_DATABASE = "CREATE DATABASE nura OWNER nura;"
OWN_DATABASE = """
ALTER DATABASE nura OWNER TO nura;
ALTER SCHEMA public OWNER TO pg_database_owner;
DO $$ DECLARE command text; BEGIN
  FOR command IN
    SELECT format('ALTER %s %s OWNER TO nura',
        CASE relkind WHEN 'S' THEN 'SEQUENCE' WHEN 'v' THEN 'VIEW' WHEN 'm' THEN 'MATERIALIZED VIEW'
          ELSE 'TABLE' END, pg_class.oid::regclass)
      FROM pg_class WHERE relnamespace = 'public'::regnamespace AND relowner <> 'nura'::regrole
      AND relkind IN ('r', 'p', 'v', 'm', 'S') AND NOT EXISTS (SELECT FROM pg_depend
        WHERE classid = 'pg_class'::regclass AND objid = pg_class.oid
        AND (deptype = 'e' OR (relkind = 'S' AND deptype IN ('a', 'i'))))
    UNION ALL SELECT format('ALTER ROUTINE %s OWNER TO nura', pg_proc.oid::regprocedure)
      FROM pg_proc WHERE pronamespace = 'public'::regnamespace AND proowner <> 'nura'::regrole
      AND NOT EXISTS (SELECT FROM pg_depend
        WHERE classid = 'pg_proc'::regclass AND objid = pg_proc.oid AND deptype = 'e')
  LOOP EXECUTE command; END LOOP;
END $$;
"""
"""Makes the role the owner of everything that belongs to no extension."""

RIGHTS = "NOSUPERUSER NOCREATEROLE NOREPLICATION NOBYPASSRLS"
FOR_DATABASES = "GRANT SET ON PARAMETER session_replication_role TO nura;"
"""For tests, which truncate tables in any order."""


def prepare_launch(
    data_dir: Path, durable: bool = True, *, makes_databases: bool = False
) -> spawn.Launch:
    """Create the cluster if there is none, and clean up after a crash; returns how to start it.

    The caller holds the lock of the data folder. `makes_databases` lets the role create further
    databases, as tests do.
    """
    account = find_service_account(data_dir)
    programs_dir = spawn.find_postgres(account)
    folder = data_dir / "postgres"
    prepare_data_folder(data_dir, account)
    if not folder.exists():
        _make_cluster(programs_dir, folder, account, durable)
    sockets = find_socket_dir(data_dir)
    make_private_folder(sockets, account)
    launch = spawn.Launch(
        name="postgres",
        command=_build_command(programs_dir, _to_socket_dir(folder, sockets), durable),
        folder=folder,
        account=account,
        stop_signal=signal.SIGINT,  # "fast": sessions are ended, everything is written
        death_signal=signal.SIGINT,
        environment=_build_environment(),
    )
    spawn.clear_leftovers(launch, "postgres")
    for stale in (folder / "postmaster.pid", sockets / SOCKET, sockets / f"{SOCKET}.lock"):
        stale.unlink(missing_ok=True)
    write_private(folder / "pg_hba.conf", ACCESS, account)
    _prepare_roles(launch, programs_dir, makes_databases=makes_databases or not durable)
    return launch


def wait_ready(data_dir: Path, alive: Callable[[], bool], timeout: float = 60.0) -> None:
    """Wait for the first connection. Raises `RuntimeError`."""
    pid_file = data_dir / "postgres" / "postmaster.pid"
    if (
        not spawn.wait_until(lambda: not alive() or _is_marked_ready(pid_file), timeout)
        or not alive()
    ):
        raise RuntimeError("Postgres did not start; its last lines above say why")
    connect(data_dir).close()


def connect(data_dir: Path, name: str = "nura") -> psycopg.Connection[tuple[object, ...]]:
    """A connection outside Django. Raises `psycopg.OperationalError`."""
    return psycopg.connect(
        host=str(find_socket_dir(data_dir)),
        dbname=name,
        user=ROLE,
        password=read_password(),
        connect_timeout=5,
        autocommit=True,
    )


def is_answering(data_dir: Path) -> bool:
    """Whether it takes connections now."""
    try:
        connect(data_dir).close()
    except psycopg.OperationalError:
        return False
    return True


def _is_marked_ready(pid_file: Path) -> bool:
    """Whether Postgres says it is ready; polling by connection would fill the log with refusals."""
    try:
        lines = pid_file.read_text(encoding="ascii", errors="replace").splitlines()
    except FileNotFoundError:
        return False
    return len(lines) > STATUS_LINE and lines[STATUS_LINE].strip() == "ready"


def _build_command(programs_dir: Path, sockets: str, durable: bool) -> list[str]:
    settings = SETTINGS | {"unix_socket_directories": sockets} | ({} if durable else FOR_TESTS)
    options = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
    return [str(programs_dir / "postgres"), "-D", spawn.HERE, *options]


def _to_socket_dir(folder: Path, sockets: Path) -> str:
    return "../run" if sockets == folder.parent / "run" else str(sockets)


def _build_environment() -> dict[str, str]:
    return {"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C"}


def _make_cluster(programs_dir: Path, folder: Path, account: Account | None, durable: bool) -> None:
    """Run initdb in another folder, then rename it: an existing cluster is always complete."""
    draft = folder.with_name("postgres.new")
    shutil.rmtree(draft, ignore_errors=True)
    make_private_folder(draft, account)
    command = [
        *(
            str(programs_dir / "initdb"),
            "-D",
            spawn.HERE,
            f"--username={SUPERUSER}",
            "--auth=reject",
        ),
        *("--encoding=UTF8", "--locale=C", "--locale-provider=builtin", "--builtin-locale=C.UTF-8"),
        *(() if durable else ("--no-sync",)),
    ]
    launch = spawn.Launch("initdb", command, draft, account, environment=_build_environment())
    process = spawn.start_program(launch, subprocess.PIPE)
    output, _ = process.communicate(timeout=120)
    if process.returncode:
        raise RuntimeError(f"initdb failed: {output.decode(errors='replace').strip()}")
    draft.rename(folder)


def _prepare_roles(launch: spawn.Launch, programs_dir: Path, *, makes_databases: bool) -> None:
    """Create or update the role, its database and the extension, unless that has been done."""
    rights = f"{RIGHTS} {'CREATEDB' if makes_databases else 'NOCREATEDB'}"
    role = CREATE_ROLE.format(rights=rights, password=read_password())
    digest = hashlib.sha256(f"{role}{OWN_DATABASE}".encode()).hexdigest()
    stamp = launch.folder / PREPARED
    if stamp.is_file() and stamp.read_text(encoding="ascii") == digest:
        return
    extra = [FOR_DATABASES] if makes_databases else []
    _run_single_user(launch, programs_dir, "template1", [role, EXTENSION, *extra, CREATE_DATABASE])
    _run_single_user(launch, programs_dir, "nura", [EXTENSION, OWN_DATABASE])
    write_private(stamp, digest, launch.account)


def _run_single_user(
    launch: spawn.Launch, programs_dir: Path, database: str, commands: Sequence[str]
) -> None:
    """Run SQL as the superuser of a stopped cluster. Raises `RuntimeError`."""
    settings = (f"{name}={SETTINGS[name]}" for name in ("dynamic_shared_memory_type", "jit"))
    options = [part for line in settings for part in ("-c", line)]
    single_user = replace(
        launch,
        command=[
            *(str(programs_dir / "postgres"), "--single", "-j", "-D", spawn.HERE),
            *(*options, database),
        ],
    )
    process = spawn.start_program(single_user, subprocess.PIPE, subprocess.PIPE)
    text = "".join(f"{command.strip()}\n\n" for command in commands)
    output, _ = process.communicate(text.encode(), timeout=120)
    lines = output.decode(errors="replace").splitlines()
    errors = [line for line in lines if re.search(r"(ERROR|FATAL|PANIC):", line)]
    errors = [line for line in errors if not line.endswith('database "nura" already exists')]
    if process.returncode or errors:
        raise RuntimeError(f"The roles of Postgres could not be made: {(errors or lines)[-1:]}")
