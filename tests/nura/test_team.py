"""A team from nothing: people, groups, libraries, a watched folder, and a membership that ends."""

import contextlib
import re
import threading
import time
import unicodedata
import zipfile
from io import BytesIO, StringIO

import httpx2 as httpx
import pytest
from django.contrib.auth.models import Group, User
from django.core.cache import cache
from django.core.files.storage import default_storage
from django.core.management import call_command
from django.test import Client
from knox.models import AuthToken

from chats.models import Run
from documents import ingest
from documents.connected.models import Connection
from documents.models import Document
from documents.sources import runs
from documents.sources.models import Source, SourceRun
from nura.accounts import exports
from nura.models import DataExport
from tests.chats.conftest import client
from tests.chats.gateway.wire import connect_program
from tests.chats.talking import Talk
from tests.documents.parsers.samples import docx, hwpx, paragraph
from tests.nura.accounts.conftest import PASSWORD
from tests.nura.accounts.test_groups import to_form
from tests.nura.accounts.test_sign_on import begin, fill_in
from tests.nura.accounts.test_signup import sign_up
from tests.servers import asgi, oidc
from tests.servers.fixtures import _llm_server, llm_server
from tests.servers.llm import Stream
from tests.support import wait_until

__all__ = ["_llm_server", "llm_server"]
pytestmark = pytest.mark.django_db(transaction=True)

SECRET = "부엉이작전"
"""Stands in every file of the folder and in nothing that anybody says."""
FILES = 24
SOON = 2.0
"""Within so many seconds rights end, on whatever is open."""
QUESTION = "3층 야간 당직비는 얼마인가요?"
ANSWER = "야간 당직비는 3만 원입니다. [1]"
LINKED, SIGNED_ON = ("hana", "dul"), ("set", "net", "daseot")
"""Who joins by the link, and who by the sign-on server."""


@pytest.fixture(autouse=True)
def own_place(settings, tmp_path):
    settings.MEDIA_ROOT, settings.DATA_DIR = tmp_path / "files", tmp_path
    settings.ANSWER_CACHE_HOURS = 24
    cache.clear()


@pytest.fixture
def web(transactional_db):
    with asgi.run_server() as server:
        yield server


@pytest.fixture
def folder(settings, tmp_path):
    """Mixed files as a file server has them: folders, formats, names of a Mac."""
    root = tmp_path / "mounted"
    settings.SOURCE_FOLDERS = (str(root),)
    for number in range(1, FILES + 1):
        place = root / f"{number % 3 + 1}분기"
        place.mkdir(parents=True, exist_ok=True)
        text = f"{number}층 야간 당직비는 {number}만 원이며 {SECRET}에 따라 준다."
        path = place / unicodedata.normalize("NFD" if number % 2 else "NFC", f"당직 규정 {number}")
        if number % 4 == 0:
            docx(path.with_name(f"{path.name}.docx"), paragraph(text))
        elif number % 4 == 1:
            hwpx(path.with_name(f"{path.name}.hwpx"), text)
        elif number % 4 == 2:
            path.with_name(f"{path.name}.md").write_text(f"# 당직\n\n{text}\n")
        else:
            path.with_name(f"{path.name}.txt").write_bytes(text.encode("cp949"))
    return root


