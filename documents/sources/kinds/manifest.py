"""Files sent by a program: first a list of paths with their SHA-256, then the requested files.

There is nothing to fetch, so a run starts when a list arrives (`services.receive_manifest`).
"""

import re
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from typing import Any, BinaryIO
from unicodedata import normalize

from django.utils.translation import gettext_lazy as _

from documents.sources.base import (
    EntryUnreadable,
    ListedEntry,
    Listing,
    SourceKind,
    SourceReader,
    SourceUnreachable,
    UnlistedEntry,
    register_kind,
)

SHA256 = re.compile(r"[0-9a-f]{64}")


class ManifestReader(SourceReader):
    """The entries of the latest list."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        self._listing: Mapping[str, str] | None = values["listing"]

    def list_entries(self, listing: Listing) -> Iterator[ListedEntry | UnlistedEntry]:
        """Each path with its SHA-256."""
        if self._listing is None:
            raise SourceUnreachable("no list was sent", reason="sent")
        for path in sorted(self._listing):
            if path > listing.after:
                sha256 = self._listing[path]
                name = path.rpartition("/")[2]
                yield ListedEntry(path, name, path, sha256)

    def open_entry(self, key: str) -> AbstractContextManager[BinaryIO]:
        """Raises `EntryUnreadable`: the file is still to be sent."""
        raise EntryUnreadable(key, reason="sent")


def to_path(path: str) -> str:
    """A normalised path: NFC, no empty parts, no `..`."""
    parts = normalize("NFC", path).replace("\\", "/").split("/")
    return "/".join(part for part in parts if part not in {"", ".", ".."})


register_kind(
    SourceKind(
        name="manifest",
        label=_("Upload by a program"),
        hint=_("A script sends a list of its files, then those that have changed."),
        fields=(),
        open_reader=ManifestReader,
        describe=lambda _values: "",
        sends=True,
        rank=4,
    )
)
