"""The socket, over the wire: a real server, a real client, a real worker."""

import asyncio
import contextlib
import json
import uuid
from datetime import timedelta

import pytest
from django.contrib.sessions.models import Session
from django.contrib.staticfiles.storage import staticfiles_storage
from django.test import Client
from django.utils import timezone
from knox.crypto import hash_token
from knox.models import AuthToken
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed

from chats import access
from chats.models import Chat, Message, Run
from chats.services.turns import open_turn
from documents import notices
from jobs.connections import in_database
from nura.accounts import services
from tests.servers import asgi

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def web(transactional_db):
    with asgi.run_server() as server:
        yield server


@pytest.fixture
def token(owner):
    return AuthToken.objects.create(owner)[1]


def make_cookie(user):
    browser = Client()
    browser.force_login(user)
    return f"sessionid={browser.cookies['sessionid'].value}"


@contextlib.asynccontextmanager
async def open_socket(web, token=None, origin=None, cookie=None):
    protocols = ["nura.v1", f"token.{token}"] if token else ["nura.v1"]
    headers = {"Cookie": cookie} if cookie else {}
    async with connect(
        web.ws_url, subprotocols=protocols, origin=origin, additional_headers=headers
    ) as ws:
        yield ws


async def say(ws, kind, **fields):
    await ws.send(json.dumps({"v": 1, "type": kind, **fields}))


async def hear(ws, *kinds):
    """Frames until one of these kinds, that one included."""
    frames = []
    async with asyncio.timeout(20):
        while not frames or frames[-1]["type"] not in kinds:
            frames.append(json.loads(await ws.recv()))
    return frames


async def wait_for_close(ws):
    async with asyncio.timeout(10):
        with contextlib.suppress(ConnectionClosed):
            while True:
                await ws.recv()
    return ws.close_code


async def test_a_question_streams_its_answer(web, token, answers_worker):
    async with open_socket(web, token) as ws:
        assert ws.subprotocol == "nura.v1"
        await say(ws, "send", client_id="c-1", content="안녕하세요")
        frames = [f for f in await hear(ws, "run.completed") if f["run_id"]]
    assert frames[0]["type"] == "run.started"
    assert [frame["seq"] for frame in frames] == list(range(1, len(frames) + 1))
    said = "".join(f["data"]["text"] for f in frames if f["type"] == "delta")
    assert said == frames[-1]["data"]["message"]["content"]
    assert {frame["v"] for frame in frames} == {1}


async def test_each_question_is_logged_under_a_request_id_of_its_own(
    web, token, answers_worker, caplog
):
    with caplog.at_level("INFO"):
        async with open_socket(web, token) as ws:
            for _ in range(2):
                await say(ws, "send", content="안녕하세요")
                await hear(ws, "run.completed")
    lines = [one.msg for one in caplog.records if isinstance(one.msg, dict)]
    ids = {line["request_id"] for line in lines if line["event"] == "run_ended"}
    assert len(ids) == 2


async def test_a_client_that_comes_back_gets_the_rest_and_nothing_twice(web, token, answers_worker):
    async with open_socket(web, token) as ws:
        await say(ws, "send", content="안녕하세요")
        first = (await hear(ws, "run.started"))[-1]
    async with open_socket(web, token) as ws:
        await say(ws, "resume", run_id=first["run_id"], after_seq=first["seq"])
        frames = [f for f in await hear(ws, "run.completed") if f["run_id"]]
    assert frames[0]["seq"] == first["seq"] + 1


async def test_a_vanished_client_stops_nothing(web, token, answers_worker):
    async with open_socket(web, token) as ws:
        await say(ws, "send", content="안녕하세요")
        await hear(ws, "run.started")
        ws.transport.abort()

    def status():
        return Message.objects.get(role="assistant").status

    async with asyncio.timeout(20):
        while await in_database(status) != "COMPLETED":
            await asyncio.sleep(0.05)


async def test_the_same_client_id_twice_is_one_run(web, token, answers_worker):
    async with open_socket(web, token) as ws:
        await say(ws, "send", client_id="c-1", content="안녕하세요")
        first = (await hear(ws, "run.completed"))[-1]["run_id"]
        await say(ws, "send", client_id="c-1", content="안녕하세요")
        again = (await hear(ws, "run.completed"))[-1]["run_id"]
    assert again == first
    assert await in_database(Message.objects.count) == 2


