"""Rights that end while an answer is under way: nothing more of it reaches whoever had them."""

import asyncio
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing
from dataclasses import replace
from datetime import timedelta

import httpx2 as httpx
import pytest
from django.contrib.auth import BACKEND_SESSION_KEY
from django.contrib.sessions.backends.db import SessionStore
from django.contrib.sessions.models import Session
from django.test import Client
from django.utils import timezone
from knox.crypto import hash_token
from knox.models import AuthToken

from chats import access
from chats.access import Credential
from chats.models import Message, Run
from chats.services.turns import open_turn
from documents.notices import announce_rights_change
from rag.config import Endpoint
from tests.chats.gateway.wire import connect_program, make_body
from tests.servers import asgi
from tests.servers.llm import Hang, Stream
from tests.support import wait_until

pytestmark = pytest.mark.django_db(transaction=True)

SOON = 2.0
"""Within so many seconds rights end, on whatever is open."""
ENDLESS = Stream(["말 "] * 2000, delay=0.02)


@pytest.fixture(autouse=True)
def _own_files(settings, tmp_path):
    settings.MEDIA_ROOT, settings.DATA_DIR = tmp_path / "files", tmp_path


@pytest.fixture
def web(transactional_db):
    with asgi.run_server() as server:
        yield server


@pytest.fixture
def key(owner):
    return AuthToken.objects.create(owner)[1]


@pytest.fixture
def model(settings, llm_server):
    """A chat model that speaks on for longer than anybody may listen."""
    settings.RAG = replace(settings.RAG, llm=Endpoint(llm_server.url, "stand-in"))
    llm_server.default = ENDLESS
    return llm_server


def deactivate(owner):
    owner.is_active = False
    owner.save()


def revoke(owner):
    AuthToken.objects.filter(user=owner).delete()


def expire(owner):
    AuthToken.objects.filter(user=owner).update(expiry=timezone.now() - timedelta(seconds=1))


KEY_ENDS = [deactivate, revoke, expire]
CHATS = [{}, {"X-Chat-Id": "eins"}]


def hear_the_end(response, change):
    """Read until something was said, change the rights, read to the end: how long that took."""
    lines = response.iter_lines()
    next(line for line in lines if "말" in line)
    change()
    since = time.monotonic()
    rest = list(lines)
    return time.monotonic() - since, rest


def stream_events(web, turn, **headers):
    url = f"{web.url}/api/v1/runs/{turn.run.pk}/events"
    return httpx.stream("GET", url, headers=headers, timeout=30)


def make_cookie(user):
    browser = Client()
    browser.force_login(user)
    return browser, f"sessionid={browser.cookies['sessionid'].value}"


@pytest.mark.parametrize("end", KEY_ENDS)
@pytest.mark.parametrize("packed", ["identity", "gzip"])
def test_server_sent_events_end_with_the_key(web, owner, key, model, answers_worker, end, packed):
    turn = open_turn(user=owner, content="안녕")
    mine = {"Authorization": f"Token {key}", "Accept-Encoding": packed}
    with stream_events(web, turn, **mine) as response:
        took, rest = hear_the_end(response, lambda: end(owner))
    assert took < SOON
    assert not any("run.completed" in line for line in rest)
    with stream_events(web, turn, **mine) as response:
        assert response.status_code == 401


def test_server_sent_events_of_who_is_silent_end_too(web, owner, key, model, answers_worker):
    model.default = Hang(after=("말",))
    turn = open_turn(user=owner, content="안녕")
    with stream_events(web, turn, Authorization=f"Token {key}") as response:
        took, _rest = hear_the_end(response, lambda: revoke(owner))
    assert took < SOON


@pytest.mark.parametrize("how", ["password", "sign-out", "deactivated", "f84-run-out"])
def test_server_sent_events_end_with_the_session(web, owner, model, answers_worker, how):
    browser, kept = make_cookie(owner)

    def end():
        if how == "sign-out":
            browser.logout()
        elif how == "password":
            owner.set_password("new")
            owner.save()
        elif how == "f84-run-out":
            Session.objects.update(expire_date=timezone.now() - timedelta(seconds=1))
        else:
            deactivate(owner)

    turn = open_turn(user=owner, content="안녕")
    with stream_events(web, turn, Cookie=kept) as response:
        took, _rest = hear_the_end(response, end)
    assert took < SOON
    with stream_events(web, turn, Cookie=kept) as response:
        assert response.status_code == 401


def test_events_go_on_for_who_keeps_his_rights(web, owner, stranger, key, model, answers_worker):
    model.default = Stream(["말 "] * 20, delay=0.1)
    turn = open_turn(user=owner, content="안녕")
    with stream_events(web, turn, Authorization=f"Token {key}") as response:
        took, rest = hear_the_end(response, lambda: deactivate(stranger))
    assert took > access.RECHECK_SECONDS
    assert any("run.completed" in line for line in rest)


