"""Keys that may do some things and not others, and the sessions of an account, over REST."""

from datetime import timedelta

import pytest
from django.test import Client
from django.utils import timezone
from knox.models import AuthToken
from rest_framework.test import APIClient

from chats.models import KeyDetails
from documents.audit import Action, AuditEvent
from nura.accounts import services
from tests import strangers
from tests.strangers import call, operations

pytestmark = pytest.mark.django_db

KEYS, SESSIONS = "/api/v1/me/keys", "/api/v1/me/sessions"
ALL = ["read", "ask", "upload", "admin"]


@pytest.fixture(autouse=True)
def _own_files(settings, tmp_path):
    settings.MEDIA_ROOT, settings.DATA_DIR = tmp_path / "files", tmp_path


def make_program(user, *scopes, **options):
    _stored, key = services.make_key(user=user, name="p", scopes=scopes, **options)
    client = APIClient()
    client.credentials(HTTP_AUTHORIZATION=f"Token {key}")
    return client


def find_needed_scope(operation):
    """The scope that an operation should take."""
    if operation.path.startswith(("/api/v1/me/keys", "/api/v1/me/sessions", "/api/v1/me/export")):
        return "admin"
    if operation.method == "get" or operation.path == "/api/v1/search":
        return "read"
    if operation.path.startswith(("/api/v1/documents", "/api/v1/libraries")):
        return "upload"
    return "admin" if f"{operation.path}/".startswith("/api/v1/me/") else "ask"


CLOSED = [one for one in operations() if not one.public]


@pytest.mark.parametrize("operations", strangers.all_of(CLOSED))
def test_a_key_without_the_scope_is_refused_with_a_sentence(operations, minsu):
    world = strangers.make_world(minsu)
    lacking = {scope: make_program(minsu, *(set(ALL) - {scope})) for scope in ALL}
    before = strangers.everything()
    for operation in operations:
        wanted = find_needed_scope(operation)
        response = call(lacking[wanted], operation, world)
        assert response.status_code == 403, operation
        body = response.json()
        told = body.get("error", body)
        assert told["code"] == "scope_missing", operation
        assert f"‘{wanted}’" in (told.get("detail") or told["message"]), operation
    assert strangers.everything()["tables"] == before["tables"]


@pytest.mark.parametrize("scope", ALL)
def test_one_scope_holds_no_other(scope, minsu):
    client = make_program(minsu, scope)
    assert (client.get("/api/v1/chats").status_code == 200) is (scope == "read")
    assert (client.post("/api/v1/chats", {}, format="json").status_code == 201) is (scope == "ask")
    assert (client.get(KEYS).status_code == 200) is (scope == "admin")
    upload = client.post("/api/v1/documents", {})
    assert (upload.status_code == 400) is (scope == "upload")


def test_a_key_from_before_there_were_scopes_may_do_everything(minsu):
    client = APIClient()
    client.credentials(HTTP_AUTHORIZATION=f"Token {AuthToken.objects.create(minsu)[1]}")
    assert client.get(KEYS).json()["results"][0]["scopes"] == ALL
    assert client.post("/api/v1/chats", {}, format="json").status_code == 201


def test_the_secret_is_told_once(minsu):
    client = make_program(minsu, *ALL)
    soon = timezone.now() + timedelta(days=30)
    made = client.post(
        KEYS, {"name": "집", "scopes": ["ask", "read"], "expires_at": soon}, format="json"
    )
    assert made.status_code == 201
    told = made.json()
    assert (told["name"], told["scopes"], told["last_used_at"]) == ("집", ["read", "ask"], None)
    other = APIClient()
    other.credentials(HTTP_AUTHORIZATION=f"Token {told['key']}")
    assert other.get("/api/v1/chats").status_code == 200
    listed = client.get(KEYS)
    assert told["key"] not in listed.content.decode()
    shown = next(one for one in listed.json()["results"] if one["id"] == told["id"])
    assert shown["last_used_at"]
    assert shown["expires_at"] == told["expires_at"]


@pytest.mark.parametrize(
    "body",
    [
        {"name": "x", "scopes": []},
        {"name": "x", "scopes": ["root"]},
        {"scopes": ["read"]},
        {"name": "x", "scopes": ["read"], "expires_at": "2001-01-01T00:00:00Z"},
    ],
)
def test_a_key_that_makes_no_sense_is_not_made(minsu, body):
    assert make_program(minsu, *ALL).post(KEYS, body, format="json").status_code == 400


