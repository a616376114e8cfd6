"""Which questions ask for whole documents, and which for something in them."""

import time
from uuid import uuid4

import pytest

from rag.config import RagConfig
from rag.conversation import MemoryHistory, Question
from rag.types import Scope, ScopeReason
from rag.understand.analysis import analyse_by_rules

TICKED = Scope((uuid4(), uuid4()), ScopeReason.EXPLICIT)
EVERYTHING = Scope(tuple(uuid4() for _ in range(9)), ScopeReason.ALL)


def asks_for_whole(text, scope) -> bool:
    """Whether a first question asks for whole documents."""
    return analyse_by_rules(Question(text, scope), MemoryHistory(), RagConfig()).whole


@pytest.mark.parametrize(
    "text",
    [
        "이 공고 요약해줘",
        "3줄로 요약해줘",
        "핵심만",
        "무슨 내용이야?",
        "두 문서 비교해줘",
        "이 두 규정은 뭐가 달라?",
        "전체에서 벌칙을 모두 찾아줘",
        "문서 전체에서 위원회가 몇 번 나와?",
        "give me an overview",
        "compare the two documents",
        "What does the whole document say about fees?",
    ],
)
def test_a_summary_a_bare_comparison_or_all_of_a_text_is_asked_of_whole_documents(text):
    assert asks_for_whole(text, TICKED)


@pytest.mark.parametrize(
    "text",
    [
        "두 문서의 예산 비교해줘",
        "신청 자격 요약해줘",
        "벌칙 정리해줘",
        "이 법의 목적은?",
        "자료",
        "compare the fees of the two documents",
    ],
)
def test_a_question_that_names_what_to_look_for_is_not(text):
    assert not asks_for_whole(text, TICKED)


@pytest.mark.parametrize(
    "text", ["환자안전법 요약해줘", "환자안전법과 의료법 비교해줘", "이 공고 요약해줘"]
)
def test_among_all_documents_they_must_be_spoken_of(text):
    assert asks_for_whole(text, EVERYTHING)


@pytest.mark.parametrize("text", ["요약해줘", "핵심만", "환자안전법과 의료법의 벌칙 비교해줘"])
def test_without_a_document_or_with_an_aspect_it_is_a_search(text):
    assert not asks_for_whole(text, EVERYTHING)


def test_without_any_document_nothing_is_whole():
    assert not asks_for_whole("이 문서 요약해줘", Scope((), ScopeReason.ALL))


@pytest.mark.parametrize("piece", ["1", "1 ", "a.", "가 ", "what ", "what is ", '"a" ', "문서 "])
def test_four_times_the_text_takes_no_more_than_about_four_times_as_long(piece):
    asks_for_whole(piece, TICKED)
    short, long = (_measure_seconds((piece * length)[:length]) for length in (5_000, 20_000))
    assert long < 8 * short + 0.2


def _measure_seconds(text) -> float:
    """The least that reading this message takes of the processor."""
    taken = []
    for _ in range(2):
        started = time.process_time()
        asks_for_whole(text, TICKED)
        taken.append(time.process_time() - started)
    return min(taken)
