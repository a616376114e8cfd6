"""Where chats stand in the sidebar: pinned, in folders, archived, unread; nobody else's."""

import re
import uuid
from datetime import timedelta

import pytest
from django.utils import timezone

from chats.models import Category, Chat
from chats.views import PAGE_SIZE
from tests.chats.conftest import client as api_of

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def visitor(client, owner):
    client.force_login(owner)
    return client


def make_chat(owner, title="대화", **fields):
    return Chat.objects.create(owner=owner, title=title, **fields)


def make_folder(owner, name="업무"):
    return Category.objects.create(owner=owner, name=name)


def read_panel(visitor, **query):
    return visitor.get("/panels/chats", query).content.decode()


def patch(api, chat, **changes):
    return api.patch(f"/api/v1/chats/{chat.pk}", changes, format="json")


def change_chats(api, *chats, **changes):
    body = {"chat_ids": [str(chat.pk) for chat in chats], **changes}
    return api.post("/api/v1/chats/bulk", body, format="json")


@pytest.mark.parametrize("field", ["pinned", "archived", "unread"])
def test_what_is_said_of_a_chat_is_kept(api, owner, field):
    chat = make_chat(owner)
    assert patch(api, chat, **{field: True}).data[field] is True
    assert api.get(f"/api/v1/chats/{chat.pk}").data[field] is True


def test_pinned_chats_stand_first_and_only_there(visitor, owner):
    make_chat(owner, "새것")
    make_chat(owner, "중요한 것", pinned=True)
    text = read_panel(visitor)
    assert text.index("중요한 것") < text.index("새것")
    assert text.count('<span class="side-title">중요한 것') == 1


def test_a_period_has_its_heading_once_on_however_many_pages(visitor, owner):
    long_ago = timezone.now() - timedelta(days=400)
    for number in range(PAGE_SIZE + 1):
        chat = make_chat(owner, f"옛 대화 {number}")
        Chat.objects.filter(pk=chat.pk).update(updated_at=long_ago - timedelta(days=number))
    make_chat(owner, "오늘 대화")
    first, second = read_panel(visitor), read_panel(visitor, part="recent", page=2)
    assert (first.count(">오늘</h2>"), first.count(">이전</h2>")) == (1, 1)
    assert "옛 대화" in second
    assert "side-heading" not in second


@pytest.mark.parametrize("view", ["", "archived"])
def test_a_list_that_is_fetched_again_stays_as_long_as_it_was(visitor, owner, view):
    made = [make_chat(owner, archived=bool(view)) for _number in range(3 * PAGE_SIZE + 1)]
    oldest = [str(chat.pk) for chat in made[: PAGE_SIZE + 1]]
    text = read_panel(visitor, view=view, shown=PAGE_SIZE + 1)
    assert text.count("data-chat-id") == 2 * PAGE_SIZE
    assert "page=3" in text
    assert not any(pk in text for pk in oldest)
    text = read_panel(visitor, view=view, shown=4 * PAGE_SIZE)
    assert all(pk in text for pk in oldest)
    assert "side-more-chats" not in text


def find_rows(text):
    """Ids and versions of the rows, those without content last."""
    complete = re.findall(r'data-chat-id="([^"]+)"\s+data-version="([^"]+)"', text)
    brief = " ".join(re.findall(r'data-brief="([^"]+)"', text)).split()
    return complete + [tuple(pair.split(":")) for pair in brief]


def test_a_page_that_has_the_rows_gets_those_beyond_the_first_page_without_content(visitor, owner):
    made = [make_chat(owner, f"대화 {number}") for number in range(2 * PAGE_SIZE)]
    whole = read_panel(visitor, shown=2 * PAGE_SIZE)
    brief = read_panel(visitor, shown=2 * PAGE_SIZE, brief=1)
    assert (whole.count("side-title"), brief.count("side-title")) == (2 * PAGE_SIZE, PAGE_SIZE)
    assert find_rows(brief) == find_rows(whole)
    assert len(find_rows(brief)) == 2 * PAGE_SIZE
    before = find_rows(brief)
    Chat.objects.filter(pk=made[0].pk).update(unread=True)
    after = find_rows(read_panel(visitor, shown=2 * PAGE_SIZE, brief=1))
    assert [new[0] for new, old in zip(after, before, strict=True) if new != old] == [
        str(made[0].pk)
    ]


@pytest.mark.parametrize("shown", ["", "-1", "x", "²", "9999999999", "1.5"])
def test_a_list_of_no_sensible_length_is_the_first_page(visitor, owner, shown):
    for _number in range(PAGE_SIZE + 1):
        make_chat(owner)
    assert read_panel(visitor, shown=shown).count("data-chat-id") == PAGE_SIZE


def test_a_chat_of_a_folder_stands_in_it(visitor, owner):
    folder = make_folder(owner)
    chat = make_chat(owner, "보고서 이야기", category=folder)
    assert "보고서 이야기" not in read_panel(visitor)
    assert "보고서 이야기" in read_panel(visitor, part=str(folder.pk))
    assert "보고서 이야기" in read_panel(visitor, current=str(chat.pk))
    visitor.cookies["folders"] = str(folder.pk)[:8]
    assert "보고서 이야기" in read_panel(visitor)


