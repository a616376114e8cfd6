"""The administration pages: who may open them, what they do, and their content security policy."""

import json
import re
from pathlib import Path

import pytest
from django.contrib import admin
from django.contrib.auth.models import Group, User
from django.core.files.base import ContentFile
from django.test import Client
from django.urls import reverse
from django.utils import timezone
from django.utils.html import strip_tags
from knox.models import AuthToken

from chats.models import Chat, Message, Run
from documents.models import Document, Library, LibraryMember
from documents.services import upload_document
from nura.accounts import services

pytestmark = pytest.mark.django_db


@pytest.fixture
def minsu():
    return User.objects.create_user("minsu", password="p")


@pytest.fixture
def chat(minsu):
    chat = Chat.objects.create(owner=minsu, title="예산 질문")
    question = Message.objects.create(
        chat=chat, role="user", content="예산은?", created_at=timezone.now()
    )
    answer = Message.objects.create(
        chat=chat, role="assistant", parent=question, content="3억", created_at=timezone.now()
    )
    Run.objects.create(owner=minsu, message=answer, enqueued_at=timezone.now())
    Document.objects.create(owner=minsu, name="a.txt", file="a.txt", size=3, sha256="0")
    return chat


def list_registered():
    return [
        reverse(f"admin:{model._meta.app_label}_{model._meta.model_name}_changelist")
        for model in admin.site._registry
    ]


def test_every_list_and_its_first_row_open(admin_client, chat):
    assert admin_client.get("/admin/").status_code == 200
    for address in list_registered():
        page = admin_client.get(address)
        assert page.status_code == 200, address
        row = re.search(rf'href="({address}[^"/?]+/change/)', page.content.decode())
        if row:
            assert admin_client.get(row[1]).status_code == 200, row[1]


def read_words(admin_client, address, language):
    admin_client.cookies["django_language"] = language
    return " ".join(strip_tags(admin_client.get(address).content.decode()).split())


def test_counts_and_buttons_have_the_order_of_words_of_their_language(admin_client, minsu):
    users = "/admin/auth/user/"
    korean = read_words(admin_client, users, "ko")
    assert "총 2건" in korean
    assert "2개 중 0개 선택됨" in korean
    assert "2 in total" in read_words(admin_client, users, "en")
    assert "사용자 삭제" in read_words(admin_client, f"{users}{minsu.pk}/change/", "ko")
    assert "Delete user" in read_words(admin_client, f"{users}{minsu.pk}/change/", "en")
    admin_client.cookies["django_language"] = "ko"
    scripts = admin_client.get("/admin/jsi18n/").content.decode()
    assert json.dumps("%(cnt)s개 중 %(sel)s개 선택됨") in scripts


@pytest.mark.parametrize("model", ["chat", "message", "run"])
def test_the_column_of_ids_is_headed_id_in_capitals(admin_client, chat, model):
    assert " ID " in read_words(admin_client, f"/admin/chats/{model}/", "ko")


@pytest.mark.parametrize(
    ("query", "offers_all"),
    [({}, False), ({"o": "1"}, False), ({"q": "minsu"}, True), ({"is_active__exact": "1"}, True)],
)
def test_a_list_offers_all_rows_only_where_it_is_narrowed(admin_client, minsu, query, offers_all):
    page = admin_client.get("/admin/auth/user/", query).content.decode()
    assert ('(<a href="?">' in page) is offers_all


def read_cells(page, name):
    """The cells of a column, by the row's place."""
    found = re.findall(rf'class="[^"]*field-{name}[^"]*"[^>]*>(.*?)</t[dh]>', page, re.DOTALL)
    return [" ".join(strip_tags(cell).split()) for cell in found]


def test_lists_count_what_belongs_to_each_row(admin_client, chat, minsu):
    Chat.objects.create(owner=minsu, title="빈 대화")
    library = Library.objects.create(name="규정")
    for name in ("a.txt", "b.txt"):
        Document.objects.create(owner=minsu, library=library, name=name, file=name, size=1)
    LibraryMember.objects.create(library=library, user=minsu, role="reader")
    group = Group.objects.create(name="인사팀")
    minsu.groups.add(group)

    def read(address, *names):
        page = admin_client.get(f"/admin/{address}").content.decode()
        return [read_cells(page, name) for name in names]

    assert read("chats/chat/?o=3", "message_count") == [["0", "2"]]
    people = read("auth/user/?q=minsu", "document_count", "chat_count")
    assert people == [["3"], ["2"]]
    assert read("documents/library/", "held", "described_members") == [["2"], ["1"]]
    assert read("auth/group/", "member_count") == [["1"]]


def test_messages_are_narrowed_to_a_model_that_is_connected_or_that_a_link_names(
    admin_client, chat
):
    Message.objects.filter(role="assistant").update(model="former")
    address = "/admin/chats/message/?model="
    assert len(read_cells(admin_client.get(f"{address}former").content.decode(), "role")) == 1
    assert not read_cells(admin_client.get(f"{address}another").content.decode(), "role")


