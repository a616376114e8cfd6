import json
import re
import uuid
from datetime import date, timedelta

import pytest
from django.contrib.auth.models import User
from django.utils import timezone
from django.utils.translation import override

from chats.models import Chat, Message
from chats.views import PAGE_SIZE, choose_heading
from tests.chats.conftest import make_document
from tests.chats.test_examples import make_headed_document
from tests.chats.turns import add_turn

TODAY = date(2026, 3, 10)


def make_chat(owner, title="대화", **message):
    chat = Chat.objects.create(owner=owner, title=title)
    if message:
        fields = {"role": "user", "created_at": timezone.now()} | message
        Message.objects.create(chat=chat, **fields)
    return chat


def parse_page_data(response):
    text = response.content.decode()
    return json.loads(re.search(r'<script id="page"[^>]*>(.*?)</script>', text, re.DOTALL).group(1))


@pytest.fixture
def visitor(client, owner):
    client.force_login(owner)
    return client


@pytest.mark.parametrize(
    "path", ["/", f"/c/{uuid.UUID(int=1)}", "/panels/chats", f"/c/{uuid.UUID(int=1)}/turns"]
)
@pytest.mark.django_db
def test_the_pages_are_for_people_who_signed_in(client, path):
    response = client.get(path)
    assert response.status_code == 302
    assert response.url.startswith("/accounts/login/")


def test_a_chat_of_ones_own_opens(visitor, owner):
    chat = make_chat(owner, "우리 회사 규정")
    response = visitor.get(f"/c/{chat.pk}")
    assert response.status_code == 200
    assert parse_page_data(response)["chat"]["id"] == str(chat.pk)
    assert "<title>우리 회사 규정 · Nura</title>" in response.content.decode()


def test_a_stranger_gets_the_page_of_a_chat_that_is_not_there(client, owner, stranger):
    client.force_login(stranger)
    assert client.get(f"/c/{make_chat(owner).pk}").status_code == 404
    assert client.get(f"/c/{uuid.uuid4()}").status_code == 404


def test_a_deleted_chat_does_not_open(visitor, owner):
    chat = make_chat(owner)
    Chat.objects.update(deleted_at=timezone.now())
    assert visitor.get(f"/c/{chat.pk}").status_code == 404


def test_a_title_is_text_in_the_page_and_in_its_data(visitor, owner):
    chat = make_chat(owner, "</script><script>alert(1)</script>")
    response = visitor.get(f"/c/{chat.pk}")
    assert b"<script>alert" not in response.content
    make_document(owner, "</script><b>.md")
    assert b"</script><b>" not in visitor.get("/").content


def test_every_script_of_the_page_carries_the_nonce_and_nothing_is_inline(visitor):
    response = visitor.get("/")
    text = response.content.decode()
    nonce = re.search(r"'nonce-([^']+)'", response["Content-Security-Policy"]).group(1)
    programs = re.findall(r"<script(?![^>]*application/json)[^>]*>", text)
    assert programs
    assert all(f'nonce="{nonce}"' in tag and "src=" in tag for tag in programs)
    assert not re.search(r"\s(style|on[a-z]+)=\"", text)


def test_documents_named_in_the_address_are_chosen_if_they_are_ones_own(visitor, owner, stranger):
    mine, theirs = make_document(owner), make_document(stranger)
    response = visitor.get(f"/?documents={mine.pk},{theirs.pk},nonsense")
    assert [document["id"] for document in parse_page_data(response)["selected"]] == [str(mine.pk)]


def test_first_questions_are_made_from_ones_own_documents(visitor, owner, stranger):
    make_headed_document(owner, "취업규칙.pdf", "취업규칙 > 제3조(근무 시간)")
    make_headed_document(stranger, "남몰래.pdf", "남몰래 > 제3조(근무 시간)")
    text = visitor.get("/").content.decode()
    assert "취업규칙" in text
    assert "남몰래" not in text


def test_only_an_administrator_is_shown_the_way_to_the_administration(client, owner, visitor):
    assert parse_page_data(visitor.get("/"))["administration"] == ""
    client.force_login(User.objects.create_superuser("chief"))
    assert parse_page_data(client.get("/"))["administration"] == "/admin/chats/message/"


def test_the_theme_of_the_cookie_is_in_the_page_from_the_start(visitor):
    visitor.cookies["theme"] = "dark"
    assert b'data-theme="dark"' in visitor.get("/").content
    visitor.cookies["theme"] = '"><script>'
    assert b"data-theme" not in visitor.get("/").content.split(b">", 2)[1]


def test_the_sidebar_of_a_stranger_shows_nothing(client, owner, stranger):
    make_chat(owner, "남몰래 대화", content="남몰래 질문")
    client.force_login(stranger)
    assert "남몰래" not in client.get("/panels/chats").content.decode()


