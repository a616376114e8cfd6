"""Chats that are shown to others: who reads what, and how it ends."""

from datetime import timedelta

import pytest
from allauth.account.models import EmailAddress
from django.contrib.auth.models import Group, User
from django.test import Client
from django.utils import timezone

from chats.models import Chat, ChatShare, Message, Turn
from chats.services.branches import delete_message
from chats.services.chats import delete_chat
from chats.services.turns import open_turn
from documents.audit import AuditEvent
from tests.chats.conftest import client, make_document
from tests.chats.turns import add_turn

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def reader(transactional_db):
    return User.objects.create_user("reader", "reader@example.com", "pw")


def share(api, chat_id, **body):
    return api.post(f"/api/v1/chats/{chat_id}/share", body, format="json")


def read(user, share_id):
    return client(user).get(f"/api/v1/shared/{share_id}")


@pytest.fixture
def document(owner):
    return make_document(owner, "비밀 규정.md")


@pytest.fixture
def chat(owner, document):
    return add_turn(owner, "출장비는?", document, content="하루 5만 원입니다 [1].").chat


def test_a_named_person_reads_the_chat_and_nobody_else_does(api, chat, reader, stranger):
    made = share(api, chat.pk, users=["reader"])
    assert made.status_code == 201, made.json()
    shown = read(reader, made.data["id"])
    assert [one["content"] for one in shown.data["messages"]] == [
        "출장비는?",
        "하루 5만 원입니다 [1].",
    ]
    assert read(stranger, made.data["id"]).status_code == 404
    assert [one["id"] for one in client(reader).get("/api/v1/shared").data["results"]] == [
        made.data["id"]
    ]
    assert client(stranger).get("/api/v1/shared").data["count"] == 0


def test_a_confirmed_address_names_its_owner_and_any_other_nobody(api, chat, reader, stranger):
    EmailAddress.objects.create(user=reader, email="reader@example.com", verified=True)
    EmailAddress.objects.create(user=stranger, email="boss@example.com", verified=False)
    made = share(api, chat.pk, users=["Reader@Example.com", "reader"])
    assert made.data["audience"]["users"] == ["reader"]
    assert read(reader, made.data["id"]).status_code == 200
    told = [share(api, chat.pk, users=[name]).json() for name in ("boss@example.com", "nobody")]
    assert [one["errors"]["users"][0].replace("boss@example.com", "nobody") for one in told] == [
        told[1]["errors"]["users"][0]
    ] * 2
    assert read(stranger, made.data["id"]).status_code == 404


def test_a_group_reads_it_until_one_leaves_the_group(api, owner, chat, reader):
    group = Group.objects.create(name="인사팀")
    owner.groups.add(group)
    reader.groups.add(group)
    made = share(api, chat.pk, groups=["인사팀"])
    assert read(reader, made.data["id"]).status_code == 200
    reader.groups.remove(group)
    assert read(reader, made.data["id"]).status_code == 404


def test_everybody_who_is_signed_in_reads_it(api, chat, stranger):
    made = share(api, chat.pk, everybody=True)
    assert read(stranger, made.data["id"]).status_code == 200
    assert Client().get(f"/shared/{made.data['id']}").status_code == 302


def test_a_group_of_others_and_an_unknown_name_are_refused(api, chat):
    Group.objects.create(name="임원")
    assert "groups" in share(api, chat.pk, groups=["임원"]).json()["errors"]
    assert "users" in share(api, chat.pk, users=["아무도"]).json()["errors"]
    assert not ChatShare.objects.exists()


def test_a_source_that_the_reader_may_not_read_is_a_number_alone(api, chat, document, reader):
    made = share(api, chat.pk, users=["reader"])
    answer = read(reader, made.data["id"])
    assert answer.data["messages"][1]["sources"] == [{"slot": 1, "available": False}]
    body = answer.content.decode()
    assert "비밀 규정" not in body
    assert str(document.pk) not in body
    assert "본문" not in body
    mine = client(chat.owner).get(f"/api/v1/shared/{made.data['id']}")
    assert mine.data["messages"][1]["sources"][0]["document_name"] == "비밀 규정.md"


