"""Who may what with a shared library: every route by every role, over one world each.

The matrix is made from the schema. Whoever is no member gets the answer of an id that was made up,
changes nothing, and reads nothing of the owner's. Readers read what is in the library and change
none of it. What is the owner's own stays so, whatever role somebody has.
"""

import asyncio
from dataclasses import dataclass, field
from functools import partial

import pytest
from django.contrib import admin
from django.contrib.auth.models import Group, User
from django.core.cache import cache
from django.db import connection
from django.test import Client
from django.urls import reverse
from knox.models import AuthToken

from chats.models import Chat
from documents import libraries
from documents.models import Chunk, Document, Library, LibraryMember, LibraryRole
from jobs import connections
from nura.accounts.roles import AccountRole, set_role
from tests import strangers
from tests.chats.gateway.test_mcp import connect
from tests.chats.test_socket import hear, open_socket, say
from tests.servers import asgi
from tests.servers.worker import run_worker
from tests.strangers import FIELDS, SECRET, call, client_of, everything, said, with_id
from tests.test_strangers import LISTS, NAMES, PLACES, WITH_ID, WITH_ID_IN_BODY, pages

pytestmark = pytest.mark.django_db(transaction=True)

OUTSIDE = (
    *("nobody", "stranger", "other group", "former member", "former group"),
    *("auditor", "administrator"),
)
INSIDE = ("reader", "reader by group", "contributor", "manager")
SHARED = {"document", "library", "member", "model"}
"""What a library shares with its members."""
MANAGING = ("/members", "/sources")
"""What only managers read of a library: who else is in it, and what fills it."""
READING = {"POST /api/v1/documents/{id}/trial"}
"""Routes that change nothing though they are no GET."""


@pytest.fixture(autouse=True)
def _own_place(settings, tmp_path, speech_server):
    settings.MEDIA_ROOT = tmp_path / "files"
    settings.DATA_DIR = tmp_path
    connections.get_client().flushdb()
    cache.clear()


@dataclass
class SharedWorld:
    """What the owner has, with its document in a library, and somebody in each role."""

    things: dict
    roles: dict = field(default_factory=dict)

    @property
    def unknown(self):
        return strangers.made_up(self.things)


def make_shared_world():
    owner = User.objects.create_user("owner", "owner@example.com")
    things = strangers.make_world(owner)
    library = Library.objects.get(pk=things["library"])
    Document.objects.filter(pk=things["document"]).update(library=library)
    world = SharedWorld(things, {"nobody": None})
    groups = {name: Group.objects.create(name=name) for name in ("inside", "outside", "former")}
    for name in (*OUTSIDE[1:], *INSIDE):
        world.roles[name] = User.objects.create_user(name.replace(" ", "-"))
    world.roles["other group"].groups.add(groups["outside"])
    elsewhere = libraries.create_library(creator=world.roles["stranger"], name="다른 곳")
    add(elsewhere, groups["outside"], LibraryRole.READER, world.roles["stranger"])
    for name in ("former member", "former group"):
        principal = world.roles[name] if name == "former member" else groups["former"]
        add(library, principal, LibraryRole.MANAGER, owner)
        libraries.remove_member(member=LibraryMember.objects.latest("pk"), actor=owner)
    world.roles["former group"].groups.add(groups["former"])
    set_role(user=world.roles["auditor"], role=AccountRole.AUDITOR)
    set_role(user=world.roles["administrator"], role=AccountRole.ADMINISTRATOR)
    world.roles["reader by group"].groups.add(groups["inside"])
    add(library, groups["inside"], LibraryRole.READER, owner)
    for name in ("reader", "contributor", "manager"):
        add(library, world.roles[name], LibraryRole(name), owner)
    return world


def add(library, principal, role, actor):
    return libraries.add_member(library=library, principal=principal, role=role, actor=actor)


@pytest.fixture
def world(transactional_db):
    return make_shared_world()


def find_leaks(role, operation, foreign, unknown):
    """What is wrong with an answer that should be the one of a made up id."""
    where = f"{role}: {operation}"
    refused = {401, 403} if role == "nobody" else {404}
    if foreign.status_code not in refused:
        yield f"{where} answers {foreign.status_code}"
    elif said(foreign) != said(unknown):
        yield f"{where} tells it from a made up id"
    if SECRET in foreign.content.decode(errors="replace"):
        yield f"{where} tells the secret"


def make_own(user, unknown):
    """What somebody outside has: a document and a chat; nothing else that there is."""
    own = dict(unknown)
    if user is not None:
        own["document"] = strangers.make_document(user).pk
        own["chat"] = Chat.objects.create(owner=user, title="내 대화").pk
        Document.objects.filter(pk=own["document"]).update(name="내 글.pdf", metadata={})
    return own


