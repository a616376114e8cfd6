"""Between the messages that fit into a prompt and the older turns that are chosen, none is lost."""

from rag.conversation import Conversation, Turn
from rag.history.memory import MemoryHistory
from rag.pieces import Piece
from rag.question import Question
from tests.rag.worlds import Library, ScriptedLLM, engine

LONG = "회의실 예약과 주차 등록, 출입증 발급 절차를 차례로 설명드리겠습니다. " * 12


def conversation(said, *, at, turns):
    """Long turns on other things, and one at `at` in which something was said."""
    return tuple(
        Turn(number, f"{number}번 안내를 해 줘", LONG, "single", "general")
        if number != at
        else Turn(number, said, "네, 기억하겠습니다.", "single", "general")
        for number in range(1, turns + 1)
    )


async def prompt_for(question, turns):
    llm = ScriptedLLM(Piece("네"))
    made = Library(engine(llm=llm))
    made.add("여비.md", "숙박비 상한은 1박 90,000원이다.")
    asked = Question(question, made.scope(), Conversation(turns[-10:], len(turns)))
    history = MemoryHistory(turns)
    async for _ in made.engine.answer(asked, made.store, history):
        pass
    return llm.asked[-1]


async def test_a_turn_that_no_longer_fits_into_the_window_can_be_recalled():
    turns = conversation("우리 과제 담당자는 김민수야", at=3, turns=9)
    sent = await prompt_for("과제 담당자가 누구라고 했지?", turns)
    assert len(sent) < 2 * 9
    assert any("김민수" in message.content for message in sent)


async def test_a_turn_within_the_window_is_not_told_twice():
    turns = conversation("우리 과제 담당자는 김민수야", at=9, turns=9)
    sent = await prompt_for("과제 담당자가 누구라고 했지?", turns)
    assert sum(message.content.count("김민수") for message in sent) == 1
