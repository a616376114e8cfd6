"""Pictures of PDF pages, drawn in a limited child process and kept in a folder of the caller's."""

import os
import secrets
import threading
from pathlib import Path

from documents.errors import NotRenderable, PageNotFound
from documents.parsers import formats
from documents.parsers.base import Limits
from documents.parsers.errors import ParserCrashed
from documents.parsers.sandbox.client import BrokenFrame, SandboxChild

DRAWING_LIMITS = Limits(seconds=20.0)
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
    if kept.exists():
        return kept.read_bytes()
    with _SLOTS:
        if kept.exists():  # drawn while we waited for our turn
            return kept.read_bytes()
        image = _draw_page(path, number, width)
    _write_whole(kept, image)
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
    child = SandboxChild(request, DRAWING_LIMITS)
    try:
        image = next((value for kind, value in child.frames() if kind == "bytes"), None)
    except BrokenFrame as error:
        raise ParserCrashed(detail="protocol") from error
    finally:
        child.close()
    if image is None:
        raise PageNotFound(page=number)
    if not isinstance(image, bytes) or not image.startswith(b"\x89PNG"):
        raise ParserCrashed(detail="protocol")
    return image


def _write_whole(target: Path, image: bytes) -> None:
    """Write whole or not at all: another process may read at the same moment."""
    target.parent.mkdir(parents=True, exist_ok=True)
    part = target.with_suffix(f".{secrets.token_hex(4)}.part")
    try:
        part.write_bytes(image)
        os.replace(part, target)  # noqa: PTH105 - the name says what is needed
    finally:
        part.unlink(missing_ok=True)