def test_a_chat_that_is_being_answered_is_marked(visitor, owner):
    quiet = make_chat(owner, "조용한 대화", role="assistant", status="COMPLETED")
    assert "dot-busy" not in visitor.get("/panels/chats").content.decode()
    Message.objects.filter(chat=quiet).update(status="STREAMING")
    assert "dot-busy" in visitor.get("/panels/chats").content.decode()


def test_many_chats_come_in_pages(visitor, owner):
    Chat.objects.bulk_create(Chat(owner=owner, title=f"대화 {i}") for i in range(PAGE_SIZE + 1))
    first = visitor.get("/panels/chats").content.decode()
    second = visitor.get("/panels/chats", {"part": "recent", "page": 2}).content.decode()
    assert first.count("data-chat-id") == PAGE_SIZE
    assert second.count("data-chat-id") == 1


@pytest.mark.parametrize(
    ("days", "heading"),
    [
        *((0, "오늘"), (1, "어제"), (2, "지난 7일"), (6, "지난 7일")),
        *((7, "지난 30일"), (29, "지난 30일"), (30, "이전"), (400, "이전")),
    ],
)
def test_chats_are_grouped_by_day(days, heading):
    with override("ko"):
        assert str(choose_heading(TODAY - timedelta(days=days), TODAY)) == heading


def test_english_is_complete_where_korean_is_the_default(visitor):
    assert "새 대화" in visitor.get("/").content.decode()
    visitor.cookies["django_language"] = "en"
    text = visitor.get("/").content.decode()
    assert "New chat" in text
    left = re.sub(r"한국어", "", text)
    assert not re.search(r"[가-힣]", left), User.objects.count()


def test_a_document_tells_which_chats_have_used_it_the_last_first(visitor, owner):
    used, other = make_document(owner), make_document(owner)
    add_turn(owner, "먼저 물은 것", used)
    add_turn(owner, "나중에 물은 것", used)
    add_turn(owner, "다른 문서에 물은 것", other)
    text = visitor.get(f"/panels/documents/{used.pk}/chats").content.decode()
    assert re.findall(r">([^<>]* 물은 것)<", text) == ["나중에 물은 것", "먼저 물은 것"]


def test_the_rows_of_documents_get_their_last_use_and_how_many_chats_it_was(visitor, owner):
    used, unused = make_document(owner), make_document(owner)
    first = add_turn(owner, "하나", used)
    add_turn(owner, "둘", used, chat_id=first.chat_id)
    add_turn(owner, "셋", used)
    address = f"/panels/documents/uses?documents={used.pk},{unused.pk},kein-id"
    text = visitor.get(address).content.decode()
    assert f'id="uses-{used.pk}"' in text
    assert str(unused.pk) not in text
    assert 'title="대화 2개에서 사용"' in text


def test_a_stranger_does_not_learn_of_the_uses_of_a_document(client, owner, stranger):
    document = make_document(owner)
    add_turn(owner, "질문", document)
    client.force_login(stranger)
    assert client.get(f"/panels/documents/{document.pk}/chats").status_code == 404
    assert (
        "uses-"
        not in client.get(f"/panels/documents/uses?documents={document.pk}").content.decode()
    )


def test_the_page_of_turns_lists_the_newest_branch_and_finds_in_it(owner, client):
    client.force_login(owner)
    first = add_turn(owner, "프리필터는 언제 바꾸나요?", content="**2년**마다 바꿉니다\\.")
    second = add_turn(owner, "보증 기간은?", parent=first, content="1년입니다.")
    page = client.get(f"/c/{first.chat_id}/turns").content.decode()
    assert page.index("보증 기간은?") < page.rindex("프리필터는 언제 바꾸나요?")
    assert "2년마다 바꿉니다." in page
    assert f"?message={second.message_id}" in page
    found = client.get(f"/c/{first.chat_id}/turns?q=필터 바꾸", headers={"HX-Request": "true"})
    text = found.content.decode()
    assert "<mark>필터</mark>" in text
    assert "보증" not in text
    assert "<html" not in text


def test_a_page_of_turns_in_which_nothing_is_found_says_so(owner, client):
    client.force_login(owner)
    turn = add_turn(owner, "보증 기간은?")
    page = client.get(f"/c/{turn.chat_id}/turns?q=없는말").content.decode()
    assert "검색 결과가 없습니다" in page


def test_nobody_sees_the_turns_of_somebody_else(owner, stranger, client):
    turn = add_turn(owner, "보증 기간은?")
    client.force_login(stranger)
    assert client.get(f"/c/{turn.chat_id}/turns").status_code == 404
