"""Which older turns are found and chosen."""

import functools
import time
from dataclasses import replace
from uuid import uuid4

import pytest

from rag.conversation import PastTurn, TurnLine
from rag.memory.recall import choose_turns, search_turns
from rag.memory.summary import count_turn_terms, write_line
from tests.rag.worlds import LetterEmbedder

SUBJECTS = (
    *("입찰", "공고", "계약", "보증금", "하도급", "전자조달", "설치", "매뉴얼", "로그"),
    *("데이터베이스", "백업", "휴가", "급여", "출장", "여비", "교육", "평가", "감사"),
)
FACT = 3


def turn(number, asked="", told=""):
    first = SUBJECTS[number % len(SUBJECTS)]
    second = SUBJECTS[(number * 7 + 3) % len(SUBJECTS)]
    return PastTurn(
        number,
        asked or f"{first} {second} 절차는 어떻게 되나요?",
        told or f"{first}의 {second}은 {number}일 안에 신청서를 내고 승인을 받아야 합니다.",
    )


def make_turns(count, said_at=None):
    return [turn(n, (said_at or {}).get(n, "")) for n in range(1, count + 1)]


def make_line(one, embedder=None):
    text = f"{one.user_text}\n{one.assistant_text}"
    return TurnLine(
        one.number,
        one.user_text[:200],
        write_line(one),
        terms=count_turn_terms(one),
        vector=tuple(embedder.embed_query(text)) if embedder else None,
    )


LONG = make_turns(199, {FACT: "우리 프로젝트 담당자는 김민수야"})
ASKED = "담당자가 누구라고 했지?"


@functools.cache
def make_lines():
    """The lines of the long conversation."""
    return [make_line(one) for one in LONG]


def choose_numbers(question, turns, *, embedder=None, lines=None, **wishes):
    """The numbers of the chosen turns."""
    told = lines or [make_line(one, embedder) for one in turns]
    return choose_turns(question, told, embedder, **wishes)[1]


def test_a_fact_of_turn_3_is_found_at_turn_200():
    found = choose_numbers(ASKED, LONG, lines=make_lines())
    assert found[0] == FACT


def test_two_hundred_turns_with_stored_terms_are_ranked_in_time():
    lines = make_lines()
    choose_turns(ASKED, lines, None)  # the analyser is loaded by now
    begun = time.perf_counter()
    choose_turns(ASKED, lines, None)
    assert time.perf_counter() - begun < 0.5  # measured .03 s


@pytest.mark.parametrize("count", [20, 60, 199])
def test_no_more_than_three_turns_are_chosen_however_long_the_conversation(count):
    found = choose_numbers("입찰 보증금은 어떻게 내나요?", LONG[:count], lines=make_lines()[:count])
    assert 1 <= len(found) <= 3


def test_turns_without_a_note_are_found_by_their_lines():
    bare = [TurnLine(one.number, one.user_text, "") for one in LONG]
    found = choose_numbers(ASKED, LONG, lines=bare)
    assert found[0] == FACT


def test_a_question_on_something_else_chooses_nothing():
    found = choose_numbers("후쿠오카 벚꽃 여행 일정을 짜 주세요", LONG, lines=make_lines())
    assert found == ()


@pytest.mark.parametrize("question", ["", "   ", "?!"])
def test_an_empty_question_chooses_nothing(question):
    found = choose_numbers(question, LONG, lines=make_lines())
    assert found == ()


def test_turns_of_a_thread_are_found_by_their_likeness_to_one_another():
    turns = [
        PastTurn(
            1, "How do I visit the Grand Canyon park?", "The canyon park opens daily in Arizona."
        ),
        PastTurn(2, "What is the tax rate?", "The income tax rate is ten percent."),
        PastTurn(3, "Are there hotels in Arizona?", "The canyon park in Arizona has hotels."),
        PastTurn(4, "How do I file income tax?", "File the income tax form online."),
    ]
    found = choose_numbers("canyon", turns, embedder=LetterEmbedder())
    assert set(found) == {1, 3}


def test_documents_that_the_search_found_speak_for_their_turns():
    turns = [
        PastTurn(1, "보증금은 얼마야?", "5%입니다."),
        PastTurn(2, "보증금은 얼마야?", "5%입니다."),
    ]
    shown = uuid4()
    lines = [replace(make_line(one)) for one in turns]
    lines[0] = replace(lines[0], document_ids=(shown,))
    found = choose_numbers("보증금", turns, lines=lines, documents=[shown], limit=1)
    assert found == (1,)


def test_a_failing_embedder_leaves_the_terms_to_choose():
    embedder = LetterEmbedder()
    turns = [
        PastTurn(1, "The budget is 3 million.", "TurnNote."),
        PastTurn(2, "Hello there", "Hi."),
    ]
    lines = [make_line(one, embedder) for one in turns]
    embedder.failing = True
    found = choose_numbers("What is the budget?", turns, lines=lines, embedder=embedder)
    assert found == (1,)


def test_vectors_of_another_width_are_passed_over():
    embedder = LetterEmbedder()
    asked = "What is the budget?"
    lines = [TurnLine(1, "hello", "", vector=tuple(embedder.embed_query(asked)))]
    lines.append(TurnLine(2, "hello", "", vector=(1.0, 0.0, 0.0)))
    assert choose_numbers(asked, [], lines=lines, embedder=embedder) == (1,)


def test_search_gives_the_best_first_and_nothing_that_shares_nothing():
    found = search_turns("담당자 김민수", make_lines())
    assert found[0].line.number == FACT
    assert search_turns("zzz", make_lines()) == []
    assert search_turns("담당자", []) == []