def test_the_page_names_no_document_that_the_reader_may_not_read(api, chat, document, reader):
    made = share(api, chat.pk, users=["reader"])
    browser = Client()
    browser.force_login(reader)
    page = browser.get(f"/shared/{made.data['id']}")
    body = page.content.decode()
    assert "하루 5만 원입니다" in body
    assert "비밀 규정" not in body
    assert str(document.pk) not in body


@pytest.mark.parametrize("how", [{"label": "passages"}, {"mode": "document"}, {"mode": "clarify"}])
def test_an_answer_that_is_text_of_documents_is_shown_to_their_readers_only(
    api, owner, document, reader, how
):
    candidates = [{"slot": 1, "document_id": str(document.pk), "title": "비밀"}]
    named = {"candidates": candidates, "sources": None} if how.get("mode") == "clarify" else {}
    turn = add_turn(owner, "보여 줘", document, content="비밀 문장", **how, **named)
    made = share(api, turn.chat_id, users=["reader"])
    shown = read(reader, made.data["id"])
    assert "비밀" not in shown.content.decode()
    assert (
        client(owner).get(f"/api/v1/shared/{made.data['id']}").data["messages"][1]["content"]
        == "비밀 문장"
    )


def test_nothing_of_how_an_answer_came_about_is_shown(api, owner, chat, reader):
    Message.objects.filter(chat=chat).update(reasoning="속생각", scope={"document_ids": ["x"]})
    made = share(api, chat.pk, users=["reader"])
    shown = read(reader, made.data["id"])
    assert set(shown.data["messages"][1]) == {
        *("id", "role", "content", "label", "sources", "created_at")
    }
    assert "속생각" not in shown.content.decode()
    answer = Message.objects.get(chat=chat, role="assistant")
    for what in ("", "/trace", "/sources"):
        assert client(reader).get(f"/api/v1/messages/{answer.pk}{what}").status_code == 404
    assert client(reader).get(f"/api/v1/chats/{chat.pk}/context").status_code == 404


def test_what_is_said_later_is_shown_once_its_owner_updates_it(api, owner, chat, reader):
    made = share(api, chat.pk, users=["reader"])
    add_turn(owner, "그럼 숙박비는?", chat_id=chat.pk)
    address = f"/api/v1/shares/{made.data['id']}"
    assert len(read(reader, made.data["id"]).data["messages"]) == 2
    assert api.patch(address, {"update": True}, format="json").status_code == 200
    assert len(read(reader, made.data["id"]).data["messages"]) == 4


def test_an_answer_that_is_being_written_is_not_shared(api, owner, chat, reader):
    open_turn(user=owner, content="더", chat_id=chat.pk)
    made = share(api, chat.pk, users=["reader"])
    assert len(read(reader, made.data["id"]).data["messages"]) == 2


def test_a_share_ends_when_it_is_revoked_when_its_time_is_over_and_with_its_chat(
    api, owner, chat, reader
):
    made = share(api, chat.pk, users=["reader"])
    ChatShare.objects.update(expires_at=timezone.now() - timedelta(seconds=1))
    assert read(reader, made.data["id"]).status_code == 404
    assert api.get("/api/v1/shares").data["results"][0]["is_over"]
    ChatShare.objects.update(expires_at=None)
    owner.is_active = False
    owner.save()
    assert read(reader, made.data["id"]).status_code == 404
    owner.is_active = True
    owner.save()
    assert read(reader, made.data["id"]).status_code == 200
    assert client(owner).delete(f"/api/v1/shares/{made.data['id']}").status_code == 204
    assert read(reader, made.data["id"]).status_code == 404
    again = share(client(owner), chat.pk, users=["reader"])
    assert again.data["id"] != made.data["id"]
    delete_chat(chat=Chat.objects.get(pk=chat.pk))
    assert read(reader, again.data["id"]).status_code == 404
    assert not ChatShare.objects.exists()


def test_a_message_that_is_deleted_is_gone_from_the_share(api, owner, chat, reader):
    add_turn(owner, "둘째", chat_id=chat.pk)
    made = share(api, chat.pk, users=["reader"])
    last = Message.objects.filter(chat=chat, role="assistant").latest("created_at")
    delete_message(message=last)
    assert len(read(reader, made.data["id"]).data["messages"]) == 2


