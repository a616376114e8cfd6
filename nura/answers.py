"""`python -m nura.answers`: one process that writes answers. Any number may run, on any machine.

At SIGTERM, answers in progress get `NURA_SHUTDOWN_SECONDS` to finish.
"""

import asyncio
import os
import signal
import threading
from contextlib import suppress

import django
import structlog
import uvloop
from django.conf import settings
from django.db import connection
from redis.exceptions import RedisError

from nura.embedded import models
from nura.health import HEARTBEAT_SECONDS, remove_heartbeat, send_heartbeat

logger = structlog.get_logger()

NAME = "answers"
HEARTBEATS_PER_LIFETIME = 5
"""Heartbeats sent during the lifetime of one."""


async def serve() -> None:
    """Answer questions and send heartbeats."""
    from chats.runs.worker import AnswersWorker

    worker = AnswersWorker()
    loop = asyncio.get_running_loop()
    for signal_number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(signal_number, worker.stop, settings.SHUTDOWN_SECONDS)
    heartbeats = asyncio.create_task(send_heartbeats())
    worker.on_stop = heartbeats.cancel
    try:
        await worker.run()
    finally:
        heartbeats.cancel()
        with suppress(asyncio.CancelledError):
            await heartbeats


async def send_heartbeats() -> None:
    """Tell `/readyz` and `doctor` that this worker is alive, until cancelled."""
    try:
        while True:
            await asyncio.to_thread(_send_heartbeat)
            await asyncio.sleep(HEARTBEAT_SECONDS / HEARTBEATS_PER_LIFETIME)
    finally:
        with suppress(RedisError):  # then it expires by itself
            remove_heartbeat(NAME)


def _send_heartbeat() -> None:
    try:
        send_heartbeat(NAME)
    except RedisError as error:
        logger.warning("redis_unreachable", error=type(error).__name__)


def warm_engine() -> None:
    """Load what answers need before the first question comes.

    The embedder is loaded only once something is embedded: until then it would waste memory.
    """
    from documents import spaces
    from rag.factory import get_engine

    try:
        current = spaces.get_space_in_use()
        has_vectors = current.space is not None and spaces.has_vectors(current.space)
        connection.close()
        engine = get_engine(current.config)
        engine.warm()
        if has_vectors:
            if settings.RAG.needs_models_process:
                models.wait_ready(settings.RAG.models_socket, alive=lambda: True)
            engine.warm_embedder()
    except Exception:  # the worker serves anyway; the first question will raise the same error
        logger.exception("engine_not_warm")
    else:
        logger.info("engine_warm")


def main() -> None:
    """Answer until a signal ends the process."""
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "nura.settings.prod")
    django.setup()
    from nura import schema

    schema.exit_unless_known()
    from documents.search.buffers import fill_buffers

    for work in (warm_engine, fill_buffers):
        threading.Thread(target=work, name=work.__name__, daemon=True).start()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(serve())


if __name__ == "__main__":
    main()
