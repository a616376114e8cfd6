"""The secret key: from the environment, else made once and kept in the data folder."""

import os
import secrets
from pathlib import Path

from nura.settings import env


def secret_key(data_dir: Path) -> str:
    """The value of SECRET_KEY, else the one kept in the data folder (made when absent)."""
    return env.read_text("SECRET_KEY") or _kept(data_dir / "secret-key")


def _kept(path: Path) -> str:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    draft = path.with_name(f"{path.name}.{os.getpid()}")
    if not path.exists():
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "w", encoding="ascii") as file:
            file.write(secrets.token_urlsafe(50))
        try:
            os.link(draft, path)  # fails when another process was first: its key holds
        except FileExistsError:
            pass
        finally:
            draft.unlink()
    return path.read_text(encoding="ascii")
