"""A real Celery worker for tests that wait for an answer."""

import pytest
from celery.contrib.testing.worker import start_worker

from chats import loop


@pytest.fixture
def answers_worker(transactional_db):
    """A real Celery worker on the answers queue, in threads of this process."""
    from nura.celery import app

    with start_worker(
        app, pool="threads", concurrency=4, queues=["answers"], perform_ping_check=False
    ) as worker:
        yield worker
    loop.close()