@pytest.mark.parametrize("end", KEY_ENDS)
@pytest.mark.parametrize("headers", CHATS, ids=["unstored", "chat"])
def test_a_stream_of_the_gateway_ends_with_its_key_and_the_model_is_left(
    web, owner, key, model, answers_worker, end, headers
):
    with (
        connect_program(web, key) as http,
        http.stream(
            "POST", "/chat/completions", json=make_body("안녕", stream=True), headers=headers
        ) as response,
    ):
        took, rest = hear_the_end(response, lambda: end(owner))
    assert took < SOON
    assert "data: [DONE]" not in rest
    assert model.chats[0].wait_closed_by_client()


@pytest.mark.parametrize("headers", CHATS, ids=["unstored", "chat"])
@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
def test_before_the_first_word_the_end_of_a_key_is_401(
    web, owner, key, model, answers_worker, headers, stream
):
    model.default = Hang()
    with connect_program(web, key) as http, ThreadPoolExecutor() as pool:
        body = make_body("안녕", stream=stream)
        answer = pool.submit(http.post, "/chat/completions", json=body, headers=headers)
        wait_until(lambda: model.chats)
        since = time.monotonic()
        revoke(owner)
        response = answer.result(20)
    assert time.monotonic() - since < SOON
    assert response.status_code == 401
    assert response.json()["error"]["code"] == "authentication_failed"
    assert model.chats[0].wait_closed_by_client()


async def test_what_is_made_for_a_reader_ends_while_he_takes_nothing():
    async def parts():
        while True:
            yield "말"

    told = asyncio.Event()
    async with aclosing(access.stream_while_held(Credential(), parts(), told.set)) as held:
        assert await anext(held) == "말"
        async with asyncio.timeout(SOON):
            await told.wait()
        assert [part async for part in held] == []


async def test_rights_are_looked_up_again_after_an_error(monkeypatch):
    found = iter([KeyError("no such key"), [None]])

    def look_up(_credentials):
        users = next(found)
        if isinstance(users, Exception):
            raise users
        return users

    async def end():
        ended.set()

    monkeypatch.setattr(access, "find_principals", look_up)
    ended = asyncio.Event()
    access.watch_credential(Credential(), end)
    async with asyncio.timeout(SOON):
        await ended.wait()
    access.unwatch_credential(end)


def test_a_session_that_names_nobody_is_nobodys(settings):
    session = SessionStore()
    session[BACKEND_SESSION_KEY] = settings.AUTHENTICATION_BACKENDS[-1]
    session.create()
    assert access.find_principals([Credential(session=session.session_key)]) == [None]


async def test_an_error_of_the_parts_is_not_taken_for_the_end_of_rights():
    async def parts():
        yield 1
        raise TimeoutError

    with pytest.raises(TimeoutError):
        assert [part async for part in access.stream_while_held(Credential(), parts())] == [1]


def has_run_ended(turn):
    return Run.objects.filter(pk=turn.run.pk).exclude(ended_at=None).exists()


@pytest.mark.parametrize("end", KEY_ENDS)
def test_the_answer_itself_is_stopped_and_the_model_is_left(owner, key, model, answers_worker, end):
    turn = open_turn(user=owner, content="안녕", asked_with=hash_token(key))
    wait_until(lambda: model.chats)
    since = time.monotonic()
    end(owner)
    assert model.chats[0].wait_closed_by_client()
    wait_until(lambda: has_run_ended(turn), SOON)
    assert time.monotonic() - since < SOON
    assert Message.objects.get(role="assistant").status == Message.Status.STOPPED


def test_an_answer_goes_on_when_another_key_ends(owner, key, model, answers_worker):
    model.default = Stream(["말 "] * 20, delay=0.1)
    turn = open_turn(user=owner, content="안녕", asked_with=hash_token(key))
    wait_until(lambda: model.chats)
    AuthToken.objects.create(owner)[0].delete()
    announce_rights_change()
    wait_until(lambda: has_run_ended(turn), 10.0)
    assert Message.objects.get(role="assistant").status == Message.Status.COMPLETED


def test_a_question_that_nobody_has_begun_ends_with_its_owner(owner, answers_worker):
    deactivate(owner)
    turn = open_turn(user=owner, content="안녕")
    wait_until(lambda: has_run_ended(turn), SOON)
    assert Message.objects.get(role="assistant").status == Message.Status.STOPPED


def test_what_is_announced_is_looked_at_at_once(
    web, owner, key, model, answers_worker, monkeypatch
):
    monkeypatch.setattr(access, "RECHECK_SECONDS", 60.0)
    turn = open_turn(user=owner, content="안녕")

    def end():
        revoke(owner)
        announce_rights_change()

    with stream_events(web, turn, Authorization=f"Token {key}") as response:
        took, _rest = hear_the_end(response, end)
    assert took < SOON
