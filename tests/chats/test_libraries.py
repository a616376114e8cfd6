"""Questions to libraries, and what is left of one when its rights have ended."""

import asyncio
import time
from contextlib import suppress
from dataclasses import replace

import pytest
from django.contrib.auth.models import Group, User
from django.db import OperationalError, connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from knox.models import AuthToken

from chats import access
from chats.gateway import catalogue
from chats.history import Branch, BranchHistory
from chats.models import Message, Run
from chats.runs import answering, log
from chats.services import answer_cache
from chats.services.chats import create_chat
from chats.services.export import export_markdown
from chats.services.search import find_everything
from chats.services.turns import open_turn
from chats.socket import CHECK_PAUSE_SECONDS
from documents import libraries
from documents.errors import LibraryNotFound
from documents.models import Document, LibraryRole
from nura.accounts.roles import change_memberships
from rag.config import Endpoint
from rag.conversation import Question
from rag.types import Scope, ScopeReason
from tests.chats.conftest import client, make_document
from tests.chats.gateway.wire import connect_program, make_body
from tests.chats.test_rights import CHATS, ENDLESS, SOON, has_run_ended, hear_the_end, key, web
from tests.chats.test_socket import hear, open_socket
from tests.chats.test_socket import say as say_frame
from tests.chats.turns import add_turn, answer_turn, load_conversation_after
from tests.documents.test_libraries import give_row
from tests.support import wait_until

__all__ = ["key", "web"]
pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def library(stranger):
    """A library of somebody else's with one document, which `owner` reads."""
    library = libraries.create_library(creator=stranger, name="규정")
    put(library, stranger)
    return library


@pytest.fixture
def membership(library, owner, stranger):
    role = LibraryRole.READER
    return libraries.add_member(library=library, principal=owner, role=role, actor=stranger)


@pytest.fixture
def shared(library, membership):
    """The document."""
    return Document.objects.get(library=library)


def put(library, uploader, name="공유.md"):
    document = make_document(uploader, name=name)
    Document.objects.filter(pk=document.pk).update(library=library)
    return document


def leave(membership):
    libraries.remove_member(member=membership, actor=membership.user)


def get_scope(turn):
    scope = turn.assistant_message.scope
    return set(scope["document_ids"]), scope["reason"]


# Scope


def test_a_question_without_a_choice_reads_all_that_its_asker_may(owner, shared):
    own = make_document(owner)
    turn = open_turn(user=owner, content="질문")
    assert get_scope(turn) == ({str(own.pk), str(shared.pk)}, "all")
    assert turn.run.library_ids == [shared.library_id]


def test_a_question_reads_the_library_that_it_names(owner, library, shared):
    make_document(owner)
    turn = open_turn(user=owner, content="질문", library_ids=[library.pk])
    assert get_scope(turn) == ({str(shared.pk)}, "explicit")
    assert turn.assistant_message.scope["library_ids"] == [str(library.pk)]


def test_a_chat_that_begins_with_a_library_is_about_it(owner, library, shared):
    make_document(owner)
    first = open_turn(user=owner, content="질문", library_ids=[library.pk])
    later = open_turn(user=owner, content="더", chat_id=first.user_message.chat_id)
    assert get_scope(later) == ({str(shared.pk)}, "chat")
    wider = open_turn(user=owner, content="전부", chat_id=first.user_message.chat_id, topic="all")
    assert get_scope(wider)[1] == "all"


def test_documents_and_libraries_of_a_question_add_up(owner, library, shared):
    own = make_document(owner)
    turn = open_turn(user=owner, content="질문", document_ids=[own.pk], library_ids=[library.pk])
    assert get_scope(turn) == ({str(own.pk), str(shared.pk)}, "explicit")


def test_a_question_goes_before_its_chat(owner, library, shared):
    own = make_document(owner)
    chat = create_chat(owner=owner, title="대화", library_ids=[library.pk])
    turn = open_turn(user=owner, content="질문", chat_id=chat.pk, document_ids=[own.pk])
    assert get_scope(turn) == ({str(own.pk)}, "explicit")


def test_a_library_of_others_cannot_be_named(owner, stranger, library):
    with pytest.raises(LibraryNotFound):
        open_turn(user=owner, content="질문", library_ids=[library.pk])
    with pytest.raises(LibraryNotFound):
        create_chat(owner=owner, title="대화", library_ids=[library.pk])


def test_a_chat_about_a_library_that_is_closed_finds_nothing_and_never_widens(
    owner, library, shared, membership
):
    make_document(owner)
    chat = create_chat(owner=owner, title="대화", library_ids=[library.pk])
    leave(membership)
    assert get_scope(open_turn(user=owner, content="질문", chat_id=chat.pk)) == (set(), "chat")


