"""Administrators see what is not theirs for a reason only, and the reason is written down first."""

import pytest
from django.contrib.auth.models import User
from django.core.files.base import ContentFile
from django.test import Client
from django.utils import timezone

from chats.models import Chat, Message, Turn
from documents.audit import Action, AuditEvent
from documents.models import DocumentPage
from documents.services import upload_document
from nura.accounts.roles import AccountRole, set_role

pytestmark = pytest.mark.django_db

SAID, ANSWERED, TITLE, WRITTEN = "비밀질문", "비밀답변", "비밀제목", "비밀본문"
REASON = "지원 요청 #12345 확인"


@pytest.fixture
def minsu():
    return User.objects.create_user("minsu", password="p")


@pytest.fixture
def chat(minsu):
    chat = Chat.objects.create(owner=minsu, title=TITLE)
    question = Message.objects.create(
        chat=chat, role="user", content=SAID, created_at=timezone.now()
    )
    answer = Message.objects.create(
        chat=chat, role="assistant", parent=question, content=ANSWERED, created_at=timezone.now()
    )
    Turn.objects.create(
        chat=chat, message=answer, number=1, ts=timezone.now(), user_text=SAID, assistant_text="x"
    )
    return chat


@pytest.fixture
def document(minsu, settings, tmp_path):
    settings.MEDIA_ROOT = tmp_path
    file = ContentFile(WRITTEN.encode(), name="a.txt")
    made, _created = upload_document(owner=minsu, name="a.txt", content=file, metadata=None)
    DocumentPage.objects.create(document=made, number=1, start=0, text=WRITTEN)
    return made


def list_addresses(chat, document):
    return {
        f"/admin/chats/chat/{chat.pk}/contents/": (TITLE, SAID, ANSWERED),
        f"/admin/chats/message/{chat.messages.last().pk}/contents/": (ANSWERED,),
        f"/admin/documents/document/{document.pk}/contents/": (WRITTEN,),
    }


def test_no_page_of_the_administration_shows_what_people_said_or_wrote(
    admin_client, chat, document
):
    message = chat.messages.first()
    pages = [
        "/admin/",
        *("/admin/chats/chat/", "/admin/chats/message/", "/admin/documents/document/"),
        *(f"/admin/chats/chat/{chat.pk}/{page}/" for page in ("change", "history")),
        f"/admin/chats/message/{message.pk}/change/",
        f"/admin/documents/document/{document.pk}/change/",
        f"/admin/documents/document/{document.pk}/delete/",
        f"/admin/auth/user/{chat.owner_id}/delete/",
        *(f"/admin/chats/{kind}/?q={SAID[:2]}" for kind in ("chat", "message")),
        *list_addresses(chat, document),
    ]
    for address in pages:
        page = admin_client.get(address, follow=True).content.decode()
        for text in (SAID, ANSWERED, TITLE, WRITTEN):
            assert text not in page, address
    assert not AuditEvent.objects.filter(action=Action.DATA_VIEWED).exists()


def test_a_search_does_not_tell_what_people_said(admin_client, chat):
    for kind in ("chat", "message"):
        page = admin_client.get(f"/admin/chats/{kind}/", {"q": SAID}).content.decode()
        assert str(chat.pk) not in page


def test_a_reason_is_written_down_and_then_it_is_shown(admin_client, admin_user, chat, document):
    for address, texts in list_addresses(chat, document).items():
        page = admin_client.post(address, {"reason": REASON})
        entry = AuditEvent.objects.filter(action=Action.DATA_VIEWED).first()
        assert (entry.actor_id, entry.subject_id) == (admin_user.pk, chat.owner_id)
        assert entry.details == {"reason": REASON}
        assert entry.target.rpartition(":")[2] in address
        assert all(text in page.content.decode() for text in texts), address
        assert "no-store" in page.headers["Cache-Control"]


@pytest.mark.parametrize("reason", ["", "    ", "ok"])
def test_without_a_reason_nothing_is_shown(admin_client, chat, document, reason):
    for address, texts in list_addresses(chat, document).items():
        page = admin_client.post(address, {"reason": reason}).content.decode()
        assert not any(text in page for text in texts)
    assert not AuditEvent.objects.filter(action=Action.DATA_VIEWED).exists()


def test_who_is_no_administrator_sees_nothing_with_a_reason_either(client, chat, document):
    stranger = User.objects.create_user("stranger", password="p")
    auditor = User.objects.create_user("auditor", password="p")
    set_role(user=auditor, role=AccountRole.AUDITOR)
    for user in (stranger, auditor, chat.owner):
        browser = Client()
        browser.force_login(user)
        for address in list_addresses(chat, document):
            assert browser.post(address, {"reason": REASON}).status_code in {302, 403}
    assert not AuditEvent.objects.filter(action=Action.DATA_VIEWED).exists()


def test_what_does_not_exist_is_not_found(admin_client, chat):
    gone = "00000000-0000-0000-0000-000000000001"
    assert (
        admin_client.post(f"/admin/chats/chat/{gone}/contents/", {"reason": REASON}).status_code
        == 404
    )


def test_a_restored_chat_is_written_down(admin_client, chat):
    Chat.objects.update(deleted_at=timezone.now())
    form = {"action": "restore", "_selected_action": [str(chat.pk)]}
    admin_client.post("/admin/chats/chat/", form)
    restored = AuditEvent.objects.get(action=Action.DATA_RESTORED)
    assert (restored.subject_name, restored.target) == ("minsu", f"chat:{chat.pk}")
