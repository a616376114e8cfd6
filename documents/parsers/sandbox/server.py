"""The parsing side of the sandbox: the fork server, and the child processes it forks.

The server is a single-threaded process that has loaded the parsers and forks a child for each
document, because starting Python afresh would take most of the time of a small file. `client`
starts it as `python -m documents.parsers.sandbox.server`. The server itself never opens a document,
so nothing of one document reaches the child of another.

Its standard input is a socket. Each request is one message with four descriptors: the child's
standard input, output and error, and a status socket, the line. On the line the server sends the
child's process id and, after it has reaped the child and its descendants, the exit code (as in
`subprocess`) and the peak memory in bytes. If the client closes its end of the line, the child is
killed, so that a client that dies leaves no child running.

A child answers one request: it parses a document or draws one page. It writes frames: 4 bytes of
length, 1 byte for the kind of body (`J`son or `B`ytes), then the body. JSON bodies are
`[kind, value]`; nothing is ever pickled. The last frame is `end` or `error`.
"""

import contextlib
import gc
import json
import os
import selectors
import signal
import socket
import struct
import traceback
from array import array
from base64 import b64encode
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

from documents.parsers import formats, metadata
from documents.parsers.base import (
    Corrupt,
    Limits,
    NoText,
    OutOfMemory,
    ParseFailed,
    PictureRules,
    ReadingContext,
    TooLarge,
    UnsupportedType,
)
from documents.parsers.sandbox.jail import enter_jail
from documents.parsers.text import is_readable
from rag.types import Page, Region

MAX_REQUEST_BYTES = 64 * 1024
REQUEST_DESCRIPTORS = 4
IDLE_SECONDS = 600.0
"""Seconds without requests or children after which a server exits, to free its memory."""
FRAME_HEADER = struct.Struct(">IB")
JSON_BODY, BYTES_BODY = ord("J"), ord("B")
_FIRST_EXTRA_DESCRIPTOR = 3
"""The first descriptor after the three standard streams."""

Request = dict[str, Any]
Send = Callable[[str, object], None]


@dataclass(frozen=True, slots=True)
class _RunningChild:
    """A child that has not been reaped. `pidfd` becomes readable when it exits."""

    pid: int
    line: socket.socket
    pidfd: int

    def kill(self) -> None:
        """Kill it and its session. It is not reaped yet, so no other process can have its id."""
        os.kill(self.pid, signal.SIGKILL)
        with contextlib.suppress(ProcessLookupError):  # it had not called setsid yet
            os.killpg(self.pid, signal.SIGKILL)


class ForkServer:
    """Serves until the client disconnects, a child crashes, or nothing came for a while."""

    def __init__(self, requests: socket.socket) -> None:
        self._requests = requests
        self._selector = selectors.DefaultSelector()
        self._selector.register(requests, selectors.EVENT_READ, self._accept)
        self._abandoned: set[int] = set()

    def serve(self) -> None:
        """Handle requests and events of children until there is nothing left to wait for."""
        registered = self._selector.get_map()
        while registered:
            ready = self._selector.select(IDLE_SECONDS)
            if not ready and list(registered) == [self._requests.fileno()]:
                self._retire()
            for key, _ in ready:
                if registered.get(key.fd) is key:  # an earlier event may have unregistered it
                    key.data()

    def _accept(self) -> None:
        """Fork a child for the next request."""
        message, descriptors, _, _ = socket.recv_fds(
            self._requests, MAX_REQUEST_BYTES, REQUEST_DESCRIPTORS
        )
        if not message:
            self._selector.unregister(self._requests)
            self._requests.close()
            return
        request = json.loads(message)
        formats.preload_parser(request["content_type"], request.get("pdf_reader", formats.PDFIUM))
        gc.freeze()  # else the first collection in a child copies every page of memory
        stdin, stdout, stderr, line = descriptors
        server = os.getpid()
        pid = os.fork()
        if pid == 0:
            _become_child(request, server, (stdin, stdout, stderr))
        os.close(stdin)
        os.close(stdout)
        os.close(stderr)
        self._watch_child(_RunningChild(pid, socket.socket(fileno=line), os.pidfd_open(pid)))

    def _watch_child(self, child: _RunningChild) -> None:
        """Send the child's id to its client; watch for its exit and for the client leaving."""
        self._selector.register(child.pidfd, selectors.EVENT_READ, partial(self._reap, child))
        self._selector.register(
            child.line, selectors.EVENT_READ, partial(self._kill_abandoned, child)
        )
        _send_numbers(child.line, child.pid)

    def _kill_abandoned(self, child: _RunningChild) -> None:
        """Kill a child whose client has left."""
        self._selector.unregister(child.line)
        self._abandoned.add(child.pid)
        child.kill()

    def _reap(self, child: _RunningChild) -> None:
        """After a child has exited: kill its descendants and report its exit code."""
        child.kill()
        _, status, usage = os.wait4(child.pid, 0)
        exit_code = os.waitstatus_to_exitcode(status)
        self._selector.unregister(child.pidfd)
        os.close(child.pidfd)
        if child.pid in self._abandoned:
            self._abandoned.remove(child.pid)
        else:
            self._selector.unregister(child.line)
            if exit_code < 0:  # all forks share one address layout: crashes must not probe it
                self._retire()
        _send_numbers(child.line, exit_code, usage.ru_maxrss << 10)
        child.line.close()

    def _retire(self) -> None:
        """Accept no more requests, so that another server starts; finish those already made."""
        with contextlib.suppress(OSError):  # the client is gone already
            self._requests.shutdown(socket.SHUT_RD)


