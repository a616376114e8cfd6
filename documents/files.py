"""Originals in the storage: Django's, so that a folder and S3 are the same to us."""

import errno
import hashlib
import logging
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID

from django.conf import settings
from django.core.files import File
from django.core.files.storage import default_storage

from documents import names
from documents.errors import FileTooLarge, StorageFailed, StorageFull
from documents.models import Document
from rag.errors import NuraError

logger = logging.getLogger(__name__)

NO_ROOM = frozenset((errno.ENOSPC, errno.EDQUOT))


@dataclass(frozen=True, slots=True)
class Measure:
    """What a file really is: bytes counted, not believed."""

    size: int
    sha256: str


def measure(content: "File[Any]") -> Measure:
    """Count and hash in one pass. Raises `FileTooLarge`."""
    limit = settings.MAX_UPLOAD_MB * 1024 * 1024
    digest, size = hashlib.sha256(), 0
    for piece in content.chunks():
        size += len(piece)
        if size > limit:
            raise FileTooLarge(limit_mb=settings.MAX_UPLOAD_MB)
        digest.update(piece)
    content.seek(0)
    return Measure(size, digest.hexdigest())


def store(document_id: UUID, original_name: str, content: "File[Any]") -> str:
    """Keep the file under a name of our making; the storage's name for it comes back."""
    name = f"documents/{document_id}/original{names.extension(original_name)}"
    try:
        return default_storage.save(name, content)
    except OSError as error:
        remove(name)
        raise storage_error(error) from error


def storage_error(error: OSError) -> NuraError:
    """What an error of the file system means to the person who uploads."""
    return StorageFull() if error.errno in NO_ROOM else StorageFailed(str(error))


def remove(name: str) -> None:
    """Delete the file and its folder; a failure is only logged, as the row is gone anyway."""
    try:
        default_storage.delete(name)
        default_storage.delete(str(Path(name).parent))
    except OSError:
        logger.warning("could not remove %s", name, exc_info=True)


def cache_folder(document_id: UUID) -> Path:
    """Where pictures of the document's pages are kept."""
    return Path(settings.DATA_DIR) / "cache" / "pages" / str(document_id)


def remove_all(document_id: UUID, name: str) -> None:
    """Delete the original and all that was made from it."""
    remove(name)
    shutil.rmtree(cache_folder(document_id), ignore_errors=True)


@contextmanager
def local(document: Document) -> Iterator[Path]:
    """The original as a file on this machine, for what needs a path. Raises `StorageFailed`."""
    try:
        with _on_disk(document) as path:
            yield path
    except FileNotFoundError as error:
        raise StorageFailed(str(error)) from error


@contextmanager
def _on_disk(document: Document) -> Iterator[Path]:
    try:
        yield Path(document.file.path)
    except NotImplementedError:  # a remote storage has no paths
        with tempfile.NamedTemporaryFile(suffix=names.extension(document.name)) as copy:
            with document.file.open("rb") as original:
                shutil.copyfileobj(original, copy)
            copy.flush()
            yield Path(copy.name)
