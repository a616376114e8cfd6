"""The side of the sandbox that the product calls: starts a child, reads its frames, survives it.

Children are forked by a server (`documents.parsers.sandbox.server`), which is started for the first
child, and again if it has ended: killed, idle for long, or after a child crashed. It ends with this
process because the kernel then closes the sockets to it. A parent-death signal would come too
early, when only the thread that started it ends. A child is not trusted: every field that it sends
is checked.
"""

import contextlib
import json
import math
import os
import selectors
import signal
import socket
import subprocess
import sys
import threading
import time
from array import array
from base64 import b64decode
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Self

import structlog

from documents.parsers.base import (
    ALL_PICTURES,
    BY_CODE,
    MAX_PICTURES,
    MEGABYTE,
    EmptyFile,
    Limits,
    OutOfMemory,
    ParseFailed,
    ParserCrashed,
    Picture,
    PictureRules,
    TimedOut,
    TooLarge,
    TooManyPages,
)
from documents.parsers.formats import PDFIUM
from documents.parsers.sandbox.server import BYTES_BODY, FRAME_HEADER
from rag.types import Box, Heading, Kind, Line, Page, Region

logger = structlog.get_logger()

ROOT = Path(__file__).resolve().parents[3]
PROGRAM = (sys.executable, "-m", "documents.parsers.sandbox.server")
ENVIRONMENT = {
    "PYTHONPATH": str(ROOT),
    "PYTHONUTF8": "1",
    "PATH": os.defpath,
    "MALLOC_ARENA_MAX": "1",  # else each thread reserves 64 MB and more of a child's limit
    # A shared Python outside the linker's folders does not start without it.
    **{name: os.environ[name] for name in ("LD_LIBRARY_PATH",) if name in os.environ},
}
DEFAULT_LIMITS = Limits()
TICK_SECONDS = 0.5
"""Between two calls of `on_wait`."""
MAX_PICTURE_BYTES = 16 * MEGABYTE
MAX_RECOGNISED_BYTES = MEGABYTE
"""Of one recognised page."""
MAX_DIGEST_CHARACTERS = 64
MAX_WARNINGS = 100
_MAX_STARTS = 3
_MAX_MESSAGE_BYTES = 64
"""Of a message of the server about a child: two numbers."""
_EXIT_SECONDS = 1.0
"""For a child to exit after it has closed its output."""
_CHUNK_BYTES = 256 * 1024
_MAX_STDERR_BYTES = 4000
_CRASHES = {signal.SIGABRT, signal.SIGSEGV, signal.SIGBUS, signal.SIGILL, signal.SIGTRAP}
_MEMORY_WORDS = (b"memory allocation of", b"bad_alloc", b"ut of memory", b"MemoryError")


class BrokenFrame(Exception):
    """The child sent something invalid."""


def _do_nothing() -> None:
    """The default of the callbacks."""


def _keep_nothing(_index: int, _data: bytes) -> None:
    """Discard recognised pages."""


