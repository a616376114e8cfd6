"""The first screen offers what this installation can do with one's own documents."""

import re
from dataclasses import replace

import pytest
from django.utils.translation import override

from chats.views import MAX_EXAMPLES, suggest_questions
from documents.models import Chunk, Document
from rag.config import Endpoint
from tests.chats.conftest import make_document

WRITTEN = re.compile(r"요약해|비교해|summaris|compare", re.IGNORECASE)
MODEL = Endpoint("http://127.0.0.1:9/v1", "stand-in")


def make_headed_document(owner, name, *sections, text="본문"):
    document = make_document(owner, name)
    Chunk.objects.bulk_create(
        Chunk(
            document=document,
            owner_id=owner.pk,
            index=index,
            text=text,
            start=0,
            end=len(text),
            section=section,
        )
        for index, section in enumerate(sections)
    )
    return document


@pytest.fixture
def manual(owner):
    return make_headed_document(
        owner,
        "사용 설명서.md",
        "사용 설명서",
        "사용 설명서 > 2026년 3월",
        "사용 설명서 > 1. 설치",
        "사용 설명서 > 1. 설치",
        "사용 설명서 > 2. 운전 > 2.1 와이파이 연결",
        "사용 설명서 > 제3조의2(보증과 서비스)",
    )


def read_welcome(client):
    page = client.get("/").content.decode()
    return re.search('<section class="welcome".*?</section>', page, re.DOTALL)[0]


def suggest(*documents, has_model, language="ko"):
    with override(language):
        return suggest_questions(documents, has_model=has_model)


def test_without_a_model_headings_are_looked_up_each_once_without_numbers(manual):
    found = suggest(manual, has_model=False)
    headings = [re.search("‘(.+)’", question)[1] for question in found]
    assert headings == ["설치", "와이파이 연결", "보증과 서비스"]
    assert all("「사용 설명서」" in question for question in found)


@pytest.mark.parametrize("language", ["ko", "en"])
def test_without_a_model_nothing_is_offered_that_takes_one(manual, owner, language):
    found = suggest(manual, make_document(owner), has_model=False, language=language)
    assert found
    assert not [question for question in found if WRITTEN.search(question)]


@pytest.mark.parametrize("language", ["ko", "en"])
def test_with_a_model_a_summary_and_a_comparison_are_offered(manual, owner, language):
    found = suggest(manual, make_document(owner, "규정.md"), has_model=True, language=language)
    assert len([question for question in found if WRITTEN.search(question)]) == 2
    assert "규정" in found[1]
    assert len(found) == MAX_EXAMPLES


def test_one_document_is_compared_with_nothing(manual):
    assert not [one for one in suggest(manual, has_model=True) if "비교" in one]


def test_tables_of_contents_and_the_like_are_not_asked_about(owner):
    document = make_headed_document(
        owner, "규격.pdf", "차 례", "revision 1.2", "본 문서에 대하여", "차트"
    )
    (found,) = suggest(document, has_model=False)
    assert "‘차트’" in found


def test_every_document_has_its_turn(manual, owner):
    other = make_headed_document(owner, "규정.md", "가. 휴가", "나. 출장")
    found = suggest(manual, other, has_model=False)
    assert [("규정" in question, "‘" in question) for question in found] == [
        (False, True),
        (True, True),
        (False, True),
        (True, True),
    ]


def test_a_document_without_headings_is_asked_for_dates_and_amounts_if_it_has_any(owner):
    dated = make_headed_document(owner, "메모.txt", "", text="회비는 3만 원이며 5월까지 냅니다.")
    other = make_headed_document(owner, "수식.docx", "", text="넓이는 반지름의 제곱에 비례합니다.")
    (found,) = suggest(dated, other, has_model=False)
    assert "메모" in found
    assert "날짜" in found


def test_the_title_of_a_document_is_no_heading_to_ask_about(manual):
    manual.metadata = {"title": "설치"}
    headings = [re.search("‘(.+)’", one)[1] for one in suggest(manual, has_model=False)]
    assert headings == ["와이파이 연결", "보증과 서비스"]


@pytest.mark.parametrize("title", [["설치", "운전"], {"ko": "설치"}, 7, None])
def test_the_first_screen_is_shown_whatever_a_document_calls_its_title(
    client, owner, manual, title
):
    Document.objects.filter(pk=manual.pk).update(metadata={"title": title})
    client.force_login(owner)
    assert "「사용 설명서」" in read_welcome(client)


@pytest.mark.parametrize("has_documents", [True, False])
def test_the_first_screen_promises_what_is_configured(client, owner, settings, has_documents):
    client.force_login(owner)
    if has_documents:
        make_document(owner)
    without = read_welcome(client)
    assert "그대로 보여 드립니다" in without
    assert "일반 지식" not in without
    settings.RAG = replace(settings.RAG, llm=MODEL)
    written = read_welcome(client)
    assert "어디에서 읽었는지" in written
    assert "언어 모델" not in written
    assert ("일반 지식" in written) is not has_documents


def test_who_has_documents_is_not_told_to_start_with_one_where_nothing_comes_to_mind(client, owner):
    make_headed_document(owner, "수식.docx", "", text="넓이는 반지름의 제곱에 비례합니다.")
    client.force_login(owner)
    assert "문서를 올려 시작" not in read_welcome(client)
