"""Whole conversations over REST, with a real worker and the extractive answerer."""

import pytest
from django.db import transaction

from documents import services
from tests.chats import turns
from tests.chats.conftest import client
from tests.chats.talking import LEAVE, SECURITY, TRAVEL, Talk, add_document, list_document_names

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def own_files(settings, tmp_path):
    settings.MEDIA_ROOT = tmp_path / "files"


@pytest.fixture
def library(owner):
    return {
        name: add_document(owner, f"{name}.md", text)
        for name, text in (("출장 규정", TRAVEL), ("휴가 규정", LEAVE), ("보안 지침", SECURITY))
    }


@pytest.fixture
def talk(api, library, answers_worker):
    return Talk(api)


def list_ids(*documents):
    return [str(document.pk) for document in documents]


def test_a_follow_up_stays_within_the_documents_of_the_answer_before(talk, library):
    first = talk.say("출장 갈 때 숙박비 상한은 얼마인가요?")
    assert list_document_names(first) == ["출장 규정.md"]
    second = talk.say("그럼 정산은 언제까지 해야 해?")
    assert second["scope"]["reason"] == "followup"
    assert second["scope"]["document_ids"] == list_ids(library["출장 규정"])
    assert "14일" in second["content"]
    assert second["question_type"] == "followup"


def test_an_elliptical_follow_up_is_searched_with_what_it_lacks(talk, library):
    talk.say("출장 갈 때 숙박비 상한은 얼마인가요?")
    answer = talk.say("예외는?")
    assert list_document_names(answer) == ["출장 규정.md"]
    assert "재무팀장" in answer["content"]
    assert "출장" in answer["scope"]["standalone_query"]


def test_a_question_on_something_else_is_not_held_back(talk, library):
    talk.say("출장 갈 때 숙박비 상한은 얼마인가요?")
    answer = talk.say("연차 휴가는 한 해에 며칠인가요?")
    assert list_document_names(answer) == ["휴가 규정.md"]
    assert answer["scope"]["reason"] == "all"


def test_a_follow_up_whose_answer_stands_elsewhere_is_widened_and_says_so(talk, library):
    talk.say("출장 갈 때 숙박비 상한은 얼마인가요?")
    answer = talk.say("그럼 노트북 반출하려면 누구 승인을 받아야 해?")
    assert "보안 지침.md" in list_document_names(answer)
    if answer["scope"]["follows"]:
        assert answer["scope"]["widened"]


def test_small_talk_in_between_forgets_nothing(talk, library):
    talk.say("출장 갈 때 숙박비 상한은 얼마인가요?")
    thanks = talk.say("고마워요")
    assert (thanks["mode"], thanks["sources"]) == ("general", None)
    assert talk.get("/memory")["document_ids"] == list_ids(library["출장 규정"])
    answer = talk.say("그럼 정산은 언제까지야?")
    assert answer["scope"]["document_ids"] == list_ids(library["출장 규정"])


def test_reset_words_forget_the_documents(talk, library):
    talk.say("출장 갈 때 숙박비 상한은 얼마인가요?")
    answer = talk.say("새 주제로 하자")
    assert (answer["question_type"], answer["sources"]) == ("reset", None)
    assert talk.get("/memory")["document_ids"] == []


def test_a_reset_with_a_question_answers_the_question(talk, library):
    talk.say("출장 갈 때 숙박비 상한은 얼마인가요?")
    answer = talk.say("이전 문서 말고, 연차 휴가는 며칠이야?")
    assert list_document_names(answer) == ["휴가 규정.md"]
    assert talk.get("/memory")["document_ids"] == list_ids(library["휴가 규정"])