@pytest.fixture
def live_release(monkeypatch):
    """What is served has this digest."""
    monkeypatch.setattr(staticfiles_storage, "manifest_hash", "1f2e3d", raising=False)
    return "1f2e3d"


async def test_ping_is_answered(web, token):
    async with open_socket(web, token) as ws:
        await say(ws, "ping")
        assert (await hear(ws, "pong"))[-1]["type"] == "pong"


async def test_c98_socket_and_pages_name_the_release_that_serves(web, token, client, live_release):
    async with open_socket(web, token) as ws:
        await say(ws, "ping")
        assert (await hear(ws, "pong"))[-1]["data"] == {"release": live_release}
    page = (await in_database(client.get, "/accounts/login/")).content.decode()
    assert f'data-release="{live_release}"' in page


@pytest.mark.parametrize(
    "frame",
    [
        "",
        "{",
        "[]",
        '"text"',
        '{"type": 5}',
        '{"type": "nonsense"}',
        '{"type": "_send"}',
        "[" * 5000,
        b"\x00\x01",
    ],
)
async def test_a_frame_that_makes_no_sense_is_an_error_for_its_socket_only(web, token, frame):
    async with open_socket(web, token) as ws:
        await ws.send(frame)
        assert (await hear(ws, "error"))[-1]["data"]["code"] == "bad_frame"
        await say(ws, "ping")
        await hear(ws, "pong")


async def test_a_refused_message_says_why_and_stores_nothing(web, token):
    async with open_socket(web, token) as ws:
        await say(ws, "send", client_id="c-9", content=" ")
        error = (await hear(ws, "error"))[-1]["data"]
        assert (error["code"], error["client_id"]) == ("empty_message", "c-9")
        await say(ws, "send", content="가" * 200_000)
        assert (await hear(ws, "error"))[-1]["data"]["code"] == "invalid"
        await say(ws, "send", content="질문", chat_id=str(uuid.uuid4()))
        assert (await hear(ws, "error"))[-1]["data"]["code"] == "not_found"
    assert not await in_database(Chat.objects.exists)


async def test_a_flood_of_frames_closes_its_socket(web, token):
    async with open_socket(web, token) as ws:
        with contextlib.suppress(ConnectionClosed):
            for _ in range(500):
                await say(ws, "ping")
        assert await wait_for_close(ws) == 4429


async def test_nobody_gets_in_without_credentials(web):
    async with open_socket(web, origin=web.url) as ws:
        assert await wait_for_close(ws) == 4401


async def test_a_session_counts_only_from_our_own_pages(web, owner):
    kept = await in_database(make_cookie, owner)
    for origin in (None, "null", "http://evil.example", "http://localhost:1"):
        async with open_socket(web, cookie=kept, origin=origin) as ws:
            assert await wait_for_close(ws) == 4401
    async with open_socket(web, cookie=kept, origin=web.url) as ws:
        await say(ws, "ping")
        await hear(ws, "pong")


async def test_a_foreign_origin_is_refused_with_a_token_too(web, token):
    async with open_socket(web, token, origin="http://evil.example") as ws:
        assert await wait_for_close(ws) == 4401


async def test_an_open_socket_closes_when_its_user_is_deactivated(web, owner, token):
    def deactivate():
        owner.is_active = False
        owner.save()

    async with open_socket(web, token) as ws:
        await say(ws, "ping")
        await hear(ws, "pong")
        await in_database(deactivate)
        assert await wait_for_close(ws) == 4401


async def test_an_open_socket_closes_when_the_password_changes(web, owner, monkeypatch):
    monkeypatch.setattr(access, "RECHECK_SECONDS", 0.3)
    kept = await in_database(make_cookie, owner)

    def change():
        owner.set_password("new")
        owner.save()

    async with open_socket(web, cookie=kept, origin=web.url) as ws:
        await say(ws, "ping")
        await hear(ws, "pong")
        await in_database(change)
        assert await wait_for_close(ws) == 4401


async def test_f84_a_socket_whose_session_runs_out_closes_and_opens_for_nobody(web, owner):
    kept = await in_database(make_cookie, owner)

    def change():
        Session.objects.update(expire_date=timezone.now() - timedelta(seconds=1))

    async with open_socket(web, cookie=kept, origin=web.url) as ws:
        await say(ws, "ping")
        await hear(ws, "pong")
        await in_database(change)
        assert await wait_for_close(ws) == 4401
    async with open_socket(web, cookie=kept, origin=web.url) as ws:
        assert await wait_for_close(ws) == 4401


