"""Questions that may come next, as the light model sees them."""

import json

import pytest

from rag.adapters.light import BadReply, Light
from rag.generate.llm import MAX_FOLLOW_UP_CHARACTERS, suggest_follow_ups
from rag.ports import Piece
from tests.rag.worlds import ScriptedLLM

QUESTION = "숙박비 상한은 얼마인가요?"
ANSWER = "숙박비는 하루 **8만 원**까지입니다. [1]"


async def suggest(said, question=QUESTION):
    reply = said if isinstance(said, str) else json.dumps({"questions": said}, ensure_ascii=False)
    light = Light(ScriptedLLM(Piece(reply)))
    return await suggest_follow_ups(question, ANSWER, ["제3조 정산"], light)


async def test_three_questions_at_most_are_kept_in_their_order():
    asked = [f"정산은 {day}일까지인가요?" for day in range(5)]
    assert await suggest(asked) == tuple(asked[:3])


@pytest.mark.parametrize(
    "useless",
    [QUESTION, "숙박비  상한은 얼마인가요", "", 7, None, "가" * (MAX_FOLLOW_UP_CHARACTERS + 1)],
)
async def test_what_is_no_new_question_is_left_out(useless):
    assert await suggest([useless, "식비는 얼마인가요?"]) == ("식비는 얼마인가요?",)


async def test_a_question_in_another_language_is_left_out():
    assert await suggest(["What about meals?", "식비는요?"]) == ("식비는요?",)
    english = await suggest(["What about meals?", "식비는요?"], "What is the limit for hotels?")
    assert english == ("What about meals?",)


@pytest.mark.parametrize("said", ['{"questions": "식비"}', "[]", '{"other": []}'])
async def test_a_reply_of_another_shape_suggests_nothing(said):
    assert await suggest(said) == ()


async def test_a_reply_that_is_no_json_is_said_to_be_bad():
    with pytest.raises(BadReply):
        await suggest("모르겠습니다")