def test_the_memory_can_be_read_and_cleared(talk, library):
    talk.say("출장 갈 때 숙박비 상한은 얼마인가요?")
    memory = talk.get("/memory")
    assert memory["document_ids"] == list_ids(library["출장 규정"])
    assert memory["last_question"] == "출장 갈 때 숙박비 상한은 얼마인가요?"
    assert memory["last_answer"]
    assert memory["last_question_type"] == "single"
    assert talk.api.delete(f"/api/v1/chats/{talk.chat_id}/memory").status_code == 204
    assert talk.get("/memory")["document_ids"] == []
    answer = talk.say("연차 휴가 신청은 언제까지야?")
    assert answer["scope"]["reason"] == "all"


def test_a_document_is_searched_by_its_place_in_the_last_answer(talk, library):
    talk.say("출장 규정과 휴가 규정의 예외를 비교해줘")
    shown = list_document_names(talk.turn["assistant_message"])
    assert set(shown) >= {"출장 규정.md", "휴가 규정.md"}
    second = library[shown[1].removesuffix(".md")]
    answer = talk.say("이전 2번 문서를 참고해서 예외를 알려줘")
    assert (answer["scope"]["reason"], answer["scope"]["document_ids"]) == (
        "slot",
        list_ids(second),
    )
    assert list_document_names(answer) == [shown[1]]


def test_a_whole_document_is_shown_in_parts(talk, owner, library):
    long = "# 업무 편람\n\n" + "\n\n".join(
        f"제{number}절은 업무 편람의 {number}번째 절차를 정한다. " + "세부 절차를 적는다. " * 12
        for number in range(1, 41)
    )
    add_document(owner, "업무 편람.md", long)
    talk.say("업무 편람의 3번째 절차는 무엇인가요?")
    answer = talk.say("이전 1번 문서 전체 보여줘")
    assert (answer["mode"], answer["view"]["part"]) == ("document", 1)
    assert answer["view"]["parts"] > 1
    assert "제1절은" in answer["content"]
    after = talk.say("다음")
    assert (after["mode"], after["view"]["part"]) == ("document", 2)
    assert "제1절은" not in after["content"]


def test_a_place_that_no_document_had_is_asked_back_with_the_candidates(talk, library):
    talk.say("출장 갈 때 숙박비 상한은 얼마인가요?")
    answer = talk.say("이전 7번 문서에서 정산 기한을 알려줘")
    assert (answer["mode"], answer["sources"]) == ("clarify", None)
    assert [item["document_id"] for item in answer["candidates"]] == list_ids(library["출장 규정"])
    assert "출장 규정" in answer["content"]
    chosen = talk.say("1번")
    assert chosen["scope"]["document_ids"] == list_ids(library["출장 규정"])
    assert "14일" in chosen["content"]


def test_a_place_without_any_document_before_is_asked_back(talk, library):
    talk.say("안녕하세요")
    answer = talk.say("이전 1번 문서를 요약해줘")
    assert (answer["mode"], answer["sources"]) == ("clarify", None)


def test_a_document_that_is_gone_is_shown_as_it_was_and_that_is_said(talk, library):
    talk.say("출장 갈 때 숙박비 상한은 얼마인가요?")
    services.delete_document(document=library["출장 규정"])
    whole = talk.say("이전 1번 문서 전체 보여줘")
    assert whole["mode"] == "document"
    assert "90,000원" in whole["content"]
    again = talk.say("이전 1번 문서를 참고해서 숙박비 상한을 알려줘")
    assert again["mode"] in {"documents", "document"}
    assert "더는" in again["content"] or "삭제" in again["content"]


def test_every_turn_is_kept_with_its_documents(talk, library):
    talk.say("출장 갈 때 숙박비 상한은 얼마인가요?")
    talk.say("연차 휴가는 한 해에 며칠인가요?")
    turns = talk.get("/turns")
    assert turns["count"] == 2
    first = talk.get("/turns/1")
    assert first["user_text"] == "출장 갈 때 숙박비 상한은 얼마인가요?"
    (ref,) = talk.get("/turns/1/documents")
    document = library["출장 규정"]
    assert (ref["slot"], ref["document_id"], ref["version"]) == (1, str(document.pk), 1)
    assert ref["checksum"] == document.sha256
    assert ref["chunk_ids"]
    assert ref["snippet"]


