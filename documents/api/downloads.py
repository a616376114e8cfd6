"""Originals, texts and pictures on their way out: what people uploaded never runs in our origin.

A part of a file is answered as RFC 9110, section 14 says.
"""

import asyncio
import re
from collections.abc import AsyncIterator, Iterator, Mapping
from typing import IO, Any

from django.core.files.base import File
from django.core.handlers.asgi import ASGIRequest
from django.http import HttpRequest, HttpResponse, StreamingHttpResponse
from django.http.response import HttpResponseBase
from django.utils.cache import get_conditional_response
from django.utils.http import content_disposition_header, quote_etag

from documents import files, rendering, versions
from documents.errors import PageNotFound, StorageFailed
from documents.models import Document, DocumentPicture, DocumentVersion

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
    if known := _respond_if_known(request, headers):
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
    if known := _respond_if_known(request, headers):
        return known
    with files.open_local_path(kept) as path:
        folder = files.get_pages_folder(kept)
        png = rendering.render_page_png(path, kept.content_type, number, cache_dir=folder)
    return HttpResponse(png, content_type="image/png", headers=headers)


def respond_with_picture(request: HttpRequest, kept: DocumentPicture) -> HttpResponseBase:
    """A picture found in the document. Raises `StorageFailed`."""
    headers = SAFE_HEADERS | {"ETag": quote_etag(kept.digest)}
    if known := _respond_if_known(request, headers):
        return known
    try:
        with kept.file.open("rb") as file:
            data = file.read()
    except OSError as error:
        raise StorageFailed(str(error)) from error
    return HttpResponse(data, content_type=kept.content_type, headers=headers)


def _respond_if_known(request: HttpRequest, headers: Mapping[str, str]) -> HttpResponseBase | None:
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
    blocks = _blocks_async if isinstance(request, ASGIRequest) else _blocks
    response = StreamingHttpResponse(
        blocks(file, len(sent)),
        status=200 if part is None else 206,
        content_type=kept.content_type,
        headers=dict(headers),
    )
    response["Content-Length"] = str(len(sent))
    if part is not None:
        response["Content-Range"] = f"bytes {sent.start}-{sent.stop - 1}/{kept.size}"
    return response


def _blocks(file: "File[Any] | IO[bytes]", size: int) -> Iterator[bytes]:
    with file:
        while block := file.read(min(BLOCK_BYTES, size)):
            size -= len(block)
            yield block


async def _blocks_async(file: "File[Any] | IO[bytes]", size: int) -> AsyncIterator[bytes]:
    """The same under ASGI, where Django would gather a plain iterator in memory first."""
    try:
        while block := await asyncio.to_thread(file.read, min(BLOCK_BYTES, size)):
            size -= len(block)
            yield block
    finally:
        file.close()