def test_a_chat_is_bound_to_libraries_over_rest(owner, library, shared):
    api = client(owner)
    made = api.post("/api/v1/chats", {"library_ids": [str(library.pk)]}, format="json").json()
    assert made["library_ids"] == [str(library.pk)]
    address = f"/api/v1/chats/{made['id']}"
    assert api.patch(address, {"library_ids": []}, format="json").json()["library_ids"] == []


def test_a_library_is_a_model_of_the_gateway(owner, stranger, library, shared):
    model = catalogue.find_model(owner, f"nura/{library.pk}")
    assert (model.name, model.reason) == ("규정", ScopeReason.EXPLICIT)
    assert model.scope.document_ids == (shared.pk,)
    assert f"nura/{library.pk}" in {one["id"] for one in catalogue.list_models(owner)["data"]}


# When a membership ends


@pytest.fixture
def model(settings, llm_server):
    settings.RAG = replace(settings.RAG, llm=Endpoint(llm_server.url, "stand-in"))
    llm_server.default = ENDLESS
    return llm_server


def give_to_group(owner, shared, membership):
    """The membership passes from the owner to a group that he is in."""
    group = Group.objects.create(name="모두")
    owner.groups.add(group)
    role = LibraryRole.READER
    actor = shared.owner
    libraries.add_member(library=shared.library, principal=group, role=role, actor=actor)
    leave(membership)
    return group


def end_by_group(owner, shared, membership):
    group = give_to_group(owner, shared, membership)
    return lambda: owner.groups.remove(group)


def end_by_disbanding(owner, shared, membership):
    group, browser = give_to_group(owner, shared, membership), Client()
    browser.force_login(User.objects.create_superuser("root"))
    return lambda: browser.post(f"/admin/auth/group/{group.pk}/delete/", {"post": "yes"})


def end_by_move(owner, shared, membership):
    return lambda: libraries.move_document(document=shared, library=None, actor=shared.owner)


def end_by_deletion(owner, shared, membership):
    return lambda: libraries.delete_library(
        library=shared.library,
        actor=shared.owner,
        documents=libraries.DocumentFate.OWNERS,
    )


def end_by_leaving(owner, shared, membership):
    return lambda: leave(membership)


def end_in_the_administration(owner, shared, membership):
    browser, follower = Client(), User.objects.create_user("follower")
    browser.force_login(User.objects.create_superuser("root"))
    return lambda: give_row(browser, membership, follower)


ANNOUNCED = [
    end_by_leaving,
    end_by_disbanding,
    end_by_move,
    end_by_deletion,
    end_in_the_administration,
]
ENDS = [*ANNOUNCED, end_by_group]


@pytest.mark.parametrize("make_end", ENDS)
def test_an_answer_that_reads_a_library_ends_with_the_right_to_it(
    owner, shared, membership, model, answers_worker, make_end
):
    end_right = make_end(owner, shared, membership)
    turn = open_turn(user=owner, content="안녕")
    wait_until(lambda: model.chats)
    since = time.monotonic()
    end_right()
    assert model.chats[0].wait_closed_by_client()
    wait_until(lambda: has_run_ended(turn), SOON)
    assert time.monotonic() - since < SOON
    assert Message.objects.get(role="assistant").status == Message.Status.STOPPED


def test_an_answer_goes_on_that_reads_other_libraries(
    owner, stranger, shared, membership, model, answers_worker
):
    other = libraries.create_library(creator=owner, name="다른 곳")
    put(other, owner)
    turn = open_turn(user=owner, content="안녕", library_ids=[other.pk])
    wait_until(lambda: model.chats)
    leave(membership)
    assert access.stop_runs_without_rights() == []
    assert not has_run_ended(turn)
    log.request_stop(turn.run.pk)
    wait_until(lambda: has_run_ended(turn))


@pytest.mark.parametrize("headers", CHATS, ids=["unstored", "chat"])
def test_a_stream_of_the_gateway_ends_with_the_right_to_what_it_reads(
    web, owner, key, shared, membership, model, answers_worker, headers
):
    body = make_body("안녕", stream=True)
    with (
        connect_program(web, key) as http,
        http.stream("POST", "/chat/completions", json=body, headers=headers) as response,
    ):
        took, _rest = hear_the_end(response, lambda: leave(membership))
    assert took < SOON
    assert model.chats[0].wait_closed_by_client()


@pytest.mark.parametrize("make_end", ANNOUNCED)
async def test_an_open_page_is_told_at_once_that_its_user_reads_less(
    web, owner, shared, membership, make_end
):
    def prepare():
        return make_end(owner, shared, membership), [
            AuthToken.objects.create(user)[1]
            for user in (owner, User.objects.create_user("another"))
        ]

    end_right, (mine, of_another) = await asyncio.to_thread(prepare)
    async with open_socket(web, mine) as ws, open_socket(web, of_another) as other:
        for one in (ws, other):
            await say_frame(one, "ping")
            await hear(one, "pong")
        since = time.monotonic()
        await asyncio.to_thread(end_right)
        heard = await hear(ws, "rights.changed")
        assert time.monotonic() - since < SOON
        assert heard[-1]["data"] == {}
        await say_frame(other, "ping")
        assert "rights.changed" not in {one["type"] for one in await hear(other, "pong")}


