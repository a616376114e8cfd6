"""Files on their way in, always to disk and counted as they come; originals, texts, pictures out.

What people uploaded never runs in our origin.

A part of a file is answered as RFC 9110, section 14 says. Pages of PDF are drawn in a limited
child process.
"""

import asyncio
import itertools
import os
import re
import secrets
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import IO, Any, TypeVar

from django.conf import settings
from django.core.files.base import File
from django.core.files.uploadedfile import UploadedFile
from django.core.files.uploadhandler import TemporaryFileUploadHandler
from django.core.handlers.asgi import ASGIRequest
from django.http import HttpRequest, HttpResponse, StreamingHttpResponse, multipartparser
from django.http.response import HttpResponseBase
from django.urls import Resolver404, resolve
from django.utils.cache import get_conditional_response
from django.utils.http import content_disposition_header, quote_etag

from documents import files, versions
from documents.errors import FileTooLarge, NotRenderable, PageNotFound, StorageFailed
from documents.files import to_storage_error
from documents.models import Document, DocumentPicture, DocumentVersion
from documents.parsers import formats
from documents.parsers.base import ParserCrashed
from documents.parsers.sandbox.client import BrokenFrame, SandboxChild

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


_ONE_RANGE = re.compile(r"bytes=\s*(\d*)-(\d*)\s*", re.ASCII | re.IGNORECASE)
MAX_OFFSET_DIGITS = 18
"""More of them name no byte of any file."""


class OutOfRange(Exception):
    """No byte of the file is in the range."""


def parse_range(request: HttpRequest, *, size: int, tag: str) -> range | None:
    """The bytes asked for, by their offsets; None stands for the whole file.

    That is what is answered to no range, to several, to one that cannot be read, and to one of
    another version than `tag`. Raises `OutOfRange`.
    """
    match = _ONE_RANGE.fullmatch(request.headers.get("Range", ""))
    condition = request.headers.get("If-Range")
    if request.method != "GET" or match is None or not any(match.groups()):
        return None
    if condition is not None and condition.strip() != quote_etag(tag):
        return None
    return _clip_range(match[1], match[2], size)


def _clip_range(first: str, last: str, size: int) -> range | None:
    start, end = (int(digits[:MAX_OFFSET_DIGITS]) if digits else None for digits in (first, last))
    if start is None:
        found = range(max(0, size - (end or 0)), size)
    elif end is not None and end < start:
        return None
    else:
        found = range(start, size if end is None else min(end + 1, size))
    if not found:
        raise OutOfRange
    return found


BLOCK_BYTES = 256 * 1024
SAFE_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; sandbox",
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "private, no-cache",
}

Kept = Document | DocumentVersion


def respond_with_original(request: HttpRequest, kept: Kept) -> HttpResponseBase:
    """The file as uploaded, as a download; a part of it where one is asked for.

    Raises `StorageFailed`.
    """
    disposition = content_disposition_header(True, kept.original_name)  # noqa: FBT003
    headers = SAFE_HEADERS | {
        "Content-Disposition": disposition or "attachment",
        "Accept-Ranges": "bytes",
        "ETag": quote_etag(kept.sha256),
    }
    if known := _respond_to_conditions(request, headers):
        return known
    try:
        asked = parse_range(request, size=kept.size, tag=kept.sha256)
    except OutOfRange:
        return HttpResponse(status=416, headers=headers | {"Content-Range": f"bytes */{kept.size}"})
    return _stream_file(request, kept, headers, asked)


def respond_with_text(kept: Kept) -> HttpResponse:
    """The whole text, as its chunks' offsets count it."""
    return HttpResponse(
        versions.read_whole_text(kept),
        content_type="text/plain; charset=utf-8",
        headers=SAFE_HEADERS,
    )


def respond_with_page(request: HttpRequest, kept: Kept, number: int) -> HttpResponseBase:
    """A page as PNG, rendered once and kept.

    Raises `PageNotFound`, `NotRenderable` or `ParseFailed`.
    """
    if number > (kept.page_count or 0):
        raise PageNotFound(page=number)
    headers = SAFE_HEADERS | {"ETag": quote_etag(f"{kept.sha256}-{number}")}
    if known := _respond_to_conditions(request, headers):
        return known
    with files.open_local_path(kept) as path:
        folder = files.get_pages_folder(kept)
        png = render_page_png(path, kept.content_type, number, cache_dir=folder)
    return HttpResponse(png, content_type="image/png", headers=headers)


def respond_with_picture(request: HttpRequest, kept: DocumentPicture) -> HttpResponseBase:
    """A picture found in the document. Raises `StorageFailed`."""
    headers = SAFE_HEADERS | {"ETag": quote_etag(kept.digest)}
    if known := _respond_to_conditions(request, headers):
        return known
    try:
        with kept.file.open("rb") as file:
            data = file.read()
    except OSError as error:
        raise StorageFailed(str(error)) from error
    return HttpResponse(data, content_type=kept.content_type, headers=headers)


