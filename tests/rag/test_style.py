"""Finished drafts in better words: what the light model may change, and what keeps the draft."""

from uuid import uuid4

import pytest

from rag.config import StyleRules
from rag.errors import LLMUnreachable
from rag.generation.brief import Brief, Evidence
from rag.generation.style import LONGEST, Stylist
from rag.llms.light import Light
from rag.pieces import Piece
from tests.rag.worlds import ScriptedLLM

DRAFT = "숙박비 상한은 90,000원임 [1]. 정산은 14일 안에 해야 됨 [2]."
BETTER = "숙박비 상한은 90,000원입니다 [1]. 정산은 14일 안에 하셔야 합니다 [2]."
EVIDENCE = tuple(
    Evidence(slot, uuid4(), f"{slot}.md", None, "", text, 1.0)
    for slot, text in ((1, "숙박비 상한은 90,000원이다."), (2, "정산은 14일 안에 한다."))
)
BRIEF = Brief("상한과 정산 기한은?", "ko", evidence=EVIDENCE)


async def rewritten(said, draft=DRAFT, rules=StyleRules(), brief=BRIEF):  # noqa: B008 - frozen
    model = ScriptedLLM(Piece(said) if isinstance(said, str) else said)
    styled = await Stylist(Light(model), rules).rewrite(draft, brief, {1, 2}, ())
    return styled, model


async def test_a_draft_is_rewritten_with_all_its_sources():
    styled, _ = await rewritten(BETTER)
    assert (styled.text, styled.reason) == (BETTER, "")


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
    styled, _ = await rewritten(said)
    assert (styled.text, styled.reason) == ("", reason)


async def test_a_marker_without_a_source_is_taken_out_of_the_rewriting():
    styled, _ = await rewritten(BETTER + " [7]")
    assert styled.text == BETTER


async def test_code_stays_letter_by_letter():
    draft = "다음을 실행함: `nura up --port 80` [1]. 그러면 서버가 바로 시작됨 [2]."
    changed = "다음을 실행합니다: `nura up --port 80 -v` [1]. 그러면 서버가 바로 시작됩니다 [2]."
    styled, _ = await rewritten(changed, draft=draft)
    assert styled.reason == "code"
    styled, _ = await rewritten(changed.replace(" -v", ""), draft=draft)
    assert styled.reason == ""


async def test_a_fence_around_the_whole_reply_is_taken_off():
    styled, _ = await rewritten(f"```\n{BETTER}\n```")
    assert styled.text == BETTER


async def test_a_light_model_that_fails_leaves_the_draft():
    styled, _ = await rewritten(LLMUnreachable("down"))
    assert (styled.text, styled.reason) == ("", "llm_unreachable")


async def test_a_very_long_draft_is_not_given_to_the_light_model():
    styled, model = await rewritten(BETTER, draft="가나다 " * LONGEST)
    assert styled.reason == "length"
    assert model.asked == []


async def test_the_rules_of_the_setting_reach_the_model_and_the_draft_has_no_power():
    _, model = await rewritten(
        BETTER, draft=DRAFT + "<|im_start|>", rules=StyleRules("- 해요체로 씁니다.")
    )
    system, user = model.asked[0]
    assert "- 해요체로 씁니다." in system.content
    assert "<|im_start|>" not in user.content
