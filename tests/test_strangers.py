"""Whoever is not the owner finds nothing: every route of the schema, every page, every frame.

The matrix is made from the schema, so a route that is added is in it; one that fits none of its
kinds fails `test_every_route_is_of_a_known_kind` until it has found its place here.
"""

import asyncio
import uuid

import pytest
from django.contrib.auth.models import User
from django.core.cache import cache
from django.test import Client
from django.urls import URLPattern
from knox.models import AuthToken

import chats.urls
import documents.urls
import nura.accounts.urls
from chats.models import Chat, Message, Run
from chats.runs import log
from documents.models import Document
from jobs import connections
from tests import strangers
from tests.chats.test_socket import hear, say, socket
from tests.servers import asgi
from tests.strangers import FIELDS, SECRET, call, client_of, everything, example, said, with_id

pytestmark = pytest.mark.django_db

ALL = strangers.operations()
WITH_ID = [one for one in ALL if one.has_id]
LISTS = [one for one in ALL if not one.has_id and one.method == "get"]
WITH_ID_IN_BODY = [(one, field) for one in ALL for field in one.id_fields]
MAKING = {
    "POST /api/v1/auth/token",
    "POST /api/v1/categories",
    "POST /api/v1/libraries",
    "POST /api/v1/documents/cancel",
    "POST /api/v1/documents/pause",
    "POST /api/v1/documents/resume",
    "PATCH /api/v1/me/preferences",
    "POST /api/v1/me/keys",
    "DELETE /api/v1/me/sessions",
    "POST /api/v1/prompts",
    "POST /api/v1/prompts/import",
    "POST /api/v1/prompts/folders",
    "POST /api/v1/me/memory",
    "PATCH /api/v1/me/memory",
    "DELETE /api/v1/me/memory",
    "POST /api/v1/me/export",
    "POST /api/v1/me/imports",
    "DELETE /api/v1/me",
}
"""Routes that name no object at all."""


@pytest.fixture(autouse=True)
def _own_place(settings, tmp_path, speech_server):
    settings.MEDIA_ROOT = tmp_path / "files"
    settings.DATA_DIR = tmp_path
    connections.sync().flushdb()
    cache.clear()


@pytest.fixture
def owner(db):
    return User.objects.create_user("owner", "owner@example.com")


@pytest.fixture
def stranger(db):
    return User.objects.create_user("stranger", "stranger@example.com")


@pytest.fixture
def world(owner):
    return strangers.make_world(owner)


def each(operations):
    """Parameters; what a view asks of the database in another thread must have been committed."""
    committed = pytest.mark.django_db(transaction=True)
    rows = [one if isinstance(one, tuple) else (one,) for one in operations]
    return [pytest.param(*row, marks=committed if row[0].of_gateway else ()) for row in rows]


def named(value):
    return str(value) if isinstance(value, strangers.Operation) else None


def test_every_route_is_of_a_known_kind():
    known = {str(one) for one in (*WITH_ID, *LISTS)} | {str(one) for one, _ in WITH_ID_IN_BODY}
    assert {str(one) for one in ALL} - known == MAKING
    assert {field for _, field in WITH_ID_IN_BODY} == set(FIELDS)
    assert len(WITH_ID) >= 18


@pytest.mark.parametrize("operation", each(WITH_ID), ids=named)
def test_the_owner_is_served_where_a_stranger_is_not(operation, owner, world):
    response = call(client_of(owner), operation, world)
    assert response.status_code < 300 or response.json()["code"] == "document_not_processing"


@pytest.mark.parametrize("operation", each(WITH_ID), ids=named)
def test_a_stranger_gets_the_404_of_a_made_up_id_and_changes_nothing(operation, stranger, world):
    client = client_of(stranger)
    before = everything()
    foreign = call(client, operation, world)
    assert everything() == before
    assert foreign.status_code == 404
    assert said(foreign) == said(call(client, operation, strangers.made_up(world)))


@pytest.mark.parametrize(("operation", "field"), each(WITH_ID_IN_BODY), ids=named)
def test_a_foreign_id_in_a_body_is_a_made_up_one(operation, field, stranger, owner, world):
    client = client_of(stranger)
    own = strangers.make_world(stranger) if operation.has_id else world
    before = everything()
    thing = FIELDS[field]
    foreign = call(client, operation, own, with_id(operation, field, world[thing]))
    assert everything() == before
    assert foreign.status_code == 404
    unknown = with_id(operation, field, uuid.uuid4())
    assert said(foreign) == said(call(client, operation, own, unknown))