async def test_a_stranger_can_neither_follow_nor_stop_a_run(web, owner, stranger):
    turn = await in_database(open_turn, user=owner, content="질문")
    theirs = await in_database(lambda: AuthToken.objects.create(stranger)[1])
    async with open_socket(web, theirs) as ws:
        for kind in ("resume", "stop"):
            await say(ws, kind, run_id=str(turn.run.pk))
            error = (await hear(ws, "error"))[-1]["data"]
            await say(ws, kind, run_id=str(uuid.uuid4()))
            made_up = (await hear(ws, "error"))[-1]["data"]
            assert (error["code"], error["detail"]) == (made_up["code"], made_up["detail"])
            assert error["code"] == "not_found"


async def test_a_notice_reaches_every_page_of_its_owner_in_its_turn(web, owner, token):
    async with open_socket(web, token) as one, open_socket(web, token) as other:
        for number in range(150):
            payload = {"type": "document", "data": {"id": number}}
            await asyncio.to_thread(notices.send_notices, owner.pk, payload)
        for ws in (one, other):
            heard = [(await hear(ws, "document"))[-1]["data"]["id"] for _ in range(150)]
            assert heard == [*range(150)]


async def test_notices_reach_only_their_owner(web, owner, stranger, token):
    theirs = await in_database(lambda: AuthToken.objects.create(stranger)[1])
    async with open_socket(web, token) as mine, open_socket(web, theirs) as other:
        for ws in (mine, other):
            await say(ws, "ping")
            await hear(ws, "pong")
        payload = {"type": "document", "data": {"id": "1"}}
        await asyncio.to_thread(notices.send_notices, owner.pk, payload)
        assert (await hear(mine, "document"))[-1]["data"] == {"id": "1"}
        await say(other, "ping")
        assert [frame["type"] for frame in await hear(other, "pong")] == ["pong"]


async def make_scoped_key(owner, *scopes):
    made = await in_database(services.make_key, user=owner, name="p", scopes=scopes)
    return made[1]


@pytest.mark.parametrize(("scope", "kind"), [("read", "send"), ("read", "stop"), ("ask", "resume")])
async def test_a_frame_needs_the_scope_of_what_it_does(web, owner, scope, kind):
    turn = await in_database(open_turn, user=owner, content="질문")
    async with open_socket(web, await make_scoped_key(owner, scope)) as ws:
        await say(ws, kind, content="질문", run_id=str(turn.run.pk))
        error = (await hear(ws, "error", "run.started"))[-1]
    assert (error["type"], error["data"]["code"]) == ("error", "scope_missing")
    assert await Run.objects.acount() == 1


async def test_a_key_that_may_neither_read_nor_ask_opens_no_socket(web, owner):
    async with open_socket(web, await make_scoped_key(owner, "upload", "admin")) as ws:
        assert await wait_for_close(ws) == 4403


async def test_a_question_over_a_socket_notes_the_key_that_asked(web, owner, answers_worker):
    key = await make_scoped_key(owner, "ask")
    async with open_socket(web, key) as ws:
        await say(ws, "send", content="안녕하세요")
        run_id = (await hear(ws, "run.started"))[-1]["run_id"]
    assert (await Run.objects.aget(pk=run_id)).asked_with == hash_token(key)


@pytest.mark.parametrize("scheme", ["https", "ws", "null", "file"])
async def test_an_origin_of_another_scheme_is_foreign(web, owner, scheme):
    kept = await in_database(make_cookie, owner)
    foreign = web.url.replace("http", scheme, 1) if scheme != "null" else "null"
    async with open_socket(web, cookie=kept, origin=foreign) as ws:
        assert await wait_for_close(ws) == 4401


async def test_behind_a_proxy_the_scheme_is_the_proxys(web, owner, settings):
    settings.SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https")
    kept = await in_database(make_cookie, owner)
    secure = web.url.replace("http", "https", 1)
    for told, expected in (("https", True), ("http", False)):
        async with connect(
            web.ws_url,
            subprotocols=["nura.v1"],
            origin=secure,
            additional_headers={"Cookie": kept, "X-Forwarded-Proto": told},
        ) as ws:
            if expected:
                await say(ws, "ping")
                await hear(ws, "pong")
            else:
                assert await wait_for_close(ws) == 4401
