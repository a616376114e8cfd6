"""Runs a reader in a child process with limits; the parent survives whatever a file does to it."""

import logging
import os
import selectors
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from documents.parsers import resident
from documents.parsers.base import (
    ALL_PICTURES,
    MEGABYTE,
    MOST_PICTURES,
    Limits,
    Picture,
    PictureRules,
)
from documents.parsers.channel import BrokenFrame, frames, page, picture
from documents.parsers.errors import (
    BY_CODE,
    EmptyFile,
    OutOfMemory,
    ParseFailed,
    ParserCrashed,
    TimedOut,
    TooLarge,
    TooManyPages,
)
from documents.parsers.forked import Forked
from documents.parsers.registry import PDFIUM
from rag.pages import Page

logger = logging.getLogger(__name__)

DEFAULT = Limits()
TICK = 1.0
"""Seconds between two calls of `on_wait`."""
GLANCE = 0.05
"""Seconds between two looks at the child's memory."""
_LAST_SECONDS = 1.0
"""For a child to end that has closed its output."""
_CHUNK = 256 * 1024
_CRASHES = {signal.SIGABRT, signal.SIGSEGV, signal.SIGBUS, signal.SIGILL, signal.SIGTRAP}
_MEMORY_WORDS = (b"memory allocation of", b"bad_alloc", b"ut of memory", b"MemoryError")


def _nothing() -> None:
    """Wait without telling anyone."""


class Child:
    """One child process and the frames it sends. Always `close` it: that kills it with its kin."""

    def __init__(
        self, request: dict[str, Any], limits: Limits, on_wait: Callable[[], None] = _nothing
    ) -> None:
        self.limits = limits
        self.budget = limits.seconds
        """Seconds left for waiting; what the caller does in between is not counted."""
        self._on_wait = on_wait
        self._told = 0.0
        self._peak = 0
        self._stderr = b""
        try:
            self._process = Forked(request | {"limits": asdict(limits)})
        except OSError as error:
            raise ParserCrashed(detail="no child") from error

    def frames(self) -> Iterator[tuple[str, Any]]:
        """Frames until `end`; raises the child's error, why it died, or BrokenFrame."""
        largest = self.limits.characters * 8 + MEGABYTE
        buffer = bytearray()
        with selectors.DefaultSelector() as selector:
            for source in (self._process.stdout, self._process.stderr, self._process.line):
                selector.register(source, selectors.EVENT_READ)
            while data := self._data(selector):
                buffer += data
                for kind, value in frames(buffer, largest):
                    if kind == "end":
                        return
                    if kind == "error":
                        raise _revived(value)
                    yield kind, value
        raise self._cause_of_death()

    def _data(self, selector: selectors.BaseSelector) -> bytes:
        """The next bytes of the child's output; b"" when it has ended."""
        while True:
            started = time.monotonic()
            ready = selector.select(min(GLANCE, max(self.budget, 0.0)))
            self.budget -= time.monotonic() - started
            self._peak = max(self._peak, resident.peak(self._process.pid or 0))
            for key, _ in ready:
                if key.fileobj is self._process.line:
                    self._process.hear()
                    selector.unregister(key.fileobj)  # the next is heard when the output has ended
                    continue
                data = os.read(key.fd, _CHUNK)
                if key.fileobj == self._process.stdout:
                    return data
                self._stderr = (self._stderr + data)[-4000:]
                if not data:
                    selector.unregister(key.fileobj)
            if self.budget <= 0:
                raise TimedOut(seconds=int(self.limits.seconds))
            if started >= self._told + TICK:
                self._told = started
                self._on_wait()

    def _cause_of_death(self) -> ParseFailed:
        """What an end without a last word means."""
        try:
            code = self._process.wait(max(self.budget, _LAST_SECONDS))
        except TimeoutError:
            return TimedOut(seconds=int(self.limits.seconds))
        if code is None:  # its server was killed
            return ParserCrashed(detail="no child")
        if code == -signal.SIGXCPU:
            return TimedOut(seconds=int(self.limits.seconds))
        hungry = self._peak > self.limits.memory / 4 or any(
            word in self._stderr for word in _MEMORY_WORDS
        )
        logger.warning(
            "parser child ended with %s, peak %d bytes: %r", code, self._peak, self._stderr
        )
        if -code in _CRASHES and hungry:
            return OutOfMemory(limit=self.limits.memory)
        return ParserCrashed(detail=f"exit {code}")

    def close(self) -> None:
        """Kill the child with all its kin and reap it."""
        self._process.close()


