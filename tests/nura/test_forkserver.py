"""How a forked process begins and ends. That the product's are forked, `test_up` shows."""

import asyncio
import os
import signal
import sys

import pytest

from nura.embedded.spawn import Launch
from nura.forkserver import SOCKET_FD, ProcessForker
from tests.support import ROOT

pytestmark = pytest.mark.skipif(not ProcessForker.is_possible(), reason="only Linux forks so")

SERVER = """
import os
from nura import forkserver
forkserver.load_product = lambda: os.environ.update(SET_AT_IMPORT="stays", GIVEN="before")
forkserver.main()
"""
"""Without the seconds that the product's code takes: what is forked here is of Python's own."""


@pytest.fixture
async def forks():
    forker = ProcessForker()
    server = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", SERVER),
        cwd=ROOT,
        env=os.environ | {SOCKET_FD: str(forker.descriptor), "PYTHONUNBUFFERED": ""},
        pass_fds=[forker.descriptor],
    )
    yield forker
    server.kill()
    await server.wait()


@pytest.mark.parametrize(
    ("entry", "arguments", "status", "words"),
    [
        ("timeit:main", ("-n1", "-r1", "pass"), 0, b"1 loop, best of 1"),
        ("sys:exit", (), 0, b""),
        ("json.tool:main", ("--unknown",), 2, b"unrecognized arguments: --unknown"),
        ("builtins:next", (), 1, b"TypeError: next expected at least 1 argument"),
        ("os:abort", (), -signal.SIGABRT, b""),
    ],
)
async def test_a_process_ends_with_its_own_status_and_all_its_words(
    forks, entry, arguments, status, words
):
    command = (sys.executable, "-m", "part", *arguments)
    process = await forks.fork(Launch("part", command, ROOT, entry=entry))
    assert words in await process.stdout.read()
    assert await process.wait() == status


async def test_a_process_gets_its_environment_on_top_of_what_modules_set(forks):
    names = ("SET_AT_IMPORT", "GIVEN", SOCKET_FD)
    statement = f"import os; print(*map(os.environ.get, {names}))"
    command = (sys.executable, "-m", "part", "-n1", "-r1", statement)
    launch = Launch("part", command, ROOT, entry="timeit:main", environment={"GIVEN": "for it"})
    process = await forks.fork(launch)
    assert await process.stdout.readline() == b"stays for it None\n"
    assert await process.wait() == 0
