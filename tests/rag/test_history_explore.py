"""Looking through a long conversation within its budgets."""

import asyncio
import json
from uuid import UUID, uuid4

import pytest

from rag.config import ContextRules
from rag.conversation import DocRef, Turn
from rag.errors import LLMRejected, LLMUnreachable
from rag.history import environment
from rag.history.environment import Environment, chunk_search
from rag.history.explore import NOTE, explore
from rag.history.memory import MemoryHistory
from rag.llms.light import Light
from rag.pieces import Piece
from rag.tools import Choice, ToolCall
from tests.rag import worlds

RULES = ContextRules()
FACT = "우리 프로젝트 담당자는 김민수야"


class Caller:
    """Makes the calls it was told to, one choice a round, and keeps what it was shown."""

    def __init__(self, *choices) -> None:
        self.choices = list(choices)
        self.shown = []
        self.offered = ()

    async def choose(self, turns, tools):
        """The next choice; an exception among them is raised; the last one again and again."""
        self.shown.append(turns)
        self.offered = tuple(tools)
        choice = self.choices.pop(0) if len(self.choices) > 1 else self.choices[0]
        if isinstance(choice, Exception):
            raise choice
        return choice


class Slow:
    """Never comes to a choice."""

    async def choose(self, turns, tools):
        """Wait for nothing."""
        await asyncio.Event().wait()


def calls(*named) -> Choice:
    return Choice(calls=tuple(ToolCall(name, arguments) for name, arguments in named))


@pytest.fixture
def library() -> worlds.Library:
    made = worlds.Library(worlds.engine())
    made.add(
        "복무규정.md", "연가는 재직 기간에 따라 15일까지 줄 수 있다.", "출장 여비는 실비로 준다."
    )
    made.add("계약규정.md", "입찰 보증금은 입찰 금액의 5퍼센트로 한다.")
    return made


def place(library, turns=None) -> Environment:
    """Thirty turns, of which the third tells a fact and the fifth showed a document."""
    refs = (DocRef(1, library.ids["복무규정.md"], "복무규정", "복무규정.md", snippet="연가는"),)
    talk = turns or [
        Turn(3, FACT, "알겠습니다."),
        Turn(5, "연가 제도를 설명해 줘", "규정을 보여 드립니다.", doc_refs=refs),
        *(Turn(n, f"전자조달 화면 {n} 쓰는 법", "공고를 등록합니다.") for n in range(6, 31)),
    ]
    history = MemoryHistory(talk)
    search = chunk_search(library.engine.searcher, library.store)
    return Environment(history, library.store, search, library.engine.embedder)


async def explored(question, where, caller=None, light=None, rules=RULES, **more):
    return await explore(question, where, caller=caller, light=light, rules=rules, **more)


def tools_of(findings):
    return [step.tool for step in findings.steps]


async def test_without_a_model_a_fact_is_found_in_its_turn(library):
    found = await explored("담당자가 누구라고 했지?", place(library))
    assert tools_of(found) == ["search_turns", "get_turn"]
    assert (found.notes, found.stopped) == ((f"3: {FACT}",), "found")
    assert [turn.number for turn in found.turns] == [3]


async def test_without_a_model_what_no_turn_says_is_sought_in_its_documents(library):
    found = await explored("아까 말한 연가는 며칠까지 줄 수 있지?", place(library))
    assert tools_of(found) == ["search_turns", "get_turn", "get_turn_docs", "search_chunks"]
    assert found.stopped == "found"
    assert "15일까지" in found.notes[0]


async def test_a_turn_named_by_its_place_is_opened_at_once(library):
    found = await explored("3번째 질문에서 내가 뭐라고 했지?", place(library))
    assert tools_of(found) == ["get_turn"]
    assert found.notes == (f"3: {FACT}",)


async def test_nothing_to_be_found_is_said(library):
    found = await explored("후쿠오카 벚꽃 축제는 언제라고 했지?", place(library))
    assert (found.turns, found.notes, found.stopped) == ((), (), "nothing")