def test_a_branch_remembers_its_own_documents(talk, library):
    talk.say("출장 갈 때 숙박비 상한은 얼마인가요?")
    question = talk.turn["user_message"]["id"]
    path = f"/api/v1/messages/{question}/edit"
    edited = talk.api.post(path, {"content": "연차 휴가는 한 해에 며칠인가요?"}, format="json")
    assert edited.status_code == 201
    branch = edited.data["assistant_message"]["id"]
    answer = talk.say("그럼 신청은 언제까지 해?", parent_id=branch)
    assert answer["scope"]["document_ids"] == list_ids(library["휴가 규정"])


def test_the_user_may_widen_narrow_or_begin_anew(talk, library):
    talk.say("출장 갈 때 숙박비 상한은 얼마인가요?")
    wide = talk.say("그럼 예외는?", topic="wider")
    assert wide["scope"]["reason"] == "all"
    talk.say("출장 갈 때 숙박비 상한은 얼마인가요?")
    narrow = talk.say("연차 휴가는 한 해에 며칠인가요?", topic="same")
    assert narrow["scope"]["document_ids"] == list_ids(library["출장 규정"])
    anew = talk.say("그럼 예외는?", topic="new")
    assert (anew["scope"]["reason"], anew["scope"]["follows"]) == ("all", False)


def test_the_user_may_leave_a_document_named_by_its_place(talk, library):
    talk.say("출장 갈 때 숙박비 상한은 얼마인가요?")
    question = "이전 1번 문서를 참고해서 정산은 언제까지 하는지 알려줘"
    assert talk.say(question)["scope"]["reason"] == "slot"
    assert talk.say(question, topic="wider")["scope"]["reason"] == "all"
    anew = talk.say(question, topic="new")["scope"]
    assert (anew["reason"], anew["follows"]) == ("all", False)


def test_a_search_with_a_chat_knows_its_memory(talk, library):
    talk.say("출장 갈 때 숙박비 상한은 얼마인가요?")
    body = {"query": "그럼 정산은 언제까지 해야 해?", "chat_id": talk.chat_id}
    plan = talk.api.post("/api/v1/search", body, format="json").data["plan"]
    assert (plan["question_type"], plan["scope_reason"]) == ("followup", "followup")
    assert plan["document_ids"] == list_ids(library["출장 규정"])
    assert talk.get("/turns")["count"] == 1


def test_a_fact_of_turn_3_is_found_long_after(talk, owner, library, whole):
    last = 200 if whole else 60
    talk.say("안녕하세요")
    talk.say("연차 휴가는 한 해에 며칠인가요?")
    talk.say("참고로 우리 프로젝트의 담당자는 김민수 과장이고 예산은 3억 2천만 원이야")
    _pad(talk, owner, last - 4)
    answer = talk.say("우리 프로젝트 담당자가 누구라고 했지?")
    assert "김민수" in answer["content"]
    assert talk.get("/turns")["count"] == last


def test_a_stranger_finds_neither_memory_nor_turns(talk, library, stranger):
    talk.say("출장 갈 때 숙박비 상한은 얼마인가요?")
    other = client(stranger)
    for path in ("/memory", "/turns", "/turns/1", "/turns/1/documents"):
        assert other.get(f"/api/v1/chats/{talk.chat_id}{path}").status_code == 404
    assert other.delete(f"/api/v1/chats/{talk.chat_id}/memory").status_code == 404


def _pad(talk, owner, number):
    """So many turns that nobody has to think about."""
    topics = ("회의실 예약", "점심 메뉴", "주차장 위치", "프린터 용지", "명함 주문", "동호회 모임")
    for index in range(number):
        asked = f"{topics[index % len(topics)]} 이야기를 {index}번째로 적어 둡니다"
        with transaction.atomic():  # the worker hears of it when it is over
            turns.add_turn(owner, asked, chat_id=talk.chat_id, content="적어 두었습니다.")