@pytest.mark.parametrize(("operation", "field"), each(WITH_ID_IN_BODY), ids=named)
def test_one_foreign_id_among_own_ones_refuses_them_all(operation, field, stranger, world):
    if field not in {"document_ids", "library_ids", "tool_ids"}:
        pytest.skip("names one object")
    own, thing = strangers.make_world(stranger), FIELDS[field]
    body = with_id(operation, field, own[thing])
    body[field].append(str(world[thing]))
    before = everything()
    response = call(client_of(stranger), operation, own, body)
    assert response.status_code == 404
    assert everything()["tables"] | {"knox.AuthToken": 0} == before["tables"] | {
        "knox.AuthToken": 0
    }


@pytest.mark.parametrize("operation", each(LISTS), ids=named)
def test_a_list_holds_nothing_of_another_user(operation, stranger, world):
    client = client_of(stranger)
    for query in ("", f"?q={SECRET}", "?page_size=1000", "?status=COMPLETED"):
        response = client.get(operation.url(world) + query)
        assert response.status_code == 200
        body = response.content.decode()
        assert SECRET not in body
        # a member's id is a number, which may stand anywhere
        assert not [name for name, key in world.items() if str(key) in body and name != "member"]
        own = 1 if operation.path.endswith("/me/keys") else 0  # the key that asks
        listed = response.json()
        assert (listed.get("count", 0) if isinstance(listed, dict) else len(listed)) == own


@pytest.mark.parametrize("operation", each(ALL), ids=named)
def test_without_a_key_nothing_is_told_and_nothing_changes(operation, world):
    if operation.public:
        pytest.skip("open to everybody")
    before = everything()
    response = call(client_of(None), operation, world)
    assert response.status_code in {401, 403}
    assert said(response) == said(call(client_of(None), operation, strangers.made_up(world)))
    assert everything() == before


def test_a_search_finds_nothing_of_another_user(stranger, world, answers_worker):
    response = client_of(stranger).post("/api/v1/search", {"query": "휴가"}, format="json")
    assert response.status_code == 200
    assert response.json()["hits"] == []
    assert str(world["document"]) not in response.content.decode()


def test_a_question_of_a_stranger_has_no_foreign_document_in_its_scope(stranger, world):
    body = {"content": f"{SECRET}에 대해 알려 줘"}
    answer = client_of(stranger).post("/api/v1/messages?wait=false", body, format="json").json()
    assert answer["assistant_message"]["scope"]["document_ids"] == []


def test_the_client_id_of_another_user_gives_a_run_of_ones_own(stranger, world):
    body = {"content": "질문", "client_id": "owner-2"}
    answer = client_of(stranger).post("/api/v1/messages?wait=false", body, format="json")
    assert answer.status_code == 202
    assert answer.json()["run_id"] != str(world["run"])
    assert Run.objects.get(pk=answer.json()["run_id"]).owner == stranger


def test_the_same_file_of_two_users_is_two_documents(stranger, world):
    again = strangers.make_document(stranger)
    theirs = Document.objects.get(pk=world["document"])
    assert again.pk != theirs.pk
    assert again.sha256 == theirs.sha256
    assert again.file.name != theirs.file.name


def test_a_stop_of_a_stranger_raises_no_flag(stranger, world):
    client_of(stranger).post(f"/api/v1/runs/{world['run']}/stop")
    assert not log.is_stop_requested(world["run"])


FIXED = {
    "id": str(uuid.UUID(int=7)),
    "owner": 1,
    "owner_id": 1,
    "user_id": 1,
    "status": "FAILED",
    "role": "assistant",
    "is_staff": True,
    "is_superuser": True,
    "created_at": "2000-01-01T00:00:00Z",
    "updated_at": "2000-01-01T00:00:00Z",
    "deleted_at": "2000-01-01T00:00:00Z",
    "sha256": "f" * 64,
    "version": 99,
    "chunk_count": 99,
}
"""What no client may decide (A17)."""
WRITING = [one for one in ALL if one.body and "file" not in one.body["properties"]]


@pytest.mark.parametrize("operation", each(WRITING), ids=named)
def test_fields_that_are_not_the_clients_are_ignored_or_refused(
    operation, owner, stranger, world, answers_worker
):
    users = list(User.objects.order_by("pk").values("pk", "is_staff", "is_superuser"))
    document = Document.objects.filter(pk=world["document"])
    kept = document.values("owner", "status", "sha256", "version", "chunk_count", "created_at")[0]
    body = {**FIXED, "owner": stranger.pk, "owner_id": stranger.pk, **example(operation)}
    response = call(client_of(owner), operation, world, body)
    assert response.status_code < 300 or response.status_code in {400, 401}
    assert list(User.objects.order_by("pk").values("pk", "is_staff", "is_superuser")) == users
    assert document.values(*kept)[0] == kept
    for model in (Chat, Document, Message, Run):
        assert not model.objects.filter(pk=FIXED["id"]).exists()
        assert not model.objects.filter(created_at__year=2000).exists()
    assert not Chat.objects.exclude(owner=owner, deleted_at=None).exists()


