"""The wire itself: server-sent events for any parser, errors in OpenAI's shape, forms of keys."""

import json
from datetime import timedelta
from itertools import product

import pytest
from django.test import Client
from knox.models import AuthToken

from chats.gateway import completions
from chats.models import Chat
from chats.runs import reader
from tests.chats.gateway.wire import (
    connect_program,
    decode_chunks,
    join_text,
    make_body,
    stream_answer,
)
from tests.servers.llm import BreakOff, Stream

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def http(web, key):
    with connect_program(web, key) as one:
        yield one


def test_any_parser_of_server_sent_events_reads_a_stream(http, model, answers_worker):
    model.script(Stream(["가", "나\n\n", "다 🐙"], delay=0.05))
    response, told = stream_answer(http, make_body("안녕"))
    assert response.headers["content-type"] == "text/event-stream; charset=utf-8"
    assert "no-transform" in response.headers["cache-control"]
    assert response.headers["x-accel-buffering"] == "no"
    assert {kind for kind, _ in told} == {"message"}
    assert join_text(told) == "가나\n\n다 🐙"
    assert len({(one["id"], one["created"]) for one in decode_chunks(told)}) == 1


def test_a_silent_stream_shows_signs_of_life(http, model, answers_worker, monkeypatch):
    monkeypatch.setattr(completions, "HEARTBEAT_SECONDS", 0.2)
    monkeypatch.setattr(reader, "IDLE_SECONDS", 0.2)
    model.script(Stream(["spät"], first_delay=1.5))
    _, told = stream_answer(http, make_body("안녕"))
    kinds = [kind for kind, _ in told]
    assert "comment" in kinds
    assert kinds.index("comment") < len(kinds) - 3
    assert join_text(told) == "spät"


def test_a_stream_that_breaks_off_ends_with_an_error_and_done(http, model, answers_worker):
    model.script(BreakOff(["반쯤"]))
    _, told = stream_answer(http, make_body("안녕"))
    error = decode_chunks(told)[-1]["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert error["code"] == "llm_interrupted"
    assert join_text([one for one in told if '"error"' not in one[1]]) == "반쯤"


FORMS = {
    "bearer": lambda key: {"Authorization": f"Bearer {key}"},
    "bearer in small letters": lambda key: {"Authorization": f"bearer {key}"},
    "token": lambda key: {"Authorization": f"Token {key}"},
    "x-api-key": lambda key: {"x-api-key": key},
    "beside a proxy's own": lambda key: {"Authorization": "Basic dTpw", "X-API-Key": key},
}
ADDRESSES = [
    ("GET", "/models"),
    ("GET", "/models/nura"),
    ("POST", "/chat/completions"),
    ("POST", "/embeddings"),
    ("PUT", "/models"),
]


def test_a_key_is_taken_in_each_of_its_forms(web, key):
    for form in FORMS.values():
        with connect_program(web, **form(key)) as http:
            assert http.get("/models").status_code == 200


@pytest.mark.parametrize("end", ["revoked", "expired", "suspended"])
def test_a_key_that_ended_opens_nothing_in_any_form(web, key, owner, end):
    if end == "revoked":
        AuthToken.objects.all().delete()
    elif end == "expired":
        key = AuthToken.objects.create(owner, expiry=timedelta(seconds=-1))[1]
    else:
        owner.is_active = False
        owner.save()
    for form, (method, path) in product(FORMS.values(), ADDRESSES):
        with connect_program(web, **form(key)) as http:
            response = http.request(method, path, json=make_body("안녕"))
        assert response.status_code == 401
        assert response.json()["error"]["type"] == "authentication_error"
        assert response.headers["www-authenticate"] == "Bearer"
    assert not Chat.objects.exists()


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Authorization": "Bearer"},
        {"Authorization": "Bearer schlüssel".encode("latin-1")},
        {"Authorization": f"Basic {'a' * 64}"},
        {"x-api-key": "' OR 1=1 --"},
    ],
)
def test_without_a_good_key_every_address_says_the_same(web, headers):
    with connect_program(web, **headers) as http:
        answers = {
            http.request(method, path, json=make_body("안녕")).text for method, path in ADDRESSES
        }
    assert len(answers) == 1
    assert json.loads(answers.pop())["error"]["type"] == "authentication_error"


def test_a_key_in_the_address_is_none(web, key):
    with connect_program(web) as http:
        assert http.get("/models", params={"key": key, "api_key": key}).status_code == 401


def test_a_session_of_the_pages_is_no_key(web, owner):
    browser = Client()
    browser.force_login(owner)
    cookie = f"sessionid={browser.cookies['sessionid'].value}"
    with connect_program(web, Cookie=cookie) as http:
        assert http.get("/models").status_code == 401


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        ("POST", "/models", 405, "method_not_allowed"),
        ("DELETE", "/models/nura", 405, "method_not_allowed"),
        ("GET", "/chat/completions", 405, "method_not_allowed"),
        ("GET", "/embeddings", 405, "method_not_allowed"),
        ("GET", "/models/", 404, "not_found"),
        ("POST", "/chat/completions/", 404, "not_found"),
        ("POST", "/responses", 404, "not_found"),
        ("GET", "/docs", 404, "not_found"),
        ("GET", "/openapi.json", 404, "not_found"),
    ],
)
def test_what_an_address_does_not_serve_is_an_error_in_openais_shape(
    http, method, path, status, code
):
    response = http.request(method, path)
    assert response.status_code == status
    assert response.json()["error"]["code"] == code


@pytest.mark.parametrize(
    ("content", "status", "code"),
    [
        (b"", 400, "invalid"),
        (b"{", 400, "malformed"),
        (b"\xff\xfe", 400, "malformed"),
        (b"[]", 400, "invalid"),
        (b"[" * 100_000, 400, "malformed"),
        (b'{"messages": [{"role": "user", "content": "x"}]}', 400, "invalid"),
        (b'{"model": "nura", "x": "' + b"x" * 2_200_000 + b'"}', 413, "too_large"),
        (b" " * 4_000_000, 413, "too_large"),
    ],
    ids=["empty", "cut", "no text", "a list", "deep", "no model", "2 MB", "4 MB"],
)
def test_a_body_that_cannot_be_read_is_refused(http, content, status, code):
    for path in ("/chat/completions", "/embeddings"):
        response = http.post(path, content=content, headers={"Content-Type": "application/json"})
        assert response.status_code == status
        assert response.json()["error"]["code"] == code


def test_errors_are_told_in_the_language_of_the_program(http):
    said = {
        language: http.post(
            "/chat/completions", json=make_body(" "), headers={"Accept-Language": language}
        ).json()["error"]["message"]
        for language in ("ko", "en")
    }
    assert said["en"].startswith("There is no question")
    assert said["ko"]