def test_a_key_makes_no_key_that_may_do_more_or_lives_longer(minsu):
    client = make_program(minsu, "admin", expires_at=timezone.now() + timedelta(days=1))
    refused = client.post(KEYS, {"name": "x", "scopes": ["admin", "read"]}, format="json")
    assert (refused.status_code, refused.json()["code"]) == (403, "scope_missing")
    made = client.post(KEYS, {"name": "x", "scopes": ["admin"]}, format="json").json()
    mine = AuthToken.objects.order_by("created").first()
    assert AuthToken.objects.latest("created").expiry <= mine.expiry
    assert made["expires_at"]


def test_a_revoked_key_is_401_and_a_strangers_404(minsu, stranger):
    client, theirs = make_program(minsu, *ALL), make_program(stranger, *ALL)
    key_id = client.get(KEYS).json()["results"][0]["id"]
    assert theirs.delete(f"{KEYS}/{key_id}").status_code == 404
    assert client.delete(f"{KEYS}/{key_id}").status_code == 204
    assert client.get("/api/v1/chats").status_code == 401


def test_the_last_use_is_written_once_a_minute_at_most(minsu):
    client = make_program(minsu, *ALL)
    client.get("/api/v1/chats")
    first = KeyDetails.objects.get().last_used_at
    client.get("/api/v1/chats")
    assert KeyDetails.objects.get().last_used_at == first
    KeyDetails.objects.update(last_used_at=first - timedelta(seconds=61))
    client.get("/api/v1/chats")
    assert KeyDetails.objects.get().last_used_at > first


def test_a_key_in_the_address_is_none(minsu):
    _stored, key = services.make_key(user=minsu, name="p", scopes=ALL)
    for name in ("key", "token", "api_key", "access_token"):
        assert APIClient().get(f"/api/v1/chats?{name}={key}").status_code == 401


def make_browser(user, agent):
    browser = Client(headers={"User-Agent": agent})
    browser.post(
        "/accounts/login/", {"login": user.username, "password": "correct horse battery staple"}
    )
    return browser


FIREFOX = "Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0"
CHROME = (
    "Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) "
    "Chrome/140.0.0.0 Safari/537.36"
)


def test_sessions_are_listed_with_their_device_and_this_one_first(minsu):
    make_browser(minsu, FIREFOX)
    here = make_browser(minsu, CHROME)
    told = here.get(SESSIONS).json()["results"]
    assert [(one["device"], one["is_current"]) for one in told] == [
        ("Chrome · Windows", True),
        ("Firefox · Linux", False),
    ]
    assert told[0]["address"] == "127.0.0.1"
    assert here.session.session_key not in str(told)


def test_one_session_is_ended_from_another(minsu, stranger):
    there, here = make_browser(minsu, FIREFOX), make_browser(minsu, CHROME)
    other = here.get(SESSIONS).json()["results"][1]["id"]
    assert make_program(stranger, "admin").delete(f"{SESSIONS}/{other}").status_code == 404
    assert make_program(minsu, "admin").delete(f"{SESSIONS}/{other}").status_code == 204
    assert there.get("/api/v1/me").status_code == 401
    assert here.get("/api/v1/me").status_code == 200
    assert AuditEvent.objects.filter(action=Action.SESSION_ENDED, subject_id=minsu.pk).exists()


@pytest.mark.parametrize("keeps", [True, False])
def test_signing_out_everywhere_ends_sessions_that_nobody_noted_too(minsu, keeps):
    unnoted = Client()
    unnoted.force_login(minsu)
    there, here = make_browser(minsu, FIREFOX), make_browser(minsu, CHROME)
    token = here.cookies["csrftoken"].value if "csrftoken" in here.cookies else ""
    query = "?keep_current=true" if keeps else ""
    response = here.delete(f"{SESSIONS}{query}", headers={"X-CSRFToken": token})
    assert response.status_code == 204
    assert [c.get("/api/v1/me").status_code for c in (unnoted, there)] == [401, 401]
    assert here.get("/api/v1/me").status_code == (200 if keeps else 401)


def test_a_session_of_an_earlier_version_is_listed_once_it_is_seen(minsu):
    browser = Client(headers={"User-Agent": FIREFOX})
    browser.force_login(minsu)
    browser.get("/api/v1/me")
    assert [one["device"] for one in browser.get(SESSIONS).json()["results"]] == ["Firefox · Linux"]
