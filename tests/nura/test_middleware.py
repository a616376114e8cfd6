"""What happens around every request: ids in the logs, compressed pages, threads."""

import asyncio
import gzip
import threading

import pytest
from asgiref.sync import sync_to_async
from celery import Celery, signals
from django.http import HttpResponse, StreamingHttpResponse
from django.test import RequestFactory
from structlog.contextvars import bound_contextvars, clear_contextvars, get_contextvars

import nura.celery  # noqa: F401 - its signals
from nura.asgi import MAX_IDLE_THREADS, RequestThreads
from nura.middleware import HtmlGZipMiddleware, release_connection, request_id
from tests.support import wait_until

requests = RequestFactory()
PAGE = "<p>" + "가나다라 " * 200


def answer_with(response):
    request = requests.get("/", headers={"Accept-Encoding": "gzip"})
    return HtmlGZipMiddleware(lambda _request: response)(request)


def test_a_page_is_compressed_and_padded_by_a_random_length():
    answers = [answer_with(HttpResponse(PAGE)) for _ in range(8)]
    assert {answer["Content-Encoding"] for answer in answers} == {"gzip"}
    assert all(gzip.decompress(answer.content).decode() == PAGE for answer in answers)
    assert len({len(answer.content) for answer in answers}) > 1


@pytest.mark.parametrize(
    "response",
    [
        HttpResponse(PAGE, content_type="application/json"),
        HttpResponse(PAGE, content_type="image/png"),
        StreamingHttpResponse([PAGE.encode()], content_type="text/event-stream"),
    ],
)
def test_what_is_no_page_stays_as_it_is(response):
    assert "Content-Encoding" not in answer_with(response)


def read_request_ids(**headers):
    """The id in the logs of a request and the one its response tells."""
    seen = []

    def look(_request):
        seen.append(get_contextvars()["request_id"])
        return HttpResponse()

    response = request_id(look)(requests.get("/", headers=headers))
    return seen[0], response["X-Request-ID"]


def test_each_request_has_an_id_of_its_own_in_the_logs_and_in_its_response():
    (logged, told), (other, _told) = read_request_ids(), read_request_ids()
    assert logged == told != other
    assert "request_id" not in get_contextvars()


def test_a_proxy_may_choose_the_id():
    assert read_request_ids(**{"X-Request-ID": "edge-0123456789"}) == ("edge-0123456789",) * 2


@pytest.mark.parametrize("given", ["short", "x" * 65, "a b c d e f g h", "가나다라마바사아자"])
def test_an_id_that_could_forge_a_line_is_replaced(given):
    assert read_request_ids(**{"X-Request-ID": given})[0] != given


@pytest.mark.django_db
def test_a_page_over_http_is_compressed(client):
    answer = client.get("/accounts/login/", headers={"Accept-Encoding": "gzip"})
    assert answer["Content-Encoding"] == "gzip"
    assert b"<html" in gzip.decompress(answer.content)


def test_a_task_logs_under_the_id_of_the_request_that_sent_it():
    sent = {}
    with bound_contextvars(request_id="edge-0123456789"):
        signals.before_task_publish.send(sender="a.task", headers=sent)

    def work():
        """Nothing."""

    task = Celery("worker", set_as_current=False).task(work, name="a.task")
    task.push_request(**sent)
    try:
        signals.task_prerun.send(sender=task, task=task, task_id="ingest:1")
        assert get_contextvars() == {"request_id": "edge-0123456789", "task_id": "ingest:1"}
    finally:
        task.pop_request()
        clear_contextvars()


def test_a_task_that_nobody_asked_for_logs_under_its_own_id_alone():
    sent = {}
    signals.before_task_publish.send(sender="a.task", headers=sent)
    assert not sent


async def serve_at_once(application, count):
    """Let so many requests be answered at the same time."""
    barrier = asyncio.Barrier(count)
    await asyncio.gather(*(application({"barrier": barrier}, None, None) for _ in range(count)))


async def test_a_request_has_a_thread_for_itself_which_the_next_one_takes_over():
    calls = []

    async def note_threads(scope, _receive, _send):
        threads = []
        for _ in range(2):
            threads.append(await sync_to_async(threading.current_thread)())
            await scope["barrier"].wait()
        calls.append(tuple(threads))

    application = RequestThreads(note_threads)
    for _ in range(3):
        await serve_at_once(application, 2)
    assert all(first is second for first, second in calls)
    assert len({first for first, _ in calls[:2]}) == 2
    assert len({first for first, _ in calls}) == 2


async def test_a_stream_keeps_no_thread_while_it_lasts(rf):
    begun, ended = asyncio.Queue(), asyncio.Event()

    async def stream(_request):
        begun.put_nowait(await sync_to_async(threading.current_thread)())
        return StreamingHttpResponse()

    async def respond(scope, _receive, _send):
        request = rf.get("/")
        request.scope = scope
        response = await release_connection(stream)(request)
        begun.put_nowait(None)
        await ended.wait()
        await sync_to_async(response.close)()

    application, streams, threads = RequestThreads(respond), [], []
    for _ in range(3):
        streams.append(asyncio.create_task(application({}, None, None)))
        threads.append(await begun.get())
        await begun.get()
    ended.set()
    await asyncio.gather(*streams)
    assert len(set(threads)) == 1


async def test_a_thread_is_given_back_when_its_request_fails_and_few_of_many_are_kept():
    threads = []

    async def fail_in_thread(scope, _receive, _send):
        threads.append(await sync_to_async(threading.current_thread)())
        await scope["barrier"].wait()
        raise LookupError

    application = RequestThreads(fail_in_thread)
    for _ in range(2):
        with pytest.raises(LookupError):
            await serve_at_once(application, 1)
    assert len(set(threads)) == 1
    barrier = asyncio.Barrier(MAX_IDLE_THREADS + 4)
    scope = {"barrier": barrier}
    many = (application(scope, None, None) for _ in range(MAX_IDLE_THREADS + 4))
    await asyncio.gather(*many, return_exceptions=True)
    begun = set(threads)
    await asyncio.to_thread(
        wait_until, lambda: sum(thread.is_alive() for thread in begun) == MAX_IDLE_THREADS
    )