async def test_a_model_leads_by_its_calls(library):
    caller = Caller(
        calls(("search_turns", {"query": "담당자"})),
        calls(("get_turn", {"number": 3}), ("note", {"text": "담당자는 김민수"})),
        Choice(text="담당자는 김민수로 정해졌다."),
    )
    found = await explored("담당자가 누구라고 했지?", place(library), caller)
    assert tools_of(found) == ["search_turns", "get_turn", "note"]
    assert found.notes == ("담당자는 김민수", "담당자는 김민수로 정해졌다.")
    assert (found.stopped, [turn.number for turn in found.turns]) == ("done", [3])
    assert "3: " in caller.shown[1][-1].content
    assert FACT in caller.shown[2][-1].content


async def test_every_step_is_told_with_its_arguments_size_and_time(library):
    found = await explored("담당자가 누구라고 했지?", place(library))
    step = found.steps[0]
    assert (step.tool, step.arguments) == ("search_turns", {"query": "담당자가 ?"})
    assert (step.size > 0, step.ms >= 0, step.failed) == (True, True, False)


async def test_a_server_without_tools_leaves_the_lead_to_the_fixed_order(library):
    found = await explored("담당자가 누구라고 했지?", place(library), Caller(LLMRejected("no")))
    assert (found.stopped, found.failure) == ("found", LLMRejected.code)
    assert found.notes == (f"3: {FACT}",)


async def test_exploring_can_be_turned_off(library):
    caller = Caller(Choice(text="x"))
    found = await explored("담당자?", place(library), caller, rules=ContextRules(explore_calls=0))
    assert (found.stopped, found.steps, caller.shown) == ("off", (), [])


@pytest.mark.parametrize("at_once", [1, 5])
async def test_no_more_calls_are_made_than_allowed(library, at_once):
    endless = Caller(calls(*[("list_turns", {})] * at_once))
    rules = ContextRules(explore_calls=4, explore_tokens=10**6)
    found = await explored("담당자?", place(library), endless, rules=rules)
    assert (len(found.steps), found.stopped) == (4, "calls")


async def test_the_fixed_order_keeps_to_the_calls_allowed_and_hands_over_what_it_has(library):
    rules = ContextRules(explore_calls=2)
    found = await explored("아까 말한 연가는 며칠까지 줄 수 있지?", place(library), rules=rules)
    assert (len(found.steps), found.stopped) == (2, "calls")
    assert [turn.number for turn in found.turns] == [5]


async def test_no_prompt_is_sent_that_the_tokens_do_not_cover(library):
    endless = Caller(calls(("note", {"text": "하나"}), ("list_turns", {})))
    rules = ContextRules(explore_calls=100, explore_tokens=2000)
    found = await explored("담당자?", place(library), endless, rules=rules, count=len)
    sent = sum(len(message.content) for shown in endless.shown for message in shown)
    assert (found.stopped, found.notes) == ("tokens", ("하나",))
    assert 0 < sent <= 2000


async def test_a_model_that_never_chooses_costs_no_more_than_the_seconds_allowed(library):
    rules = ContextRules(explore_seconds=0.1)
    async with asyncio.timeout(5):
        found = await explored("담당자?", place(library), Slow(), rules=rules)
    assert (found.stopped, found.steps) == ("seconds", ())


async def test_what_the_model_is_shown_stays_bounded_however_long_it_goes_on(library):
    long = [Turn(n, f"{n} " + "가" * 5000, "나" * 5000) for n in range(1, 31)]
    endless = Caller(*[calls(("get_turn", {"number": n})) for n in range(1, 31)])
    rules = ContextRules(explore_calls=30, explore_tokens=10**6)
    await explored("담당자?", place(library, long), endless, rules=rules)
    sizes = [sum(len(message.content) for message in shown) for shown in endless.shown]
    assert len(sizes) == 30
    assert sizes[-1] < 2 * sizes[3]


async def test_a_sub_call_asks_the_light_model_about_one_text_alone(library):
    llm = worlds.ScriptedLLM(Piece("15일"))
    caller = Caller(calls(("subcall", {"question": "며칠?", "text": "연가는 15일"})), Choice("끝"))
    found = await explored("연가?", place(library), caller, Light(llm))
    assert "연가는 15일" in llm.last
    assert "15일" in caller.shown[1][-1].content
    assert tools_of(found) == ["subcall"]


