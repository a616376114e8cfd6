"""Documents through the real broker and a real Celery worker."""

from pathlib import Path

import pytest
from celery import current_app
from kombu import Producer
from redis import Redis
from redis.exceptions import RedisError

from documents import queue, services
from documents.models import Document
from documents.tasks import ingest_document, sweep_ingests
from tests.documents.conftest import upload
from tests.support import wait_until

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("tiny_engine")]


def get_status(document):
    return Document.objects.values_list("status", flat=True).get(pk=document.pk)


def test_an_uploaded_document_is_processed_by_the_worker(owner, ingest_worker):
    document = upload(owner)
    wait_until(lambda: get_status(document) == "COMPLETED")


def test_many_messages_for_one_document_are_one_ingest(owner, ingest_worker):
    document = upload(owner)
    for _ in range(20):
        queue.enqueue_ingest(document.pk)
    wait_until(lambda: get_status(document) == "COMPLETED")
    document.refresh_from_db()
    assert document.attempts == 1
    assert document.chunks.count() == document.chunk_count


def test_several_documents_and_one_broken_one_all_end(owner, ingest_worker):
    good = [upload(owner, name=f"{number}.md", content=f"글 {number}") for number in range(3)]
    broken = upload(owner, name="깨짐.pdf", content=b"%PDF-1.7\nnothing of the kind")
    wait_until(lambda: not Document.objects.processing().exists(), 60)
    assert {get_status(document) for document in good} == {"COMPLETED"}
    broken.refresh_from_db()
    assert (broken.status, broken.error_code) == ("FAILED", "corrupt")


def test_deleting_while_messages_are_under_way_leaves_nothing(owner, ingest_worker):
    documents = [upload(owner, name=f"{number}.md", content=f"글 {number}") for number in range(3)]
    for document in documents:
        services.delete_document(document=document)
    extra = upload(owner, name="z.md")
    wait_until(lambda: get_status(extra) == "COMPLETED")
    assert Document.objects.count() == 1


def test_e72_a_message_of_another_shape_is_dropped(owner, ingest_worker):
    current_app.send_task(queue.INGEST, args=["nonsense"])
    current_app.send_task(queue.INGEST, args=[], kwargs={"unknown": 1})
    current_app.send_task("documents.tasks.of_another_release", args=[])
    document = upload(owner)
    wait_until(lambda: get_status(document) == "COMPLETED")


def test_c72_a_message_that_is_no_json_is_dropped_unread(owner, ingest_worker, tmp_path):
    opened = tmp_path / "opened"
    with current_app.connection_for_write() as link, link.channel() as channel:
        for body in (_Trap(opened), {"args": [_Trap(opened)], "kwargs": {}}):
            Producer(channel, serializer="pickle").publish(body, routing_key="documents")
    document = upload(owner)
    wait_until(lambda: get_status(document) == "COMPLETED")
    assert not opened.exists()


class _Trap:
    """Makes a file where somebody unpickles it."""

    def __init__(self, path):
        self._path = path

    def __reduce__(self):
        return Path.touch, (self._path,)


def test_a_task_that_outlives_its_connection_to_the_broker_ends_quietly(settings):
    from nura.celery import app

    with app.connection_for_read() as connection:
        queue = connection.SimpleQueue("outlived")
        queue.put("message")
        message = queue.get(timeout=5)
        connection.collect()
        message.ack()


def test_a_message_whose_end_redis_does_not_hear_of_keeps_no_other_waiting(settings):
    from nura.celery import app

    with app.connection_for_read(transport_options={"socket_timeout": 0.2}) as connection:
        queue = connection.SimpleQueue("unheard")
        queue.put("message")
        message = queue.get(timeout=5)
        message.channel.basic_qos(0, 1)
        assert not message.channel.qos.can_consume()
        redis = Redis.from_url(settings.REDIS_URL)
        redis.client_pause(60_000, all=False)
        with pytest.raises(RedisError):
            message.ack()
        redis.client_unpause()
        assert message.channel.qos.can_consume()


def test_the_reaper_is_a_task_that_beat_can_send(settings):
    assert settings.CELERY_BEAT_SCHEDULE["ingests"]["task"] == sweep_ingests.name
    assert ingest_document.name == queue.INGEST