def test_of_a_library_nothing_is_left_to_whoever_loses_the_membership_in_mid_stream(
    web, llm_server, answers_worker, folder
):
    head = begin_installation()
    connect_model(head, llm_server)
    with oidc.run_server() as server:
        invite_five(head, server)
    rules, *_others = make_libraries(watched=folder)
    hana, dul = (User.objects.get(username=name) for name in LINKED)
    assistant = make_assistant(rules)
    llm_server.default = Stream([ANSWER])

    # both read the library; the second is given the answer that the first one got
    mine, theirs = Talk(client(hana)), Talk(client(dul))
    first = mine.say(QUESTION, library_ids=[rules])
    assert (first["content"], first["label"]) == (ANSWER, "documents")
    assert SECRET in str(mine.api.get(f"/api/v1/messages/{first['id']}/sources").json())
    assert theirs.say(QUESTION, library_ids=[rules])["made_at"]
    documents = list(Document.objects.filter(library_id=rules).values_list("pk", flat=True))
    places = list_places(mine, first, documents, rules)
    told = read_all(hana, places)
    assert [place for place, text in zip(places, told, strict=True) if SECRET not in text] == []

    # the membership ends while the assistant answers
    llm_server.default = Stream(["당직비는 ", "그만"], hold=(held := threading.Event()))
    asked = mine.api.post(
        "/api/v1/messages?wait=false",
        {
            "content": "4층 당직비도 알려 주세요.",
            "assistant_id": assistant,
            "chat_id": mine.chat_id,
        },
        format="json",
    ).json()
    try:
        with follow(web, hana, asked["run_id"]) as lines:
            next(line for line in lines if "당직비는" in line)
            since = time.monotonic()
            end_membership(rules, "hana")
            rest = "".join(lines)
            assert time.monotonic() - since < SOON
        assert "그만" not in rest
        assert llm_server.chats[-1].wait_closed_by_client()
        wait_until(lambda: Run.objects.get(pk=asked["run_id"]).ended_at)
    finally:
        held.set()

    # found, read, exported, cited
    told = read_all(hana, places)
    assert not [place for place, text in zip(places, told, strict=True) if SECRET in (text or "")]
    assert read_all(hana, [f"/api/v1/documents/{documents[0]}", f"/api/v1/libraries/{rules}"]) == [
        None,
        None,
    ]
    assert SECRET not in take_along(hana)
    found = mine.api.post("/api/v1/search", {"query": QUESTION}, format="json")
    assert (found.status_code, found.json()["hits"]) == (200, [])
    with connect_program(web, AuthToken.objects.create(hana)[1]) as http:
        assert f"nura/{rules}" not in http.get("/models").text

    # cached, and asked again: neither is kept from before, nor does the model see anything
    llm_server.default = Stream(["문서에서 찾지 못했습니다."])
    for fields in ({"assistant_id": assistant}, {}):
        again = Talk(client(hana)).say(QUESTION, **fields)
        assert not again["made_at"]
        assert not again["sources"]
        assert SECRET not in llm_server.chats[-1].prompt
    assert Talk(client(dul)).say(QUESTION, library_ids=[rules])["content"] == ANSWER


# The steps of an administrator


def begin_installation():
    """The browser of the first account, which somebody made on the machine."""
    assert not User.objects.exists()
    call_command("create_user", "head", "--password", PASSWORD, "--staff", stdout=StringIO())
    browser = Client()
    browser.post("/accounts/login/", {"login": "head", "password": PASSWORD})
    assert browser.get("/admin/").status_code == 200
    return browser


def connect_model(head, server):
    """A connection, and its model as the one that answers."""
    form = {"name": "GPU", "base_url": server.url, "api_key": "", "headers": ""}
    head.post("/admin/models/connections/add/", form)
    chosen = {"role": "main", "connection": Connection.objects.get().pk, "model": "stand-in"}
    form = chosen | {"offered": "on", "is_default": "on", "thinking": "unknown"}
    assert head.post("/admin/models/add/", form).status_code == 302


def invite_five(head, server):
    """Two join by a link and its group, three by the server, which names their group."""
    for name in ("당직팀", "총무팀"):
        assert head.post("/admin/auth/group/add/", to_form(name=name)).status_code == 302
    joined, named = (Group.objects.get(name=name) for name in ("당직팀", "총무팀"))
    form = to_form(named) | {"details-0-directory_name": "affairs"}
    assert head.post(f"/admin/auth/group/{named.pk}/change/", form).status_code == 302
    form = {"email": "", "days": "3", "max_uses": str(len(LINKED)), "groups": [joined.pk]}
    page = head.post("/admin/nura/invitation/add/", form, follow=True).content.decode()
    link = re.search(r"http://testserver(/invitations/[\w-]+)", page)[1]
    for name in LINKED:
        browser = Client()
        browser.get(link)
        sign_up(browser, name=name, email=f"{name}@example.com")
    form = fill_in(server) | {"groups_claim": "groups"}
    assert head.post("/admin/nura/signonserver/add/", form).status_code == 302
    for name in SIGNED_ON:
        server.person = {"sub": name, "preferred_username": name, "groups": ["affairs"]}
        browser = Client()
        assert browser.get(begin(browser)).url == "/"
    assert set(joined.user_set.values_list("username", flat=True)) == set(LINKED)
    assert set(named.user_set.values_list("username", flat=True)) == set(SIGNED_ON)