class _ServerProcess:
    """A running fork server."""

    def __init__(self) -> None:
        self._requests, server_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with server_end:
            self._process = subprocess.Popen(
                PROGRAM,
                cwd="/",
                env=ENVIRONMENT,
                stdin=server_end.fileno(),
                stdout=subprocess.DEVNULL,
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    @property
    def has_ended(self) -> bool:
        """Whether it has ended; reaps it then."""
        return self._process.poll() is not None

    def ask(self, request: bytes, descriptors: list[int]) -> None:
        """Request a child. Raises OSError if it accepts no more requests."""
        socket.send_fds(self._requests, [request], descriptors)

    def leave(self) -> None:
        """Let it end after its last child."""
        self._requests.close()


class _Servers:
    """The one fork server of this process, and those before it."""

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Forget all servers, after a fork of this process: a server has one parent."""
        self._lock = threading.Lock()
        self._server: _ServerProcess | None = None
        self._retired: list[_ServerProcess] = []

    def ask(self, request: bytes, descriptors: list[int]) -> None:
        """Request a child from the server, which is started if needed. Raises OSError."""
        with self._lock:
            for _ in range(_MAX_STARTS):
                self._server = self._server or _ServerProcess()
                try:
                    return self._server.ask(request, descriptors)
                except OSError:
                    self._retire(self._server)
        raise BrokenPipeError

    def _retire(self, server: _ServerProcess) -> None:
        """Stop using a server."""
        server.leave()
        self._server = None
        self._retired = [retired for retired in (*self._retired, server) if not retired.has_ended]


_servers = _Servers()
os.register_at_fork(after_in_child=_servers.forget)


def _fill_file(descriptor: int, data: bytes) -> None:
    """Write all the data, then seek to the beginning."""
    remaining = memoryview(data)
    while remaining:
        remaining = remaining[os.write(descriptor, remaining) :]
    os.lseek(descriptor, 0, os.SEEK_SET)


class _ChildProcess:
    """A child that answers one request. Always `close` it: that kills it and its descendants.

    `stdin_data` is its standard input. `stdout` and `stderr` are descriptors to read from. `line`
    is readable when `receive` would not wait. `pid`, the exit `code` as in `subprocess`, and the
    peak memory `peak_bytes` are None until they are received.
    """

    def __init__(self, request: dict[str, Any], stdin_data: bytes) -> None:
        """Request the child without waiting for it. Raises OSError."""
        self.pid: int | None = None
        self.code: int | None = None
        self.peak_bytes: int | None = None
        self.stdout, output = os.pipe()
        self.stderr, errors = os.pipe()
        self.line, server_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        stdin = os.memfd_create("given")
        try:
            _fill_file(stdin, stdin_data)
            standard = [stdin, output, errors]
            _servers.ask(json.dumps(request).encode(), [*standard, server_end.fileno()])
        except OSError:
            self.close()
            raise
        finally:
            os.close(stdin)
            os.close(output)
            os.close(errors)
            server_end.close()

    def receive(self) -> bool:
        """Wait for the next message about the child; False: there will be none."""
        message = self.line.recv(_MAX_MESSAGE_BYTES)
        if message and self.pid is None:
            self.pid = int(message)
        elif message:
            self.code, self.peak_bytes = map(int, message.split())
        return bool(message)

    def wait(self, seconds: float | None = None) -> int | None:
        """The exit code; None if the server ended first. Raises TimeoutError."""
        self.line.settimeout(seconds)
        while self.code is None and self.receive():
            continue
        return self.code

    def close(self) -> None:
        """Kill the child with all its descendants, even if it has not started yet."""
        if self.line.fileno() < 0:
            return
        try:
            if self.pid is not None and self.code is None:
                with contextlib.suppress(OSError):
                    self.line.shutdown(socket.SHUT_WR)
                    self.wait()
        finally:
            self.line.close()
            os.close(self.stdout)
            os.close(self.stderr)


class SandboxChild:
    """A child and the frames it sends. Always `close` it: that kills it and its descendants.

    `request` is for `server.answer_request`, `stdin_data` its standard input. `on_wait` is called
    about twice a second while nothing comes; its exceptions propagate.
    """

    def __init__(
        self,
        request: dict[str, Any],
        limits: Limits,
        on_wait: Callable[[], None] = _do_nothing,
        stdin_data: bytes = b"",
    ) -> None:
        self.limits = limits
        self.budget = limits.seconds
        """Seconds left for waiting; what the caller does in between is not counted."""
        self._on_wait = on_wait
        self._last_wait_at = time.monotonic()
        self._stderr = b""
        try:
            self._process = _ChildProcess(request | {"limits": asdict(limits)}, stdin_data)
        except OSError as error:
            raise ParserCrashed(detail="no child") from error

    @property
    def peak_bytes(self) -> int:
        """Its peak memory; 0 until it has ended or was closed."""
        return self._process.peak_bytes or 0

    def iterate_frames(self) -> Iterator[tuple[str, Any]]:
        """Frames until `end`; raises the child's error, why it died, or BrokenFrame."""
        max_bytes = self.limits.characters * 8 + MEGABYTE
        buffer = bytearray()
        with selectors.DefaultSelector() as selector:
            for source in (self._process.stdout, self._process.stderr, self._process.line):
                selector.register(source, selectors.EVENT_READ)
            while data := self._receive(selector):
                buffer += data
                for kind, value in take_frames(buffer, max_bytes):
                    if kind == "end":
                        return
                    if kind == "error":
                        raise _to_error(value)
                    yield kind, value
        raise self._find_cause_of_death()

    def _receive(self, selector: selectors.BaseSelector) -> bytes:
        """The next bytes of the child's output; b"" when it has ended."""
        while True:
            started = time.monotonic()
            ready = selector.select(min(TICK_SECONDS, max(self.budget, 0.0)))
            now = time.monotonic()
            self.budget -= now - started
            for key, _ in ready:
                if key.fileobj is self._process.line:
                    self._process.receive()
                    selector.unregister(key.fileobj)  # the next message is read after the output
                    continue
                data = os.read(key.fd, _CHUNK_BYTES)
                if key.fileobj == self._process.stdout:
                    return data
                self._stderr = (self._stderr + data)[-_MAX_STDERR_BYTES:]
                if not data:
                    selector.unregister(key.fileobj)
            if self.budget <= 0:
                raise TimedOut(seconds=int(self.limits.seconds))
            if now >= self._last_wait_at + TICK_SECONDS:
                self._last_wait_at = now
                self._on_wait()

    def _find_cause_of_death(self) -> ParseFailed:
        """The error of a child that ended without an `end` or `error` frame."""
        try:
            code = self._process.wait(max(self.budget, _EXIT_SECONDS))
        except TimeoutError:
            return TimedOut(seconds=int(self.limits.seconds))
        if code is None:  # its server was killed
            return ParserCrashed(detail="no child")
        if code == -signal.SIGXCPU:
            return TimedOut(seconds=int(self.limits.seconds))
        is_memory_short = self.peak_bytes > self.limits.memory / 4 or any(
            word in self._stderr for word in _MEMORY_WORDS
        )
        logger.warning(
            "parser_child_died",
            code=code,
            peak_bytes=self.peak_bytes,
            stderr=self._stderr.decode("utf-8", "replace"),
        )
        if -code in _CRASHES and is_memory_short:
            return OutOfMemory(limit=self.limits.memory)
        return ParserCrashed(detail=f"exit {code}")

    def close(self) -> None:
        """Kill the child with all its descendants and reap it."""
        self._process.close()


class DocumentReading:
    """An open reading: iterate over it for the pages, within a `with`.

    `page_total` is known early for PDF, else None. `metadata` is complete after the last page.
    `warnings` are codes, or `{code, count}`. `pictures` are those of the latest page. `no_text` is
    empty, or why the pages have no text although there are pictures (see `NoText`).
    `on_recognition` is called before a page is recognised, `on_recognised` with its index and the
    result as JSON before the page comes; their exceptions propagate.
    """

    def __init__(
        self,
        child: SandboxChild,
        on_recognition: Callable[[], None] = _do_nothing,
        on_recognised: Callable[[int, bytes], None] = _keep_nothing,
    ) -> None:
        self.page_total: int | None = None
        self.metadata: dict[str, str] = {}
        self.warnings: list[str | dict[str, Any]] = []
        self.pictures: list[Picture] = []
        self.no_text = ""
        self._child = child
        self._on_recognition = on_recognition
        self._on_recognised = on_recognised
        self._page_pictures: list[Picture] = []
        self._announced_picture: Any = None
        self._pictures_left = MAX_PICTURES
        self._recognised_left = child.limits.recognised_pages
        self._stored_left = child.limits.recognised_pages
        self._pages = self._iterate_pages()

    @property
    def peak_bytes(self) -> int:
        """Peak memory of the child; 0 while it runs."""
        return self._child.peak_bytes

    def _iterate_pages(self) -> Iterator[Page]:
        """Pages as they come, within the limits."""
        limits, count, characters = self._child.limits, 0, 0
        try:
            for kind, value in self._child.iterate_frames():
                if kind != "page":
                    self._handle_frame(kind, value)
                    continue
                page = from_page_value(value)
                count, characters = count + 1, characters + len(page.text)
                if count > limits.pages:
                    raise TooManyPages(pages=count, limit=limits.pages)
                if characters > limits.characters:
                    raise TooLarge(limit=limits.characters)
                self.pictures, self._page_pictures = self._page_pictures, []
                yield page
        except BrokenFrame as error:
            raise ParserCrashed(detail="protocol") from error
        finally:
            self.close()

    def _handle_frame(self, kind: str, value: Any) -> None:
        """Handle a frame that is not a page."""
        limits = self._child.limits
        if kind == "page_total" and isinstance(value, int) and self.page_total is None:
            self.page_total = max(0, min(value, limits.pages))
            self._child.budget += limits.seconds_per_page * self.page_total
        elif kind == "metadata" and isinstance(value, dict):
            self.metadata = {str(key)[:100]: str(text)[:500] for key, text in value.items()}
        elif kind == "warning" and len(self.warnings) < MAX_WARNINGS:
            self.warnings.append(_to_warning(value))
        elif kind == "recognising" and self._recognised_left > 0:
            self._recognised_left -= 1
            self._child.budget += limits.seconds_per_recognised_page
            self._on_recognition()
        elif kind == "recognised":
            self._note_recognised(value)
        elif kind == "no_text":
            self.no_text = str(value)[:20]
        else:
            self._note_picture(kind, value)

    def _note_recognised(self, value: Any) -> None:
        """Pass on a recognised page unless it is too large."""
        match value:
            case [int(index), recognised_values] if 0 <= index < self._child.limits.pages:
                pass
            case _:
                raise BrokenFrame("not a recognised page")
        self._stored_left -= 1
        encoded = json.dumps(recognised_values, ensure_ascii=False).encode("utf-8", "replace")
        if self._stored_left >= 0 and len(encoded) <= MAX_RECOGNISED_BYTES:
            self._on_recognised(index, encoded)

    def _note_picture(self, kind: str, value: Any) -> None:
        """Collect a picture; the bytes of an accepted one follow in the next frame."""
        if kind == "picture" and isinstance(value, dict):
            self._pictures_left -= 1
            if self._pictures_left < 0:
                raise BrokenFrame("too many pictures")
            self._announced_picture = None if value.get("rejected") else value
            if self._announced_picture is None:
                self._page_pictures.append(_from_picture_value(value, b""))
        elif kind == "bytes" and self._announced_picture is not None:
            self._page_pictures.append(_from_picture_value(self._announced_picture, value))
            self._announced_picture = None

    def __iter__(self) -> Iterator[Page]:
        return self

    def __next__(self) -> Page:
        return next(self._pages)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Kill the child."""
        self._child.close()


def read_document(  # noqa: PLR0913 - the file, and by name how it is read
    path: Path,
    content_type: str,
    name: str = "",
    limits: Limits = DEFAULT_LIMITS,
    *,
    pictures: PictureRules = ALL_PICTURES,
    pdf_reader: str = PDFIUM,
    on_wait: Callable[[], None] = _do_nothing,
    on_recognition: Callable[[], None] = _do_nothing,
    on_recognised: Callable[[int, bytes], None] = _keep_nothing,
    recognised: bytes = b"",
) -> DocumentReading:
    """Start reading a document in a child of its own.

    `pictures` are the rules for keeping them, `pdf_reader` the library for PDF. `on_wait` is called
    about twice a second while nothing comes: a heartbeat. `on_recognition` is called before a page
    is recognised, `on_recognised` afterwards. `recognised` are pages from earlier readings: a JSON
    object with their indexes from 0 as keys. Exceptions of the callbacks propagate.
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
    child = SandboxChild(request, limits, on_wait, recognised)
    return DocumentReading(child, on_recognition, on_recognised)


def take_frames(buffer: bytearray, max_bytes: int) -> Iterator[tuple[str, Any]]:
    """Take all complete frames out of the buffer; `server` describes the format.

    Raises BrokenFrame for a frame above `max_bytes` bytes, or one that is none.
    """
    while len(buffer) >= FRAME_HEADER.size:
        length, body_kind = FRAME_HEADER.unpack_from(buffer)
        if length > max_bytes:
            raise BrokenFrame("frame too long")
        end = FRAME_HEADER.size + length
        if len(buffer) < end:
            return
        body = bytes(buffer[FRAME_HEADER.size : end])
        del buffer[:end]
        yield ("bytes", body) if body_kind == BYTES_BODY else _from_json(body)


def _from_json(body: bytes) -> tuple[str, Any]:
    """Kind and value of a JSON body."""
    try:
        kind, value = json.loads(body)
    except (ValueError, TypeError, RecursionError) as error:
        raise BrokenFrame("not a frame") from error
    return str(kind), value


def from_page_value(value: Any) -> Page:
    """A page from JSON. Raises BrokenFrame."""
    try:
        number, text, headings, lines, edges, regions, margins = value
        if not isinstance(text, str) or not (number is None or isinstance(number, int)):
            raise BrokenFrame("not a page")
        return Page(
            number,
            text,
            tuple(Heading(int(start), int(level), str(title)) for start, level, title in headings),
            tuple(_from_line_values(lines, edges, len(text))),
            tuple(_from_region_value(region, len(text)) for region in regions),
            tuple(map(str, margins)),
        )
    except (ValueError, TypeError, OverflowError) as error:
        raise BrokenFrame("not a page") from error


def _from_line_values(lines: Iterable[Sequence[Any]], edges: str, length: int) -> Iterator[Line]:
    """Lines with offsets inside the text, matching edges and finite positions."""
    edge_values = array("d", b64decode(edges, validate=True))
    all_edges, position, heights = tuple(edge_values), 0, 0.0
    for start, end, y0, y1 in lines:
        if not 0 <= start <= end <= length:
            raise BrokenFrame("not a line")
        end_position = position + end - start + 1
        yield Line(int(start), int(end), float(y0), float(y1), all_edges[position:end_position])
        position, heights = end_position, heights + y0 + y1
    if position != len(all_edges) or not math.isfinite(sum(all_edges) + heights):
        raise BrokenFrame("not the places of lines")


def _from_region_value(region: Sequence[Any], length: int) -> Region:
    """A region inside the text."""
    start, end, kind, header_end, area = region
    if not 0 <= start <= end <= length or not (header_end == 0 or start <= header_end <= end):
        raise BrokenFrame("not a region")
    box = Box(int(area[0]), *map(float, area[1:])) if area else None
    return Region(int(start), int(end), Kind(kind), int(header_end), box)


def _from_picture_value(value: Any, data: bytes) -> Picture:
    """A picture from JSON, with its bytes. Raises BrokenFrame."""
    try:
        page, box, offset = value["page"], value["box"], value["offset"]
        is_kept = 0 < len(data) <= MAX_PICTURE_BYTES
        if not (page is None or isinstance(page, int)) or is_kept == bool(value["rejected"]):
            raise BrokenFrame("not a picture")
        return Picture(
            page,
            str(value["digest"])[:MAX_DIGEST_CHARACTERS],
            max(0, int(value["width"])),
            max(0, int(value["height"])),
            _from_box_value(box) if box else None,
            str(value["rejected"])[:20],
            str(value["content_type"])[:40],
            data,
            None if offset is None else max(0, int(offset)),
        )
    except (ValueError, TypeError, KeyError, OverflowError) as error:
        raise BrokenFrame("not a picture") from error


def _from_box_value(box: Sequence[Any]) -> tuple[float, float, float, float]:
    """Four fractions."""
    x0, y0, x1, y1 = map(float, box)
    return x0, y0, x1, y1


def _to_error(value: Any) -> ParseFailed:
    """The child's error as one of our exceptions."""
    try:
        code, params = value
        return BY_CODE[code](**{str(key): str(text) for key, text in params.items()})
    except (ValueError, TypeError, KeyError, AttributeError):
        return ParserCrashed(detail="protocol")


def _to_warning(value: Any) -> str | dict[str, Any]:
    """A warning of the child: a code, or a code with a count."""
    if isinstance(value, dict) and isinstance(value.get("count"), int):
        return {"code": str(value.get("code"))[:100], "count": value["count"]}
    return str(value)[:100]
