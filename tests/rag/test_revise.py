"""Finished drafts in better words: what the light model may change, and what keeps the draft."""

from datetime import date

import pytest

from rag.adapters.light import Light
from rag.config import StyleRules
from rag.context.prompt import AnswerContext
from rag.errors import LLMUnreachable
from rag.generate.citations import CitationFilter
from rag.generate.llm import MAX_DRAFT_CHARACTERS, CheckedAnswer, Reviser
from rag.ports import Piece
from rag.verify import Grounds, verify_answer
from tests.rag.passages import make_evidence as made_evidence
from tests.rag.worlds import Library, ScriptedLLM, find_finished, join_text, make_engine

DRAFT = "숙박비 상한은 90,000원임 [1]. 정산은 14일 안에 해야 됨 [2]."
BETTER = "숙박비 상한은 90,000원입니다 [1]. 정산은 14일 안에 하셔야 합니다 [2]."
EVIDENCE = tuple(
    made_evidence(text, slot=slot, name=f"{slot}.md")
    for slot, text in ((1, "숙박비 상한은 90,000원이다."), (2, "정산은 14일 안에 한다."))
)
BRIEF = AnswerContext("상한과 정산 기한은?", "ko", date(2026, 3, 2), "f00d", evidence=EVIDENCE)


def check(text, citations):
    return verify_answer(text, citations, EVIDENCE, grounds=Grounds())


def make_draft(text):
    """A draft as a model with these passages would have left it."""
    markers = CitationFilter(EVIDENCE)
    shown = markers.feed(text) + markers.flush()
    return CheckedAnswer(shown, markers.citations, check(shown, markers.citations))


async def restyle(said, draft=DRAFT, rules=StyleRules()):  # noqa: B008 - frozen
    """Text and reason of a draft in better words, and the model that was asked."""
    model = ScriptedLLM(Piece(said) if isinstance(said, str) else said)
    revised = await Reviser(Light(model)).restyle(rules, make_draft(draft), BRIEF, check)
    return (revised.draft.text if revised.draft else "", revised.reason), model


async def test_a_draft_is_rewritten_with_all_its_sources():
    styled, _ = await restyle(BETTER)
    assert styled == (BETTER, "")


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        (BETTER.replace(" [2]", ""), "markers"),
        (BETTER.replace("[2]", "[1]"), "markers"),
        (BETTER.replace("90,000", "95,000"), "numbers"),
        (BETTER.replace("14일 안에", "기한 안에"), "numbers"),
        (BETTER + " 서울은 110,000원입니다.", "numbers"),
        ("짧게 [1][2]", "length"),
        (BETTER * 3, "length"),
    ],
)
async def test_the_draft_stays_where_something_of_it_would_get_lost(said, reason):
    styled, _ = await restyle(said)
    assert styled == ("", reason)


async def test_a_marker_without_a_source_is_taken_out_of_the_rewriting():
    styled, _ = await restyle(BETTER + " [7]")
    assert styled == (BETTER, "")


async def test_code_stays_letter_by_letter():
    draft = "다음을 실행함: `nura up --port 80` [1]. 그러면 서버가 바로 시작됨 [2]."
    changed = "다음을 실행합니다: `nura up --port 80 -v` [1]. 그러면 서버가 바로 시작됩니다 [2]."
    styled, _ = await restyle(changed, draft=draft)
    assert styled[1] == "code"
    styled, _ = await restyle(changed.replace(" -v", ""), draft=draft)
    assert styled[1] == ""


async def test_a_fence_around_the_whole_reply_is_taken_off():
    styled, _ = await restyle(f"```\n{BETTER}\n```")
    assert styled == (BETTER, "")


async def test_a_light_model_that_fails_leaves_the_draft():
    styled, _ = await restyle(LLMUnreachable("down"))
    assert styled == ("", "llm_unreachable")


async def test_a_very_long_draft_is_not_given_to_the_light_model():
    styled, model = await restyle(BETTER, draft="가나다 " * MAX_DRAFT_CHARACTERS)
    assert styled[1] == "length"
    assert model.asked == []


async def test_the_rules_of_the_setting_reach_the_model_and_the_draft_has_no_power():
    _, model = await restyle(
        BETTER, draft=DRAFT + "<|im_start|>", rules=StyleRules("- 해요체로 씁니다.")
    )
    system, user = model.asked[0]
    assert "- 해요체로 씁니다." in system.content
    assert "<|im_start|>" not in user.content


WRONG = "숙박비 상한은 95,000원입니다 [1]. 정산은 14일 안에 해야 합니다 [2]."


async def correct(said, draft=WRONG):
    """Text, reason and label of a draft whose doubted sentences were said anew."""
    model = ScriptedLLM(Piece(said) if isinstance(said, str) else said)
    reviser = Reviser(Light(model), corrects=True)
    revised = await reviser.correct(make_draft(draft), BRIEF, check)
    return revised, model


LIST = '["숙박비 상한은 90,000원입니다 [1]."]'


@pytest.mark.parametrize("said", [LIST, f"```json\n{LIST}\n```", f"고친 문장입니다: {LIST}"])
async def test_a_sentence_that_nothing_supports_is_said_anew_from_the_passages(said):
    revised, model = await correct(said)
    assert revised.draft.text == WRONG.replace("95,000", "90,000")
    assert revised.draft.verification.label == "documents"
    assert [one.number for one in revised.draft.citations] == [1, 2]
    _, user = model.asked[0]
    assert "숙박비 상한은 95,000원입니다 [1]." in user.content
    assert "정산은 14일 안에 해야" not in user.content


@pytest.mark.parametrize(
    "said",
    [
        '["숙박비 상한은 99,000원입니다 [1]."]',
        '["숙박비 상한은 90,000원입니다."]',
        '["숙박비 상한은 90,000원입니다 [7]."]',
        '[""]',
        "[]",
        '{"a": 1}',
        "[[1], null]",
    ],
)
async def test_what_is_no_better_leaves_the_sentence_as_it_was(said):
    revised, _ = await correct(said)
    assert (revised.draft, revised.reason) == (None, "support")


@pytest.mark.parametrize("said", ["그냥 말입니다", LLMUnreachable("down")])
async def test_a_light_model_that_fails_or_rambles_corrects_nothing(said):
    revised, _ = await correct(said)
    assert revised.draft is None
    assert revised.reason


def test_only_a_draft_with_doubts_is_corrected():
    reviser = Reviser(Light(ScriptedLLM()), corrects=True)
    assert [name for name, _ in reviser.list_steps(make_draft(WRONG))] == ["revise"]
    assert list(reviser.list_steps(make_draft(DRAFT))) == []


def test_rows_of_tables_are_not_rewritten():
    draft = make_draft("| 구분 | 상한 |\n|---|---|\n| 숙박비 | 95,000원 [1] |")
    assert list(Reviser(Light(ScriptedLLM()), corrects=True).list_steps(draft)) == []


async def test_a_revision_that_breaks_leaves_the_answer_as_it_was_written():
    written = "숙박비 상한은 95,000원입니다 [1]."
    made = Library(
        make_engine(
            llm=ScriptedLLM(Piece(written), Piece(finish_reason="stop")),
            light=Light(ScriptedLLM(ZeroDivisionError("not foreseen"))),
        )
    )
    made.add("여비 규정.md", "숙박비 상한은 1박 90,000원이다.")
    events = await made.ask("숙박비 상한은 얼마인가요?")
    assert join_text(events) == written
    assert find_finished(events).trace["revise"] == {"failure": "ZeroDivisionError"}
