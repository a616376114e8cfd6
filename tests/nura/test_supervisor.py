import asyncio
import signal
import sys

import psutil

from nura.embedded.spawn import Launch
from nura.supervisor import (
    LineWriter,
    ProcessSpec,
    SupervisedProcess,
    describe_exit,
    start_all,
    stop_in_order,
)
from tests.support import ROOT, wait_until


class Ear(LineWriter):
    """Keeps what is said."""

    def __init__(self):
        super().__init__(as_json=False)
        self.lines = []

    def write_line(self, name, line):
        self.lines.append(f"{name}: {line}")

    async def hears(self, text):
        while not any(text in line for line in self.lines):
            await asyncio.sleep(0.01)


def make_part(name, code, **more):
    launch = Launch(name, (sys.executable, "-uc", code), ROOT)
    return ProcessSpec(name, lambda: launch, **more)


async def test_what_a_child_says_carries_its_name():
    ear = Ear()
    child = SupervisedProcess(
        make_part("talker", "print('one'); print('two'); import time; time.sleep(60)"), ear
    )
    await start_all([child])
    await asyncio.wait_for(ear.hears("talker: two"), 10)
    await child.stop()
    assert ear.lines[:2] == ["talker: one", "talker: two"]


async def test_a_crash_loop_is_reported_each_time_and_slows_down():
    ear = Ear()
    child = SupervisedProcess(make_part("broken", "raise SystemExit(3)"), ear)
    child.start()
    await asyncio.wait_for(ear.hears("broken ended with exit code 3; starts again in 0.5 s"), 10)
    await asyncio.wait_for(ear.hears("starts again in 1 s"), 10)
    await asyncio.wait_for(ear.hears("starts again in 2 s"), 10)
    await child.stop()


async def test_a_program_that_is_not_there_is_reported():
    ear = Ear()
    child = SupervisedProcess(
        ProcessSpec("lost", lambda: Launch("lost", ("/nowhere/program",), ROOT)), ear
    )
    child.start()
    await asyncio.wait_for(ear.hears("lost could not start"), 10)
    await child.stop()


async def test_a_child_that_ignores_the_request_is_killed_with_its_children():
    ear = Ear()
    code = (
        "import signal, subprocess, sys, time\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "inner = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'],"
        " start_new_session=True)\n"
        "print('inner', inner.pid)\n"
        "time.sleep(60)\n"
    )
    child = SupervisedProcess(make_part("deaf", code, patience=0.5), ear)
    await start_all([child])
    await asyncio.wait_for(ear.hears("inner"), 10)
    inner = int(ear.lines[0].split()[-1])
    await child.stop()
    wait_until(lambda: not psutil.pid_exists(inner))
    assert any("deaf does not end" in line for line in ear.lines)


async def test_parts_stop_in_the_order_that_was_asked_for():
    ear = Ear()
    code = (
        "import signal, sys, time\n"
        "def end(*_): print('ends'); sys.exit()\n"
        "signal.signal(signal.SIGTERM, end); print('up')\n"
        "while True: time.sleep(1)\n"
    )
    children = [
        SupervisedProcess(make_part(name, code), ear) for name in ("first", "second", "third")
    ]
    await start_all(children)
    for name in ("first", "second", "third"):
        await asyncio.wait_for(ear.hears(f"{name}: up"), 10)
    await stop_in_order([[child] for child in children])
    ends = [line for line in ear.lines if line.endswith("ends")]
    assert ends == ["first: ends", "second: ends", "third: ends"]


async def test_a_line_longer_than_any_buffer_stops_nothing():
    ear = Ear()
    child = SupervisedProcess(
        make_part("long", "print('x' * 300_000); print('after'); input()"), ear
    )
    child.start()
    await asyncio.wait_for(ear.hears("long: after"), 10)
    await child.stop()


def test_lines_are_wrapped_as_json_where_the_logs_are_json(capsys):
    writer = LineWriter(as_json=True)
    writer.write_line("postgres", "LOG: ready")
    writer.write_line("web", '{"event": "own"}')
    assert (
        capsys.readouterr().out
        == '{"process": "postgres", "event": "LOG: ready"}\n{"event": "own"}\n'
    )


def test_an_exit_status_is_put_into_words():
    assert describe_exit(3) == "ended with exit code 3"
    assert describe_exit(-signal.SIGKILL) == "was ended by SIGKILL"
