"""Supervises processes: starts them, prefixes their output, restarts those that die, stops all."""

import asyncio
import contextlib
import json
import os
import signal
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

import psutil

from nura.embedded import spawn
from nura.forkserver import ForkedProcess, ProcessForker

FIRST_DELAY = 0.5
LONGEST_DELAY = 10.0
STEADY_SECONDS = 20.0
"""After running this long, a process is not in a crash loop: its next restart is quick again."""

COLOURS = (36, 32, 33, 35, 34, 96, 92)
WIDTH = 10


@dataclass(frozen=True)
class ProcessSpec:
    """One process of the product. `prepare` is called before every start and may block."""

    name: str
    prepare: Callable[[], spawn.Launch]
    wait_ready: Callable[[Callable[[], bool]], None] | None = None
    patience: float = 20.0


class LineWriter:
    """Writes complete lines of output under the name of their process, as JSON if logs are JSON."""

    def __init__(self, *, as_json: bool) -> None:
        self._as_json = as_json
        self._coloured = sys.stdout.isatty()
        self._colours: dict[str, int] = {}

    def write_line(self, name: str, line: str) -> None:
        """Write one line of a process; empty lines are dropped."""
        if not line:
            return
        if self._as_json:
            text = line if line.startswith("{") else json.dumps({"process": name, "event": line})
        else:
            text = f"{self._format_label(name)} {line}"
        with contextlib.suppress(BrokenPipeError):
            print(text, flush=True)

    def _format_label(self, name: str) -> str:
        label = f"{name:<{WIDTH}}|"
        if not self._coloured:
            return label
        colour = self._colours.setdefault(name, COLOURS[len(self._colours) % len(COLOURS)])
        return f"\x1b[{colour}m{label}\x1b[0m"


class SupervisedProcess:
    """One running process, restarted until it is stopped."""

    def __init__(
        self, spec: ProcessSpec, output: LineWriter, fork_server: ProcessForker | None = None
    ) -> None:
        self.spec = spec
        self.ready = asyncio.Event()
        self._fork_server = fork_server
        self._output = output
        self._stopping = asyncio.Event()
        self._launch: spawn.Launch | None = None
        self._process: asyncio.subprocess.Process | ForkedProcess | None = None
        self._keeper: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Start it and keep it alive."""
        self._keeper = asyncio.create_task(self._keep_alive(), name=self.spec.name)

    async def stop(self) -> None:
        """Ask it to stop, then kill it with all its children."""
        self._stopping.set()
        if self._is_running() and self._process and self._launch:
            family = _list_family(self._process.pid)
            self._send_signal(self._launch.stop_signal)
            try:
                await asyncio.wait_for(self._process.wait(), self.spec.patience)
            except TimeoutError:
                self._output.write_line("up", f"{self.spec.name} does not end; killed")
            _kill_all(family)
        if self._keeper:
            await self._keeper

    def abandon(self) -> None:
        """Kill it for good, without asking."""
        self._stopping.set()
        self.kill()

    def kill(self) -> None:
        """Kill it with all its children."""
        if self._process and self._is_running():
            _kill_all(_list_family(self._process.pid))

    async def _keep_alive(self) -> None:
        delay = FIRST_DELAY
        while not self._stopping.is_set():
            started = time.monotonic()
            reason = await self.run_once()
            self.ready.clear()
            if self._stopping.is_set():
                return
            if time.monotonic() - started > STEADY_SECONDS:
                delay = FIRST_DELAY
            self._output.write_line("up", f"{self.spec.name} {reason}; starts again in {delay:g} s")
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), delay)
            delay = min(delay * 2, LONGEST_DELAY)

    async def run_once(self) -> str:
        """Run it once until it ends; how it ended, in words."""
        starting = asyncio.ensure_future(self._start_process())
        await wait_for_first(asyncio.shield(starting), self._stopping.wait())
        if not starting.done():  # the fork server may take long
            starting.cancel()
            await asyncio.wait([starting])
        try:
            self._process = starting.result()
        except asyncio.CancelledError:
            return "was stopped"
        except (OSError, RuntimeError) as error:
            return f"could not start: {error}"
        if self._stopping.is_set():
            self.kill()
        family = self._process.pid
        reader = asyncio.create_task(self._relay_output(self._process))
        readiness = asyncio.create_task(self._await_ready())
        code = await self._process.wait()
        _kill_group(family)
        readiness.cancel()
        reader.cancel() if reader.done() else await _wait_for_last_lines(reader)
        return describe_exit(code)

    async def _start_process(self) -> "asyncio.subprocess.Process | ForkedProcess":
        self._launch = await asyncio.to_thread(self.spec.prepare)
        if self._launch.entry and self._fork_server:
            return await self._fork_server.fork(self._launch)
        return await asyncio.create_subprocess_exec(
            *self._launch.command,
            stdout=asyncio.subprocess.PIPE,
            **spawn.build_options(self._launch),
        )

    async def _await_ready(self) -> None:
        if self.spec.wait_ready:
            try:
                await asyncio.to_thread(self.spec.wait_ready, self._is_running)
            except RuntimeError as error:
                self._output.write_line("up", f"{self.spec.name}: {error}")
                self.kill()
                return
        self.ready.set()

    async def _relay_output(self, process: "asyncio.subprocess.Process | ForkedProcess") -> None:
        assert process.stdout is not None  # noqa: S101 - asked for at the start
        rest = b""
        while chunk := await process.stdout.read(65536):
            *lines, rest = (rest + chunk).split(b"\n")
            for line in lines:
                self._output.write_line(self.spec.name, line.decode(errors="replace").rstrip())
            rest = rest[-65536:]
        if rest:
            self._output.write_line(self.spec.name, rest.decode(errors="replace").rstrip())

    def _is_running(self) -> bool:
        return self._process is not None and self._process.returncode is None

    def _send_signal(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            if self._process:
                self._process.send_signal(number)


async def start_all(children: Sequence[SupervisedProcess]) -> None:
    """Start some processes and wait until each is ready."""
    for child in children:
        child.start()
    await asyncio.gather(*(child.ready.wait() for child in children))


async def stop_in_order(groups: Sequence[Sequence[SupervisedProcess]]) -> None:
    """Stop one group after the other, the members of a group together."""
    for group in groups:
        await asyncio.gather(*(child.stop() for child in group))


def describe_exit(code: int) -> str:
    """Describe an exit status in words."""
    if code >= 0:
        return f"ended with exit code {code}"
    try:
        return f"was ended by {signal.Signals(-code).name}"
    except ValueError:
        return f"was ended by signal {-code}"


async def wait_for_first(*waits: Awaitable[object]) -> None:
    """Wait for whichever finishes first, and cancel the others."""
    tasks = [asyncio.ensure_future(wait) for wait in waits]
    await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in tasks:
        task.cancel()


async def _wait_for_last_lines(reader: "asyncio.Task[None]") -> None:
    """Read the last lines; a grandchild that keeps the pipe open is not waited for."""
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(reader, 1.0)


def _list_family(pid: int) -> list[psutil.Process]:
    try:
        process = psutil.Process(pid)
        return [process, *process.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


def _kill_all(family: Sequence[psutil.Process]) -> None:
    for process in family:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()


def _kill_group(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)