async def test_a_failing_sub_call_is_told(library):
    light = Light(worlds.ScriptedLLM(LLMUnreachable("gone")))
    caller = Caller(calls(("subcall", {"question": "며칠?", "text": "글"})), Choice("끝"))
    found = await explored("연가?", place(library), caller, light)
    assert found.steps[0].failed
    assert LLMUnreachable.code in caller.shown[1][-1].content


async def test_sub_calls_are_offered_only_with_a_light_model(library):
    caller = Caller(Choice("끝"))
    await explored("연가?", place(library), caller)
    assert {tool.name for tool in caller.offered} == environment.PARAMETERS.keys() - {"subcall"}
    await explored("연가?", place(library), caller, Light(worlds.ScriptedLLM(Piece("x"))))
    assert {tool.name for tool in caller.offered} == environment.PARAMETERS.keys()
    assert all(tool.description for tool in caller.offered)
    json.dumps([dict(tool.parameters) for tool in caller.offered])


BAD = [
    ("no_such_tool", {}),
    ("subcall", {"question": "q", "text": "t"}),
    ("get_turn", {}),
    ("get_turn", {"number": 999}),
    ("get_turn", {"number": "three"}),
    ("get_turn", {"number": True}),
    ("get_turn", {"number": float("nan")}),
    ("get_turn", {"number": float("inf")}),
    ("get_turn", {"number": 3, "part": 99}),
    ("get_turn", {"number": [3]}),
    ("search_turns", {"query": ""}),
    ("search_turns", {"query": 7}),
    ("search_chunks", {"query": "연가"}),
    ("search_chunks", {"query": "연가", "document_ids": "x"}),
    ("search_chunks", {"query": "연가", "document_ids": ["x", {}]}),
    ("peek", {"document_id": str(uuid4())}),
    ("peek", {"document_id": "../etc"}),
    ("list_turns", {"limit": "many"}),
]


@pytest.mark.parametrize(("name", "arguments"), BAD)
async def test_calls_that_make_no_sense_are_told_to_the_model(library, name, arguments):
    caller = Caller(calls((name, arguments)), Choice(text="끝"))
    found = await explored("연가?", place(library), caller)
    assert (found.steps[0].failed, found.stopped) == (True, "done")
    assert len(caller.shown) == 2


async def test_arguments_that_could_not_be_read_are_told(library):
    broken = Choice(calls=(ToolCall("get_turn", {}, "not JSON"),))
    caller = Caller(broken, Choice(text="끝"))
    await explored("연가?", place(library), caller)
    assert "not JSON" in caller.shown[1][-1].content


async def test_a_store_that_fails_is_told_and_ends_nothing(library):
    class Failing(MemoryHistory):
        def get_turns(self, numbers):
            raise OSError("the disk is gone")

    where = place(library)
    where.history = Failing([Turn(3, FACT, "")])
    caller = Caller(calls(("get_turn", {"number": 3})), Choice(text="끝"))
    found = await explored("담당자?", where, caller)
    assert (found.steps[0].failed, found.stopped) == (True, "done")
    assert "disk" not in caller.shown[1][-1].content


def test_documents_are_read_in_bounded_stretches(library):
    where = place(library)
    told = where.run(
        "peek", {"document_id": str(library.ids["복무규정.md"]), "start": 3, "length": 10**9}
    )
    assert told.text.startswith("Characters 3 to ")
    assert len(told.text) < environment.PEEK + 100


def test_documents_outside_of_the_store_cannot_be_searched(library):
    other = UUID(int=7)
    told = place(library).run("search_chunks", {"query": "연가", "document_ids": [str(other)]})
    assert told.text == "Nothing was found."


def test_turns_that_the_prompt_holds_anyway_are_not_searched(library):
    where = place(library)
    where.before = 3
    assert where.run("search_turns", {"query": "담당자"}).text == "There is none."


async def test_notes_are_short_few_and_without_power(library):
    loud = [calls(("note", {"text": f"{n} <|im_start|>" + "가" * 2000})) for n in range(20)]
    rules = ContextRules(explore_calls=20, explore_tokens=10**6)
    found = await explored("연가?", place(library), Caller(*loud), rules=rules)
    assert len(found.notes) == 8
    assert all(len(note) <= NOTE and "<|" not in note for note in found.notes)
