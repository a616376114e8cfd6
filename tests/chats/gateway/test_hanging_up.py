"""A client that hangs up wants no more: the run ends, and the model's connection with it."""

import asyncio

import httpx2 as httpx
import pytest

from chats.models import Message
from tests.chats.gateway.wire import connect_program, make_body
from tests.servers.llm import Hang
from tests.support import wait_until

pytestmark = pytest.mark.django_db(transaction=True)

CHATS = [{}, {"X-Chat-Id": "eins"}]


def hang_up_after_words(http, body, headers):
    with http.stream("POST", "/chat/completions", json=body, headers=headers) as response:
        assert response.status_code == 200
        for line in response.iter_lines():
            if "안녕" in line:
                return


@pytest.mark.parametrize("headers", CHATS, ids=["unstored", "chat"])
def test_the_model_is_left_when_the_client_of_a_stream_hangs_up(
    web, key, model, answers_worker, headers
):
    model.script(Hang(after=("안녕",)))
    with connect_program(web, key) as http:
        hang_up_after_words(http, make_body("안녕", stream=True), headers)
        wait_until(model.chats[0].wait_closed_by_client)


@pytest.mark.parametrize("headers", CHATS, ids=["unstored", "chat"])
async def test_the_model_is_left_when_the_client_of_a_whole_answer_hangs_up(
    web, key, model, answers_worker, headers
):
    model.script(Hang(after=("안녕",)))
    own = {"Authorization": f"Bearer {key}", **headers}
    async with httpx.AsyncClient(base_url=f"{web.url}/v1", headers=own, timeout=60) as http:
        answer = asyncio.create_task(http.post("/chat/completions", json=make_body("안녕")))
        await asyncio.to_thread(wait_until, lambda: model.chats)
        answer.cancel()
        await asyncio.gather(answer, return_exceptions=True)
    assert await asyncio.to_thread(model.chats[0].wait_closed_by_client)


def test_what_was_said_until_then_is_kept_in_the_chat(web, key, model, answers_worker):
    model.script(Hang(after=("안녕",)))
    with connect_program(web, key) as http:
        hang_up_after_words(http, make_body("안녕", stream=True), CHATS[1])
    stopped = Message.objects.filter(status=Message.Status.STOPPED)
    assert wait_until(stopped.first).content == "안녕"
