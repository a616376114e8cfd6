"""Uploads, always to disk and counted as they come; downloads of originals, texts and pictures.

Uploaded content never runs in our origin. Ranges follow RFC 9110, section 14. PDF pages are drawn
in a sandboxed child process.
"""

import asyncio
import itertools
import os
import re
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import IO, Any, Generic, TypeVar

from django.conf import settings
from django.core.files.base import File
from django.core.files.uploadedfile import UploadedFile
from django.core.files.uploadhandler import TemporaryFileUploadHandler
from django.core.handlers.asgi import ASGIRequest
from django.db.models import Model
from django.http import HttpRequest, HttpResponse, StreamingHttpResponse, multipartparser
from django.http.response import HttpResponseBase
from django.urls import Resolver404, resolve
from django.utils.cache import get_conditional_response
from django.utils.http import content_disposition_header, quote_etag
from rest_framework import viewsets
from rest_framework.parsers import BaseParser, MultiPartParser
from rest_framework.request import Request

from documents import files, versions
from documents.errors import FileTooLarge, NotRenderable, PageNotFound, StorageFailed
from documents.files import to_storage_error
from documents.models import AnyVersion, DocumentPicture
from documents.parsers import formats
from documents.parsers.base import ParserCrashed
from documents.parsers.sandbox.client import BrokenFrame, SandboxChild

# Django allows 1,024 bytes for the headers of a part: too few for a name of 300 syllables.
multipartparser.MAX_TOTAL_HEADER_SIZE = 8192  # type: ignore[attr-defined] # the stubs lack it

Method = TypeVar("Method", bound=Callable[..., Any])
Row = TypeVar("Row", bound=Model)


def takes_file(method: Method) -> Method:
    """Mark a method of a REST view as one that takes a file. Only these are uploads."""
    method.takes_file = True  # type: ignore[attr-defined]
    return method


def is_file_method(view: type | None, actions: Mapping[str, str], method: str) -> bool:
    """Whether a view of this class takes a file with this HTTP method.

    `actions` maps the HTTP methods of a view set to its methods; empty for other views.
    """
    name = method.lower()
    return hasattr(getattr(view, actions.get(name, name), None), "takes_file")


def is_upload(method: str, path: str) -> bool:
    """Whether a request with this HTTP method to this path uploads a file."""
    try:
        view = resolve(path).func
    except Resolver404:
        return False
    return is_file_method(getattr(view, "cls", None), getattr(view, "actions", None) or {}, method)


class LimitedUpload(TemporaryFileUploadHandler):
    """Ends the request as soon as its files exceed the size limit of one file.

    Keeps the name as sent: Django cuts it to 255 code points before Hangul is composed.
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


class UploadViewSet(viewsets.GenericViewSet[Row], Generic[Row]):
    """A view set with methods that take a file (`takes_file`)."""

    def initialize_request(self, request: HttpRequest, *args: Any, **kwargs: Any) -> Request:
        """Watch an upload from its first byte: authentication may be what reads the body."""
        if self._takes_file(request):
            request.upload_handlers = [LimitedUpload(request)]
        return super().initialize_request(request, *args, **kwargs)

    def get_parsers(self) -> list[BaseParser]:
        """Files come as forms, the rest as JSON."""
        return [MultiPartParser()] if self._takes_file(self.request) else super().get_parsers()

    def _takes_file(self, request: HttpRequest | Request | None) -> bool:
        method = (request.method or "") if request else ""
        return is_file_method(type(self), self.action_map or {}, method)


def get_sent_name(upload: "UploadedFile[bytes]") -> str:
    """The file's name as the sender gave it."""
    return str(getattr(upload, "sent_name", None) or upload.name or "")


_ONE_RANGE = re.compile(r"bytes=\s*(\d*)-(\d*)\s*", re.ASCII | re.IGNORECASE)
MAX_OFFSET_DIGITS = 18
"""A longer offset is beyond the end of any file."""


class OutOfRange(Exception):
    """No byte of the file is in the range."""


