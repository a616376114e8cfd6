"""The fork server: loads the product's code once and forks the processes that run it.

`python -m nura.forkserver`, a child of `up`. Memory that it has loaded stays shared between all
processes until they write to it: Django and the apps, the models client, Kiwi and its dictionaries.
It opens no connection and starts no thread.

A process is forked twice, and the one in between exits at once. The process thus becomes a child of
`up`, which notices its exit and which it does not outlive. The fork server itself may die without
harm.
"""

import asyncio
import atexit
import contextlib
import fcntl
import gc
import importlib
import json
import os
import pkgutil
import signal
import socket
import sys
from collections.abc import Mapping
from typing import Any

from nura.embedded import spawn

SOCKET_FD = "NURA_FORKSERVER_FD"
MAX_REQUEST_BYTES = 192 * 1024
"""Bytes of one request, most of them the environment."""
MAX_DESCRIPTORS = 8
MIN_OWN_DESCRIPTOR = 256
"""Received descriptors are moved above this number before they get their own."""
LANGUAGES = ("ko", "en")
MODULES = (
    *("celery.__main__", "celery.bin.celery", "celery.apps.worker", "celery.apps.beat"),
    *("celery.concurrency.prefork", "celery.worker.components", "celery.worker.consumer"),
    "kombu.transport.redis",
    *("uvicorn.loops.uvloop", "uvicorn.protocols.websockets.websockets_sansio_impl"),
    *("nura.preparation", "nura.urls", "nura.web", "nura.answers", "nura.metrics"),
    *("chats.socket", "chats.runs.worker", "documents.tasks", "documents.parsers.sandbox.client"),
)
"""Modules the processes need, as far as they can be loaded before static files are collected."""


class ForkedProcess:
    """A child process forked by the fork server; works like `asyncio.subprocess.Process`."""

    def __init__(self, pid: int, stdout: asyncio.StreamReader) -> None:
        self.pid = pid
        self.stdout = stdout
        self.returncode: int | None = None
        self._ended = asyncio.Event()
        self._handle = os.pidfd_open(pid)
        asyncio.get_running_loop().add_reader(self._handle, self._take_status)

    async def wait(self) -> int:
        """Wait for its exit status; a negative one is the signal that killed it."""
        await self._ended.wait()
        return self.returncode or 0

    def send_signal(self, signal_number: int) -> None:
        """Send a signal. Raises `ProcessLookupError` if it has ended."""
        if self.returncode is not None:
            raise ProcessLookupError(self.pid)
        os.kill(self.pid, signal_number)

    def _take_status(self) -> None:
        asyncio.get_running_loop().remove_reader(self._handle)
        os.close(self._handle)
        _, status = os.waitpid(self.pid, 0)
        self.returncode = os.waitstatus_to_exitcode(status)
        self._ended.set()


class ProcessForker:
    """The client of the fork server, in `up`. Requests wait while the server loads or restarts."""

    def __init__(self) -> None:
        self._requests, self._served = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._one_at_a_time = asyncio.Lock()

    @staticmethod
    def is_possible() -> bool:
        """Whether this system supports it; otherwise commands are run."""
        return sys.platform == "linux" and hasattr(os, "pidfd_open")

    @property
    def descriptor(self) -> int:
        """The server's end of the socket pair, for `NURA_FORKSERVER_FD`."""
        return self._served.fileno()

    async def fork(self, launch: spawn.Launch) -> ForkedProcess:
        """Fork a process that runs `launch.entry`. Raises `OSError` if that fails."""
        output, child_output = os.pipe()
        try:
            pid = await self._send_request(launch, child_output)
        except BaseException:
            os.close(output)
            raise
        finally:
            os.close(child_output)
        reader = asyncio.StreamReader()
        await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(output, "rb", 0)
        )
        return ForkedProcess(pid, reader)

    async def _send_request(self, launch: spawn.Launch, output: int) -> int:
        reply_pipe, child_reply = os.pipe()
        request = {
            "name": launch.name,
            "entry": launch.entry,
            "arguments": launch.command[2:],  # without `python -m`
            "environment": dict(launch.environment or os.environ),
            "folder": str(launch.folder),
            "parent": os.getpid(),
            "death_signal": int(launch.death_signal),
            "descriptors": launch.descriptors,
        }
        try:
            async with self._one_at_a_time:
                spawn.set_subreaper(adopt=True)
                try:
                    descriptors = [output, child_reply, *launch.descriptors]
                    socket.send_fds(self._requests, [json.dumps(request).encode()], descriptors)
                    os.close(child_reply)
                    child_reply = -1
                    reply = await _read_when_ready(reply_pipe)
                finally:
                    spawn.set_subreaper(adopt=False)
        finally:
            os.close(reply_pipe)
            if child_reply >= 0:
                os.close(child_reply)
        if not reply:
            raise OSError("the fork server ended, or could not fork")
        return int(reply)