@pytest.mark.timeout(600)
def test_whoever_is_no_member_finds_nothing_and_changes_nothing(world):
    """Each is told what a stranger is told of a made-up id: one asks for it, for all of them."""
    owns = {role: make_own(world.roles[role], world.unknown) for role in OUTSIDE}
    clients = {role: client_of(world.roles[role]) for role in OUTSIDE}

    def by_path(operation, role, things):
        return call(clients[role], operation, things)

    def by_body(operation, name, role, things):
        body = with_id(operation, name, things[FIELDS[name]])
        return call(clients[role], operation, owns[role], body)

    requests = [(str(one), partial(by_path, one)) for one in WITH_ID]
    requests += [
        (f"{one} {name}", partial(by_body, one, name))
        for one, name in WITH_ID_IN_BODY
        if not one.public and (not one.has_id or one.thing in {"document", "chat"})
    ]
    before, leaks = everything(), []
    for name, ask in requests:
        unknown = {role: ask(role, world.unknown) for role in ("nobody", "stranger")}
        for role in OUTSIDE:
            told = unknown["nobody" if role == "nobody" else "stranger"]
            leaks += find_leaks(role, name, ask(role, world.things), told)
    assert leaks == []
    assert everything() == before


@pytest.mark.timeout(600)
def test_lists_and_pages_hold_nothing_for_whoever_is_no_member(world):
    leaks = []
    shared = [str(world.things[name]) for name in ("document", "library", "chat", "answer")]
    browsers = {role: Client() for role in OUTSIDE[1:]}
    for role, browser in browsers.items():
        browser.force_login(world.roles[role])
        client = client_of(world.roles[role])
        for operation in LISTS:
            for query in ("", f"?q={SECRET}", "?page_size=1000"):
                body = client.get(operation.url(world.things) + query).content.decode()
                leaks += [f"{role} {operation}{query}" for one in (SECRET, *shared) if one in body]
        for path in PLACES:
            body = browser.get(path.format(**world.things)).content.decode()
            body = body.replace(f'value="{SECRET}"', "")  # the search field repeats what was asked
            leaks += [f"{role} {path}"] if SECRET in body else []
    for page in pages():
        for method in ("get", "post"):
            made_up = getattr(browsers["stranger"], method)(to_path(page, world.unknown))
            for role, browser in browsers.items():
                theirs = getattr(browser, method)(to_path(page, world.things))
                if theirs.status_code != made_up.status_code or SECRET in theirs.content.decode():
                    leaks.append(f"{role} {page.name}")
    assert leaks == []


def to_path(page, things):
    address = str(page.pattern)
    for name, converter in page.pattern.converters.items():
        kind = {"UUIDConverter": "uuid", "IntConverter": "int"}.get(type(converter).__name__, "str")
        address = address.replace(f"<{kind}:{name}>", str(things[NAMES[name]]))
    return f"/{address}"


def test_an_auditor_reads_no_contents_in_the_administration(world):
    browser, leaks = Client(), []
    browser.force_login(world.roles["auditor"])
    for model in admin.site._registry:
        name = f"admin:{model._meta.app_label}_{model._meta.model_name}_changelist"
        response = browser.get(reverse(name))
        leaks += [name] if SECRET in response.content.decode() else []
    assert leaks == []


@pytest.mark.parametrize("role", INSIDE)
def test_a_member_reads_what_is_shared_and_nothing_else_of_the_owner(role, world):
    client, leaks = client_of(world.roles[role]), []
    for operation in WITH_ID:
        response = call(client, operation, world.things) if operation.method == "get" else None
        if response is None:
            continue
        managed = any(one in operation.path for one in MANAGING)
        if operation.thing in SHARED and (role == "manager" or not managed):
            leaks += [] if response.status_code < 300 else [f"{operation} is not read"]
        else:
            leaks += find_leaks(role, operation, response, call(client, operation, world.unknown))
    assert leaks == []


@pytest.mark.parametrize("role", INSIDE)
def test_a_member_changes_nothing_that_the_role_does_not_allow(role, world):
    client, before, leaks = client_of(world.roles[role]), everything(), []
    for operation in WITH_ID:
        if operation.method == "get" or str(operation) in READING:
            continue
        if role == "manager" and operation.thing in SHARED:
            continue
        foreign = call(client, operation, world.things)
        if foreign.status_code != 404:
            leaks.append(f"{operation} answers {foreign.status_code}")
    assert leaks == []
    assert everything() == before


def test_a_manager_changes_what_is_shared(world):
    client = client_of(world.roles["manager"])
    renamed = client.patch(
        f"/api/v1/documents/{world.things['document']}", {"name": "새 이름.pdf"}, format="json"
    )
    assert renamed.status_code == 200
    left = client.delete(f"/api/v1/libraries/{world.things['library']}?documents=delete")
    assert left.status_code in {200, 204}
    assert not Chunk.objects.filter(document=world.things["document"]).exists()


