"""Between the messages that fit into a prompt and the older turns that are chosen, none is lost."""

import pytest

from rag.adapters.light import Light
from rag.conversation import Conversation, MemoryHistory, PastTurn, Question
from rag.errors import LLMUnreachable
from rag.ports import Piece
from tests.rag.worlds import Library, ScriptedLLM, make_engine

LONG = "회의실 예약과 주차 등록, 출입증 발급 절차를 차례로 설명드리겠습니다. " * 12


def make_conversation(said, *, at, turns):
    """Long turns on other things, and one at `at` in which something was said."""
    return tuple(
        PastTurn(number, f"{number}번 안내를 해 줘", LONG, "single", "general")
        if number != at
        else PastTurn(number, said, "네, 기억하겠습니다.", "single", "general")
        for number in range(1, turns + 1)
    )


async def build_prompt(question, turns, light=None):
    llm = ScriptedLLM(Piece("네"))
    made = Library(make_engine(llm=llm, light=Light(light) if light else None))
    made.add("여비.md", "숙박비 상한은 1박 90,000원이다.")
    asked = Question(question, made.scope(), Conversation(turns[-10:], len(turns)))
    history = MemoryHistory(turns)
    async for _ in made.engine.answer(asked, made.store, history):
        pass
    return llm.asked[-1]


async def test_a_turn_that_no_longer_fits_into_the_window_can_be_recalled():
    turns = make_conversation("우리 과제 담당자는 김민수야", at=3, turns=9)
    sent = await build_prompt("과제 담당자가 누구라고 했지?", turns)
    assert len(sent) < 2 * 9
    assert any("김민수" in message.content for message in sent)


async def test_a_turn_within_the_window_is_not_told_twice():
    turns = make_conversation("우리 과제 담당자는 김민수야", at=9, turns=9)
    sent = await build_prompt("과제 담당자가 누구라고 했지?", turns)
    assert sum(message.content.count("김민수") for message in sent) == 1


ALONE = "공무원 여비 규정에서 국내 출장 숙박비 상한은 얼마입니까?"
UNSURE = "숙박비 상한은 1박에 얼마로 정해져 있나요?"


@pytest.fixture
def long_conversation():
    return make_conversation(
        "숙박비 상한을 넘으면 과제 담당자 김민수에게 알려야 해", at=3, turns=20
    )


def holds_fact(sent):
    return any("김민수" in message.content for message in sent)


@pytest.mark.parametrize("said", ["[3]", "고른 차례: [3]", '["3", 3, 99]', "[3, 3]"])
async def test_the_light_model_chooses_older_turns(long_conversation, said):
    light = ScriptedLLM(Piece(said))
    assert holds_fact(await build_prompt(ALONE, long_conversation, light))
    assert "3: 숙박비 상한을 넘으면" in light.asked[0][-1].content


async def test_the_light_model_may_choose_none(long_conversation):
    light = ScriptedLLM(Piece("[]"))
    assert not holds_fact(await build_prompt(ALONE, long_conversation, light))


@pytest.mark.parametrize(
    "said", ["모르겠습니다", "[99]", "[[3]]", '{"turns": 3}', LLMUnreachable("gone")]
)
async def test_scores_choose_where_the_light_model_does_not(long_conversation, said):
    light = ScriptedLLM(Piece(said) if isinstance(said, str) else said)
    assert holds_fact(await build_prompt(ALONE, long_conversation, light))
    assert len(light.asked) == 1


async def test_a_light_model_that_read_the_question_is_not_asked_to_choose(long_conversation):
    light = ScriptedLLM(Piece("[3]"))
    await build_prompt(UNSURE, long_conversation, light)
    assert "search_terms" in light.asked[0][0].content
    assert not any("3: 숙박비" in asked[-1].content for asked in light.asked)
