"""Typed readers of the environment. A bad value stops the start and names the variable.

Each reader also records the variable in `DECLARED`, from which `nura.settings.reference` writes
the list of settings.
"""

import os
import re
import secrets
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar
from urllib.parse import urlsplit
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from django.core.exceptions import ImproperlyConfigured

from nura.bootstrap import read_dotenv

N = TypeVar("N", int, float)


@dataclass(frozen=True, slots=True)
class Declaration:
    """A variable as the code reads it: its default and valid values, in words."""

    default: str
    values: str


DECLARED: dict[str, Declaration] = {}
"""Every variable read so far, by name; the first read counts."""


def load_dotenv(path: Path) -> None:
    """Load `NAME=value` lines into the environment; existing variables win."""
    for name, value in read_dotenv(path).items():
        os.environ.setdefault(name, value)


def adopt_renamed(
    renamed: Mapping[str, str], values: Mapping[str, Mapping[str, str]] | None = None
) -> None:
    """Give variables set under an old name their new one, and say so on stderr.

    `renamed` maps old names to new ones, `values`, for some old names, what a value is called now.
    A value under the new name wins.
    """
    for old, new in renamed.items():
        if (value := os.environ.get(old, "").strip()) and new not in os.environ:
            os.environ[new] = (values or {}).get(old, {}).get(value.lower(), value)
            sys.stderr.write(
                f"{old} is now called {new}. The old name works until the next release.\n"
            )


def read_text(name: str, default: str = "") -> str:
    """A string; blank counts as absent."""
    _declare(name, default, "text")
    return _read_variable(name) or default


def read_integer(name: str, default: int, minimum: int = 0, maximum: int | None = None) -> int:
    """A whole number within bounds."""
    return _read_number(name, default, int, "a whole number", minimum, maximum)


def read_decimal(
    name: str, default: float, minimum: float = 0.0, maximum: float | None = None
) -> float:
    """A number within bounds."""
    return _read_number(name, default, float, "a number", minimum, maximum)


def read_flag(name: str, default: bool) -> bool:
    """A yes or no."""
    _declare(name, "yes" if default else "no", "yes or no")
    value = _read_variable(name).lower()
    if not value:
        return default
    if value in {"1", "true", "yes", "on"}:
        return True
    if value in {"0", "false", "no", "off"}:
        return False
    raise ImproperlyConfigured(f"{name}={value!r}: expected yes or no (1, true, on, 0, false, off)")


def read_words(name: str, default: tuple[str, ...] = ()) -> tuple[str, ...]:
    """A list separated by commas."""
    _declare(name, ",".join(default), "list, separated by commas")
    value = _read_variable(name)
    return tuple(part.strip() for part in value.split(",") if part.strip()) if value else default


def read_choice(name: str, default: str, allowed: tuple[str, ...]) -> str:
    """One of a few words."""
    _declare(name, default, ", ".join(f"`{word}`" for word in allowed))
    value = _read_variable(name) or default
    if value not in allowed:
        raise ImproperlyConfigured(f"{name}={value!r}: expected one of {', '.join(allowed)}")
    return value


def read_url(name: str, schemes: tuple[str, ...], default: str = "") -> str:
    """A URL with one of the schemes, or nothing."""
    _declare(name, default, "URL: " + ", ".join(f"`{scheme}://`" for scheme in schemes))
    value = _read_variable(name) or default
    if value and value.partition("://")[0] not in schemes:
        raise ImproperlyConfigured(f"{name}: expected a URL that starts with {', '.join(schemes)}")
    try:
        _ = urlsplit(value).port
    except ValueError:
        raise ImproperlyConfigured(f"{name}: the port must be a number from 0 to 65535") from None
    return value


def read_origins(name: str) -> tuple[str, ...]:
    """A list of origins with their schemes."""
    origins = read_words(name)
    for origin in origins:
        if not origin.startswith(("http://", "https://")):
            raise ImproperlyConfigured(f"{name}={origin!r}: expected http:// or https:// in front")
    return origins


def read_prefix(name: str) -> str:
    """A URL path prefix such as "/nura", or ""."""
    _declare(name, "", "path, such as `/nura`")
    value = _read_variable(name).rstrip("/")
    if value and not re.fullmatch(r"(/[A-Za-z0-9._~-]+)+", value):
        raise ImproperlyConfigured(f"{name}={value!r}: expected a path like /nura")
    return value


def read_zone(name: str, default: str) -> str:
    """A time zone by its name."""
    _declare(name, default, "time zone")
    value = _read_variable(name) or default
    try:
        ZoneInfo(value)
    except (ValueError, OSError, ZoneInfoNotFoundError) as error:
        raise ImproperlyConfigured(f"{name}={value!r}: expected a name like Asia/Seoul") from error
    return value


def read_folder(name: str, default: Path) -> Path:
    """The absolute path of a folder that is writable or can be created. Creates nothing."""
    _declare(name, str(default), "folder")
    path = Path(_read_variable(name) or default)
    try:
        path = path.expanduser().resolve()
        nearest = next(folder for folder in (path, *path.parents) if folder.exists())
    except (OSError, RuntimeError) as error:
        raise ImproperlyConfigured(f"{name}: {path} cannot be reached: {error}") from error
    if not nearest.is_dir():
        raise ImproperlyConfigured(f"{name}: {nearest} is not a folder")
    if not os.access(nearest, os.R_OK | os.W_OK | os.X_OK):
        raise ImproperlyConfigured(f"{name}: {nearest} is not writable for this user")
    return path


def _declare(name: str, default: str, values: str) -> None:
    DECLARED.setdefault(name, Declaration(default, values))


def _read_variable(name: str) -> str:
    return os.environ.get(name, "").strip()


def _format_number(number: float) -> str:
    return f"{number:,.10g}"


def _read_number(  # noqa: PLR0913, PLR0917 - one place for both kinds of number
    name: str, default: N, convert: Callable[[str], N], kind: str, minimum: N, maximum: N | None
) -> N:
    bounds = f"at least {_format_number(minimum)}"
    if maximum is not None:
        bounds = f"{_format_number(minimum)} to {_format_number(maximum)}"
    _declare(name, f"{default:.10g}", f"{kind.removeprefix('a ')}, {bounds}")
    value = _read_variable(name)
    if not value:
        return default
    try:
        number = convert(value)
    except ValueError as error:
        raise ImproperlyConfigured(f"{name}={value!r}: expected {kind}") from error
    if not minimum <= number or (maximum is not None and number > maximum):
        raise ImproperlyConfigured(f"{name}={value}: expected {kind}, {bounds}")
    return number


def read_secret_key(data_dir: Path) -> str:
    """The value of SECRET_KEY, else the one kept in the data folder (made when absent)."""
    return read_text("SECRET_KEY") or _keep_secret_key(data_dir / "secret-key")


def _keep_secret_key(path: Path) -> str:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    draft = path.with_name(f"{path.name}.{os.getpid()}")
    if not path.exists():
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "w", encoding="ascii") as file:
            file.write(secrets.token_urlsafe(50))
        try:
            os.link(draft, path)  # fails if another process was first; then its key is used
        except FileExistsError:
            pass
        finally:
            draft.unlink()
    return path.read_text(encoding="ascii")
