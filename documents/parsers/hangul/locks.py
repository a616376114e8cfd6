"""Looks at what locks a Hangul file and at what it unpacks to, before anything else does."""

import re
import zlib
from pathlib import Path

from documents.parsers.archive import Archive, check_xml_part
from documents.parsers.base import Limits
from documents.parsers.errors import ArchiveBomb, Corrupt, Encrypted, UnsupportedVersion

SIGNATURE = b"HWP Document File"
COMPRESSED = 1
LOCKS = ((1, "password"), (2, "distribution"), (4, "drm"), (8, "certificate"), (10, "drm"))
"""Bits of the FileHeader's flags. A distribution document (배포용) shows others only a notice."""
_STREAMS = re.compile(r"^(docinfo|bodytext/section\d+)$", re.IGNORECASE)


def check_hwp(path: Path, limits: Limits) -> None:
    """Refuse locked documents by name, other versions, and streams that unpack to too much."""
    import olefile

    try:
        with olefile.OleFileIO(path) as ole:
            header = ole.openstream("FileHeader").read(256)
            flags = _checked_flags(header)
            for entry in ole.listdir(streams=True, storages=False):
                if flags & COMPRESSED and _STREAMS.match("/".join(entry)):
                    _check_stream(ole.openstream(entry).read(), limits)
    except (OSError, ValueError, IndexError, KeyError, TypeError, RecursionError) as error:
        raise Corrupt(detail=type(error).__name__) from error


def _checked_flags(header: bytes) -> int:
    """The flags of a FileHeader that we can read."""
    if not header.startswith(SIGNATURE) or len(header) < 40:
        raise Corrupt(detail="FileHeader")
    major = header[35]
    if major != 5:
        raise UnsupportedVersion(found=f"HWP {major}")
    flags = int.from_bytes(header[36:40], "little")
    for bit, lock in LOCKS:
        if flags >> bit & 1:
            raise Encrypted(lock=lock)
    return flags


def _check_stream(packed: bytes, limits: Limits) -> None:
    """Inflate a stream in steps, counting."""
    allowed = min(limits.inflated, max(limits.ratio_after, len(packed) * limits.ratio))
    inflater, total = zlib.decompressobj(-zlib.MAX_WBITS), 0
    try:
        while packed and not inflater.eof:
            total += len(inflater.decompress(packed, 1 << 20))
            packed = inflater.unconsumed_tail
            if total > allowed:
                raise ArchiveBomb(limit=allowed)
    except zlib.error as error:
        raise Corrupt(detail="deflate") from error


def check_hwpx(archive: Archive) -> None:
    """Refuse encryption by name, document types, and text that unpacks to too much.

    Pictures are not counted: each is looked at before it is unpacked.
    """
    manifest = "META-INF/manifest.xml"
    if manifest in archive and b"encryption-data" in archive.read_part(manifest):
        raise Encrypted(lock="password")
    for name in archive.names:
        if name.lower().endswith((".xml", ".hpf", ".rdf")):
            check_xml_part(archive, name)
