"""Questions that ask the same, and those that only look alike."""

import json
from pathlib import Path

import pytest

from rag.understand.sameness import fold_question, is_dependent_on_today, is_same_question

PAIRS = [
    json.loads(line)
    for line in (Path(__file__).parents[1] / "data/same_questions.jsonl").read_text().splitlines()
]
SAME = [(one["one"], one["other"]) for one in PAIRS if one["same"]]
ALIKE = [(one["one"], one["other"]) for one in PAIRS if not one["same"]]
MIN_FOUND = 0.9


@pytest.mark.parametrize(("one", "other"), ALIKE)
def test_a_question_that_only_looks_alike_is_another_one(one, other):
    assert not is_same_question(one, other)
    assert not is_same_question(other, one)


def test_most_ways_to_ask_the_same_are_heard():
    assert len(SAME) >= 40
    found = sum(is_same_question(one, other) for one, other in SAME)
    assert found >= MIN_FOUND * len(SAME)


@pytest.mark.parametrize(("one", "other"), SAME)
def test_the_order_of_two_questions_does_not_matter(one, other):
    assert is_same_question(one, other) == is_same_question(other, one)


def test_case_blanks_and_the_sign_at_the_end_are_no_part_of_a_question():
    assert fold_question(" Who  Pays? ") == fold_question("who pays")
    assert fold_question("10²는?") != fold_question("102는?")


def test_a_question_without_a_word_that_counts_is_the_same_as_none():
    assert not is_same_question("???", "!!")
    assert not is_same_question("알려줘", "궁금해요")


def test_a_long_question_is_the_same_as_it_is_written_only():
    long = "숙박비 상한은 얼마인가요? " * 40
    assert is_same_question(long, long + " ")
    assert not is_same_question(long, long.replace("얼마인가요", "얼마예요"))


@pytest.mark.parametrize("text", ["오늘 마감인 과제는?", "지난달 매출은?", "What is still open?"])
def test_a_question_on_today_depends_on_the_day(text):
    assert is_dependent_on_today(text)


def test_a_question_on_a_date_does_not():
    assert not is_dependent_on_today("2024년 3월 매출은 얼마인가요?")
