"""Why an answer is as it is: what its trace tells has words in the page, and no word is idle."""

import pytest

from nura.templatetags.page_strings import PAGES
from rag.events import Finished
from rag.lexicon import load_rules
from rag.memory.explore import TOOLS
from rag.ports import Piece
from tests.rag.worlds import Library, ScriptedLLM, find_finished, make_engine


def list_worded(group: str) -> set[str]:
    """The names of a group that the page has words for."""
    parts = (key.partition(".") for key in PAGES["chat"])
    return {name for first, _dot, name in parts if first == group}


async def answer(**parts) -> Finished:
    library = Library(make_engine(**parts))
    library.add("사내 규정", "연차 휴가는 15일이다.")
    return find_finished(await library.ask("연차 휴가는 며칠이야?"))


def test_every_sign_of_a_follow_up_has_its_words():
    signs = set().union(*load_rules("followup")["weights"].values()) - {"bias"}
    assert list_worded("signal") == signs


def test_every_step_through_a_conversation_has_its_words():
    assert list_worded("tool") == {*TOOLS, "other"}


@pytest.mark.parametrize("parts", [{}, {"llm": ScriptedLLM(Piece("15일입니다. [1]"))}])
async def test_every_timed_step_has_its_words(parts):
    timed = (await answer(**parts)).trace["timings_ms"]
    assert "select" in timed
    assert set(timed) <= list_worded("time")