def _respond_to_conditions(
    request: HttpRequest, headers: Mapping[str, str]
) -> HttpResponseBase | None:
    """The short answer to who has these bytes already, or wants them no more if they changed."""
    bare = HttpResponse(headers=dict(headers))
    answer: HttpResponseBase | None = get_conditional_response(
        request, etag=headers["ETag"], response=bare
    )
    return None if answer is bare else answer


def _stream_file(
    request: HttpRequest, kept: Kept, headers: Mapping[str, str], part: range | None
) -> StreamingHttpResponse:
    sent = range(kept.size) if part is None else part
    try:
        file = kept.file.open("rb")
        file.seek(sent.start)
    except OSError as error:
        raise StorageFailed(str(error)) from error
    response = StreamingHttpResponse(
        stream_blocks(request, file, len(sent)),
        status=200 if part is None else 206,
        content_type=kept.content_type,
        headers=dict(headers),
    )
    response["Content-Length"] = str(len(sent))
    if part is not None:
        response["Content-Range"] = f"bytes {sent.start}-{sent.stop - 1}/{kept.size}"
    return response


def stream_blocks(
    request: HttpRequest, file: "File[Any] | IO[bytes]", size: int
) -> Iterator[bytes] | AsyncIterator[bytes]:
    """The next `size` bytes of a file as a response wants them; it is closed in the end."""
    blocks = _iterate_blocks_async if isinstance(request, ASGIRequest) else _iterate_blocks
    return blocks(file, size)


def _iterate_blocks(file: "File[Any] | IO[bytes]", size: int) -> Iterator[bytes]:
    with file:
        while block := file.read(min(BLOCK_BYTES, size)):
            size -= len(block)
            yield block


async def _iterate_blocks_async(file: "File[Any] | IO[bytes]", size: int) -> AsyncIterator[bytes]:
    """The same under ASGI, where Django would gather a plain iterator in memory first."""
    try:
        while block := await asyncio.to_thread(file.read, min(BLOCK_BYTES, size)):
            size -= len(block)
            yield block
    finally:
        file.close()


DRAWING_SECONDS = 20.0
MIN_WIDTH_PIXELS, MAX_WIDTH_PIXELS = 200, 2_000
"""Pixels."""
_SLOTS = threading.BoundedSemaphore(2)
"""A reader who leafs quickly must not start a dozen children at once."""


def render_page_png(
    path: Path, content_type: str, number: int, width: int = 1200, *, cache_dir: Path
) -> bytes:
    """Page `number` (from 1) as PNG of about `width` pixels.

    `cache_dir` belongs to one version of one file.

    Raises PageNotFound, NotRenderable, or the `ParseFailed` that drawing ran into.
    """
    if content_type != formats.PDF:
        raise NotRenderable(content_type=content_type)
    if number < 1:
        raise PageNotFound(page=number)
    width = min(max(width, MIN_WIDTH_PIXELS), MAX_WIDTH_PIXELS)
    kept = cache_dir / f"{number}-{width}.png"
    if image := _read_cached_page(kept):
        return image
    with _SLOTS:
        if image := _read_cached_page(kept):  # drawn while we waited for our turn
            return image
        image = _draw_page(path, number, width)
    _write_atomically(kept, image)
    if next(_drawn) % DRAWN_BETWEEN_TRIMS == 0:
        files.trim_page_cache()
    return image


_drawn = itertools.count(1)
DRAWN_BETWEEN_TRIMS = 100
"""Pictures that a process draws before it looks whether the cache is too large."""


def _read_cached_page(kept: Path) -> bytes | None:
    """A picture that was drawn before, which is now the one that was looked at last."""
    try:
        image = kept.read_bytes()
        os.utime(kept)
    except FileNotFoundError:
        return None
    return image


def _draw_page(path: Path, number: int, width: int) -> bytes:
    """The picture, from a child process."""
    request = {
        "task": "draw",
        "path": str(path.resolve()),
        "content_type": formats.PDF,
        "number": number,
        "width": width,
    }
    child = SandboxChild(request, replace(settings.READING_LIMITS, seconds=DRAWING_SECONDS))
    try:
        image = next((value for kind, value in child.iterate_frames() if kind == "bytes"), None)
    except BrokenFrame as error:
        raise ParserCrashed(detail="protocol") from error
    finally:
        child.close()
    if image is None:
        raise PageNotFound(page=number)
    if not isinstance(image, bytes) or not image.startswith(b"\x89PNG"):
        raise ParserCrashed(detail="protocol")
    return image


def _write_atomically(target: Path, image: bytes) -> None:
    """Write whole or not at all: another process may read at the same moment."""
    target.parent.mkdir(parents=True, exist_ok=True)
    part = target.with_suffix(f".{secrets.token_hex(4)}.part")
    try:
        part.write_bytes(image)
        os.replace(part, target)  # noqa: PTH105 - the name says what is needed
    finally:
        part.unlink(missing_ok=True)
