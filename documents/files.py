"""Originals in the storage, where a folder and S3 are the same to us."""

import errno
import hashlib
import secrets
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, cast
from uuid import UUID

import structlog
from django.conf import settings
from django.core.files import File
from django.core.files.base import ContentFile
from django.core.files.storage import default_storage

from documents import metadata
from documents.errors import FileTooLarge, StorageFailed, StorageFull
from documents.models import Document, DocumentVersion
from documents.parsers import formats
from rag.errors import NuraError

logger = structlog.get_logger()

MEGABYTE = 1024 * 1024
KEY_CHARACTERS = 36
"""Of a document's id."""
NO_ROOM = frozenset((errno.ENOSPC, errno.EDQUOT))
NOT_WRITABLE = NO_ROOM | {errno.EROFS, errno.EIO}


@dataclass(frozen=True, slots=True)
class FileMeasure:
    """What a file really is: bytes counted, not believed."""

    size: int
    sha256: str


@dataclass(frozen=True, slots=True)
class IncomingFile:
    """What is known of a file before it is stored; its fields are those of `Document`."""

    name: str
    original_name: str
    content_type: str
    size: int
    sha256: str


def measure_file(content: "File[Any]") -> FileMeasure:
    """Count and hash in one pass. Raises `FileTooLarge`."""
    limit = settings.MAX_UPLOAD_MB * 1024 * 1024
    digest, size = hashlib.sha256(), 0
    for piece in content.chunks():
        size += len(piece)
        if size > limit:
            raise FileTooLarge(limit_mb=settings.MAX_UPLOAD_MB)
        digest.update(piece)
    content.seek(0)
    return FileMeasure(size, digest.hexdigest())


def examine_file(name: str, content: "File[Any]") -> IncomingFile:
    """Measure the file and detect its type from its content. Raises what is wrong with it."""
    counted = measure_file(content)
    original = metadata.to_original_name(name)
    kind = formats.detect_content_type(cast("BinaryIO", content), original)
    return IncomingFile(
        metadata.to_display_name(name), original, kind, counted.size, counted.sha256
    )


def store_file(document_id: UUID, original_name: str, content: "File[Any]") -> str:
    """Keep the file under a name of our making; the storage's name for it comes back.

    No two files of a document have one name, whatever the storage does about that.
    """
    suffix = metadata.get_extension(original_name)
    name = f"{_to_folder(document_id)}/original-{secrets.token_hex(4)}{suffix}"
    try:
        return default_storage.save(name, content)
    except OSError as error:
        remove_file(name)
        raise to_storage_error(error) from error


def store_picture(document_id: UUID, content_type: str, data: bytes) -> str:
    """Keep a picture found in the document; the storage's name for it comes back."""
    suffix = content_type.removeprefix("image/")
    name = f"{_to_folder(document_id)}/pictures/{secrets.token_hex(8)}.{suffix}"
    try:
        return default_storage.save(name, ContentFile(data))
    except OSError as error:
        remove_file(name)
        raise to_storage_error(error) from error


def to_storage_error(error: OSError) -> NuraError:
    """What an error of the file system means to the person who uploads."""
    return StorageFull() if error.errno in NO_ROOM else StorageFailed(str(error))


def check_free_disk(size: int) -> None:
    """Whether a file of so many bytes may come: the reserve of free disk must stay.

    It is first written to the folder for temporary files, then to that of the originals. Raises
    `StorageFull`.
    """
    reserve = settings.DISK_RESERVE_MB * MEGABYTE
    if not reserve:
        return
    for folder in {tempfile.gettempdir(), str(settings.DATA_DIR)}:
        try:
            free = shutil.disk_usage(folder).free
        except OSError as error:
            raise to_storage_error(error) from error
        if free - size < reserve:
            logger.warning("disk_nearly_full", folder=folder, free_mb=free // MEGABYTE)
            raise StorageFull


def remove_file(name: str) -> None:
    """Delete one file; a failure is only logged, as nothing refers to the file any more."""
    try:
        default_storage.delete(name)
    except OSError:
        logger.warning("file_not_removed", file=name, exc_info=True)


def get_cache_folder(document_id: UUID) -> Path:
    """Where pictures of a document's pages are kept, in a folder for each of its files."""
    return _get_pages_root() / str(document_id)


def _get_pages_root() -> Path:
    return Path(settings.DATA_DIR) / "cache" / "pages"


def get_pages_folder(kept: Document | DocumentVersion) -> Path:
    """Where pictures of this file's pages are kept."""
    document_id = kept.pk if isinstance(kept, Document) else kept.document_id
    return get_cache_folder(document_id) / kept.sha256


def list_stray_pictures() -> list[Path]:
    """Folders of page pictures whose document is gone."""
    folders = {path.name: path for path in _get_pages_root().glob("*")}
    keys = [name for name in folders if len(name) == KEY_CHARACTERS]
    known = Document.objects.filter(pk__in=keys).values_list("pk", flat=True)
    kept = {str(pk) for pk in known}
    return [path for name, path in sorted(folders.items()) if name not in kept]


def trim_page_cache() -> int:
    """Delete the pictures of pages that were looked at longest ago, until the rest fits; how many.

    They are drawn again when somebody asks.
    """
    found = []
    for path in _get_pages_root().rglob("*.png"):
        with suppress(FileNotFoundError):
            known = path.stat()
            found.append((known.st_mtime, known.st_size, path))
    left, count = sum(size for _, size, _ in found), 0
    for _seen, size, path in sorted(found, key=lambda one: one[0]):
        if left <= settings.CACHE_MB * MEGABYTE:
            break
        path.unlink(missing_ok=True)
        left, count = left - size, count + 1
    return count


def remove_document_files(document_id: UUID) -> None:
    """Delete all files of a document and all that was made from them."""
    _remove_folder(_to_folder(document_id))
    shutil.rmtree(get_cache_folder(document_id), ignore_errors=True)


def _to_folder(document_id: UUID) -> str:
    return f"documents/{document_id}"


def _remove_folder(name: str) -> None:
    try:
        folders, kept = default_storage.listdir(name)
    except FileNotFoundError:  # nothing was stored
        return
    except OSError:
        logger.warning("file_not_removed", file=name, exc_info=True)
        return
    for folder in folders:
        _remove_folder(f"{name}/{folder}")
    for file in kept:
        remove_file(f"{name}/{file}")
    remove_file(name)


@contextmanager
def open_local_path(kept: Document | DocumentVersion) -> Iterator[Path]:
    """Its file on this machine, for what needs a path. Raises `StorageFailed`."""
    try:
        with _find_path(kept) as path:
            yield path
    except FileNotFoundError as error:
        raise StorageFailed(str(error)) from error


@contextmanager
def _find_path(kept: Document | DocumentVersion) -> Iterator[Path]:
    try:
        yield Path(kept.file.path)
    except NotImplementedError:  # a remote storage has no paths
        with tempfile.NamedTemporaryFile(suffix=metadata.get_extension(kept.name)) as copy:
            with kept.file.open("rb") as original:
                shutil.copyfileobj(original, copy)
            copy.flush()
            yield Path(copy.name)