def parse_range(request: HttpRequest, *, size: int, tag: str) -> range | None:
    """The offsets of the requested bytes; None: the whole file.

    The whole file also answers several ranges, an invalid one, and one of another version than
    `tag`. Raises `OutOfRange`.
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
        part = range(max(0, size - (end or 0)), size)
    elif end is not None and end < start:
        return None
    else:
        part = range(start, size if end is None else min(end + 1, size))
    if not part:
        raise OutOfRange
    return part


BLOCK_BYTES = 256 * 1024
SAFE_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; sandbox",
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "private, no-cache",
}


def respond_with_original(request: HttpRequest, version: AnyVersion) -> HttpResponseBase:
    """The file as uploaded, as a download; a part of it if requested.

    Raises `StorageFailed`.
    """
    disposition = content_disposition_header(True, version.original_name)  # noqa: FBT003
    headers = SAFE_HEADERS | {
        "Content-Disposition": disposition or "attachment",
        "Accept-Ranges": "bytes",
        "ETag": quote_etag(version.sha256),
    }
    if short_response := _respond_to_conditions(request, headers):
        return short_response
    try:
        part = parse_range(request, size=version.size, tag=version.sha256)
    except OutOfRange:
        return HttpResponse(
            status=416, headers=headers | {"Content-Range": f"bytes */{version.size}"}
        )
    return _stream_file(request, version, headers, part)


def respond_with_text(version: AnyVersion) -> HttpResponse:
    """The whole text, to which the offsets of chunks refer."""
    return HttpResponse(
        versions.read_whole_text(version),
        content_type="text/plain; charset=utf-8",
        headers=SAFE_HEADERS,
    )


def respond_with_page(request: HttpRequest, version: AnyVersion, number: int) -> HttpResponseBase:
    """A page as PNG, rendered once and kept.

    Raises `PageNotFound`, `NotRenderable` or `ParseFailed`.
    """
    if number > (version.page_count or 0):
        raise PageNotFound(page=number)
    headers = SAFE_HEADERS | {"ETag": quote_etag(f"{version.sha256}-{number}")}
    if short_response := _respond_to_conditions(request, headers):
        return short_response
    with files.open_local_path(version) as path:
        folder = files.get_pages_folder(version)
        png = render_page_png(path, version.content_type, number, cache_dir=folder)
    return HttpResponse(png, content_type="image/png", headers=headers)


def respond_with_picture(request: HttpRequest, picture: DocumentPicture) -> HttpResponseBase:
    """A picture found in the document. Raises `StorageFailed`."""
    headers = SAFE_HEADERS | {"ETag": quote_etag(picture.digest)}
    if short_response := _respond_to_conditions(request, headers):
        return short_response
    try:
        with picture.file.open("rb") as file:
            data = file.read()
    except OSError as error:
        raise StorageFailed(str(error)) from error
    return HttpResponse(data, content_type=picture.content_type, headers=headers)


def _respond_to_conditions(
    request: HttpRequest, headers: Mapping[str, str]
) -> HttpResponseBase | None:
    """A 304 or 412 if the conditions of the request call for it, else None."""
    bare = HttpResponse(headers=dict(headers))
    answer: HttpResponseBase | None = get_conditional_response(
        request, etag=headers["ETag"], response=bare
    )
    return None if answer is bare else answer


def _stream_file(
    request: HttpRequest, version: AnyVersion, headers: Mapping[str, str], part: range | None
) -> StreamingHttpResponse:
    span = range(version.size) if part is None else part
    try:
        file = version.file.open("rb")
        file.seek(span.start)
    except OSError as error:
        raise StorageFailed(str(error)) from error
    response = StreamingHttpResponse(
        stream_blocks(request, file, len(span)),
        status=200 if part is None else 206,
        content_type=version.content_type,
        headers=dict(headers),
    )
    response["Content-Length"] = str(len(span))
    if part is not None:
        response["Content-Range"] = f"bytes {span.start}-{span.stop - 1}/{version.size}"
    return response


def stream_blocks(
    request: HttpRequest, file: "File[Any] | IO[bytes]", size: int
) -> Iterator[bytes] | AsyncIterator[bytes]:
    """The next `size` bytes of a file, as an iterator that fits the request. Closes the file."""
    blocks = _iterate_blocks_async if isinstance(request, ASGIRequest) else _iterate_blocks
    return blocks(file, size)


def _iterate_blocks(file: "File[Any] | IO[bytes]", size: int) -> Iterator[bytes]:
    with file:
        while block := file.read(min(BLOCK_BYTES, size)):
            size -= len(block)
            yield block


async def _iterate_blocks_async(file: "File[Any] | IO[bytes]", size: int) -> AsyncIterator[bytes]:
    """`_iterate_blocks` for ASGI, where Django would collect a plain iterator in memory first."""
    try:
        while block := await asyncio.to_thread(file.read, min(BLOCK_BYTES, size)):
            size -= len(block)
            yield block
    finally:
        file.close()


DRAWING_SECONDS = 20.0
MIN_WIDTH_PIXELS, MAX_WIDTH_PIXELS = 200, 2_000
_SLOTS = threading.BoundedSemaphore(2)
"""Someone paging quickly must not start a dozen child processes at once."""


def render_page_png(
    path: Path, content_type: str, number: int, width: int = 1200, *, cache_dir: Path
) -> bytes:
    """Page `number` (from 1) as PNG of about `width` pixels.

    `cache_dir` belongs to one version of one document. Raises `PageNotFound`, `NotRenderable` or
    `ParseFailed`.
    """
    if content_type != formats.PDF:
        raise NotRenderable(content_type=content_type)
    if number < 1:
        raise PageNotFound(page=number)
    width = min(max(width, MIN_WIDTH_PIXELS), MAX_WIDTH_PIXELS)
    cached = cache_dir / f"{number}-{width}.png"
    if image := _read_cached_page(cached):
        return image
    with _SLOTS:
        if image := _read_cached_page(cached):  # drawn while we waited for our turn
            return image
        image = _draw_page(path, number, width)
    files.write_atomically(cached, image)
    if next(_drawn_pages) % PAGES_BETWEEN_TRIMS == 0:
        files.trim_page_cache()
    return image


_drawn_pages = itertools.count(1)
PAGES_BETWEEN_TRIMS = 100
"""Pages that a process draws between two checks of the cache's size."""


def _read_cached_page(path: Path) -> bytes | None:
    """A picture drawn before, if there is one; it becomes the most recently used."""
    try:
        image = path.read_bytes()
        os.utime(path)
    except FileNotFoundError:
        return None
    return image


def _draw_page(path: Path, number: int, width: int) -> bytes:
    """Draw the page as PNG in a child process."""
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
