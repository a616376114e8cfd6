"""A folder of the machine that Nura runs on, such as a mounted file server.

Only folders below those that the administrator allows (`NURA_SOURCE_FOLDERS`). A link is never
followed, neither while listing nor while opening: each part of a path is opened by itself and must
be what it was called, so that a folder that is replaced by a link a moment later leads nowhere.
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
"""Without waiting: a pipe that lies in the folder would keep the worker for ever."""
GONE = frozenset((errno.ENOENT, errno.ENOTDIR, errno.ELOOP))
BYTES = "bytes:"
"""Begins the key of a path that is no Unicode, as old file servers have them."""


class FolderReader(SourceReader):
    """Files below one folder, in the order of their names."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        self._root = resolve_folder(values["path"])
        self._include = [normalize("NFC", one) for one in values["include"]]
        self._exclude = [normalize("NFC", one) for one in values["exclude"]]
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
        """Each readable file; those of a folder that cannot be listed are told as one."""
        after = tuple(_to_path(listing.after).split("/")) if listing.after else ()
        yield from self._list_folder(self._handle, (), after)

    def _list_folder(
        self, handle: int, parts: tuple[str, ...], after: tuple[str, ...]
    ) -> Iterator[ListedEntry | UnlistedEntry]:
        """`after` are the parts below this folder that the list goes on behind."""
        try:
            with os.scandir(handle) as found:
                entries = sorted((one.name, one.is_dir(follow_symlinks=False)) for one in found)
        except OSError as error:
            if not parts:
                raise SourceUnreachable(str(error), reason="folder") from error
            yield _to_unlisted(parts, error, below=True)
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
            yield _to_unlisted(path, error, below=True)
            return
        try:
            yield from self._list_folder(inner, path, after)
        finally:
            os.close(inner)

    def _list_file(
        self, handle: int, path: tuple[str, ...]
    ) -> Iterator[ListedEntry | UnlistedEntry]:
        name, shown = path[-1], to_shown_path("/".join(path))
        if name.startswith((".", "~$")) or not is_readable_name(shown) or self._is_excluded(shown):
            return
        try:
            known = os.stat(name, dir_fd=handle, follow_symlinks=False)
        except FileNotFoundError:
            return
        except OSError as error:
            yield _to_unlisted(path, error)
            return
        if stat.S_ISREG(known.st_mode):
            yield ListedEntry(
                key=_to_key("/".join(path)),
                name=to_shown_path(name),
                uri=shown,
                fingerprint=f"{known.st_size}-{known.st_mtime_ns}",
                size=known.st_size,
            )

    def _is_excluded(self, shown: str) -> bool:
        if self._include and not any(fnmatchcase(shown, one) for one in self._include):
            return True
        return any(fnmatchcase(shown, one) for one in self._exclude)

    @contextmanager
    def open_entry(self, key: str) -> Iterator[BinaryIO]:
        """The file, reached folder by folder."""
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
        with os.fdopen(file, "rb") as opened:
            if not stat.S_ISREG(os.fstat(file).st_mode):
                raise EntryUnreadable("no file", reason="kind")
            try:
                yield opened
            except OSError as error:
                raise _to_entry_error(error) from error


def _to_unlisted(path: tuple[str, ...], error: OSError, *, below: bool = False) -> UnlistedEntry:
    whole = "/".join(path)
    key = _to_key(f"{whole}/" if below else whole)
    return UnlistedEntry(key, to_shown_path(whole), _to_entry_error(error), below=below)


def _to_entry_error(error: OSError) -> EntryGone | EntryUnreadable:
    if error.errno in GONE:
        return EntryGone(str(error))
    reason = "permission" if error.errno in {errno.EACCES, errno.EPERM} else "file"
    return EntryUnreadable(str(error), reason=reason)


def _to_key(path: str) -> str:
    """A path as the database can hold it; `_to_path` gives it back, byte by byte."""
    if path.isprintable() and not path.startswith(BYTES):
        return path
    return BYTES + quote_from_bytes(os.fsencode(path), safe="/")


def _to_path(key: str) -> str:
    return os.fsdecode(unquote_to_bytes(key[len(BYTES) :])) if key.startswith(BYTES) else key


def to_shown_path(path: str) -> str:
    """A path for people: composed letters; names of old Korean servers by their own encoding."""
    raw = os.fsencode(path)
    for encoding in ("utf-8", "cp949"):
        try:
            return normalize("NFC", raw.decode(encoding))
        except UnicodeDecodeError:
            continue
    return raw.decode("utf-8", "replace")


def resolve_folder(path: str) -> Path:
    """The folder behind a path, links resolved. Raises `SourceSettingInvalid`, also outside.

    It need not be there: a file server may be away.
    """
    if not Path(path).is_absolute() or "\0" in path:
        raise SourceSettingInvalid(path, name="path", reason="folder")
    found = Path(os.path.realpath(path))
    roots = [Path(os.path.realpath(root)) for root in settings.SOURCE_FOLDERS]
    if not any(found == root or root in found.parents for root in roots):
        raise SourceSettingInvalid(path, name="path", reason="outside")
    return found


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
