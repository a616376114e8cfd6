"""What whoever tries the doors from outside finds: cases of docs/faults.md, over real HTTP."""

import importlib
import json
import re
import uuid
from concurrent.futures import ThreadPoolExecutor, as_completed

import httpx2 as httpx
import psycopg
import pytest
from django.apps import apps
from django.contrib.auth.models import User
from django.core.management import call_command
from django.db import models
from django.test import Client
from rest_framework.test import APIClient

from chats.models import Category, Chat, Feedback, Message, ProfileSlot
from chats.services.turns import open_turn
from nura import __version__
from nura.accounts import services
from nura.embedded import locations
from tests import strangers
from tests.nura.test_migrations import reach_database
from tests.servers import asgi

pytestmark = pytest.mark.django_db(transaction=True)

PATIENCE_SECONDS = 60
"""For what ends after the five seconds that a request waits for a connection."""
AT_ONCE = 8
OUR_WAYS = re.compile(r"Traceback|site-packages|psycopg|SELECT |/nura/|nura\.settings|django\.")
"""What only somebody who sees our insides could read."""
PUBLIC = ("/healthz", "/readyz")
CLOSED = (
    *("/metrics", "/api/schema/", "/api/docs/", "/api/v1/documents", "/api/v1/me", "/v1/models"),
    *("/v1/openapi.json", "/openapi.json", "/admin/", "/media/", "/files/", "/.env", "/ws/chat/"),
)


@pytest.fixture
def web(transactional_db):
    with asgi.run_server() as server:
        yield server


@pytest.fixture
def minsu(transactional_db):
    return User.objects.create_user("minsu", "minsu@example.com", "correct horse battery")


def make_key(user):
    return services.make_key(user=user, name="", scopes=["read", "ask", "upload", "admin"])[1]


def call_at_once(web, user, method, path, **body):
    """The same call from several devices at the same moment; their statuses and bodies."""
    headers = {"Authorization": f"Token {make_key(user)}"}

    def call(_number):
        return httpx.request(method, web.url + path, headers=headers, timeout=30, **body)

    with ThreadPoolExecutor(AT_ONCE) as threads:
        told = list(threads.map(call, range(AT_ONCE)))
    assert not any(one.status_code >= 500 for one in told), [one.text for one in told]
    return told


# Access


def test_c13_without_credentials_only_health_answers_and_names_no_version(web):
    with httpx.Client(base_url=web.url) as nobody:
        for path in PUBLIC:
            told = nobody.get(path)
            assert told.status_code in {200, 503}  # no workers beside this test
            assert __version__ not in told.text
            assert "server" not in told.headers
        for path in CLOSED:
            told = nobody.get(path)
            assert told.status_code in {302, 401, 404}, path
            assert __version__ not in told.text


def test_c14_ids_are_random_and_no_two_keys_have_anything_in_common(minsu):
    for model in apps.get_models():
        for field in model._meta.local_fields:
            if isinstance(field, models.UUIDField) and field.has_default():
                assert field.default is uuid.uuid4, field
    keys = [make_key(minsu) for _ in range(20)]
    assert all(re.fullmatch(r"[0-9a-f]{64}", key) for key in keys)
    assert len({key[at : at + 8] for key in keys for at in range(0, 64, 8)}) == 20 * 8


@pytest.mark.parametrize(
    "token", ["", "null", "None", "set-password", "0-0", "%00", "../..", "x" * 5000]
)
def test_c16_a_reset_token_that_was_not_sent_opens_nothing(minsu, token):
    browser = Client(raise_request_exception=False)
    uid = format(minsu.pk, "x")
    for known in (uid, "", "null"):
        told = browser.get(f"/accounts/password/reset/key/{known}-{token}/", follow=True)
        assert told.status_code in {200, 400, 404}
        assert b"password1" not in told.content
        new = {"password1": "another horse battery", "password2": "another horse battery"}
        browser.post(f"/accounts/password/reset/key/{known}-{token}/", new, follow=True)
    minsu.refresh_from_db()
    assert minsu.check_password("correct horse battery")


# Web


@pytest.mark.parametrize("name", ["X_Forwarded_For", "x_forwarded-for", "X-Forwarded_For"])
def test_c28_a_header_with_underscores_is_no_header_of_a_proxy(web, settings, minsu, name):
    settings.TRUSTED_PROXIES = settings.ALLAUTH_TRUSTED_PROXY_COUNT = 1
    browser = httpx.Client(base_url=web.url, follow_redirects=False)
    page = browser.get("/accounts/login/")
    form = {"login": "minsu", "password": "correct horse battery"}
    form["csrfmiddlewaretoken"] = browser.cookies["csrftoken"]
    headers = [("X-Forwarded-For", "192.0.2.1"), (name, "6.6.6.6"), ("Referer", str(page.url))]
    assert browser.post("/accounts/login/", data=form, headers=headers).status_code == 302
    key = make_key(minsu)
    sessions = httpx.get(
        f"{web.url}/api/v1/me/sessions", headers={"Authorization": f"Token {key}"}
    ).json()
    assert [one["address"] for one in sessions["results"]] == ["192.0.2.1"]


@pytest.mark.parametrize("name", ["X-Remote-User", "X_Remote_User", "Remote-User", "X-User"])
def test_c28_no_header_names_the_user(web, minsu, name):
    told = httpx.get(f"{web.url}/api/v1/me", headers={name: "minsu"})
    assert told.status_code == 401


