"""Everyday words beside the words of documents."""

import pytest

from rag.understand.analysis import find_document_terms
from tests.rag.worlds import Library, make_engine


@pytest.mark.parametrize(
    ("text", "term"),
    [
        ("회사 물건을 부수면 물어내야 하나요?", "변상"),
        ("말로 신청해도 돼?", "구술"),
        ("돈은 언제 나와?", "지급"),
        ("지각했다고 자를 수 있어?", "해고"),
        ("아이를 낳으면 며칠 쉬어?", "출산"),
        ("거짓말하면 벌 받아?", "처벌"),
        ("월급이 밀렸어요", "임금"),
        ("기부를 강요하면 어떤 처벌을 받아?", "징역"),
        ("신고하지 않으면 벌금이 얼마야?", "과태료"),
        ("나이 제한이 있어?", "연령"),
        ("몇 살부터 지원할 수 있어?", "연령"),
        ("can I get fired for being late?", "dismissal"),
        ("how do I get my money back", "reimbursement"),
    ],
)
def test_the_word_of_documents_is_searched_beside_what_people_say(text, term):
    assert 0 < find_document_terms(text)[term] < 1


@pytest.mark.parametrize(
    ("text", "term"),
    [
        ("말이 뛰어다녀요", "구술"),
        ("거기서 살 수 있어?", "연령"),
        ("환자안전법 벌칙 알려줘", "통지"),
        ("임금은 언제 지급하나요?", "임금"),
        ("firewall rules", "dismissal"),
    ],
)
def test_parts_of_words_and_words_that_were_said_bring_nothing(text, term):
    assert term not in find_document_terms(text)


def test_a_longer_phrase_leaves_out_the_shorter_ones_in_it():
    found = find_document_terms("돈을 꼭 돌려받고 싶어요")
    assert "환급" in found
    assert "금액" not in found


def test_all_of_them_together_weigh_less_than_the_question():
    text = "돈 빌리고 갚고 물건 사고 잃어버리고 고치고 버리고 깎고 쉬면?"
    assert len(find_document_terms(text)) <= 10
    assert sum(find_document_terms("벌 받아?").values()) <= 0.5 * 4


@pytest.mark.parametrize("text", ["", " ", "???", "돈" * 2000, "\x00", "a " * 1000])
def test_hostile_texts_bring_few_terms(text):
    assert len(find_document_terms(text)) <= 10


def test_a_passage_in_the_words_of_documents_is_found_by_everyday_ones():
    library = Library(make_engine())
    library.add(
        "규정.md",
        "물품을 파손한 직원은 변상하여야 한다.",
        "직원은 청사를 깨끗이 한다.",
        "직원은 매일 인사한다.",
    )
    found = library.search("직원이 부순 것은 물어내야 해?")
    assert found.hits[0].passage.text.startswith("물품을 파손한")
