"""How a forked process ends. That the product's processes are forked, `test_up` shows."""

import asyncio
import os
import signal
import sys

import pytest

from nura.embedded.spawn import Launch
from nura.forkserver import SOCKET_FD, ProcessForker
from tests.support import ROOT

pytestmark = pytest.mark.skipif(not ProcessForker.is_possible(), reason="only Linux forks so")

SERVER = "from nura import forkserver; forkserver.load_product = lambda: None; forkserver.main()"
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
