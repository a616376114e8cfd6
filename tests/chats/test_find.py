"""Looking through all that a user has, for words where they stand."""

import time

import pytest
from django.utils import timezone

from chats.models import Chat, Message
from documents import spaces
from documents.search.excerpts import cut_excerpt
from rag import tokenize
from rag.generate.markdown import to_plain_text
from rag.types import IndexedChunk, Page, TextChunk
from tests.chats.conftest import client as api_of
from tests.chats.conftest import make_document
from tests.documents.conftest import store_rows

pytestmark = pytest.mark.django_db(transaction=True)
MAX_SECONDS = 0.1


def make_chat(owner, title="대화", *contents):
    chat = Chat.objects.create(owner=owner, title=title)
    for content in contents:
        Message.objects.create(
            chat=chat, role="assistant", content=content, created_at=timezone.now()
        )
    return chat


def make_passages(document, *texts):
    """The document with these passages, as an ingest stores them."""
    chunks = [TextChunk(n, text, 0, len(text), 3, 3, "") for n, text in enumerate(texts)]
    rows = [IndexedChunk(one, tokenize.count_terms(one.content), None) for one in chunks]
    space, _ = spaces.get_space_for_writing()
    store_rows([Page(3, "\n\n".join(texts))], rows, space)
    return document


def find(api, query):
    answer = api.get("/api/v1/find", {"q": query})
    assert answer.status_code == 200, answer.data
    return answer.data


def list_marked(one):
    return [one["excerpt"][start:end] for start, end in one["marks"]]


def test_a_chat_is_found_by_a_part_of_its_title(api, owner):
    chat = make_chat(owner, "출장여비 규정 질문")
    (found,) = find(api, "여비")["chats"]
    assert found["chat_id"] == str(chat.pk)
    assert list_marked(found) == ["여비"]


def test_a_message_is_found_by_any_part_of_a_word_and_shown_without_markdown(api, owner):
    chat = make_chat(
        owner, "제목", "## 결론\n\n연차는 **열다섯 날**입니다. [1]\n\n| 가 | 나 |\n|---|---|"
    )
    (found,) = find(api, "다섯 날")["messages"]
    assert found["chat_id"] == str(chat.pk)
    assert found["message_id"] == str(chat.messages.get().pk)
    assert found["excerpt"] == "결론 연차는 열다섯 날입니다. 가 나"
    assert list_marked(found) == ["다섯", "날"]


def test_all_words_must_stand_in_a_message(api, owner):
    make_chat(owner, "하나", "휴가는 열흘입니다")
    make_chat(owner, "둘", "휴가 신청은 사흘 전에 합니다")
    assert [one["chat_title"] for one in find(api, "휴가 사흘")["messages"]] == ["둘"]


def test_the_case_of_letters_does_not_matter(api, owner):
    make_chat(owner, "Travel Policy", "The BUDGET is fixed")
    assert find(api, "travel")["chats"]
    assert find(api, "budget")["messages"]


def test_a_document_is_found_by_its_name_and_by_its_text(api, owner):
    document = make_document(owner, "여비 규정.md", status="PROCESSING")
    make_passages(document, "숙박비는 하루 칠만 원을 넘지 못한다.")
    assert [one["document_id"] for one in find(api, "규정")["documents"]] == [str(document.pk)]
    (found,) = find(api, "숙박비")["passages"]
    assert (found["document_id"], found["page"]) == (str(document.pk), 3)
    assert found["chunk_id"] == f"{document.pk}_0"
    assert "숙박비" in list_marked(found)


def test_a_passage_that_holds_the_very_words_comes_first(api, owner):
    make_passages(
        make_document(owner, status="PROCESSING"),
        "계약 금액은 일억 원이다. 계약 계약 계약",
        "계약 보증금은 계약 금액의 십 분의 일이다.",
    )
    assert find(api, "계약 보증금")["passages"][0]["chunk_id"].endswith("_1")


def test_nothing_of_another_user_is_found(owner, stranger):
    document = make_document(owner, "남몰래 규정.md", status="PROCESSING")
    make_passages(document, "남몰래 쓰는 돈은 백만 원이다.")
    make_chat(owner, "남몰래 대화", "남몰래 한 말")
    assert all(find(api_of(owner), "남몰래").values())
    assert not any(find(api_of(stranger), "남몰래").values())


def test_nothing_deleted_is_found(api, owner):
    make_chat(owner, "지운 대화", "지운 말")
    Chat.objects.update(deleted_at=timezone.now())
    assert not any(find(api, "지운").values())


@pytest.mark.parametrize(
    "query", ["%", "_", "\\", "'; --", "가" * 100, "a" * 100, "**", "[1]", "", "   "]
)
def test_odd_searches_are_answered(api, owner, query):
    make_chat(owner, "아무 대화", "아무 말 **굵게** [1]")
    assert not any(find(api, query).values())


@pytest.mark.parametrize("query", ["가" * 101, "a\x00b"])
def test_what_is_no_search_is_refused(api, query):
    assert api.get("/api/v1/find", {"q": query}).status_code == 400


def test_a_thousand_chats_are_looked_through_at_once(api, owner):
    chats = Chat.objects.bulk_create(Chat(owner=owner, title=f"대화 {i}") for i in range(1000))
    text = "출장비는 직급에 따라 다르게 지급하며 숙박비는 실비로 정산합니다. " * 15
    now = timezone.now()
    Message.objects.bulk_create(
        Message(chat=chat, role="assistant", content=f"{text}{n}", created_at=now)
        for chat in chats
        for n in range(6)
    )
    Message.objects.create(chat=chats[7], role="user", content="자작나무", created_at=now)
    find(api, "자작나무")  # the first loads the analyser of Korean
    took = []
    for query in ("자작나무", "없는말", "출장비") * 2:
        began = time.perf_counter()
        find(api, query)
        took.append(time.perf_counter() - began)
    assert min(took) < MAX_SECONDS, took


def test_an_excerpt_is_cut_around_the_words():
    text = "가" * 200 + " 목표 " + "나" * 200
    found = cut_excerpt(text, ["목표"])
    assert [found.excerpt[start:end] for start, end in found.marks] == ["목표"]
    assert found.excerpt.startswith("…")
    assert found.excerpt.endswith("…")


@pytest.mark.parametrize(
    ("markdown", "plain"),
    [
        ("**굵게** *기울여* `code` ~~지움~~", "굵게 기울여 code 지움"),
        ("# 제목\n\n- 하나\n- [x] 둘\n> 인용", "제목 하나 둘 인용"),
        ("[이름](https://example.com) ![그림](a.png)", "이름 그림"),
        ("| 가 | 나 |\n|:--|--:|\n| 1 | 2 |", "가 나 1 2"),
        ("1\\. 개요 | 가 | 나 | | --- | --- | | 1 |", "1. 개요 가 나 1"),
        ("2 * 3 * 4와 a_b_c [3]", "2 * 3 * 4와 a_b_c"),
    ],
)
def test_signs_of_markdown_are_not_shown(markdown, plain):
    assert to_plain_text(markdown) == plain