NOBODYS = {"invitation", "connect-server"}
"""Pages that name nothing of a user: a link for a visitor, a server for all."""


def pages():
    """Every page of ours that names an object of somebody."""
    patterns = (
        *chats.urls.urlpatterns,
        *documents.urls.urlpatterns,
        *nura.accounts.urls.urlpatterns,
    )
    named = [one for one in patterns if isinstance(one, URLPattern) and one.pattern.converters]
    return [one for one in named if one.name not in NOBODYS]


NAMES = {
    "chat_id": "chat",
    "document_id": "document",
    "key_id": "key",
    "session_id": "session",
    "export_id": "export",
    "slot_id": "slot",
    "share_id": "share",
    "assistant_id": "assistant",
    "prompt_id": "prompt",
    "library_id": "library",
    "source_id": "source",
}


@pytest.mark.parametrize("page", pages(), ids=lambda page: page.name)
def test_a_page_of_another_user_is_the_page_that_is_not_there(page, stranger, world):
    def path(things):
        address = str(page.pattern)
        for name, converter in page.pattern.converters.items():
            kind = "uuid" if "UUID" in type(converter).__name__ else "str"
            address = address.replace(f"<{kind}:{name}>", str(things[NAMES[name]]))
        return f"/{address}"

    browser = Client()
    browser.force_login(stranger)
    before = everything()
    for method in (browser.get, browser.post):
        theirs, nobodys = method(path(world)), method(path(strangers.made_up(world)))
        assert theirs.status_code == nobodys.status_code
        assert theirs.status_code in {404, 405}
        assert SECRET not in theirs.content.decode()
    assert everything() == before


PLACES = (
    *("/", "/?documents={document}", "/documents", f"/documents?q={SECRET}", "/settings/keys"),
    *("/shared", "/assistants", "/prompts", "/?assistant={assistant}"),
    f"/prompts/folder?name={SECRET}",
    *("/settings/profile", "/settings/appearance", "/settings/memory"),
    "/settings/sign-on",
    *("/panels/chats", f"/panels/chats?q={SECRET}", "/panels/chats?current={chat}"),
)


@pytest.mark.parametrize("path", PLACES)
def test_a_page_shows_nothing_of_another_user(path, stranger, world):
    browser = Client()
    browser.force_login(stranger)
    body = browser.get(path.format(**world)).content.decode()
    body = body.replace(f'value="{SECRET}"', "")  # the search field repeats what was asked
    body = body.replace(f"documents={world['document']}", "")  # the way back repeats the address
    assert SECRET not in body
    assert str(world["document"]) not in body


@pytest.mark.django_db(transaction=True)
async def test_a_stranger_gets_no_frame_of_a_foreign_object(transactional_db):
    def prepare():
        users = [User.objects.create_user(name) for name in ("owner", "stranger")]
        world = strangers.make_world(users[0])
        return world, AuthToken.objects.create(users[1])[1], everything()

    def frames(things):
        yield "resume", {"run_id": str(things["run"])}
        yield "resume", {"run_id": str(things["run"]), "after_seq": 1}
        yield "stop", {"run_id": str(things["run"])}
        yield "watch", {"share_id": str(things["share"])}
        yield "send", {"content": "질문", "chat_id": str(things["chat"])}
        yield "send", {"content": "질문", "document_ids": [str(things["document"])]}
        yield "send", {"content": "질문", "category_id": str(things["category"])}

    world, key, before = await asyncio.to_thread(prepare)
    with asgi.running() as web:
        async with socket(web, key) as ws:
            for foreign, unknown in zip(
                frames(world), frames(strangers.made_up(world)), strict=True
            ):
                answers = []
                for kind, fields in (foreign, unknown):
                    await say(ws, kind, **fields)
                    heard = await hear(ws, "error", "run.started")
                    data = heard[-1]["data"]
                    answers.append({k: v for k, v in data.items() if k != "run_id"})
                assert answers[0] == answers[1]
                assert answers[0]["code"] == "not_found"
    assert await asyncio.to_thread(everything) == before
