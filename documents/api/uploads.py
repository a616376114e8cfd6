"""Receives uploads: always to disk, counted as they come, never above the limit."""

from typing import Any

from django.conf import settings
from django.core.files.uploadedfile import UploadedFile
from django.core.files.uploadhandler import TemporaryFileUploadHandler
from django.http import multipartparser

from documents.errors import FileTooLarge
from documents.files import storage_error

# Django allows 1,024 bytes for the headers of a part: too few for a name of 300 syllables.
multipartparser.MAX_TOTAL_HEADER_SIZE = 8192  # type: ignore[attr-defined] # the stubs lack it


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
            raise storage_error(error) from error


def sent_name(upload: "UploadedFile[bytes]") -> str:
    """The file's name as the sender gave it."""
    return str(getattr(upload, "sent_name", None) or upload.name or "")
