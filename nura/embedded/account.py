"""Which system user the services run as. Postgres refuses to run as root, so root steps down."""

import contextlib
import os
import pwd
import shutil
import stat
import subprocess
from dataclasses import dataclass
from pathlib import Path

NAME = "nura"
STAND_INS = ("postgres", "nobody")


@dataclass(frozen=True)
class Account:
    """A system user without privileges."""

    name: str
    uid: int
    gid: int


def service_account(data_dir: Path) -> Account | None:
    """The user to step down to, or None when we are an ordinary user and stay who we are.

    As root: whoever owns the database already (so that `sudo` once does not lock its owner out),
    else the system user `nura`, made on first need, else one that every system has.
    """
    if os.geteuid() != 0:
        return None
    return _owner(data_dir / "postgres") or _named(NAME) or _made() or _stand_in()


def give(folder: Path, account: Account | None) -> None:
    """Make a private folder that belongs to the account. Raises `RuntimeError` on a stranger's.

    The stand-in for a long path lies in /tmp, where anybody may have put something of its name.
    """
    with contextlib.suppress(FileExistsError):
        folder.mkdir(mode=0o700, parents=True)
    found = folder.lstat()
    ours = {os.geteuid(), account.uid if account else os.geteuid()}
    if not stat.S_ISDIR(found.st_mode) or found.st_uid not in ours:
        raise RuntimeError(f"{folder} belongs to somebody else; remove it or move the data folder")
    folder.chmod(0o700)
    if account:
        os.chown(folder, account.uid, account.gid)


def let_in(data_dir: Path, account: Account | None) -> None:
    """Let the account step through the data folder into its own folders, and nobody else.

    Folders above need no permission: services start inside their folder (see `spawn`).
    """
    data_dir.mkdir(parents=True, exist_ok=True)
    mode = data_dir.stat().st_mode & 0o777
    if account and not mode & 0o001:
        os.chown(data_dir, -1, account.gid)
        data_dir.chmod(mode | 0o010)


def _owner(folder: Path) -> Account | None:
    """By number: in a new container the name may be missing, and only `initdb` needs it."""
    if not folder.exists() or not folder.stat().st_uid:
        return None
    found = folder.stat()
    return Account(f"#{found.st_uid}", found.st_uid, found.st_gid)


def _named(name: str) -> Account | None:
    try:
        entry = pwd.getpwnam(name)
    except KeyError:
        return None
    return Account(entry.pw_name, entry.pw_uid, entry.pw_gid) if entry.pw_uid else None


def _made() -> Account | None:
    useradd = shutil.which("useradd")
    if not useradd:
        return None
    subprocess.run(
        [useradd, "--system", "--no-create-home", "--shell", "/usr/sbin/nologin", NAME],
        check=False,
        capture_output=True,
    )
    return _named(NAME)


def _stand_in() -> Account:
    for name in STAND_INS:
        if account := _named(name):
            return account
    raise RuntimeError(f"Running as root needs a system user for Postgres: useradd --system {NAME}")
