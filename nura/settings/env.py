"""Typed readers of the environment. A bad value stops the start and names the variable."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar
from urllib.parse import urlsplit
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from django.core.exceptions import ImproperlyConfigured

N = TypeVar("N", int, float)


def load_dotenv(path: Path) -> None:
    """Take `NAME=value` lines of a file into the environment; what is there already holds."""
    if not path.is_file():
        return
    for line in path.read_text(encoding="utf-8").splitlines():
        name, separator, value = line.partition("=")
        if separator and not line.lstrip().startswith("#"):
            os.environ.setdefault(name.strip().removeprefix("export "), value.strip().strip("\"'"))


def text(name: str, default: str = "") -> str:
    """A string; blank counts as absent."""
    return os.environ.get(name, "").strip() or default


def integer(name: str, default: int, least: int = 0, most: int | None = None) -> int:
    """A whole number within bounds."""
    return _number(name, default, int, "a whole number", least, most)


def decimal(name: str, default: float, least: float = 0.0, most: float | None = None) -> float:
    """A number within bounds."""
    return _number(name, default, float, "a number", least, most)


def flag(name: str, default: bool) -> bool:
    """A yes or no."""
    value = text(name).lower()
    if not value:
        return default
    if value in {"1", "true", "yes", "on"}:
        return True
    if value in {"0", "false", "no", "off"}:
        return False
    raise ImproperlyConfigured(f"{name}={value!r}: expected yes or no (1, true, on, 0, false, off)")


def words(name: str, default: tuple[str, ...] = ()) -> tuple[str, ...]:
    """A list separated by commas."""
    value = text(name)
    return tuple(part.strip() for part in value.split(",") if part.strip()) if value else default


def choice(name: str, default: str, allowed: tuple[str, ...]) -> str:
    """One of a few words."""
    value = text(name, default)
    if value not in allowed:
        raise ImproperlyConfigured(f"{name}={value!r}: expected one of {', '.join(allowed)}")
    return value


def url(name: str, schemes: tuple[str, ...], default: str = "") -> str:
    """A URL with one of the schemes, or nothing."""
    value = text(name, default)
    if value and value.partition("://")[0] not in schemes:
        raise ImproperlyConfigured(f"{name}: expected a URL that starts with {', '.join(schemes)}")
    try:
        _ = urlsplit(value).port
    except ValueError:
        raise ImproperlyConfigured(f"{name}: the port is no number from 0 to 65535") from None
    return value


def origins(name: str) -> tuple[str, ...]:
    """A list of origins with their schemes."""
    found = words(name)
    for origin in found:
        if not origin.startswith(("http://", "https://")):
            raise ImproperlyConfigured(f"{name}={origin!r}: expected http:// or https:// in front")
    return found


def zone(name: str, default: str) -> str:
    """A time zone by its name."""
    value = text(name, default)
    try:
        ZoneInfo(value)
    except (ValueError, OSError, ZoneInfoNotFoundError) as error:
        raise ImproperlyConfigured(f"{name}={value!r}: expected a name like Asia/Seoul") from error
    return value


def folder(name: str, default: Path) -> Path:
    """An absolute path of a folder that can be written to, or be made. Makes nothing."""
    path = Path(text(name, str(default)))
    try:
        path = path.expanduser().resolve()
        nearest = next(place for place in (path, *path.parents) if place.exists())
    except (OSError, RuntimeError) as error:
        raise ImproperlyConfigured(f"{name}: {path} cannot be reached: {error}") from error
    if not nearest.is_dir():
        raise ImproperlyConfigured(f"{name}: {nearest} is not a folder")
    if not os.access(nearest, os.R_OK | os.W_OK | os.X_OK):
        raise ImproperlyConfigured(f"{name}: {nearest} is not writable for this user")
    return path


def _number(  # noqa: PLR0913, PLR0917 - one place for both kinds of number
    name: str, default: N, convert: Callable[[str], N], kind: str, least: N, most: N | None
) -> N:
    value = text(name)
    if not value:
        return default
    try:
        number = convert(value)
    except ValueError as error:
        raise ImproperlyConfigured(f"{name}={value!r}: expected {kind}") from error
    if not least <= number or (most is not None and number > most):
        bounds = f"at least {least}" if most is None else f"from {least} to {most}"
        raise ImproperlyConfigured(f"{name}={value}: expected {kind} {bounds}")
    return number
