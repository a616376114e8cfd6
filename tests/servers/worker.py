"""A real answers worker for tests that wait for an answer."""

import asyncio
import contextlib
import sys
import threading

import pytest
import uvloop

from chats.runs.worker import AnswersWorker


@contextlib.contextmanager
def run_worker(patience=5.0):
    """An answers worker with a loop of its own, in a thread of this process."""
    made, begun = [], threading.Event()
    switching = sys.getswitchinterval()  # the worker changes it for its whole process

    async def work():
        made.append((AnswersWorker(), asyncio.get_running_loop()))
        begun.set()
        await made[0][0].run()

    def serve():
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(work())

    thread = threading.Thread(target=serve, name="answers")
    thread.start()
    begun.wait(10)
    worker, loop = made[0]
    try:
        yield worker
    finally:
        loop.call_soon_threadsafe(worker.stop, patience)
        thread.join(30)
        sys.setswitchinterval(switching)
        assert not thread.is_alive()


@pytest.fixture
def answers_worker(transactional_db):
    """A real answers worker, in a thread of this process; cut off when the test ends."""
    with run_worker(patience=0.0) as worker:
        yield worker