def make_libraries(watched):
    """Ids of three libraries; `hana` and `dul` read the first, which a folder fills."""
    api = client(User.objects.get(username="head"))
    made = [
        api.post("/api/v1/libraries", {"name": name}, format="json").json()["id"]
        for name in ("당직 규정", "총무", "공지")
    ]
    for name in LINKED:
        role = {"user": name, "role": "reader"}
        added = api.post(f"/api/v1/libraries/{made[0]}/members", role, format="json")
        assert added.status_code == 201, added.json()
    role = {"group": "총무팀", "role": "contributor"}
    assert api.post(f"/api/v1/libraries/{made[1]}/members", role, format="json").status_code == 201
    given = {"kind": "folder", "settings": {"path": str(watched)}}
    source = api.post(f"/api/v1/libraries/{made[0]}/sources", given, format="json").json()
    api.post(f"/api/v1/libraries/{made[0]}/sources/{source['id']}/run", {}, format="json")
    while SourceRun.objects.filter(status="running").exists():
        SourceRun.objects.filter(status="running").update(lease_until=None)
        runs.run_next_source()
        while ingest.ingest_next_document():
            pass
    done = Document.objects.filter(library_id=made[0], status="COMPLETED")
    assert (done.count(), Source.objects.get().library.pk.hex) == (FILES, made[0].replace("-", ""))
    return made


def make_assistant(library):
    """The id of one for everybody that looks into the library."""
    api = client(User.objects.get(username="head"))
    told = {"name": "당직 도우미", "library_ids": [library], "shared": True}
    return api.post("/api/v1/assistants", told, format="json").json()["id"]


def end_membership(library, name):
    """The manager takes the reader out of the library."""
    api = client(User.objects.get(username="head"))
    address = f"/api/v1/libraries/{library}/members"
    rows = api.get(address).json()["results"]
    (row,) = (one for one in rows if one["user"] == name)
    assert api.delete(f"{address}/{row['id']}").status_code == 204


# What a reader can reach


def list_places(talk, answer, documents, library):
    """Addresses that show text of the library to whoever reads it."""
    first = documents[0]
    return [
        *(f"/api/v1/find?q={SECRET}", f"/api/v1/documents/{first}/text"),
        *(f"/api/v1/documents/{first}/chunks", f"/documents/{first}"),
        f"/api/v1/messages/{answer['id']}/sources",
        f"/api/v1/chats/{talk.chat_id}/messages",
        f"/api/v1/chats/{talk.chat_id}/turns/1/documents",
        f"/api/v1/chats/{talk.chat_id}/export?format=json",
    ]


def read_all(user, places):
    """The text of each address as a browser gets it; None where nothing is there."""
    browser = Client()
    browser.force_login(user)
    answers = [browser.get(place) for place in places]
    assert {answer.status_code for answer in answers} <= {200, 404}
    return [
        _read(answer).decode(errors="replace") if answer.status_code == 200 else None
        for answer in answers
    ]


def _read(answer):
    return b"".join(answer.streaming_content) if answer.streaming else answer.content


def take_along(user):
    """All that the file of one's own data holds."""
    made = DataExport.objects.create(owner=user)
    exports.make_export(made.pk)
    with (
        default_storage.open(exports.name_file(made.pk)) as file,
        zipfile.ZipFile(BytesIO(file.read())) as archive,
    ):
        return "".join(archive.read(name).decode(errors="replace") for name in archive.namelist())


@contextlib.contextmanager
def follow(web, user, run_id):
    """The lines of a run's events, as they come."""
    headers = {"Authorization": f"Token {AuthToken.objects.create(user)[1]}"}
    address = f"{web.url}/api/v1/runs/{run_id}/events"
    with httpx.stream("GET", address, headers=headers, timeout=30) as answer:
        yield answer.iter_lines()
