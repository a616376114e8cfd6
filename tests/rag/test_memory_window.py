"""What of a conversation stands in the prompt: its last turns, and what is told of those before."""

import pytest

from rag.conversation import Conversation, PastTurn, RunningSummary
from rag.memory.summary import EXTRACTIVE, open_window


def make_turns(count):
    return tuple(
        PastTurn(n, f"질문 {n}", f"답 {n}", summary=f"{n}번에 말한 것") for n in range(1, count + 1)
    )


def opened(count, *, pairs=10, summary=None, forgets=False, **known):
    conversation = Conversation(make_turns(count), count, summary=summary, **known)
    return open_window(conversation, pairs=pairs, forgets=forgets)


def list_contents(window):
    return [message.content for message in window.messages]


def test_the_window_holds_the_last_turns_oldest_first():
    window = opened(12)
    assert (list_contents(window)[0], list_contents(window)[-1]) == ("질문 6", "답 12")
    assert window.first == 6


def test_the_window_stays_where_it_begins_and_moves_on_by_several_turns():
    firsts = [opened(count).first for count in range(8, 22)]
    assert firsts == [1, 1, 1, 6, 6, 6, 6, 6, 11, 11, 11, 11, 11, 16]


def test_a_question_without_an_answer_counts_as_a_pair():
    said = (*make_turns(2), PastTurn(3, "답이 없는 질문", ""))
    window = open_window(Conversation(said, 3), pairs=2)
    assert list_contents(window) == ["답이 없는 질문"]


def test_long_messages_are_cut():
    window = open_window(Conversation((PastTurn(1, "가" * 900, ""),), 1), pairs=3)
    assert [len(text) for text in list_contents(window)] == [500]


def test_no_pairs_means_no_window():
    window = opened(3, pairs=0)
    assert (window.messages, window.first) == ((), 4)


def test_a_first_question_has_none():
    window = opened(0)
    assert (window.messages, window.render_summary()) == ((), "")


def test_what_left_the_window_and_is_not_folded_yet_is_told_a_line_each():
    told = [f"{number}. {number}번에 말한 것" for number in range(1, 6)]
    assert opened(12).render_summary() == "\n".join(told)


@pytest.mark.parametrize("count", [15, 16, 19])
def test_the_summary_goes_to_where_the_window_begins(count):
    window = opened(count, summary=RunningSummary("접은 것", 5))
    told = window.render_summary()
    between = range(6, window.first)
    assert told == "\n".join(["접은 것", *(f"{n}. {n}번에 말한 것" for n in between)])
    assert list_contents(window)[0] == f"질문 {window.first}"


def test_the_window_never_holds_what_is_folded():
    window = opened(12, summary=RunningSummary("접은 것", 7))
    assert (window.first, list_contents(window)[0], window.render_summary()) == (
        8,
        "질문 8",
        "접은 것",
    )


def test_a_turn_that_the_prompt_holds_whole_is_not_told_once_more():
    folded = RunningSummary("1. 하나\n2. 둘\n3. 셋", 5, EXTRACTIVE)
    window = opened(12, pairs=4, summary=folded)
    told = window.render_summary(excluded={2, 6})
    assert told == "1. 하나\n3. 셋\n7. 7번에 말한 것\n8. 8번에 말한 것"


def test_a_list_that_a_model_numbered_itself_is_told_whole():
    window = opened(12, pairs=4, summary=RunningSummary("1. 하나\n2. 둘", 5, "gemma"))
    assert window.render_summary(excluded={2, 6}).startswith("1. 하나\n2. 둘\n7. ")


def test_nothing_from_before_a_new_start_is_in_it():
    window = opened(12, begins_at=9, summary=RunningSummary("옛 주제", 5))
    assert (window.first, list_contents(window)[0], window.render_summary()) == (9, "질문 9", "")


def test_a_question_that_begins_anew_sees_nothing():
    window = opened(12, summary=RunningSummary("옛 주제", 5), forgets=True)
    assert (window.messages, window.first, window.render_summary()) == ((), 13, "")