def test_every_list_can_be_searched(admin_client, chat):
    for address in list_registered():
        assert admin_client.get(address, {"q": "예산 x"}).status_code == 200, address


def test_ordinary_users_are_refused(client, minsu):
    client.force_login(minsu)
    for address in list_registered():
        assert client.get(address).status_code in {302, 403}, address
    assert client.get("/admin/login/").status_code == 403


def test_strangers_are_sent_to_the_one_sign_in_page(client):
    address = client.get("/admin/", follow=True).redirect_chain[-1][0]
    assert address.startswith("/accounts/login/?next=")


def test_the_pages_are_korean(admin_client, chat, minsu):
    rows = [f"/admin/chats/chat/{chat.pk}/change/", f"/admin/auth/user/{minsu.pk}/change/"]
    for address in ["/admin/", "/admin/auth/user/add/", *rows, *list_registered()]:
        page = admin_client.get(address).content.decode()
        text = strip_tags(re.sub(r"<(script|style)\b.*?</\1>", "", page, flags=re.DOTALL))
        assert set(re.findall(r"\b[A-Z][a-z]+ [a-z]+\b", text)) <= {"English en"}, address


def test_only_the_administration_has_a_relaxed_policy(admin_client):
    def policy(address):
        return admin_client.get(address).headers["Content-Security-Policy"]

    assert "'unsafe-eval'" in policy("/admin/")
    assert "'unsafe-eval'" not in policy("/settings/keys")
    assert "'unsafe-inline'" not in policy("/settings/keys")
    assert "default-src 'self'" in policy("/admin/")


def test_a_deleted_chat_can_be_found_and_restored(admin_client, chat):
    Chat.objects.update(deleted_at=timezone.now())
    address = reverse("admin:chats_chat_changelist")
    assert str(chat.pk) in admin_client.get(address, {"deleted": "yes"}).content.decode()
    assert str(chat.pk) not in admin_client.get(address, {"deleted": "no"}).content.decode()
    admin_client.post(address, {"action": "restore", "_selected_action": [str(chat.pk)]})
    chat.refresh_from_db()
    assert chat.deleted_at is None


def test_messages_cannot_be_changed(admin_client, chat):
    message = chat.messages.first()
    address = reverse("admin:chats_message_change", args=[message.pk])
    assert admin_client.post(address, {"content": "forged"}).status_code == 403
    message.refresh_from_db()
    assert message.content == "예산은?"


def test_all_keys_of_a_user_can_be_revoked(admin_client, minsu):
    services.create_key(user=minsu)
    address = reverse("admin:auth_user_changelist")
    admin_client.post(address, {"action": "revoke_keys", "_selected_action": [minsu.pk]})
    assert not AuthToken.objects.exists()


def test_a_user_can_be_made_and_sign_in(admin_client):
    form = {"username": "hana", "password1": "long enough 42", "password2": "long enough 42"}
    admin_client.post("/admin/auth/user/add/", form | {"usable_password": "true"})
    form = {"login": "hana", "password": "long enough 42"}
    assert Client().post("/accounts/login/", form).status_code == 302


def test_a_deactivated_user_is_out_at_once(admin_client, minsu):
    client = Client()
    client.force_login(minsu)
    form = {"username": "minsu", "email": "", "is_active": ""}
    form |= {"quota_rules-TOTAL_FORMS": 0, "quota_rules-INITIAL_FORMS": 0}
    admin_client.post(f"/admin/auth/user/{minsu.pk}/change/", form)
    assert client.get("/settings/keys").status_code == 302


def test_deleting_a_user_leaves_none_of_his_files(
    admin_client, minsu, django_capture_on_commit_callbacks
):
    file = ContentFile("부산 지점의 예산은 3억 원입니다.".encode(), name="예산.txt")
    document, _created = upload_document(owner=minsu, name="예산.txt", content=file, metadata=None)
    place = Path(document.file.path)
    assert place.is_file()
    address = reverse("admin:auth_user_delete", args=[minsu.pk])
    with django_capture_on_commit_callbacks(execute=True):
        assert admin_client.post(address, {"post": "yes"}).status_code == 302
    assert not User.objects.filter(pk=minsu.pk).exists()
    assert not place.exists()


def test_a_failed_answer_tells_an_administrator_which_setting_to_look_at(admin_client, chat):
    failed = Message.objects.create(
        chat=chat,
        role="assistant",
        status="FAILED",
        error_code="llm_unauthorized",
        created_at=timezone.now(),
    )
    address = reverse("admin:chats_message_change", args=[failed.pk])
    assert "NURA_LLM_API_KEY" in admin_client.get(address).content.decode()
