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
from tests.chats.test_socket import hear, open_socket, say
from tests.servers import asgi
from tests.strangers import (
    COMMITTED,
    FIELDS,
    SECRET,
    all_of,
    call,
    client_of,
    everything,
    example,
    said,
    with_id,
)

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
    connections.get_client().flushdb()
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
    """Parameters: one a route, for what changes the world."""
    return [pytest.param(one, marks=COMMITTED if one.of_gateway else ()) for one in operations]


def named(value):
    return str(value) if isinstance(value, strangers.Operation) else None


def test_every_route_is_of_a_known_kind():
    known = {str(one) for one in (*WITH_ID, *LISTS)} | {str(one) for one, _ in WITH_ID_IN_BODY}
    assert {str(one) for one in ALL} - known == MAKING
    assert {field for _, field in WITH_ID_IN_BODY} == set(FIELDS)
    assert len(WITH_ID) >= 18


def is_served(response):
    return response.status_code < 300 or response.json()["code"] == "document_not_processing"


@pytest.mark.parametrize("operations", all_of(one for one in WITH_ID if one.method == "get"))
def test_the_owner_reads_what_a_stranger_does_not(operations, owner, world):
    client = client_of(owner)
    refused = [str(one) for one in operations if not is_served(call(client, one, world))]
    assert refused == []


@pytest.mark.parametrize(
    "operation", each(one for one in WITH_ID if one.method != "get"), ids=named
)
def test_the_owner_changes_what_a_stranger_does_not(operation, owner, world):
    assert is_served(call(client_of(owner), operation, world))


@pytest.mark.parametrize("operations", all_of(WITH_ID))
def test_a_stranger_gets_the_404_of_a_made_up_id_and_changes_nothing(operations, stranger, world):
    client, before, leaks = client_of(stranger), everything(), []
    for operation in operations:
        foreign = call(client, operation, world)
        unknown = call(client, operation, strangers.made_up(world))
        if foreign.status_code != 404 or said(foreign) != said(unknown):
            leaks.append((str(operation), said(foreign), said(unknown)))
    assert leaks == []
    assert everything() == before


@pytest.mark.parametrize("rows", all_of(WITH_ID_IN_BODY))
def test_a_foreign_id_in_a_body_is_a_made_up_one(rows, stranger, world):
    client, own = client_of(stranger), strangers.make_world(stranger)
    before, leaks = everything(), []
    for operation, field in rows:
        bodies = (with_id(operation, field, key) for key in (world[FIELDS[field]], uuid.uuid4()))
        foreign, unknown = (call(client, operation, own, body) for body in bodies)
        if foreign.status_code != 404 or said(foreign) != said(unknown):
            leaks.append((f"{operation} {field}", said(foreign), said(unknown)))
    assert leaks == []
    assert everything() == before


SEVERAL = [row for row in WITH_ID_IN_BODY if row[1] in {"document_ids", "library_ids", "tool_ids"}]


@pytest.mark.parametrize("rows", all_of(SEVERAL))
def test_one_foreign_id_among_own_ones_refuses_them_all(rows, stranger, world):
    client, own, answers = client_of(stranger), strangers.make_world(stranger), {}
    before = everything()
    for operation, field in rows:
        thing = FIELDS[field]
        body = with_id(operation, field, own[thing])
        body[field].append(str(world[thing]))
        answers[f"{operation} {field}"] = call(client, operation, own, body).status_code
    assert answers == dict.fromkeys(answers, 404)
    assert everything()["tables"] == before["tables"]


@pytest.mark.parametrize("operations", all_of(LISTS))
def test_a_list_holds_nothing_of_another_user(operations, stranger, world):
    client = client_of(stranger)
    for operation in operations:
        for query in ("", f"?q={SECRET}", "?page_size=1000", "?status=COMPLETED"):
            where = operation.url(world) + query
            response = client.get(where)
            assert response.status_code == 200, where
            body = response.content.decode()
            assert SECRET not in body, where
            # a member's id is a number, which may stand anywhere
            assert not [one for one, key in world.items() if str(key) in body and one != "member"]
            own = 1 if operation.path.endswith("/me/keys") else 0  # the key that asks
            listed = response.json()
            count = listed.get("count", 0) if isinstance(listed, dict) else len(listed)
            assert count == own, where


@pytest.mark.parametrize("operations", all_of(one for one in ALL if not one.public))
def test_without_a_key_nothing_is_told_and_nothing_changes(operations, world):
    before, leaks = everything(), []
    for operation in operations:
        response = call(client_of(None), operation, world)
        unknown = call(client_of(None), operation, strangers.made_up(world))
        if response.status_code not in {401, 403} or said(response) != said(unknown):
            leaks.append((str(operation), said(response), said(unknown)))
    assert leaks == []
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


def test_a_page_of_another_user_is_the_page_that_is_not_there(stranger, world):
    def path(page, things):
        address = str(page.pattern)
        for name, converter in page.pattern.converters.items():
            kind = "uuid" if "UUID" in type(converter).__name__ else "str"
            address = address.replace(f"<{kind}:{name}>", str(things[NAMES[name]]))
        return f"/{address}"

    browser = Client()
    browser.force_login(stranger)
    before = everything()
    for page in pages():
        for method in (browser.get, browser.post):
            theirs = method(path(page, world))
            nobodys = method(path(page, strangers.made_up(world)))
            assert theirs.status_code == nobodys.status_code, page.name
            assert theirs.status_code in {404, 405}, page.name
            assert SECRET not in theirs.content.decode(), page.name
    assert everything() == before


PLACES = (
    *("/", "/?documents={document}", "/documents", f"/documents?q={SECRET}", "/settings/keys"),
    *("/shared", "/assistants", "/prompts", "/?assistant={assistant}"),
    f"/prompts/folder?name={SECRET}",
    *("/settings/profile", "/settings/appearance", "/settings/memory"),
    "/settings/sign-on",
    *("/panels/chats", f"/panels/chats?q={SECRET}", "/panels/chats?current={chat}"),
)


def test_a_page_shows_nothing_of_another_user(stranger, world):
    browser = Client()
    browser.force_login(stranger)
    for path in PLACES:
        body = browser.get(path.format(**world)).content.decode()
        body = body.replace(f'value="{SECRET}"', "")  # the search field repeats what was asked
        body = body.replace(f"documents={world['document']}", "")  # the way back: the address
        assert SECRET not in body, path
        assert str(world["document"]) not in body, path


@COMMITTED
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
    with asgi.run_server() as web:
        async with open_socket(web, key) as ws:
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