def _revived(value: Any) -> ParseFailed:
    """The child's error as an exception of ours."""
    try:
        code, params = value
        return BY_CODE[code](**{str(key): str(text) for key, text in params.items()})
    except (ValueError, TypeError, KeyError, AttributeError):
        return ParserCrashed(detail="protocol")


def _warning(value: Any) -> str | dict[str, Any]:
    """A warning of the child's: a code, or one with how often it happened."""
    if isinstance(value, dict) and isinstance(value.get("count"), int):
        return {"code": str(value.get("code"))[:100], "count": value["count"]}
    return str(value)[:100]


class Reading:
    """An open reading: iterate over it for the pages, within a `with`.

    `page_total` is known early for PDF, else None. `metadata` is whole when the pages have ended.
    `warnings` are codes, or `{code, count}`: something was left out. `pictures` are those of the
    page that came last.
    `no_text` is empty, or why the pages hold none although there are pictures (see `NoText`).
    """

    def __init__(self, child: Child) -> None:
        self.page_total: int | None = None
        self.metadata: dict[str, str] = {}
        self.warnings: list[str | dict[str, Any]] = []
        self.pictures: list[Picture] = []
        self.no_text = ""
        self._child = child
        self._found: list[Picture] = []
        self._announced: Any = None
        self._pictures_left = MOST_PICTURES
        self._recognised_left = child.limits.recognised_pages
        self._pages = self._read()

    def _read(self) -> Iterator[Page]:
        """Pages as they come, counted and bounded."""
        limits, count, characters = self._child.limits, 0, 0
        try:
            for kind, value in self._child.frames():
                if kind != "page":
                    self._note(kind, value)
                    continue
                found = page(value)
                count, characters = count + 1, characters + len(found.text)
                if count > limits.pages:
                    raise TooManyPages(pages=count, limit=limits.pages)
                if characters > limits.characters:
                    raise TooLarge(limit=limits.characters)
                self.pictures, self._found = self._found, []
                yield found
        except BrokenFrame as error:
            raise ParserCrashed(detail="protocol") from error
        finally:
            self.close()

    def _note(self, kind: str, value: Any) -> None:
        """Keep what is not a page."""
        limits = self._child.limits
        if kind == "page_total" and isinstance(value, int) and self.page_total is None:
            self.page_total = max(0, min(value, limits.pages))
            self._child.budget += limits.seconds_per_page * self.page_total
        elif kind == "metadata" and isinstance(value, dict):
            self.metadata = {str(key)[:100]: str(text)[:500] for key, text in value.items()}
        elif kind == "warning" and len(self.warnings) < 100:
            self.warnings.append(_warning(value))
        elif kind == "recognising" and self._recognised_left > 0:
            self._recognised_left -= 1
            self._child.budget += limits.seconds_per_recognised_page
        elif kind == "no_text":
            self.no_text = str(value)[:20]
        else:
            self._note_picture(kind, value)

    def _note_picture(self, kind: str, value: Any) -> None:
        """A picture comes alone where it was rejected, else with its bytes behind it."""
        if kind == "picture" and isinstance(value, dict):
            self._pictures_left -= 1
            if self._pictures_left < 0:
                raise BrokenFrame("too many pictures")
            self._announced = None if value.get("rejected") else value
            if self._announced is None:
                self._found.append(picture(value, b""))
        elif kind == "bytes" and self._announced is not None:
            self._found.append(picture(self._announced, value))
            self._announced = None

    def __iter__(self) -> Iterator[Page]:
        return self

    def __next__(self) -> Page:
        return next(self._pages)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the child, whatever it is doing."""
        self._child.close()


def read(  # noqa: PLR0913 - the file, and by name how it is read
    path: Path,
    content_type: str,
    name: str = "",
    limits: Limits = DEFAULT,
    *,
    pictures: PictureRules = ALL_PICTURES,
    pdf_reader: str = PDFIUM,
    on_wait: Callable[[], None] = _nothing,
) -> Reading:
    """Start reading a document in a child of its own.

    `pictures` says which of them are kept, `pdf_reader` who reads PDF. `on_wait` is called about
    every second while nothing comes: a heartbeat; what it raises goes through.
    """
    if path.stat().st_size == 0:
        raise EmptyFile(name=name)
    request = {
        "task": "read",
        "path": str(path.resolve()),
        "content_type": content_type,
        "pictures": asdict(pictures),
        "pdf_reader": pdf_reader,
    }
    return Reading(Child(request, limits, on_wait))