def _send_numbers(line: socket.socket, *numbers: int) -> None:
    """Send one message of numbers, whether or not anyone receives it."""
    with contextlib.suppress(OSError):
        line.send(" ".join(map(str, numbers)).encode())


def _become_child(request: Request, server: int, standard_streams: tuple[int, int, int]) -> None:
    """Become the child: close all that the server holds, then answer. Does not return."""
    try:
        os.setsid()
        for target, descriptor in enumerate(standard_streams):
            os.dup2(descriptor, target)
        os.closerange(_FIRST_EXTRA_DESCRIPTOR, os.sysconf("SC_OPEN_MAX"))
        answer_request(request, server)
    except BaseException:  # noqa: BLE001 - a fork must never continue as a second server
        traceback.print_exc()
    finally:
        os._exit(1)


def answer_request(request: Request, parent: int) -> None:
    """Answer one request and end the process; the last frame is `end` or `error`.

    `parent` is the process id of the server; the child dies with it.
    """
    send = _open_sender()
    limits = Limits(**request["limits"])
    rules = PictureRules(**request.get("pictures", {}))
    context = ReadingContext(request["content_type"], limits, send, rules)
    send_answer = _send_drawn_page if request["task"] == "draw" else _send_pages
    # Loaded before the limits are set: compiled modules may still be written.
    parser = formats.make_parser(request["content_type"], request.get("pdf_reader", formats.PDFIUM))
    may_recognise = (
        request["task"] == "read"
        and context.content_type == formats.PDF
        and limits.recognised_pages
    )
    try:
        enter_jail(limits, parent, Path(request["path"]), allow_tesseract=bool(may_recognise))
        send_answer(request, context, parser, send)
    except ParseFailed as error:
        _send_error(send, error)
    except MemoryError:
        _send_error(send, OutOfMemory(limit=limits.memory))
    except Exception as error:  # noqa: BLE001 - libraries raise anything on a broken file
        _send_error(send, Corrupt(detail=type(error).__name__))
    else:
        send("end", None)
    # Skip destructors: some libraries crash in them after a broken file.
    os._exit(0)


def _open_sender() -> Send:
    """Keep standard output for frames; whatever libraries print goes to standard error."""
    pipe = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)

    def send(kind: str, value: object) -> None:
        data = memoryview(encode_frame(kind, value))
        while data:
            data = data[pipe.write(data) :]

    return send


def _send_error(send: Send, error: ParseFailed) -> None:
    """Send the error as its code and short parameters, without text of the file."""
    send("error", [error.code, {key: str(value)[:200] for key, value in error.params.items()}])


def _send_pages(request: Request, context: ReadingContext, parser: Any, send: Send) -> None:
    """Stream the pages, then the metadata."""
    character_count, has_text, beginning, titles = 0, False, "", list[str]()
    context.recognised = _read_recognised_pages()
    for page in parser.parse(Path(request["path"]), context):
        character_count += len(page.text)
        if character_count > context.limits.characters:
            raise TooLarge(limit=context.limits.characters)
        has_text = has_text or is_readable(page.text)
        if len(beginning) < metadata.MAX_BEGINNING_CHARACTERS:
            beginning += page.text[: metadata.MAX_BEGINNING_CHARACTERS] + "\n"
            titles += [heading.title for heading in page.headings[:1]]
        send("page", to_page_value(page))
    if not has_text and not context.pictures_kept:
        raise NoText(kind=context.no_text)
    if not has_text:  # there may be text in the pictures: the vision model will decide
        send("no_text", context.no_text)
    content_type = context.content_type
    fields = metadata.derive_metadata(
        context.metadata, beginning, titles, content_type=content_type
    )
    send("metadata", fields)


def _read_recognised_pages() -> dict[int, Any]:
    """From standard input: pages that an earlier attempt recognised, by index."""
    with open(0, "rb", closefd=False) as stdin:
        pages = json.loads(stdin.read() or b"{}")
    return {int(index): page for index, page in pages.items()}


def _send_drawn_page(request: Request, context: ReadingContext, parser: Any, send: Send) -> None:
    """Send one page as PNG."""
    if context.content_type != formats.PDF:
        raise UnsupportedType(found=formats.LABELS[context.content_type])
    image = parser.draw(Path(request["path"]), request["number"], request["width"])
    if image is not None:
        send("image", image)


def encode_frame(kind: str, value: object) -> bytes:
    """One frame; bytes travel as they are."""
    if isinstance(value, bytes):
        return FRAME_HEADER.pack(len(value), BYTES_BODY) + value
    body = json.dumps([kind, value], ensure_ascii=False, separators=(",", ":")).encode()
    return FRAME_HEADER.pack(len(body), JSON_BODY) + body


def to_page_value(page: Page) -> list[object]:
    """A page as plain JSON. All edges travel as one base64 string, faster than single numbers."""
    edges = array("d", chain.from_iterable(line.edges for line in page.lines))
    return [
        page.number,
        page.text,
        [[heading.start, heading.level, heading.title] for heading in page.headings],
        [[line.start, line.end, line.y0, line.y1] for line in page.lines],
        b64encode(edges.tobytes()).decode(),
        [_to_region_value(region) for region in page.regions],
        page.margins,
    ]


def _to_region_value(region: Region) -> list[object]:
    box = region.box
    box_value = [box.page, box.x0, box.y0, box.x1, box.y1] if box else None
    return [region.start, region.end, region.kind, region.header_end, box_value]


def main() -> None:
    """Serve the client at the other end of standard input."""
    requests = socket.socket(fileno=os.dup(0))
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    ForkServer(requests).serve()


if __name__ == "__main__":
    main()
