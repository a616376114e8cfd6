"""A folder on the server, such as a mounted file share.

It must be below a folder that the administrator allows (`NURA_SOURCE_FOLDERS`). Links are never
followed, neither for listing nor for opening: each part of a path is opened separately without
following links, so that replacing a folder by a link meanwhile has no effect.
"""

import errno
import os
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, BinaryIO, Self
from unicodedata import normalize
from urllib.parse import quote_from_bytes, unquote_to_bytes

from django.conf import settings
from django.utils.translation import gettext_lazy as _

from documents.sources.base import (
    EntryGone,
    EntryUnreadable,
    ListedEntry,
    Listing,
    SettingField,
    SourceKind,
    SourceReader,
    SourceSettingInvalid,
    SourceUnreachable,
    UnlistedEntry,
    is_readable_name,
    register_kind,
)

MAX_DEPTH = 64
FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
FILE_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
"""Non-blocking, because a named pipe in the folder would block the worker forever."""
GONE_ERRORS = frozenset((errno.ENOENT, errno.ENOTDIR, errno.ELOOP))
BYTES = "bytes:"
"""Prefix of the key of a path that is not valid Unicode, as on old file servers."""


class FolderReader(SourceReader):
    """Files below one folder, in the order of their names."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        self._root = resolve_folder(values["path"])
        self._include = [normalize("NFC", pattern) for pattern in values["include"]]
        self._exclude = [normalize("NFC", pattern) for pattern in values["exclude"]]
        self._marker = values["marker"]
        self._handle = -1

    def __enter__(self) -> Self:
        try:
            self._handle = os.open(self._root, FOLDER_FLAGS)
            if self._marker:
                os.stat(self._marker, dir_fd=self._handle, follow_symlinks=False)
        except OSError as error:
            self.__exit__()
            raise SourceUnreachable(str(error), reason="folder") from error
        return self

    def __exit__(self, *_: object) -> None:
        if self._handle >= 0:
            os.close(self._handle)
            self._handle = -1

    def list_entries(self, listing: Listing) -> Iterator[ListedEntry | UnlistedEntry]:
        """Each file of a readable format; a folder that cannot be listed is one `UnlistedEntry`."""
        after = tuple(_to_path(listing.after).split("/")) if listing.after else ()
        yield from self._list_folder(self._handle, (), after)

    def _list_folder(
        self, handle: int, parts: tuple[str, ...], after: tuple[str, ...]
    ) -> Iterator[ListedEntry | UnlistedEntry]:
        """List a folder, continuing after the path `after` within it."""
        try:
            with os.scandir(handle) as scan:
                entries = sorted((item.name, item.is_dir(follow_symlinks=False)) for item in scan)
        except OSError as error:
            if not parts:
                raise SourceUnreachable(str(error), reason="folder") from error
            yield _to_unlisted(parts, error, is_prefix=True)
            return
        for name, is_folder in entries:
            if after and (name < after[0] or (name == after[0] and len(after) == 1)):
                continue
            path = (*parts, name)
            if not is_folder:
                yield from self._list_file(handle, path)
            elif not name.startswith(".") and len(path) <= MAX_DEPTH:
                yield from self._list_subfolder(
                    handle, path, after[1:] if after[:1] == (name,) else ()
                )

    def _list_subfolder(
        self, handle: int, path: tuple[str, ...], after: tuple[str, ...]
    ) -> Iterator[ListedEntry | UnlistedEntry]:
        try:
            inner = os.open(path[-1], FOLDER_FLAGS, dir_fd=handle)
        except OSError as error:
            yield _to_unlisted(path, error, is_prefix=True)
            return
        try:
            yield from self._list_folder(inner, path, after)
        finally:
            os.close(inner)

    def _list_file(
        self, handle: int, path: tuple[str, ...]
    ) -> Iterator[ListedEntry | UnlistedEntry]:
        name, display_path = path[-1], to_display_path("/".join(path))
        if (
            name.startswith((".", "~$"))
            or not is_readable_name(display_path)
            or self._is_excluded(display_path)
        ):
            return
        try:
            status = os.stat(name, dir_fd=handle, follow_symlinks=False)
        except FileNotFoundError:
            return
        except OSError as error:
            yield _to_unlisted(path, error)
            return
        if stat.S_ISREG(status.st_mode):
            yield ListedEntry(
                key=_to_key("/".join(path)),
                name=to_display_path(name),
                uri=display_path,
                fingerprint=f"{status.st_size}-{status.st_mtime_ns}",
                size=status.st_size,
            )

    def _is_excluded(self, display_path: str) -> bool:
        if self._include and not any(
            fnmatchcase(display_path, pattern) for pattern in self._include
        ):
            return True
        return any(fnmatchcase(display_path, pattern) for pattern in self._exclude)

    @contextmanager
    def open_entry(self, key: str) -> Iterator[BinaryIO]:
        """The file, opened folder by folder."""
        *folders, name = _to_path(key).split("/")
        handles = [self._handle]
        try:
            for folder in folders:
                handles.append(os.open(folder, FOLDER_FLAGS, dir_fd=handles[-1]))
            file = os.open(name, FILE_FLAGS, dir_fd=handles[-1])
        except OSError as error:
            raise _to_entry_error(error) from error
        finally:
            for handle in handles[1:]:
                os.close(handle)
        with os.fdopen(file, "rb") as stream:
            if not stat.S_ISREG(os.fstat(file).st_mode):
                raise EntryUnreadable("no file", reason="kind")
            try:
                yield stream
            except OSError as error:
                raise _to_entry_error(error) from error


def _to_unlisted(
    path: tuple[str, ...], error: OSError, *, is_prefix: bool = False
) -> UnlistedEntry:
    joined = "/".join(path)
    key = _to_key(f"{joined}/" if is_prefix else joined)
    return UnlistedEntry(key, to_display_path(joined), _to_entry_error(error), is_prefix=is_prefix)


def _to_entry_error(error: OSError) -> EntryGone | EntryUnreadable:
    if error.errno in GONE_ERRORS:
        return EntryGone(str(error))
    reason = "permission" if error.errno in {errno.EACCES, errno.EPERM} else "file"
    return EntryUnreadable(str(error), reason=reason)


def _to_key(path: str) -> str:
    """A path in a form that the database can store; `_to_path` restores it byte for byte."""
    if path.isprintable() and not path.startswith(BYTES):
        return path
    return BYTES + quote_from_bytes(os.fsencode(path), safe="/")


def _to_path(key: str) -> str:
    return os.fsdecode(unquote_to_bytes(key[len(BYTES) :])) if key.startswith(BYTES) else key


def to_display_path(path: str) -> str:
    """A path for people, in NFC; names in the encoding of old Korean servers are decoded."""
    raw = os.fsencode(path)
    for encoding in ("utf-8", "cp949"):
        try:
            return normalize("NFC", raw.decode(encoding))
        except UnicodeDecodeError:
            continue
    return raw.decode("utf-8", "replace")


def resolve_folder(path: str) -> Path:
    """The folder of a path with links resolved. Raises `SourceSettingInvalid` if not allowed.

    It need not exist: a file share may be unmounted.
    """
    if not Path(path).is_absolute() or "\0" in path:
        raise SourceSettingInvalid(path, name="path", reason="folder")
    folder = Path(os.path.realpath(path))
    roots = [Path(os.path.realpath(root)) for root in settings.SOURCE_FOLDERS]
    if not any(folder == root or root in folder.parents for root in roots):
        raise SourceSettingInvalid(path, name="path", reason="outside")
    return folder


def _check_folder(values: Mapping[str, Any]) -> None:
    resolve_folder(values["path"])
    if "/" in values["marker"] or values["marker"] in {".", ".."}:
        raise SourceSettingInvalid(name="marker", reason="text")


register_kind(
    SourceKind(
        name="folder",
        label=_("Folder"),
        hint=_("A folder of the server, such as a mounted file share."),
        fields=(
            SettingField(
                "path",
                _("Folder"),
                required=True,
                help=_("Its full path, below a folder that the installation allows."),
            ),
            SettingField(
                "include",
                _("Only these files"),
                form="lines",
                default=(),
                help=_(
                    "Patterns such as *.pdf or 규정/*, one per line. Leave empty for all readable "
                    "files."
                ),
            ),
            SettingField(
                "exclude",
                _("Not these files"),
                form="lines",
                default=(),
                help=_("Patterns such as 초안/*, one per line."),
            ),
            SettingField(
                "marker",
                _("Marker file"),
                help=_("If this file is missing in the folder, it counts as not mounted."),
            ),
        ),
        open_reader=FolderReader,
        describe=lambda values: str(values["path"]),
        check=_check_folder,
        administrators=True,
        rank=2,
    )
)
