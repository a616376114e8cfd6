"""Emergencies: who needs help now is told whom to call, before anything else."""

import csv
import json
from pathlib import Path

import pytest

from rag.events import Delta, StepBegan
from rag.generate.offline import Emergency, find_emergency, write_emergency_note
from rag.ports import Piece
from rag.prompts import get_reply
from tests.rag.worlds import Library, ScriptedLLM, find_finished, join_text, make_engine
from tests.support import NO_DATA

SAID = [
    json.loads(line)
    for line in (Path(__file__).parents[1] / "data/emergencies.jsonl").read_text().splitlines()
]
TALK = Path(__file__).parents[3] / "shared/data/ko_smalltalk/ChatbotData.part.csv"
MAX_FALSE_ALARMS = 0.02


@pytest.mark.parametrize("text", [one["text"] for one in SAID if one["emergency"]])
def test_who_needs_help_is_heard(text):
    assert find_emergency(text) is not None


@pytest.mark.parametrize("text", [one["text"] for one in SAID if not one["emergency"]])
def test_ordinary_talk_and_questions_on_documents_raise_no_alarm(text):
    assert find_emergency(text) is None


@pytest.mark.skipif(not TALK.exists(), reason=NO_DATA)
def test_daily_talk_seldom_raises_an_alarm():
    with TALK.open(encoding="utf-8") as file:
        said = [row["Q"] for row in csv.DictReader(file)]
    heard = sum(find_emergency(text) is not None for text in said)
    assert heard <= MAX_FALSE_ALARMS * len(said)


def test_the_wish_to_die_is_answered_with_a_crisis_line():
    assert find_emergency("숨이 막히고 죽고 싶어요") is Emergency.SELF_HARM


@pytest.mark.parametrize("model", [None, ScriptedLLM(Piece("곧 도움이 올 것입니다."))])
async def test_the_numbers_come_first_with_and_without_a_model(model):
    made = Library(make_engine(llm=model))
    made.add("여비.md", "# 여비\n\n숙박비 상한은 1박 90,000원이다.")
    events = await made.ask("아버지가 갑자기 쓰러져서 의식이 없어요")
    assert events[0] == Delta(get_reply("emergency_body", "ko") + "\n\n")
    assert any(isinstance(event, StepBegan) for event in events[1:])
    assert "119" in join_text(events)
    assert len(join_text(events)) > len(events[0].text)


async def test_checks_of_the_answer_stand_where_its_sentences_are():
    made = Library(make_engine(llm=ScriptedLLM(Piece("숙박비 상한은 1박 90,000원입니다. [1]"))))
    made.add("여비.md", "# 여비\n\n숙박비 상한은 1박 90,000원이다.")
    events = await made.ask("가슴이 너무 아파요. 그런데 숙박비 상한은 얼마죠?")
    text, end = join_text(events), find_finished(events)
    (check,) = [one for one in end.checks if one.slots]
    assert text[check.start : check.end].startswith("숙박비 상한은")


async def test_the_note_is_no_part_of_what_the_model_is_asked():
    llm = ScriptedLLM(Piece("네."))
    await Library(make_engine(llm=llm)).ask("I can't breathe")
    assert "911" not in llm.last


def test_english_gets_english_numbers():
    assert "911" in write_emergency_note("My father collapsed")
    assert write_emergency_note("What is the fee?") == ""


def test_a_document_pasted_into_the_question_raises_no_alarm_by_its_end():
    pasted = "계약 조건을 검토해 주세요. " * 200 + "가슴이 너무 아파요."
    assert find_emergency(pasted) is None