def test_a_folder_says_how_many_chats_are_in_it(visitor, owner):
    folder = make_folder(owner)
    for number in range(3):
        make_chat(owner, f"대화 {number}", category=folder)
    make_chat(owner, "지운 것", category=folder, deleted_at=timezone.now())
    assert '<span class="side-count">3</span>' in read_panel(visitor)


def test_an_archived_chat_leaves_the_list_and_stands_in_the_archive(visitor, owner):
    make_chat(owner, "옛 이야기", archived=True)
    assert "옛 이야기" not in read_panel(visitor)
    assert "옛 이야기" in read_panel(visitor, view="archived")


def test_the_list_of_chats_is_narrowed_to_archived_ones_or_others(api, owner):
    make_chat(owner, "옛 이야기", archived=True)
    make_chat(owner, "새 이야기")
    titles = [
        sorted(one["title"] for one in api.get(f"/api/v1/chats{query}").data["results"])
        for query in ("", "?archived=true", "?archived=false")
    ]
    assert titles == [["새 이야기", "옛 이야기"], ["옛 이야기"], ["새 이야기"]]


def test_the_list_of_chats_is_narrowed_to_a_folder(api, owner):
    folder = make_folder(owner)
    make_chat(owner, "안", category=folder)
    make_chat(owner, "밖")
    found = api.get(f"/api/v1/chats?category_id={folder.pk}").data["results"]
    assert [one["title"] for one in found] == ["안"]


def test_a_question_brings_a_chat_back_from_the_archive(api, owner):
    chat = make_chat(owner, archived=True)
    body = {"content": "다시 묻습니다", "chat_id": str(chat.pk)}
    api.post("/api/v1/messages?wait=false", body, format="json")
    chat.refresh_from_db()
    assert chat.archived is False


def test_a_chat_is_unread_when_its_answer_has_ended(api, owner, answers_worker):
    made = api.post("/api/v1/messages", {"content": "안녕하세요"}, format="json").data["chat_id"]
    assert api.get(f"/api/v1/chats/{made}").data["unread"] is True


def test_several_chats_are_changed_in_one_call(api, owner):
    folder = make_folder(owner)
    chats = [make_chat(owner) for _ in range(3)]
    assert change_chats(api, *chats, category_id=str(folder.pk), pinned=False).status_code == 204
    assert set(Chat.objects.values_list("category", flat=True)) == {folder.pk}
    assert change_chats(api, *chats, archived=True).status_code == 204
    assert Chat.objects.filter(archived=True).count() == 3


def test_several_chats_are_deleted_in_one_call(api, owner):
    chats = [make_chat(owner) for _ in range(3)]
    assert change_chats(api, *chats, deleted=True).status_code == 204
    assert not Chat.objects.visible_to(owner).exists()


def test_where_one_chat_is_not_there_none_is_changed(api, owner):
    chat = make_chat(owner)
    assert change_chats(api, chat, Chat(pk=uuid.uuid4()), deleted=True).status_code == 404
    assert Chat.objects.visible_to(owner).exists()


@pytest.mark.parametrize("changes", [{"deleted": True}, {"archived": True}, {"pinned": True}])
def test_a_stranger_changes_no_chat_among_his_own(owner, stranger, changes):
    theirs, own = make_chat(owner), make_chat(stranger)
    assert change_chats(api_of(stranger), own, theirs, **changes).status_code == 404
    theirs.refresh_from_db()
    assert (theirs.deleted_at, theirs.archived, theirs.pinned) == (None, False, False)


def test_a_folder_of_somebody_else_is_not_there(client, owner, stranger):
    folder = make_folder(owner, "남몰래")
    make_chat(owner, "남몰래 대화", category=folder)
    client.force_login(stranger)
    assert client.get("/panels/chats", {"part": str(folder.pk)}).status_code == 404
    assert client.get("/panels/chats", {"part": str(uuid.uuid4())}).status_code == 404
    client.cookies["folders"] = str(folder.pk)[:8]
    assert "남몰래" not in read_panel(client)
    own = make_chat(stranger)
    assert change_chats(api_of(stranger), own, category_id=str(folder.pk)).status_code == 404


@pytest.mark.parametrize("part", ["nonsense", "pinned", "recent", "archived", "\x00"])
def test_odd_places_are_answered(visitor, owner, part):
    status = visitor.get("/panels/chats", {"part": part}).status_code
    assert status == (404 if part in {"nonsense", "\x00"} else 200)


def test_a_long_folder_comes_in_pages(visitor, owner):
    folder = make_folder(owner)
    Chat.objects.bulk_create(
        Chat(owner=owner, title=f"대화 {i}", category=folder) for i in range(PAGE_SIZE + 1)
    )
    first = read_panel(visitor, part=str(folder.pk))
    second = read_panel(visitor, part=str(folder.pk), page=2)
    assert (first.count("data-chat-id"), second.count("data-chat-id")) == (PAGE_SIZE, 1)
