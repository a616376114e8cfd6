"""The side of the sandbox where files are read: the fork server, and the children it forks.

The server is a process that has loaded the readers and forks a child for each document, because a
start from nothing takes most of the time of a small file. `client` starts it as
`python -m documents.parsers.sandbox.server`. It looks at no file, so what one child has seen ends
with that child. It has one thread. Its standard input is a socket, on which each request is one
message with four descriptors: the child's standard input, output and error, and a line. On the
line the server says the child's process id, and once the child is reaped with its kin, how it ended
(a number as `subprocess` has it) and the most memory that it held, in bytes. When the other side
leaves the line, the child is killed: whoever started the server need not live to tell it anything.

A child answers one request, reading a document or drawing one page. It talks in frames: 4 bytes of
length, 1 byte for the kind of body (`J`son or `B`ytes), the body. JSON bodies are `[kind, value]`;
never pickles. The last frame is `end` or `error`.
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
"""Idle seconds after which a server ends, to free its memory."""
FRAME_HEADER = struct.Struct(">IB")
JSON_BODY, BYTES_BODY = ord("J"), ord("B")
_FIRST_OTHER = 3
"""The first descriptor that is none of the standard ones."""

Request = dict[str, Any]
Send = Callable[[str, object], None]


@dataclass(frozen=True, slots=True)
class _LivingChild:
    """A child that has not been reaped: its line, and what becomes readable when it has ended."""

    pid: int
    line: socket.socket
    end: int

    def kill(self) -> None:
        """End it with its kin; it is not reaped before, so that both ids are still its own."""
        os.kill(self.pid, signal.SIGKILL)
        with contextlib.suppress(ProcessLookupError):  # it had no time to open its session
            os.killpg(self.pid, signal.SIGKILL)


class ForkServer:
    """Serves until the other side leaves, a child crashes, or it has been idle for long."""

    def __init__(self, requests: socket.socket) -> None:
        self._requests = requests
        self._selector = selectors.DefaultSelector()
        self._selector.register(requests, selectors.EVENT_READ, self._accept)
        self._left: set[int] = set()

    def serve(self) -> None:
        """Take requests and the news of children as they come, until neither can come."""
        watched = self._selector.get_map()
        while watched:
            ready = self._selector.select(IDLE_SECONDS)
            if not ready and list(watched) == [self._requests.fileno()]:
                self._retire()
            for key, _ in ready:
                if watched.get(key.fd) is key:  # what came before it may have ended it
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
        given, output, errors, line = descriptors
        server = os.getpid()
        pid = os.fork()
        if pid == 0:
            _become_child(request, server, (given, output, errors))
        os.close(given)
        os.close(output)
        os.close(errors)
        self._watch(_LivingChild(pid, socket.socket(fileno=line), os.pidfd_open(pid)))

    def _watch(self, child: _LivingChild) -> None:
        """Send the child's id to its client, and wait for the end of either."""
        self._selector.register(child.end, selectors.EVENT_READ, partial(self._reap, child))
        self._selector.register(
            child.line, selectors.EVENT_READ, partial(self._kill_abandoned, child)
        )
        _send_numbers(child.line, child.pid)

    def _kill_abandoned(self, child: _LivingChild) -> None:
        """Kill a child whose client has left."""
        self._selector.unregister(child.line)
        self._left.add(child.pid)
        child.kill()

    def _reap(self, child: _LivingChild) -> None:
        """After the end of a child: kill its descendants, report its exit code."""
        child.kill()
        _, status, used = os.wait4(child.pid, 0)
        code = os.waitstatus_to_exitcode(status)
        self._selector.unregister(child.end)
        os.close(child.end)
        if child.pid in self._left:
            self._left.remove(child.pid)
        else:
            self._selector.unregister(child.line)
            if code < 0:  # all forks share their address layout, which no file may probe
                self._retire()
        _send_numbers(child.line, code, used.ru_maxrss << 10)
        child.line.close()

    def _retire(self) -> None:
        """Accept no more requests, so that another server starts; finish those already made."""
        with contextlib.suppress(OSError):  # there is nobody
            self._requests.shutdown(socket.SHUT_RD)


