"""Runs a reader in a child process with limits; the parent survives whatever a file does to it."""

import contextlib
import json
import logging
import os
import selectors
import signal
import subprocess
import sys
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
from documents.parsers.registry import PDFIUM
from rag.pages import Page

logger = logging.getLogger(__name__)

DEFAULT = Limits()
ROOT = Path(__file__).resolve().parents[2]
TICK = 1.0
"""Seconds between two calls of `on_wait`."""
GLANCE = 0.05
"""Seconds between two looks at the child's memory."""
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
        self._process = subprocess.Popen(
            [sys.executable, "-m", "documents.parsers.child"],
            cwd="/",
            env={"PYTHONPATH": str(ROOT), "PYTHONUTF8": "1", "PATH": os.defpath},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
            bufsize=0,
        )
        request |= {"limits": asdict(limits), "parent": os.getpid()}
        self._ask(json.dumps(request).encode())

    def _ask(self, request: bytes) -> None:
        """Hand over the request; it fits into the pipe, so this does not block."""
        assert self._process.stdin is not None  # noqa: S101 - for the type checker
        try:
            self._process.stdin.write(request)
            self._process.stdin.close()
        except BrokenPipeError:
            return  # it died at once; `frames` finds out how

    def frames(self) -> Iterator[tuple[str, Any]]:
        """Frames until `end`; raises the child's error, why it died, or BrokenFrame."""
        assert self._process.stdout  # noqa: S101 - for the type checker
        assert self._process.stderr  # noqa: S101
        largest = self.limits.characters * 8 + MEGABYTE
        buffer = bytearray()
        with selectors.DefaultSelector() as selector:
            selector.register(self._process.stdout, selectors.EVENT_READ)
            selector.register(self._process.stderr, selectors.EVENT_READ)
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
            self._peak = max(self._peak, resident.peak(self._process.pid))
            for key, _ in ready:
                data = os.read(key.fd, _CHUNK)
                if key.fileobj is self._process.stdout:
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
        # Seen dead but not yet reaped, so that its group is still its own: its kin goes first.
        os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOWAIT)
        self._kill()
        _, status = os.waitpid(self._process.pid, 0)
        self._process.returncode = code = os.waitstatus_to_exitcode(status)
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
        if self._process.returncode is None:
            self._kill()
            self._process.wait()
        for stream in (self._process.stdin, self._process.stdout, self._process.stderr):
            if stream is not None:
                stream.close()

    def _kill(self) -> None:
        """End the whole group; call it only while the child is not reaped."""
        with contextlib.suppress(ProcessLookupError):  # nobody left
            os.killpg(self._process.pid, signal.SIGKILL)


def _revived(value: Any) -> ParseFailed:
    """The child's error as an exception of ours."""
    try:
        code, params = value
        return BY_CODE[code](**{str(key): str(text) for key, text in params.items()})
    except (ValueError, TypeError, KeyError, AttributeError):
        return ParserCrashed(detail="protocol")


class Reading:
    """An open reading: iterate over it for the pages, within a `with`.

    `page_total` is known early for PDF, else None. `metadata` is whole when the pages have ended.
    `warnings` are codes: something was left out. `pictures` are those of the page that came last.
    `no_text` is empty, or why the pages hold none although there are pictures (see `NoText`).
    """

    def __init__(self, child: Child) -> None:
        self.page_total: int | None = None
        self.metadata: dict[str, str] = {}
        self.warnings: list[str] = []
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
            self.warnings.append(str(value)[:100])
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