async def test_an_open_page_is_told_that_its_user_has_another_role(web, stranger, membership, key):
    def promote():
        role = LibraryRole.CONTRIBUTOR
        libraries.change_member(member=membership, role=role, actor=stranger)

    async with open_socket(web, key) as ws:
        await say_frame(ws, "ping")
        await hear(ws, "pong")
        await asyncio.to_thread(promote)
        heard = await hear(ws, "rights.changed")
        assert [one["type"] for one in heard] == ["rights.changed"]


@pytest.mark.parametrize("by_group", [False, True])
async def test_an_open_page_is_told_at_once_that_its_user_reads_more(
    web, owner, stranger, library, key, by_group
):
    def prepare():
        group = Group.objects.create(name="총무")
        if by_group:
            role = LibraryRole.READER
            libraries.add_member(library=library, principal=group, role=role, actor=stranger)
        return group

    def admit():
        if by_group:
            change_memberships(user=owner, join=[group])
        else:
            role = LibraryRole.READER
            libraries.add_member(library=library, principal=owner, role=role, actor=stranger)

    group = await asyncio.to_thread(prepare)
    async with open_socket(web, key) as ws:
        await say_frame(ws, "ping")
        await hear(ws, "pong")
        since = time.monotonic()
        await asyncio.to_thread(admit)
        heard = await hear(ws, "rights.changed")
        assert time.monotonic() - since < SOON
        assert {one["type"] for one in heard} <= {"rights.changed", "shared.changed"}


async def test_an_open_page_is_not_told_of_rights_that_others_lost(
    web, stranger, library, shared, membership, key
):
    def end_anothers():
        role, another = LibraryRole.READER, User.objects.create_user("another")
        member = libraries.add_member(library=library, principal=another, role=role, actor=stranger)
        libraries.remove_member(member=member, actor=stranger)

    async with open_socket(web, key) as ws:
        await say_frame(ws, "ping")
        await hear(ws, "pong")
        await asyncio.to_thread(end_anothers)
        await asyncio.to_thread(leave, membership)
        heard = await hear(ws, "rights.changed")
        assert [one["type"] for one in heard] == ["rights.changed"]
        await say_frame(ws, "ping")
        assert [one["type"] for one in await hear(ws, "pong")] == ["pong"]


async def test_an_open_page_hears_little_of_many_documents_that_are_moved_in_a_row(
    web, owner, stranger, library, shared, key
):
    def move_all():
        for one in documents:
            libraries.move_document(document=one, library=None, actor=stranger)

    put_many = [await asyncio.to_thread(put, library, stranger, f"{n}.md") for n in range(30)]
    documents = [shared, *put_many]
    async with open_socket(web, key) as ws:
        await say_frame(ws, "ping")
        await hear(ws, "pong")
        since = time.monotonic()
        await asyncio.to_thread(move_all)
        took = time.monotonic() - since
        heard = await hear(ws, "rights.changed")
        with suppress(TimeoutError):
            async with asyncio.timeout(2 * CHECK_PAUSE_SECONDS):
                while True:
                    heard += await hear(ws, "rights.changed")
        told = [one for one in heard if one["type"] == "rights.changed"]
        assert len(told) <= took / CHECK_PAUSE_SECONDS + 2


async def test_what_is_stored_nowhere_waits_for_the_end_of_the_right(owner, shared, membership):
    held = asyncio.create_task(access.wait_until_any_closed(owner.pk, {shared.library_id}))
    done, _ = await asyncio.wait([held], timeout=0.3)
    assert not done
    await asyncio.to_thread(leave, membership)
    await asyncio.wait_for(held, SOON)


def test_a_document_that_was_moved_is_looked_up_once_a_user_not_once_an_answer(
    owner, library, shared
):
    moved = put(library, owner, "옮긴 것.md")
    counts = []
    for number in range(3):
        open_turn(user=owner, content=f"질문 {number}")
        if not number:
            libraries.move_document(document=moved, library=None, actor=owner)
        with CaptureQueriesContext(connection) as queries:
            assert access.stop_runs_without_rights() == []
        counts.append(len(queries))
    assert len(set(counts)) == 1


async def test_no_answer_ends_because_the_database_cannot_tell_whether_it_may(
    owner, library, monkeypatch
):
    asked = []

    def cannot_tell(_user_id, _library_ids):
        asked.append(1)
        if len(asked) == 1:
            raise OperationalError("the database is away")
        return len(asked) < 3

    monkeypatch.setattr(access, "may_read_libraries", cannot_tell)
    monkeypatch.setattr(access, "RECHECK_SECONDS", 0.01)
    await asyncio.wait_for(access.wait_until_any_closed(owner.pk, {library.pk}), 5)
    assert len(asked) == 3