async def test_no_frame_and_no_tool_tells_whoever_is_no_member_of_anything(transactional_db):
    def prepare():
        world = make_shared_world()
        keys = {
            role: AuthToken.objects.create(world.roles[role])[1]
            for role in (*OUTSIDE[1:], "reader")
        }
        return world, keys, everything()

    world, keys, before = await in_thread(prepare)
    with asgi.run_server() as web:
        for role in OUTSIDE[1:]:
            async with open_socket(web, keys[role]) as ws:
                frames = [*list_frames(world.things), *list_frames(world.unknown)]
                codes = [await hear_refusal(ws, kind, fields) for kind, fields in frames]
                foreign, made_up = codes[: len(codes) // 2], codes[len(codes) // 2 :]
                assert (role, foreign) == (role, made_up)
                assert set(foreign) <= {"not_found", "library_not_found"}
            found = await use_tools(web, keys[role], world.things)
            unknown = await use_tools(web, keys[role], world.unknown)
            assert (role, found) == (role, unknown)
            assert SECRET not in str(found)
        assert await in_thread(everything) == before
        with run_worker(patience=0.0):
            for role in OUTSIDE[1:]:
                assert (role, await search_all(web, keys[role])) == (role, [])
        told = await use_tools(web, keys["reader"], world.things, names=READING_TOOLS)
        assert [call for call, text in told.items() if SECRET not in text] == []


async def test_a_reader_searches_and_asks_with_the_tools_of_mcp(answers_worker):
    def prepare():
        world = make_shared_world()
        return world, AuthToken.objects.create(world.roles["reader"])[1]

    world, key = await in_thread(prepare)
    with asgi.run_server() as web:
        told = await use_tools(web, key, world.things, names=ASKING_TOOLS)
    assert {call.split()[0] for call in told} == ASKING_TOOLS
    assert [call for call, text in told.items() if SECRET not in text] == []


async def test_a_reader_asks_over_the_socket_what_no_other_may(answers_worker):
    def prepare():
        world = make_shared_world()
        return world, AuthToken.objects.create(world.roles["reader"])[1]

    world, key = await in_thread(prepare)
    body = {"content": "휴가", "library_ids": [str(world.things["library"])]}
    with asgi.run_server() as web:
        async with open_socket(web, key) as ws:
            await say(ws, "send", **body)
            (started,) = [x for x in await hear(ws, "run.completed") if x["type"] == "run.started"]
    scope = started["data"]["assistant_message"]["scope"]
    assert scope["document_ids"] == [str(world.things["document"])]


async def in_thread(work):
    """What the work gives, which asks the database on a connection of its own."""

    def run():
        try:
            return work()
        finally:
            connection.close()

    return await asyncio.to_thread(run)


async def hear_refusal(ws, kind, fields):
    """The code with which a frame is refused; None where it is not."""
    await say(ws, kind, **fields)
    heard = await hear(ws, "error", "run.started", "share.open")
    return heard[-1]["data"].get("code")


def list_frames(things):
    yield "resume", {"run_id": str(things["run"])}
    yield "send", {"content": "질문", "chat_id": str(things["chat"])}
    yield "send", {"content": "질문", "document_ids": [str(things["document"])]}
    yield "send", {"content": "질문", "library_ids": [str(things["library"])]}
    yield "send", {"content": "질문", "assistant_id": str(things["assistant"])}
    yield "watch", {"share_id": str(things["share"])}


TOOL_FIELDS = {
    "document_id": "document",
    "document_ids": "document",
    "library_ids": "library",
}
"""What these arguments of a tool name."""
TOOL_TEXTS = {"query": "휴가", "question": "휴가"}


READING_TOOLS = {"list_documents", "list_libraries", "read_page"}
"""Those that need no answers worker."""
ASKING_TOOLS = {"search", "ask"}


async def use_tools(web, key, things, names=None):
    """What each tool of MCP says, with each argument that names something: text by the call.

    The calls are made from the schemas of the tools: one that names something in a new way fails.
    """
    told = {}
    async with connect(web, key) as client:
        tools = (await client.list_tools()).tools
        for tool in (one for one in tools if names is None or one.name in names):
            for name, arguments in list_calls(tool, things):
                result = await client.call_tool(tool.name, arguments)
                text = f"{result.is_error} {result.content} {result.structured_content}"
                for thing in set(TOOL_FIELDS.values()):
                    text = text.replace(str(things[thing]), "-")
                told[name] = text
    return told


def list_calls(tool, things):
    """Name and arguments of one call for each argument of a tool that names something."""
    shapes = tool.input_schema.get("properties", {})
    texts = {name: TOOL_TEXTS[name] for name in shapes if name in TOOL_TEXTS}
    naming = [name for name, shape in shapes.items() if "uuid" in str(shape)]
    assert set(naming) <= set(TOOL_FIELDS), tool.name
    for name in naming:
        value = str(things[TOOL_FIELDS[name]])
        given = value if shapes[name].get("format") == "uuid" else [value]
        yield f"{tool.name} {name}", {**texts, name: given}
    if not naming:
        yield tool.name, texts


async def search_all(web, key):
    """What a search finds that names nothing."""
    async with connect(web, key) as client:
        result = await client.call_tool("search", {"query": "휴가"})
    return result.structured_content["result"]