def _send_numbers(line: socket.socket, *numbers: int) -> None:
    """Send one message of numbers, whether or not anyone receives it."""
    with contextlib.suppress(OSError):
        line.send(" ".join(map(str, numbers)).encode())


def _become_child(request: Request, server: int, standard: tuple[int, int, int]) -> None:
    """Be the child: nothing of the server stays open. Does not return."""
    try:
        os.setsid()
        for new, old in enumerate(standard):
            os.dup2(old, new)
        os.closerange(_FIRST_OTHER, os.sysconf("SC_OPEN_MAX"))
        answer_request(request, server)
    except BaseException:  # noqa: BLE001 - whatever it was, a fork must not go on as a server
        traceback.print_exc()
    finally:
        os._exit(1)


def answer_request(request: Request, parent: int) -> None:
    """Answer one request and end the process; the last frame is `end` or `error`.

    `parent` is the process whose child this has to be.
    """
    send = _open_sender()
    limits = Limits(**request["limits"])
    rules = PictureRules(**request.get("pictures", {}))
    context = ReadingContext(request["content_type"], limits, send, rules)
    work = _send_drawn_page if request["task"] == "draw" else _send_pages
    # Loaded before the limits fall: compiled modules may still be written.
    parser = formats.make_parser(request["content_type"], request.get("pdf_reader", formats.PDFIUM))
    recognises = (
        request["task"] == "read"
        and context.content_type == formats.PDF
        and limits.recognised_pages
    )
    try:
        enter_jail(limits, parent, Path(request["path"]), recognises=bool(recognises))
        work(request, context, parser, send)
    except ParseFailed as error:
        _send_error(send, error)
    except MemoryError:
        _send_error(send, OutOfMemory(limit=limits.memory))
    except Exception as error:  # noqa: BLE001 - whatever a broken file does to a library is "corrupt"
        _send_error(send, Corrupt(detail=type(error).__name__))
    else:
        send("end", None)
    # No clean-up of half-broken libraries: some crash in their destructors.
    os._exit(0)


def _open_sender() -> Send:
    """Keep the real standard output for frames; what libraries print goes to standard error."""
    pipe = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)

    def send(kind: str, value: object) -> None:
        data = memoryview(encode_frame(kind, value))
        while data:
            data = data[pipe.write(data) :]

    return send


def _send_error(send: Send, error: ParseFailed) -> None:
    """The error as a frame: code and plain parameters only, no text of the file."""
    send("error", [error.code, {key: str(value)[:200] for key, value in error.params.items()}])


def _send_pages(request: Request, context: ReadingContext, parser: Any, send: Send) -> None:
    """Stream the pages, then the metadata."""
    characters, seen, beginning, titles = 0, False, "", list[str]()
    context.recognised = _read_given_pages()
    for page in parser.parse(Path(request["path"]), context):
        characters += len(page.text)
        if characters > context.limits.characters:
            raise TooLarge(limit=context.limits.characters)
        seen = seen or is_readable(page.text)
        if len(beginning) < metadata.MAX_BEGINNING_CHARACTERS:
            beginning += page.text[: metadata.MAX_BEGINNING_CHARACTERS] + "\n"
            titles += [heading.title for heading in page.headings[:1]]
        send("page", to_page_value(page))
    if not seen and not context.pictures_kept:
        raise NoText(kind=context.no_text)
    if not seen:  # it may stand in the pictures; whoever looks at them decides
        send("no_text", context.no_text)
    kind = context.content_type
    found = metadata.derive_metadata(context.metadata, beginning, titles, content_type=kind)
    send("metadata", found)


def _read_given_pages() -> dict[int, Any]:
    """What standard input holds: pages that were recognised before, by their index."""
    with open(0, "rb", closefd=False) as given:
        pages = json.loads(given.read() or b"{}")
    return {int(index): found for index, found in pages.items()}


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
    """A page as plain JSON. The edges of all lines are one text: numbers one by one take longer."""
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
    area = [box.page, box.x0, box.y0, box.x1, box.y1] if box else None
    return [region.start, region.end, region.kind, region.header_end, area]


def main() -> None:
    """Serve those on the other side of standard input."""
    requests = socket.socket(fileno=os.dup(0))
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    ForkServer(requests).serve()


if __name__ == "__main__":
    main()