@pytest.fixture
def behind_https(settings, monkeypatch):
    """The settings of an installation with `NURA_HTTPS=yes`, as far as they are about that."""
    monkeypatch.setenv("NURA_HTTPS", "yes")
    prod = importlib.import_module("nura.settings.prod")
    prod = importlib.reload(prod)
    for name in dir(prod):
        if name.startswith(("SECURE_", "SESSION_COOKIE_", "CSRF_COOKIE_", "CONTENT_SECURITY_")):
            setattr(settings, name, getattr(prod, name))
    yield settings
    monkeypatch.undo()
    importlib.reload(prod)


def test_c29_pages_carry_every_header_that_browsers_heed(behind_https, minsu):
    call_command("check", "--deploy", "--tag", "security", "--fail-level", "WARNING")
    assert Client().get("/accounts/login/").status_code == 301
    browser = Client()
    form = {"login": "minsu", "password": "correct horse battery"}
    told = browser.post("/accounts/login/", form, secure=True)
    told = browser.get("/", secure=True)
    assert told["Strict-Transport-Security"].startswith("max-age=31536000")
    assert told["X-Content-Type-Options"] == "nosniff"
    assert told["Referrer-Policy"] == "same-origin"
    assert told["Cross-Origin-Opener-Policy"] == "same-origin"
    assert told["X-Frame-Options"] == "DENY"
    policy = dict(part.strip().split(" ", 1) for part in told["Content-Security-Policy"].split(";"))
    assert policy["frame-ancestors"] == policy["object-src"] == policy["base-uri"] == "'none'"
    assert policy["img-src"] == "'self' data:"
    assert re.fullmatch(r"'self' 'nonce-[\w+/=]{20,}'", policy["script-src"])
    session, csrf = browser.cookies["sessionid"], browser.cookies["csrftoken"]
    assert session["secure"]
    assert session["httponly"]
    assert csrf["secure"]
    assert session["samesite"] == csrf["samesite"] == "Lax"


BAD_BODIES = (b"{", b"\xff\xfe", b"[]", b'"x"', b"null", json.dumps({"x": "\x00"}).encode())


def test_c30_no_error_of_any_route_tells_of_the_insides(minsu):
    program = APIClient(raise_request_exception=False)
    program.force_authenticate(minsu)
    gateway = {"HTTP_AUTHORIZATION": f"Bearer {make_key(minsu)}"}
    things = dict.fromkeys(strangers.COLLECTIONS.values(), "0") | {"question": "0"}
    for operation in strangers.operations():
        headers = gateway if operation.of_gateway else {}
        for body in BAD_BODIES if operation.body else (b"",):
            told = program.generic(
                operation.method.upper(),
                operation.url(things),
                body,
                content_type="application/json",
                **headers,
            )
            assert told.status_code < 500, (operation, body)
            if told.status_code < 400:
                continue
            told.render() if hasattr(told, "render") else None
            text = told.content.decode()
            assert not OUR_WAYS.search(text), (operation, text)
            if operation.of_gateway:
                assert told.json()["error"]["message"]
            else:
                assert told["Content-Type"] == "application/problem+json", operation
                assert told.json()["code"]


# Database


def test_c85_who_gets_no_connection_is_told_to_come_again(web, minsu):
    headers = {"Authorization": f"Token {make_key(minsu)}"}
    pool = locations.POOL["max_size"]

    def call(_number):
        return people.get("/api/v1/categories", headers=headers)

    with (
        httpx.Client(
            base_url=web.url,
            timeout=2 * PATIENCE_SECONDS,
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=0),
        ) as people,
        ThreadPoolExecutor(pool + 20) as threads,
        psycopg.connect(**reach_database()) as other,
    ):
        assert call(0).status_code == 200
        other.execute("LOCK TABLE chats_category IN ACCESS EXCLUSIVE MODE")
        waiting = [threads.submit(call, number) for number in range(pool + 20)]
        ended = iter(as_completed(waiting, PATIENCE_SECONDS))  # who waits for the table does not
        refused = [next(ended).result() for _ in range(20)]
        assert {one.status_code for one in refused} == {503}
        assert {one.headers["Retry-After"] for one in refused} == {"5"}
        assert people.get("/healthz").status_code == 200
        other.rollback()
        assert {one.result().status_code for one in waiting} == {200, 503}
        assert call(0).status_code == 200


def test_c90_what_several_devices_make_at_once_is_made_once(web, minsu, settings):
    told = call_at_once(web, minsu, "POST", "/api/v1/categories", json={"name": "여비"})
    assert min(one.status_code for one in told) == 201
    assert Category.objects.count() == 1

    body = {"content": "질문", "client_id": str(uuid.uuid4())}
    told = call_at_once(web, minsu, "POST", "/api/v1/messages?wait=false", json=body)
    assert len({one.json()["run_id"] for one in told}) == 1
    assert (Chat.objects.count(), Message.objects.count()) == (1, 2)

    call_at_once(web, minsu, "PATCH", "/api/v1/me/preferences", json={"theme": "dark"})

    kept = {"kind": "fact", "key": "직업", "value": "간호사"}
    told = call_at_once(web, minsu, "POST", "/api/v1/me/memory", json=kept)
    assert {one.status_code for one in told} == {201}
    assert [slot.value for slot in ProfileSlot.objects.all()] == ["간호사"]

    answer = open_turn(user=minsu, content="질문").assistant_message
    Message.objects.filter(pk=answer.pk).update(status="COMPLETED")
    path = f"/api/v1/messages/{answer.pk}/feedback"
    told = call_at_once(web, minsu, "POST", path, json={"value": 1})
    assert {one.status_code for one in told} == {204}
    assert Feedback.objects.count() == 1
