"""Originals, texts and pictures on their way out: what people uploaded never runs in our origin."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import IO, Any

from django.core.files.base import File
from django.core.handlers.asgi import ASGIRequest
from django.http import HttpRequest, HttpResponse, StreamingHttpResponse
from django.utils.http import content_disposition_header

from documents import files, rendering
from documents.errors import StorageFailed
from documents.models import Document
from documents.rendering import PageNotFound

BLOCK = 256 * 1024
SAFE_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; sandbox",
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "private, no-cache",
}


def original(request: HttpRequest, document: Document) -> StreamingHttpResponse:
    """The file as uploaded, as a download. Raises `StorageFailed`."""
    try:
        file = document.file.open("rb")
    except OSError as error:
        raise StorageFailed(str(error)) from error
    disposition = content_disposition_header(True, document.original_name)  # noqa: FBT003
    response = StreamingHttpResponse(
        _blocks_async(file) if isinstance(request, ASGIRequest) else _blocks(file),
        content_type=document.content_type,
        headers={"Content-Disposition": disposition or "attachment", **SAFE_HEADERS},
    )
    response["Content-Length"] = str(document.size)
    return response


def text(document: Document) -> HttpResponse:
    """The whole text, as its chunks' offsets count it."""
    pages = document.pages.order_by("number").values_list("text", flat=True)
    return HttpResponse(
        "\n\n".join(pages), content_type="text/plain; charset=utf-8", headers=SAFE_HEADERS
    )


def picture(document: Document, number: int) -> HttpResponse:
    """A page as PNG, rendered once and kept.

    Raises `PageNotFound`, `NotRenderable` or `ParseFailed`.
    """
    if number > (document.page_count or 0):
        raise PageNotFound(page=number)
    with files.local(document) as path:
        png = rendering.page_png(
            path, document.content_type, number, cache_dir=files.cache_folder(document.pk)
        )
    headers = SAFE_HEADERS | {"Cache-Control": "private, max-age=300"}
    return HttpResponse(png, content_type="image/png", headers=headers)


def _blocks(file: "File[Any] | IO[bytes]") -> Iterator[bytes]:
    with file:
        while block := file.read(BLOCK):
            yield block


async def _blocks_async(file: "File[Any] | IO[bytes]") -> AsyncIterator[bytes]:
    """The same under ASGI, where Django would gather a plain iterator in memory first."""
    try:
        while block := await asyncio.to_thread(file.read, BLOCK):
            yield block
    finally:
        file.close()
