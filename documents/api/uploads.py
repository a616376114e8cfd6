"""Receives uploads: always to disk, counted as they come, never above the limit."""

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from django.conf import settings
from django.core.files.uploadedfile import UploadedFile
from django.core.files.uploadhandler import TemporaryFileUploadHandler
from django.http import multipartparser
from django.urls import Resolver404, resolve

from documents.errors import FileTooLarge
from documents.files import to_storage_error

# Django allows 1,024 bytes for the headers of a part: too few for a name of 300 syllables.
multipartparser.MAX_TOTAL_HEADER_SIZE = 8192  # type: ignore[attr-defined] # the stubs lack it

Method = TypeVar("Method", bound=Callable[..., Any])


def takes_file(method: Method) -> Method:
    """Mark a method of a REST view as one that takes a file: that alone makes it an upload."""
    method.takes_file = True  # type: ignore[attr-defined]
    return method


def is_file_method(view: type | None, actions: Mapping[str, str], method: str) -> bool:
    """Whether a view of this class takes a file by this HTTP method.

    `actions` are the names that a view set has for its HTTP methods; empty for other views.
    """
    name = method.lower()
    return hasattr(getattr(view, actions.get(name, name), None), "takes_file")


def is_upload(method: str, path: str) -> bool:
    """Whether a request of this HTTP method to this path brings a file."""
    try:
        view = resolve(path).func
    except Resolver404:
        return False
    return is_file_method(getattr(view, "cls", None), getattr(view, "actions", None) or {}, method)


class LimitedUpload(TemporaryFileUploadHandler):
    """Ends the request as soon as its files are larger than one file may be.

    Keeps the name as sent: Django cuts it at 255 code points before Hangul is composed.
    """

    received = 0

    def new_file(self, *args: Any, **kwargs: Any) -> None:
        """Begin a file."""
        super().new_file(*args, **kwargs)
        self.file.sent_name = self.file_name  # type: ignore[attr-defined]

    def receive_data_chunk(self, raw_data: bytes, start: int) -> None:
        """Count and write. Raises `FileTooLarge` or `StorageFull`."""
        self.received += len(raw_data)
        if self.received > settings.MAX_UPLOAD_MB * 1024 * 1024:
            raise FileTooLarge(limit_mb=settings.MAX_UPLOAD_MB)
        try:
            super().receive_data_chunk(raw_data, start)
        except OSError as error:
            raise to_storage_error(error) from error


def get_sent_name(upload: "UploadedFile[bytes]") -> str:
    """The file's name as the sender gave it."""
    return str(getattr(upload, "sent_name", None) or upload.name or "")
