"""The fork server: a process that has loaded the readers and forks a child for each document.

Started as `python -m documents.parsers.forkserver` by `forked`. It looks at no file, so what one
child has seen ends with that child. It has one thread. Its standard input is a socket, on which
each request is one message with three descriptors: the child's standard output, its standard error,
and a line. On the line the server says the child's process id, and how it ended (a number as
`subprocess` has it) once it is reaped with its kin. When the other side leaves the line, the child
is killed: whoever started the server need not live to tell it anything.
"""

import contextlib
import gc
import json
import os
import selectors
import signal
import socket
import traceback
from dataclasses import dataclass
from functools import partial

from documents.parsers import child, registry

LARGEST_REQUEST = 64 * 1024
DESCRIPTORS = 3
IDLE_SECONDS = 600.0
"""A server that nobody needs for so long gives its memory back."""
_FIRST = 3
"""The first descriptor that is none of the standard ones."""


@dataclass(frozen=True, slots=True)
class _Child:
    """A living child: its line, and what becomes readable when it has ended."""

    pid: int
    line: socket.socket
    end: int

    def kill(self) -> None:
        """End it with its kin; it is not reaped before, so that both ids are still its own."""
        os.kill(self.pid, signal.SIGKILL)
        with contextlib.suppress(ProcessLookupError):  # it had no time to open its session
            os.killpg(self.pid, signal.SIGKILL)


class ForkServer:
    """Serves until the other side has left, or a child has crashed, or nobody asks for long."""

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
        message, descriptors, _, _ = socket.recv_fds(self._requests, LARGEST_REQUEST, DESCRIPTORS)
        if not message:
            self._selector.unregister(self._requests)
            self._requests.close()
            return
        request = json.loads(message)
        registry.load(request["content_type"], request.get("pdf_reader", registry.PDFIUM))
        gc.freeze()  # else the first collection in a child copies every page of memory
        output, errors, line = descriptors
        server = os.getpid()
        pid = os.fork()
        if pid == 0:
            _become(request, server, output, errors)
        os.close(output)
        os.close(errors)
        self._watch(_Child(pid, socket.socket(fileno=line), os.pidfd_open(pid)))

    def _watch(self, one: _Child) -> None:
        """Tell who asked, and wait for the end of either."""
        self._selector.register(one.end, selectors.EVENT_READ, partial(self._reap, one))
        self._selector.register(one.line, selectors.EVENT_READ, partial(self._abandon, one))
        _say(one.line, one.pid)

    def _abandon(self, one: _Child) -> None:
        """Nobody wants the child any more."""
        self._selector.unregister(one.line)
        self._left.add(one.pid)
        one.kill()

    def _reap(self, one: _Child) -> None:
        """The child has ended: end its kin, say how."""
        one.kill()
        _, status = os.waitpid(one.pid, 0)
        code = os.waitstatus_to_exitcode(status)
        self._selector.unregister(one.end)
        os.close(one.end)
        if one.pid in self._left:
            self._left.remove(one.pid)
        else:
            self._selector.unregister(one.line)
            if code < 0:  # all forks have the same addresses, which no file may try one by one
                self._retire()
        _say(one.line, code)
        one.line.close()

    def _retire(self) -> None:
        """Let nobody ask any more, so that another server is started; who has asked is served."""
        with contextlib.suppress(OSError):  # there is nobody
            self._requests.shutdown(socket.SHUT_RD)


def _say(line: socket.socket, number: int) -> None:
    """A message of one number; nobody need be there to hear it."""
    with contextlib.suppress(OSError):
        line.send(str(number).encode())


def _become(request: child.Request, server: int, output: int, errors: int) -> None:
    """Be the child: nothing of the server stays open. Does not return."""
    try:
        os.setsid()
        nothing = os.open(os.devnull, os.O_RDONLY)
        for old, new in ((nothing, 0), (output, 1), (errors, 2)):
            os.dup2(old, new)
        os.closerange(_FIRST, os.sysconf("SC_OPEN_MAX"))
        child.answer(request, server)
    except BaseException:  # noqa: BLE001 - whatever it was, a fork must not go on as a server
        traceback.print_exc()
    finally:
        os._exit(1)


def main() -> None:
    """Serve those on the other side of standard input."""
    requests = socket.socket(fileno=os.dup(0))
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    ForkServer(requests).serve()


if __name__ == "__main__":
    main()
