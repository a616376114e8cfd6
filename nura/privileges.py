"""As which user our processes run. Started as root, `up` steps down before it starts anything.

It cannot where that user may not even read the Python or the code, as below /root: it then stays
root, and `doctor` says why. The database servers step down in any case (`nura.embedded.programs`).
"""

import os
import pwd
import stat
import subprocess
import sys
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from nura.embedded.programs import (
    Account,
    find_account,
    find_service_account,
    open_data_folder,
)

SERVERS = frozenset({"postgres", "redis", "run"})
"""Folders of the database servers in the data folder."""
TRY = "import os, sys, django; os.scandir(sys.argv[1]); os.stat(sys.argv[2])"


@dataclass(frozen=True)
class ChosenUser:
    """The user that `up` runs as; `reason` says why it is root all the same."""

    account: Account | None
    reason: str = ""


def choose_user(wanted: str, code: Path, data_dir: Path) -> ChosenUser:
    """Whom to step down to: the user `wanted`, or the owner of the data where nothing is wanted.

    Raises `RuntimeError` where there is no such user.
    """
    if os.geteuid() != 0:
        return ChosenUser(None)
    if wanted == "root":
        return ChosenUser(None, "NURA_RUN_AS=root")
    account = find_account(wanted) if wanted else find_service_account(data_dir)
    if account is None:
        raise RuntimeError(f"NURA_RUN_AS={wanted}: there is no such user")
    place = next(one for one in (data_dir, *data_dir.parents) if one.exists())
    if not _can_work(account, code, place):
        return ChosenUser(
            None, f"the user {account.name} may not read {sys.executable}, {code} or {data_dir}"
        )
    return ChosenUser(account)


def step_down(account: Account, data_dir: Path) -> None:
    """Become this user for good, with all that root and the user before have in the data folder."""
    former = find_service_account(data_dir)
    give_tree(data_dir, account.uid, account.gid, of={0, former.uid if former else 0})
    data_dir.chmod(0o700)
    os.setgroups([])
    os.setgid(account.gid)
    os.setuid(account.uid)
    os.environ["HOME"] = str(data_dir)
    os.environ["NURA_DOTENV"] = os.devnull  # its lines are in the environment, and it may be root's


def stay_root(data_dir: Path) -> None:
    """Keep all data but those of the servers.

    What reads a file gives up root's right to pass through other people's folders.
    """
    if data_dir.stat().st_uid:
        give_tree(data_dir, 0, 0, but=SERVERS)
        open_data_folder(data_dir, find_service_account(data_dir))


def settle_ownership(data_dir: Path) -> None:
    """After a command as root: what it wrote belongs to whom the folder belongs to."""
    if os.geteuid() == 0 and data_dir.exists() and (owner := data_dir.stat()).st_uid:
        give_tree(data_dir, owner.st_uid, owner.st_gid, of={0})


def give_tree(
    folder: Path, uid: int, gid: int, *, of: Collection[int] = (), but: Collection[str] = ()
) -> None:
    """Give away what belongs to the users `of` (anybody) in a folder, but for folders `but` in it.

    Links themselves are given, not what they point to, and no file with a second name: that one may
    stand anywhere.
    """
    for place, folders, files in os.walk(folder):
        if place == str(folder):
            folders[:] = [name for name in folders if name not in but]
        for path in (place, *(os.path.join(place, name) for name in (*folders, *files))):  # noqa: PTH118 - many
            found = os.lstat(path)
            owner, is_linked = found.st_uid, stat.S_ISREG(found.st_mode) and found.st_nlink > 1
            if owner != uid and (not of or owner in of) and not is_linked:
                os.lchown(path, uid, gid)


def describe_user() -> str:
    """The name of the user that this process runs as."""
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return f"user {os.geteuid()}"


def _can_work(account: Account, code: Path, place: Path) -> bool:
    try:
        subprocess.run(
            [sys.executable, "-c", TRY, str(code / "nura"), str(place)],
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