async def _read_when_ready(descriptor: int) -> bytes:
    """The first bytes that arrive; empty if the other side closed."""
    loop = asyncio.get_running_loop()
    is_readable = asyncio.Event()
    loop.add_reader(descriptor, is_readable.set)
    try:
        await is_readable.wait()
    finally:
        loop.remove_reader(descriptor)
    return os.read(descriptor, 64)


def main() -> None:
    """Load the code and serve. `serve` returns only in a forked process, which runs its entry.

    A forked process exits without Python's clean-up, which would touch, and so copy, all shared
    memory: half a second that somebody would wait.
    """
    status = 1  # for an uncaught exception

    def exit_at_once() -> None:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)

    atexit.register(exit_at_once)  # registered first, run last
    requests = socket.socket(fileno=int(os.environ.pop(SOCKET_FD)))
    load_product()
    entry = pkgutil.resolve_name(serve(requests))
    try:
        entry()
        status = 0
    except SystemExit as exit_error:
        status = (
            exit_error.code
            if isinstance(exit_error.code, int)
            else int(exit_error.code is not None)
        )
        raise


def load_product() -> None:
    """Load what the processes share, before any request is served: workers need all of it."""
    gc.disable()  # the shared heap is frozen below, out of reach of the processes' collectors
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "nura.settings.prod")
    import django
    from django.conf import settings
    from django.utils import translation

    django.setup()
    for name in MODULES:
        importlib.import_module(name)
    for language in LANGUAGES:
        with translation.override(language):
            translation.gettext("Documents")
    from rag import tokenize
    from rag.adapters.endpoint import load_client_library
    from rag.memory.profile import load_packs

    load_client_library()
    load_packs(settings.RAG.profile.packs)
    with contextlib.suppress(ValueError):  # each worker reports a bad line in it
        tokenize.korean.use_dictionary(settings.RAG.user_dictionary)
    tokenize.count_terms("준비")
    spawn.release_memory()
    gc.freeze()  # uncollected: looking for garbage takes .3 s and finds less than 1 MB


def serve(requests: socket.socket) -> str:
    """Fork on request; returns only in a forked process, with the entry to run."""
    while True:
        message, descriptors, _, _ = socket.recv_fds(requests, MAX_REQUEST_BYTES, MAX_DESCRIPTORS)
        request = json.loads(message)
        try:
            if fork_detached():
                requests.close()
                assume_process(request, descriptors)
                entry: str = request["entry"]
                return entry
        except OSError as error:
            print(f"{request['name']} could not be forked: {error}", flush=True)
        for descriptor in descriptors:
            os.close(descriptor)


def fork_detached() -> bool:
    """Fork twice; True in the new process, by then a child of `up`. Raises `OSError`."""
    read_end, write_end = os.pipe()
    child_pid = os.fork()
    if child_pid:
        os.close(read_end)
        os.waitpid(child_pid, 0)  # from here on its child is a child of `up`
        os.close(write_end)
        return False
    try:
        if os.fork():
            os._exit(0)
    except OSError:
        os._exit(1)
    os.close(write_end)
    os.read(read_end, 1)  # returns once the other end is closed everywhere
    os.close(read_end)
    return True


def assume_process(request: Mapping[str, Any], received: list[int]) -> None:
    """Become the requested process: take its output, environment and descriptors."""
    os.setpgid(0, 0)
    spawn.set_death_signal(request["parent"], signal.Signals(request["death_signal"]))
    copies = [fcntl.fcntl(source, fcntl.F_DUPFD, MIN_OWN_DESCRIPTOR) for source in received]
    output, reply, *others = copies
    for source in received:
        os.close(source)
    os.dup2(output, 1)
    os.dup2(output, 2)
    for source, target in zip(others, request["descriptors"], strict=True):
        os.dup2(source, target)
    os.environ.update(request["environment"])  # what loaded modules have set stays
    os.chdir(request["folder"])
    spawn.name_process(f"nura-{request['name']}")
    sys.argv = list(request["arguments"])
    gc.enable()
    os.write(reply, str(os.getpid()).encode())  # raises if nobody waits any more
    for source in copies:
        os.close(source)


if __name__ == "__main__":
    main()
