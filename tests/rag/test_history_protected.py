"""What no summary may lose."""

import time

import pytest

from rag.lexicon import load_patterns
from rag.memory.summary import (
    MAX_PROTECTED_CHARACTERS,
    find_protected,
    restore_protected,
    split_protected,
)

DEFAULT = ()


@pytest.mark.parametrize("name", load_patterns("protected").named)
def test_every_pattern_finds_its_examples_and_no_more(name):
    known = load_patterns("protected")
    assert all(known[name].search(text) for text in known.examples[name])
    assert not any(known[name].search(text) for text in known.refuses[name])


def is_kept(summary, item):
    """Whether nothing has to be put back."""
    return restore_protected(summary, [item], "ko") == summary


def find_keys(text):
    return [item.key for item in find_protected([text], DEFAULT)]


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("총 예산은 3,500만 원입니다.", "3,500만 원"),
        ("1억 2천만 원을 넘지 않는다.", "1억 2천만 원"),
        ("The fee is $1,200 a year.", "$1,200"),
        ("보증금은 계약금의 5%입니다.", "5%"),
        ("2026년 3월 15일까지 냅니다.", "2026년 3월 15일"),
        ("by 2026-03-15 at the latest", "2026-03-15"),
        ("It ends on March 15, 2026.", "March 15, 2026"),
        ("계약 번호는 A-1023-77입니다.", "A-1023-77"),
        ("전화는 042-724-7000입니다.", "042-724-7000"),
    ],
)
def test_amounts_dates_and_codes_are_found_as_written(text, key):
    assert key in find_keys(text)


@pytest.mark.parametrize(
    "text", ["그는 계약을 예약했다.", "약관에 따른다.", "A plain sentence.", "3층 2호"]
)
def test_ordinary_sentences_hold_nothing_protected(text):
    assert find_keys(text) == []


def test_medical_words_come_before_amounts_and_earlier_texts_before_later_ones():
    texts = ["예산은 300만 원이다.", "아스피린은 금기입니다.", "값은 5%입니다."]
    found = find_protected(texts, DEFAULT)
    assert [item.text for item in found] == [
        "아스피린은 금기입니다.",
        "예산은 300만 원이다.",
        "값은 5%입니다.",
    ]


def test_an_amount_inside_of_another_does_not_count():
    five, _ = find_protected(["값은 5%이다.", "값은 15%이다."], DEFAULT)
    assert not is_kept("값은 15%이다.", five)
    assert is_kept("값은 5 %이다.", five)


@pytest.mark.parametrize(
    ("text", "summary", "told"),
    [
        ("예산은 3억 원입니다.", "장소는 정했습니다. 3억 원으로 합니다.", True),
        ("예산은 3억 원입니다.", "예산은 1.3억 원으로 합니다.", False),
        ("예산은 3억 원입니다.", "2024 3억원", True),
        ("예산은 3,500만 원입니다.", "예산: 3500만원", True),
        ("계약 번호는 A-1023-7입니다.", "계약 A-1023-77", False),
        ("계약 번호는 A-1023-7입니다.", "계약 A-1023-7 2024년", True),
    ],
)
def test_a_figure_is_told_within_its_own_borders(text, summary, told):
    item = next(one for one in find_protected([text], DEFAULT) if not one.grave)
    assert is_kept(summary, item) is told


def test_a_sentence_is_not_told_by_its_protected_word_alone():
    (item,) = find_protected(["환자는 페니실린 알레르기가 있다."], DEFAULT)
    assert not is_kept("땅콩 알레르기를 물었다.", item)
    assert is_kept("환자는 페니실린 알레르기가 있음.", item)


def test_what_is_put_back_can_be_taken_out_again():
    found = find_protected(["예산은 300만 원이다.", "벌금은 5%입니다."], DEFAULT)
    text = restore_protected("요약", found, "ko")
    assert split_protected(text) == ("요약", ["예산은 300만 원이다.", "벌금은 5%입니다."])


def test_what_is_put_back_is_bounded_and_the_gravest_stay():
    amounts = [f"항목 {n}의 값은 {n}00만 원이다." for n in range(1, 300)]
    text = restore_protected(
        "요약", find_protected([*amounts, "아스피린은 금기이다."], DEFAULT), "ko"
    )
    assert len(text) <= len("요약\n꼭 지킬 내용:\n") + MAX_PROTECTED_CHARACTERS
    assert "아스피린은 금기이다." in text


@pytest.mark.parametrize("piece", ["1,", "1억", "A1-", "2026-", "복용", "1 ", "“", "Jan 1"])
def test_hostile_texts_take_no_time(piece):
    begun = time.process_time()
    found = find_protected([piece * 5000], DEFAULT)
    restore_protected("요약", found, "ko")
    assert time.process_time() - begun < 5
