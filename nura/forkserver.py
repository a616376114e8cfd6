"""The fork server: loads the product's code once and forks the processes that run it.

`python -m nura.forkserver`, a child of `up`. What it has loaded stays shared between all processes
as long as none of them writes to it: Django and the applications, the client of the models, Kiwi
and its dictionaries. It opens no connection and starts no thread.

A process is forked twice, and the one between ends at once: so it becomes a child of `up`, which
hears of its end, and whose end it does not survive. The fork server itself may end without harm.
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
"""The environment is most of it."""
MAX_DESCRIPTORS = 8
MIN_OWN_DESCRIPTOR = 256
"""Descriptors that come along are kept above this number until they get theirs."""
LANGUAGES = ("ko", "en")
MODULES = (
    *("celery.__main__", "celery.bin.worker", "celery.bin.beat", "celery.apps.worker"),
    *("celery.apps.beat", "celery.concurrency.prefork", "celery.worker.components"),
    *("celery.worker.consumer", "kombu.transport.redis"),
    *("uvicorn.loops.uvloop", "uvicorn.protocols.websockets.websockets_sansio_impl"),
    *("nura.preparation", "nura.urls", "nura.web", "nura.answers", "nura.metrics"),
    *("chats.socket", "chats.runs.worker", "documents.tasks", "documents.parsers.sandbox.client"),
)
"""What the processes load, as far as it may be loaded before static files are collected."""


class ForkedProcess:
    """A child of ours that the fork server made; like `asyncio.subprocess.Process`."""

    def __init__(self, pid: int, stdout: asyncio.StreamReader) -> None:
        self.pid = pid
        self.stdout = stdout
        self.returncode: int | None = None
        self._ended = asyncio.Event()
        self._handle = os.pidfd_open(pid)
        asyncio.get_running_loop().add_reader(self._handle, self._take_status)

    async def wait(self) -> int:
        """Its exit status once it has ended; negative is the signal that ended it."""
        await self._ended.wait()
        return self.returncode or 0

    def send_signal(self, number: int) -> None:
        """Raises `ProcessLookupError` where it has ended."""
        if self.returncode is not None:
            raise ProcessLookupError(self.pid)
        os.kill(self.pid, number)

    def _take_status(self) -> None:
        asyncio.get_running_loop().remove_reader(self._handle)
        os.close(self._handle)
        _, status = os.waitpid(self.pid, 0)
        self.returncode = os.waitstatus_to_exitcode(status)
        self._ended.set()


class ProcessForker:
    """What `up` knows of its fork server. Requests wait where it is still loading, or restarts."""

    def __init__(self) -> None:
        self._requests, self._served = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._one_at_a_time = asyncio.Lock()

    @staticmethod
    def is_possible() -> bool:
        """Whether this system has what it takes: else the commands are run."""
        return sys.platform == "linux" and hasattr(os, "pidfd_open")

    @property
    def descriptor(self) -> int:
        """The end of the line that the server reads; it goes into `NURA_FORKSERVER_FD`."""
        return self._served.fileno()

    async def fork(self, launch: spawn.Launch) -> ForkedProcess:
        """A process that runs `launch.entry`. Raises `OSError` where none could be made."""
        output, their_output = os.pipe()
        try:
            pid = await self._send_request(launch, their_output)
        except BaseException:
            os.close(output)
            raise
        finally:
            os.close(their_output)
        reader = asyncio.StreamReader()
        await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(output, "rb", 0)
        )
        return ForkedProcess(pid, reader)

    async def _send_request(self, launch: spawn.Launch, output: int) -> int:
        news, their_news = os.pipe()
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
                    descriptors = [output, their_news, *launch.descriptors]
                    socket.send_fds(self._requests, [json.dumps(request).encode()], descriptors)
                    os.close(their_news)
                    their_news = -1
                    told = await _read_when_ready(news)
                finally:
                    spawn.set_subreaper(adopt=False)
        finally:
            os.close(news)
            if their_news >= 0:
                os.close(their_news)
        if not told:
            raise OSError("the fork server ended, or could not fork")
        return int(told)


async def _read_when_ready(descriptor: int) -> bytes:
    """The first bytes that arrive; empty if the other side closed."""
    loop = asyncio.get_running_loop()
    there = asyncio.Event()
    loop.add_reader(descriptor, there.set)
    try:
        await there.wait()
    finally:
        loop.remove_reader(descriptor)
    return os.read(descriptor, 64)


def main() -> None:
    """Load and serve. What comes back from `serve` is a forked process and runs what was asked.

    Such a process ends at once when it is done: Python would take apart what is shared, and the
    kernel would copy it for that, half a second in which somebody waits.
    """
    status = 1  # of an exception that nobody took

    def exit_at_once() -> None:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)

    atexit.register(exit_at_once)  # what is registered first comes last
    requests = socket.socket(fileno=int(os.environ[SOCKET_FD]))
    load_product()
    entry = pkgutil.resolve_name(serve(requests))
    try:
        entry()
        status = 0
    except SystemExit as ended:
        status = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
        raise


def load_product() -> None:
    """Load what the processes share. No request is served before: a worker needs all of it."""
    gc.disable()  # the processes begin with a heap that their collector leaves alone
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

    load_client_library()
    with contextlib.suppress(ValueError):  # of a wrong line in it each worker says more
        tokenize.korean.use_dictionary(settings.RAG.user_dictionary)
    tokenize.count_terms("준비")
    spawn.release_memory()
    gc.freeze()


def serve(requests: socket.socket) -> str:
    """Fork as asked; comes back in a forked process only, with the entry that it shall run."""
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
    """Fork twice; True in the new process, which is then a child of `up`. Raises `OSError`."""
    waiting, beginning = os.pipe()
    between = os.fork()
    if between:
        os.close(waiting)
        os.waitpid(between, 0)  # its child has `up` as its parent from here on
        os.close(beginning)
        return False
    try:
        if os.fork():
            os._exit(0)
    except OSError:
        os._exit(1)
    os.close(beginning)
    os.read(waiting, 1)  # returns when nobody holds the other end any more
    os.close(waiting)
    return True


def assume_process(request: Mapping[str, Any], received: list[int]) -> None:
    """Become the requested process: take its output, environment and descriptors."""
    os.setpgid(0, 0)
    spawn.set_death_signal(request["parent"], signal.Signals(request["death_signal"]))
    kept = [fcntl.fcntl(one, fcntl.F_DUPFD, MIN_OWN_DESCRIPTOR) for one in received]
    output, news, *others = kept
    for one in received:
        os.close(one)
    os.dup2(output, 1)
    os.dup2(output, 2)
    for one, wanted in zip(others, request["descriptors"], strict=True):
        os.dup2(one, wanted)
    os.environ.clear()
    os.environ.update(request["environment"])
    os.chdir(request["folder"])
    spawn.name_process(f"nura-{request['name']}")
    sys.argv = list(request["arguments"])
    gc.enable()
    os.write(news, str(os.getpid()).encode())  # raises where nobody waits any more
    for one in kept:
        os.close(one)


if __name__ == "__main__":
    main()