def test_a_reader_may_change_nothing(api, chat, reader):
    made = share(api, chat.pk, users=["reader"])
    theirs = client(reader)
    address = f"/api/v1/shares/{made.data['id']}"
    for response in (
        theirs.get(address),
        theirs.patch(address, {"everybody": True}, format="json"),
        theirs.delete(address),
        theirs.get(f"/api/v1/chats/{chat.pk}"),
        theirs.post(f"/api/v1/chats/{chat.pk}/share", {"everybody": True}, format="json"),
    ):
        assert response.status_code == 404
    assert ChatShare.objects.filter(for_everybody=False).exists()


def test_a_reader_goes_on_in_a_chat_of_his_own_with_his_own_rights(
    api, owner, chat, document, reader
):
    own = make_document(reader, "내 문서.md")
    add_turn(owner, "둘째", own, chat_id=chat.pk, content="둘째 답 [1]")
    made = share(api, chat.pk, users=["reader"])
    fork = client(reader).post(f"/api/v1/shared/{made.data['id']}/fork")
    assert fork.status_code == 201
    copies = Message.objects.filter(chat=fork.data["id"]).order_by("created_at")
    assert [one.content for one in copies][1] == "하루 5만 원입니다 [1]."
    assert copies[1].sources is None
    assert [one["document_id"] for one in copies[3].sources] == [str(own.pk)]
    kept = repr(list(Turn.objects.filter(chat=fork.data["id"]).values()))
    assert "비밀 규정" not in kept
    assert str(document.pk) not in kept
    asked = open_turn(user=reader, content="더", chat_id=fork.data["id"])
    assert asked.assistant_message.scope["document_ids"] == [str(own.pk)]
    delete_chat(chat=Chat.objects.get(pk=chat.pk))
    assert client(reader).get(f"/api/v1/chats/{fork.data['id']}").status_code == 200


def test_what_its_owner_said_is_not_noted_of_whoever_copies_it(api, owner, reader):
    turn = add_turn(owner, "나는 땅콩 알레르기가 있어", content="알겠습니다")
    made = share(api, turn.chat_id, users=["reader"])
    fork = client(reader).post(f"/api/v1/shared/{made.data['id']}/fork")
    assert all(Turn.objects.filter(chat=fork.data["id"]).values_list("profile_read_at", flat=True))


def test_sharing_is_written_to_the_audit_log_without_a_word_of_the_chat(api, chat, reader):
    made = share(api, chat.pk, users=["reader"])
    api.delete(f"/api/v1/shares/{made.data['id']}")
    events = AuditEvent.objects.filter(action="share_changed").order_by("pk")
    assert [one.target for one in events] == [f"chatshare:{made.data['id']}"] * 2
    assert events[0].details["users"] == [reader.pk]
    assert events[1].details == {"ended": True}


def test_an_answer_is_shown_without_script_foreign_picture_or_dangerous_link(api, owner, reader):
    said = (
        "<script>alert(1)</script> ![그림](https://evil.example/x.png) [x](javascript:alert(1)) [1]"
    )
    turn = add_turn(owner, "질문", content=said)
    made = share(api, turn.chat_id, users=["reader"])
    browser = Client()
    browser.force_login(reader)
    body = browser.get(f"/shared/{made.data['id']}").content.decode()
    thread = body[body.index("shared-thread") :]
    assert "<script>alert" not in body
    assert "<img" not in thread
    assert "evil.example" not in body
    assert 'href="javascript' not in body


def test_a_chat_is_shared_and_no_longer_by_the_dialog(owner, chat, reader):
    browser = Client()
    browser.force_login(owner)
    address = f"/panels/chats/{chat.pk}/share"
    assert "errorlist" in browser.post(address, {"users": ""}).content.decode()
    assert "errorlist" in browser.post(address, {"users": "아무도"}).content.decode()
    browser.post(address, {"users": "reader", "days": "7"})
    made = ChatShare.objects.get()
    assert made.expires_at - timezone.now() < timedelta(days=7, minutes=1)
    assert f"/shared/{made.pk}" in browser.get(address).content.decode()
    browser.post(address, {"end": "yes"})
    assert not ChatShare.objects.exists()


def test_the_list_of_shared_chats_says_with_whom(api, owner, chat, reader):
    owner.groups.add(Group.objects.create(name="인사팀"))
    share(api, chat.pk, users=["reader"], groups=["인사팀"])
    browser = Client()
    browser.force_login(owner)
    assert "reader, 인사팀" in " ".join(browser.get("/shared").content.decode().split())
