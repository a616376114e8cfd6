"""The interface of a kind of source: list its entries, open one of them.

A new kind is one module in `documents.sources.kinds` that calls `register_kind`; form, API and
validation of its settings follow from its `fields`. It only lists and opens entries;
`documents.sources.sync` decides what is new, changed, renamed or gone.
"""

import importlib
import pkgutil
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import cache
from typing import Any, BinaryIO, ClassVar, Self

from django.utils.functional import Promise

from documents.parsers import formats
from rag.errors import NuraError

MAX_LINES = 200
MAX_FIELD_CHARACTERS = 2000


class SourceUnreachable(NuraError):
    """The source cannot be listed. Nothing is known of its entries, so nothing is deleted."""

    code = "source_unreachable"
    retryable = True


class SourceSettingInvalid(NuraError):
    """The setting `name` of a source is missing or invalid; `reason` says why."""

    code = "source_setting_invalid"


class EntryUnreadable(NuraError):
    """An entry cannot be read now; the next run tries again."""

    code = "entry_unreadable"
    retryable = True


class EntryGone(NuraError):
    """An entry was listed but is gone; the next run deletes it."""

    code = "entry_gone"
    retryable = True


@dataclass(frozen=True, slots=True)
class ListedEntry:
    """One file or page of a source, as listed.

    `key` identifies it within the source for good, `uri` is shown to people, `name` becomes the
    name of the document, including its extension. The `fingerprint` changes when the content may
    have changed; "" means that only the content can tell. `notes` are data of the kind, returned to
    it at the next run (`KnownEntry`). `size` is that of the content in bytes, if known.
    """

    key: str
    name: str
    uri: str
    fingerprint: str
    notes: Mapping[str, Any] = field(default_factory=dict)
    size: int | None = None


@dataclass(frozen=True, slots=True)
class UnlistedEntry:
    """Something that could not be listed: its documents stay as they are.

    `is_prefix`: it stands for all entries whose keys begin with `key`.
    """

    key: str
    uri: str
    error: NuraError
    is_prefix: bool = False


@dataclass(frozen=True, slots=True)
class KnownEntry:
    """What earlier runs know of an entry.

    `is_stored`: its content of that time is in the library. `is_listed`: this run has listed it.
    """

    fingerprint: str
    notes: Mapping[str, Any]
    is_stored: bool
    is_listed: bool


@dataclass(frozen=True, slots=True)
class Listing:
    """Input of a reader while it lists.

    `after` is the key after which an interrupted listing continues, "" for the beginning; a reader
    that cannot start in the middle lists everything. `get_known` returns what earlier runs know of
    an entry. `check` has to be called if listing takes long: it raises if the worker has to stop.
    """

    after: str
    get_known: Callable[[str], KnownEntry | None]
    check: Callable[[], None]


class SourceReader(ABC):
    """An open source. A context manager."""

    BATCH: ClassVar[int] = 500
    """Entries that are compared at once; 1 if each takes a request."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:  # noqa: B027 - most have nothing to close
        """Close what was opened."""

    @abstractmethod
    def list_entries(self, listing: Listing) -> Iterator[ListedEntry | UnlistedEntry]:
        """List all entries, each key once. Raises `SourceUnreachable` if that is not possible."""

    @abstractmethod
    def open_entry(self, key: str) -> AbstractContextManager[BinaryIO]:
        """Open the content of an entry. Raises `EntryUnreadable`, `EntryGone`."""


@dataclass(frozen=True, slots=True)
class SettingField:
    """One setting of a kind, for forms, API and checks.

    `form`: text, lines (a list of texts), number or secret. A secret is stored
    encrypted and shown to nobody.
    """

    name: str
    label: "str | Promise"
    form: str = "text"
    required: bool = False
    default: Any = ""
    help: "str | Promise" = ""
    minimum: int = 0
    maximum: int = 1_000_000


@dataclass(frozen=True, slots=True)
class SourceKind:
    """A kind of source. `check` validates cleaned settings and raises `SourceSettingInvalid`.

    `sends`: a program sends the entries, there is nothing to fetch. `administrators`: only they may
    set it up, because it accesses resources of the installation.
    """

    name: str
    label: "str | Promise"
    hint: "str | Promise"
    fields: tuple[SettingField, ...]
    open_reader: Callable[[Mapping[str, Any]], SourceReader]
    describe: Callable[[Mapping[str, Any]], str]
    check: Callable[[Mapping[str, Any]], None] = lambda _settings: None
    administrators: bool = False
    sends: bool = False
    rank: int = 0


_KINDS: dict[str, SourceKind] = {}


def register_kind(kind: SourceKind) -> None:
    """Register a kind of source."""
    _KINDS[kind.name] = kind


@cache
def _load_kinds() -> None:
    package = importlib.import_module("documents.sources.kinds")
    for module in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
        importlib.import_module(module.name)


def list_kinds() -> list[SourceKind]:
    """All kinds, in the order in which they are offered."""
    _load_kinds()
    return sorted(_KINDS.values(), key=lambda kind: (kind.rank, kind.name))


def get_kind(name: str) -> SourceKind:
    """The kind of this name. Raises `SourceSettingInvalid`."""
    _load_kinds()
    if name not in _KINDS:
        raise SourceSettingInvalid(f"no kind {name}", name="kind", reason="unknown")
    return _KINDS[name]


def clean_settings(kind: SourceKind, values: Mapping[str, Any]) -> dict[str, Any]:
    """Validated settings of a kind, each in its own type, with defaults for missing ones.

    Raises `SourceSettingInvalid`.
    """
    names = {field_.name for field_ in kind.fields}
    for name in values:
        if name not in names:
            raise SourceSettingInvalid(f"no setting {name}", name=str(name), reason="unknown")
    return {
        field_.name: _clean_value(field_, values.get(field_.name, field_.default))
        for field_ in kind.fields
    }


def _clean_value(setting: SettingField, value: Any) -> Any:
    if setting.form == "number":
        number = _to_number(setting, value)
        if not setting.minimum <= number <= setting.maximum:
            raise SourceSettingInvalid(
                name=setting.name, reason="range", minimum=setting.minimum, maximum=setting.maximum
            )
        return number
    if setting.form == "lines":
        return _clean_lines(setting, value)
    if not isinstance(value, str) or "\0" in value or len(value) > MAX_FIELD_CHARACTERS:
        raise SourceSettingInvalid(name=setting.name, reason="text")
    text = value.strip()
    if setting.required and not text:
        raise SourceSettingInvalid(name=setting.name, reason="required")
    return text


def _clean_lines(setting: SettingField, value: Any) -> list[str]:
    """The lines of a list or of a text."""
    parts = value.splitlines() if isinstance(value, str) else value
    if not isinstance(parts, list | tuple) or not all(isinstance(part, str) for part in parts):
        raise SourceSettingInvalid(name=setting.name, reason="text")
    lines = [part.strip() for part in parts if part.strip()]
    if setting.required and not lines:
        raise SourceSettingInvalid(name=setting.name, reason="required")
    if len(lines) > MAX_LINES or any(len(line) > MAX_FIELD_CHARACTERS for line in lines):
        raise SourceSettingInvalid(name=setting.name, reason="text")
    return lines


def _to_number(setting: SettingField, value: Any) -> int:
    try:
        return int(value if value not in {"", None} else setting.default)
    except (TypeError, ValueError) as error:
        raise SourceSettingInvalid(name=setting.name, reason="number") from error


def is_readable_name(name: str) -> bool:
    """Whether a file of this name may hold a format that Nura reads."""
    return formats.get_extension(name) in formats.EXTENSIONS