def test_the_log_of_an_answer_goes_with_the_right(owner, shared, membership):
    turn = open_turn(user=owner, content="질문")
    answer_turn(turn, shared)
    assert log.load_events(turn.run.pk)
    leave(membership)
    assert access.stop_runs_without_rights() == []
    assert not log.load_events(turn.run.pk)
    assert Run.objects.get(pk=turn.run.pk).library_ids is None


def test_an_old_answer_keeps_its_words_and_shows_no_passage(owner, shared, membership):
    turn = add_turn(owner, "질문", shared, content="답 [1]", label="documents")
    message = f"/api/v1/messages/{turn.message_id}"
    chat = f"/api/v1/chats/{turn.chat_id}"
    api = client(owner)
    assert api.get(message).json()["sources"][0]["content_preview"] == "본문"
    leave(membership)
    told = api.get(message).json()
    assert told["content"] == "답 [1]"
    assert told["sources"][0]["unreadable"] is True
    assert told["sources"][0]["document_name"] == "공유.md"
    for address in (
        message,
        f"{message}/sources",
        f"{chat}/messages",
        f"{chat}/turns",
        f"{chat}/turns/1",
        f"{chat}/turns/1/documents",
        f"{chat}/export?format=md",
        f"{chat}/export?format=json",
    ):
        answer = api.get(address)
        assert answer.status_code == 200
        assert "본문" not in answer.content.decode(), address
    for part in ("", "/file", "/text", "/chunks", "/pages/1.png"):
        assert api.get(f"/api/v1/documents/{shared.pk}{part}").status_code == 404


def test_an_answer_of_nothing_but_passages_gives_way_to_a_sentence(owner, shared, membership):
    turn = add_turn(owner, "질문", shared, content="본문 [1]", label="passages")
    leave(membership)
    told = client(owner).get(f"/api/v1/messages/{turn.message_id}").json()
    assert "본문" not in told["content"]
    assert "[1]" in told["content"]
    assert find_everything(user=owner, query="본문")["messages"] == []
    turn.chat.refresh_from_db()
    assert "본문" not in export_markdown(turn.chat, [turn])


def test_what_was_shown_comes_back_with_the_right(owner, stranger, library, shared, membership):
    turn = add_turn(owner, "질문", shared)
    leave(membership)
    role = LibraryRole.READER
    libraries.add_member(library=library, principal=owner, role=role, actor=stranger)
    told = client(owner).get(f"/api/v1/messages/{turn.message_id}").json()
    assert told["sources"][0]["content_preview"] == "본문"


def test_a_later_question_is_told_nothing_of_what_was_closed(owner, shared, membership):
    turn = add_turn(owner, "질문", shared, content="본문 [1]", label="passages")
    leave(membership)
    known = load_conversation_after(turn)
    assert known.readable == {}
    assert known.memory.documents == ()
    assert "본문" not in repr(known.last_turn)
    message = Message.objects.select_related("chat__owner").get(pk=turn.message_id)
    history = BranchHistory(Branch.to_message(message))
    assert "본문" not in repr((history.get_turns([1]), history.list_documents()))


def test_a_kept_answer_is_not_looked_up_over_what_is_closed(owner, shared, membership, settings):
    ids = tuple(Document.objects.visible_to(owner).values_list("pk", flat=True))
    question = Question("휴가는 며칠입니까?", Scope(ids, ScopeReason.ALL))
    assert answer_cache.make_key(question, settings.RAG, owner=owner) is not None
    leave(membership)
    assert answer_cache.make_key(question, settings.RAG, owner=owner) is None


def test_a_document_in_a_library_is_found_by_its_members_alone(owner, stranger, shared, membership):
    assert find_everything(user=owner, query="공유")["documents"]
    leave(membership)
    assert not find_everything(user=owner, query="공유")["documents"]


def test_a_question_that_waited_reads_nothing_that_was_closed_meanwhile(owner, shared, membership):
    own = make_document(owner)
    turn = open_turn(user=owner, content="질문")
    leave(membership)
    (claimed,) = answering.claim_run(turn.run.pk)
    loaded = answering.load_question(claimed.run, claimed.space_in_use)
    assert loaded.question.scope.document_ids == (own.pk,)


def test_a_question_reads_all_of_its_scope_where_nothing_was_closed(owner, shared, membership):
    turn = open_turn(user=owner, content="질문")
    (claimed,) = answering.claim_run(turn.run.pk)
    loaded = answering.load_question(claimed.run, claimed.space_in_use)
    assert loaded.question.scope.document_ids == (shared.pk,)
