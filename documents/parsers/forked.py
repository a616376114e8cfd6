"""Child processes of readers for those who need one; `forkserver` forks them.

A start from nothing takes most of the time of a small file. The server is started for the first
child, and again where it has ended: killed, left alone for long, or because a child crashed. It
needs no signal to end with this process, which the end of one thread would give too early: the
kernel closes the lines to it, however this process ends.
"""

import contextlib
import json
import os
import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = (sys.executable, "-m", "documents.parsers.forkserver")
ENVIRONMENT = {
    "PYTHONPATH": str(ROOT),
    "PYTHONUTF8": "1",
    "PATH": os.defpath,
    "MALLOC_ARENA_MAX": "1",  # else each thread reserves 64 MB and more of a child's limit
}
_TRIES = 3
_LONGEST = 32
"""Bytes of what a server says of a child: one number."""


class _Server:
    """A running fork server."""

    def __init__(self) -> None:
        self._requests, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                PROGRAM,
                cwd="/",
                env=ENVIRONMENT,
                stdin=theirs.fileno(),
                stdout=subprocess.DEVNULL,
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        """Its process."""
        return self._process.pid

    @property
    def has_ended(self) -> bool:
        """Whether it is gone; then it is reaped."""
        return self._process.poll() is not None

    def ask(self, request: bytes, descriptors: list[int]) -> None:
        """Ask for a child. Raises OSError where it takes no more requests."""
        socket.send_fds(self._requests, [request], descriptors)

    def leave(self) -> None:
        """Let it end, after its last child."""
        self._requests.close()


class _Servers:
    """The one fork server of this process, and those before it."""

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Know none, as a fork of this process: a server has one parent."""
        self._lock = threading.Lock()
        self._server: _Server | None = None
        self._retired: list[_Server] = []

    def ask(self, request: bytes, descriptors: list[int]) -> None:
        """Ask the server for a child; where there is none, start it. Raises OSError."""
        with self._lock:
            for _ in range(_TRIES):
                self._server = self._server or _Server()
                try:
                    return self._server.ask(request, descriptors)
                except OSError:
                    self._retire(self._server)
        raise BrokenPipeError

    def _retire(self, server: _Server) -> None:
        """Use it no more."""
        server.leave()
        self._server = None
        self._retired = [one for one in (*self._retired, server) if not one.has_ended]


_servers = _Servers()
os.register_at_fork(after_in_child=_servers.forget)


class Forked:
    """A child process that answers one request. Always `close` it: that kills it with its kin.

    `stdout` and `stderr` are descriptors to read from. `line` is readable when `hear` would not
    wait. `pid` and then `code`, which counts as in `subprocess`, are None until they are heard.
    """

    def __init__(self, request: dict[str, Any]) -> None:
        """Ask for the child, without waiting for it. Raises OSError."""
        self.pid: int | None = None
        self.code: int | None = None
        self.stdout, output = os.pipe()
        self.stderr, errors = os.pipe()
        self.line, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            _servers.ask(json.dumps(request).encode(), [output, errors, theirs.fileno()])
        except OSError:
            self.close()
            raise
        finally:
            os.close(output)
            os.close(errors)
            theirs.close()

    def hear(self) -> bool:
        """Wait for the next that is known of the child; False: nothing will be."""
        said = self.line.recv(_LONGEST)
        if said and self.pid is None:
            self.pid = int(said)
        elif said:
            self.code = int(said)
        return bool(said)

    def wait(self, seconds: float | None = None) -> int | None:
        """How it ended; None where its server ended first. Raises TimeoutError."""
        self.line.settimeout(seconds)
        while self.code is None and self.hear():
            continue
        return self.code

    def close(self) -> None:
        """Kill the child with all its kin; it is gone then, or will be before it has begun."""
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
