"""The access log, and that no log of a whole conversation holds what is nobody's business."""

import asyncio
import json
import logging
import re

import httpx2 as httpx
import pytest
from django.contrib.auth.models import User
from django.core.files.base import ContentFile
from django.test import Client
from django.urls import reverse
from rest_framework.test import APIClient

import nura.asgi  # noqa: F401 - sets up logging anew when it is first imported
from documents.services import upload_document
from jobs.connections import in_database
from nura import logs
from nura.accounts import services
from tests.chats.test_socket import hear, open_socket, say
from tests.servers import asgi
from tests.support import wait_until

PASSWORD = "correct horse battery staple"
QUESTION, WRITTEN = "극비질문내용", "극비문서본문"


@pytest.fixture
def lines(caplog):
    """What the product would have written so far, as objects."""
    formatter = logs.build_logging_config("json", "INFO")["formatters"]["line"]
    made = formatter["()"](
        foreign_pre_chain=formatter["foreign_pre_chain"], processors=formatter["processors"]
    )
    caplog.set_level(logging.INFO)

    def read(event=None):
        told = [made.format(record) for record in caplog.records]
        if event is None:
            return told
        parsed = [json.loads(line) for line in told if line.startswith("{")]
        return [one for one in parsed if one["event"] == event]

    return read


@pytest.fixture
def minsu(db):
    return User.objects.create_user("minsu", "minsu@example.com", PASSWORD)


def test_a_request_is_one_line_without_its_query(lines, minsu):
    client = APIClient()
    _stored, key = services.make_key(user=minsu, name="", scopes=["read"])
    client.credentials(HTTP_AUTHORIZATION=f"Token {key}")
    response = client.get("/api/v1/chats?q=secret-search", REMOTE_ADDR="192.0.2.9")
    (line,) = lines("request")
    assert (line["method"], line["path"], line["status"]) == ("GET", "/api/v1/chats", 200)
    assert (line["user_id"], line["address"]) == (minsu.pk, "192.0.2.9")
    assert line["request_id"] == response.headers["X-Request-ID"]
    assert line["ms"] >= 0
    assert "secret-search" not in str(lines())


def test_a_page_of_somebody_signed_in_and_one_of_nobody(lines, minsu):
    browser = Client()
    browser.force_login(minsu)
    browser.get("/documents")
    Client().get("/accounts/login/")
    assert [line["user_id"] for line in lines("request")] == [minsu.pk, None]


def test_the_secret_of_a_link_is_not_in_the_path(lines, db):
    address = reverse("account_reset_password_from_key", args=("1", "abc-0123456789abcdef"))
    Client().get(address)
    (line,) = lines("request")
    assert "0123456789abcdef" not in line["path"]


def test_nobody_writes_a_line_by_an_address(lines, db):
    Client().get("/x%0A12:00 [info] forged%E2%80%A8forged")
    assert all(len(line.splitlines()) == 1 for line in lines())


def test_the_log_can_be_left_to_a_proxy(lines, settings, db):
    settings.ACCESS_LOG = False
    Client().get("/accounts/login/")
    assert lines("request") == []


@pytest.mark.parametrize("path", ["/healthz", "/static/nura/img/mark.svg"])
def test_what_programs_ask_all_the_time_is_not_logged(lines, db, path):
    Client().get(path)
    assert lines("request") == []


@pytest.mark.django_db(transaction=True)
def test_what_is_refused_at_the_door_is_logged_too(lines, settings, minsu):
    _stored, key = services.make_key(user=minsu, name="", scopes=["read", "ask"])
    settings.LIMITS = settings.LIMITS | {"search": 2, "visitor": 1}
    asked = [("GET", "/api/v1/me", {"X-Request-ID": "of-a-proxy"}, b"")]
    asked += [("POST", "/api/v1/search", {"Content-Type": "application/json"}, b"{}")] * 2
    asked += [("POST", "/api/v1/messages", {}, b"x" * 4_000_000)]
    secret = reverse("account_reset_password_from_key", args=("1", "abc-0123456789abcdef"))
    with asgi.run_server() as web, httpx.Client(base_url=web.url) as client:
        told = [
            client.request(
                method, path, headers=headers | {"Authorization": f"Token {key}"}, content=body
            )
            for method, path, headers, body in asked
        ]
        told += [client.get(secret) for _ in range(2)]
    assert [one.status_code for one in told[2:]] == [429, 413, 200, 429]
    found = lines("request")
    assert [one["status"] for one in found] == [one.status_code for one in told]
    assert [one["request_id"] for one in found] == [one.headers["X-Request-ID"] for one in told]
    assert [one["user_id"] for one in found[1:]] == [minsu.pk, minsu.pk, minsu.pk, None, None]
    assert found[0]["request_id"] == "of-a-proxy"
    assert "0123456789abcdef" not in str(lines())


@pytest.mark.django_db(transaction=True)
async def test_the_logs_of_a_conversation_hold_no_secret_and_no_content(
    transactional_db, lines, caplog, answers_worker, settings, tmp_path
):
    settings.MEDIA_ROOT = tmp_path

    def prepare(web):
        owner = User.objects.create_user("owner", "owner@example.com", PASSWORD)
        _stored, key = services.make_key(user=owner, name="", scopes=["read", "ask"])
        file = ContentFile(WRITTEN.encode(), name="a.txt")
        upload_document(owner=owner, name="a.txt", content=file, metadata=None)
        browser = Client()
        browser.post("/accounts/login/", {"login": "owner", "password": PASSWORD})
        browser.post("/accounts/login/", {"login": "owner", "password": f"{PASSWORD}!wrong"})
        return owner, key, browser.cookies["sessionid"].value

    with caplog.at_level("INFO"):
        with asgi.run_server() as web:
            owner, key, kept = await in_database(prepare, web)
            async with open_socket(web, key) as ws:
                await say(ws, "send", content=QUESTION)
                await hear(ws, "run.completed")
            async with open_socket(web, cookie=f"sessionid={kept}", origin=web.url) as ws:
                await say(ws, "ping")
                await hear(ws, "pong")
        await asyncio.to_thread(
            wait_until, lambda: lines("run_ended") and len(lines("socket")) == 2
        )
    text = "\n".join(lines())
    assert {line["user_id"] for line in lines("socket")} == {owner.pk}
    for secret in (key, kept, PASSWORD, QUESTION, WRITTEN):
        assert secret not in text
    assert not re.search(r"sessionid=|Token [0-9a-f]{8}", text)
