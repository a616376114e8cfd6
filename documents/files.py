"""Original files in the storage, a folder or S3, and page pictures in the local cache."""

import errno
import hashlib
import os
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
from documents.models import AnyVersion, Document
from documents.parsers import formats
from rag.errors import NuraError

logger = structlog.get_logger()

MEGABYTE = 1024 * 1024
ID_CHARACTERS = 36
"""Length of a document's id."""
DISK_FULL_ERRORS = frozenset((errno.ENOSPC, errno.EDQUOT))
WRITE_ERRORS = DISK_FULL_ERRORS | {errno.EROFS, errno.EIO}


@dataclass(frozen=True, slots=True)
class FileSizeAndHash:
    """Size and hash of a file, measured instead of taken from the request."""

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


def measure_file(content: "File[Any]") -> FileSizeAndHash:
    """Count and hash in one pass. Raises `FileTooLarge`."""
    limit = settings.MAX_UPLOAD_MB * 1024 * 1024
    digest, size = hashlib.sha256(), 0
    for piece in content.chunks():
        size += len(piece)
        if size > limit:
            raise FileTooLarge(limit_mb=settings.MAX_UPLOAD_MB)
        digest.update(piece)
    content.seek(0)
    return FileSizeAndHash(size, digest.hexdigest())


def examine_file(name: str, content: "File[Any]") -> IncomingFile:
    """Measure the file and detect its type from its content. Raises what is wrong with it."""
    measured = measure_file(content)
    original = metadata.to_original_name(name)
    content_type = formats.detect_content_type(cast("BinaryIO", content), original)
    return IncomingFile(
        metadata.to_display_name(name), original, content_type, measured.size, measured.sha256
    )


def store_file(document_id: UUID, original_name: str, content: "File[Any]") -> str:
    """Store the file under a generated name, unique within the document.

    Returns its name in the storage.
    """
    suffix = metadata.get_extension(original_name)
    name = f"{_to_folder(document_id)}/original-{secrets.token_hex(4)}{suffix}"
    try:
        return default_storage.save(name, content)
    except OSError as error:
        remove_file(name)
        raise to_storage_error(error) from error


def store_picture(document_id: UUID, content_type: str, data: bytes) -> str:
    """Store a picture found in the document. Returns its name in the storage."""
    suffix = content_type.removeprefix("image/")
    name = f"{_to_folder(document_id)}/pictures/{secrets.token_hex(8)}.{suffix}"
    try:
        return default_storage.save(name, ContentFile(data))
    except OSError as error:
        remove_file(name)
        raise to_storage_error(error) from error


def to_storage_error(error: OSError) -> NuraError:
    """The error that people see for an error of the file system."""
    return StorageFull() if error.errno in DISK_FULL_ERRORS else StorageFailed(str(error))


def write_atomically(path: Path, data: bytes, *, mode: int = 0o666, durable: bool = False) -> None:
    """Write a local file whole or not at all: another process may read at the same moment.

    `durable`: it is on the disk before it has its name. Raises `OSError`.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(f".{secrets.token_hex(4)}.part")
    try:
        with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
            file.write(data)
            if durable:
                file.flush()
                os.fsync(file.fileno())
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


def check_free_disk(size: int) -> None:
    """Check that a file of this size leaves the reserve of free disk space. Raises `StorageFull`.

    An upload is first written to the temporary folder, then to that of the originals.
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
    """Delete a file. A failure is only logged, as nothing refers to the file any more."""
    try:
        default_storage.delete(name)
    except OSError:
        logger.warning("file_not_removed", file=name, exc_info=True)


def get_cache_folder(document_id: UUID) -> Path:
    """The folder of a document's page pictures, with a subfolder for each of its files."""
    return _get_pages_root() / str(document_id)


def _get_pages_root() -> Path:
    return Path(settings.DATA_DIR) / "cache" / "pages"


def get_pages_folder(version: AnyVersion) -> Path:
    """The folder of the page pictures of this file."""
    document_id = version.pk if isinstance(version, Document) else version.document_id
    return get_cache_folder(document_id) / version.sha256


def list_stray_pictures() -> list[Path]:
    """Folders of page pictures whose document is gone."""
    folders = {path.name: path for path in _get_pages_root().glob("*")}
    keys = [name for name in folders if len(name) == ID_CHARACTERS]
    document_ids = Document.objects.filter(pk__in=keys).values_list("pk", flat=True)
    names = {str(pk) for pk in document_ids}
    return [path for name, path in sorted(folders.items()) if name not in names]


def trim_page_cache() -> int:
    """Delete the least recently used page pictures until the rest fits. Returns their number.

    They are drawn again on demand.
    """
    pictures = []
    for path in _get_pages_root().rglob("*.png"):
        with suppress(FileNotFoundError):
            stat = path.stat()
            pictures.append((stat.st_mtime, stat.st_size, path))
    total, count = sum(size for _, size, _ in pictures), 0
    for _mtime, size, path in sorted(pictures, key=lambda picture: picture[0]):
        if total <= settings.CACHE_MB * MEGABYTE:
            break
        path.unlink(missing_ok=True)
        total, count = total - size, count + 1
    return count


def remove_document_files(document_id: UUID) -> None:
    """Delete all files of a document and its page pictures."""
    _remove_folder(_to_folder(document_id))
    shutil.rmtree(get_cache_folder(document_id), ignore_errors=True)


def _to_folder(document_id: UUID) -> str:
    return f"documents/{document_id}"


def _remove_folder(name: str) -> None:
    try:
        folders, names = default_storage.listdir(name)
    except FileNotFoundError:  # nothing was stored
        return
    except OSError:
        logger.warning("file_not_removed", file=name, exc_info=True)
        return
    for folder in folders:
        _remove_folder(f"{name}/{folder}")
    for file in names:
        remove_file(f"{name}/{file}")
    remove_file(name)


@contextmanager
def open_local_path(version: AnyVersion) -> Iterator[Path]:
    """A local path to the file; a remote file is copied for the block. Raises `StorageFailed`."""
    try:
        with _find_path(version) as path:
            yield path
    except FileNotFoundError as error:
        raise StorageFailed(str(error)) from error


@contextmanager
def _find_path(version: AnyVersion) -> Iterator[Path]:
    try:
        yield Path(version.file.path)
    except NotImplementedError:  # a remote storage has no paths
        with tempfile.NamedTemporaryFile(suffix=metadata.get_extension(version.name)) as copy:
            with version.file.open("rb") as original:
                shutil.copyfileobj(original, copy)
            copy.flush()
            yield Path(copy.name)
