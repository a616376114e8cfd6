"""What a kind of source has to offer: list what there is, open one entry.

A new kind is one module in `documents.sources.kinds` that calls `register_kind`; form, API and
checks of its settings follow from the `fields` that it names. It lists and opens; what is new,
changed, renamed or gone is settled in `documents.sources.sync`.
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
    """What the source is made of cannot be listed: nothing is known, so nothing is deleted."""

    code = "source_unreachable"
    retryable = True


class SourceSettingInvalid(NuraError):
    """A setting of a source is missing or cannot be used; `name` is which, `reason` why."""

    code = "source_setting_invalid"


class EntryUnreadable(NuraError):
    """One entry cannot be read now; it is tried again at the next run."""

    code = "entry_unreadable"
    retryable = True


class EntryGone(NuraError):
    """One entry was listed and is not there any more: the next run deletes it."""

    code = "entry_gone"
    retryable = True


@dataclass(frozen=True, slots=True)
class ListedEntry:
    """One file or page of a source, as its list tells of it.

    `key` names it within the source for ever, `uri` is what people see, `name` what the document
    will be called, its extension included. The `fingerprint` differs when the content may; "" says
    that only the content can tell. `notes` are the kind's own memory of the entry, given back at
    the next run (`KnownEntry`). `size` is that of its content in bytes, where the list tells.
    """

    key: str
    name: str
    uri: str
    fingerprint: str
    notes: Mapping[str, Any] = field(default_factory=dict)
    size: int | None = None


@dataclass(frozen=True, slots=True)
class UnlistedEntry:
    """Something that could not be listed: what is held of it stays as it is.

    `below`: of all whose keys begin with `key`.
    """

    key: str
    uri: str
    error: NuraError
    below: bool = False


@dataclass(frozen=True, slots=True)
class KnownEntry:
    """What the last run kept of an entry. `held`: its content is in the library as it was then."""

    fingerprint: str
    notes: Mapping[str, Any]
    held: bool
    seen: bool


@dataclass(frozen=True, slots=True)
class Listing:
    """What a reader may know while it lists.

    `after` is the key behind which a list that was cut off goes on, "" for the beginning; a reader
    that cannot begin in the middle lists all. `get_known` tells of the last run. `check` is to be
    called where listing takes long: it raises when the worker has to stop.
    """

    after: str
    get_known: Callable[[str], KnownEntry | None]
    check: Callable[[], None]


class SourceReader(ABC):
    """An open source. Used within a `with`."""

    BATCH: ClassVar[int] = 500
    """Entries that are compared at once; 1 where each takes a request."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:  # noqa: B027 - most have nothing to close
        """Close what was opened."""

    @abstractmethod
    def list_entries(self, listing: Listing) -> Iterator[ListedEntry | UnlistedEntry]:
        """All there is, each key once. Raises `SourceUnreachable` when that cannot be known."""

    @abstractmethod
    def open_entry(self, key: str) -> AbstractContextManager[BinaryIO]:
        """The bytes of one entry. Raises `EntryUnreadable`, `EntryGone`."""


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
    """A kind of source. `check` looks at cleaned settings and raises `SourceSettingInvalid`.

    `sends`: it has nothing to ask; what it holds is sent. `administrators`: it reaches what
    belongs to the installation, so nobody else may set it up.
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
    """Offer a kind of source."""
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


def clean_settings(kind: SourceKind, given: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a kind, each in its own type, those not given by default.

    Raises `SourceSettingInvalid`.
    """
    known = {one.name for one in kind.fields}
    for name in given:
        if name not in known:
            raise SourceSettingInvalid(f"no setting {name}", name=str(name), reason="unknown")
    return {one.name: _clean_value(one, given.get(one.name, one.default)) for one in kind.fields}


def _clean_value(one: SettingField, value: Any) -> Any:
    if one.form == "number":
        number = _to_number(one, value)
        if not one.minimum <= number <= one.maximum:
            raise SourceSettingInvalid(
                name=one.name, reason="range", minimum=one.minimum, maximum=one.maximum
            )
        return number
    if one.form == "lines":
        return _clean_lines(one, value)
    if not isinstance(value, str) or "\0" in value or len(value) > MAX_FIELD_CHARACTERS:
        raise SourceSettingInvalid(name=one.name, reason="text")
    text = value.strip()
    if one.required and not text:
        raise SourceSettingInvalid(name=one.name, reason="required")
    return text


def _clean_lines(one: SettingField, value: Any) -> list[str]:
    """A list, or a text with one a line."""
    parts = value.splitlines() if isinstance(value, str) else value
    if not isinstance(parts, list | tuple) or not all(isinstance(part, str) for part in parts):
        raise SourceSettingInvalid(name=one.name, reason="text")
    lines = [part.strip() for part in parts if part.strip()]
    if one.required and not lines:
        raise SourceSettingInvalid(name=one.name, reason="required")
    if len(lines) > MAX_LINES or any(len(line) > MAX_FIELD_CHARACTERS for line in lines):
        raise SourceSettingInvalid(name=one.name, reason="text")
    return lines


def _to_number(one: SettingField, value: Any) -> int:
    try:
        return int(value if value not in {"", None} else one.default)
    except (TypeError, ValueError) as error:
        raise SourceSettingInvalid(name=one.name, reason="number") from error


def is_readable_name(name: str) -> bool:
    """Whether a file of this name may hold a format that Nura reads."""
    return formats.get_extension(name) in formats.EXTENSIONS
