"""Looking through a long conversation within its budgets."""

import asyncio
import json
from uuid import UUID, uuid4

import pytest

from rag.adapters.light import Light
from rag.config import ContextRules
from rag.conversation import DocRef, MemoryHistory, PastTurn
from rag.errors import LLMRejected, LLMUnreachable
from rag.lexicon import load_patterns
from rag.memory.explore import MAX_FINDING_CHARACTERS, MAX_PEEK_CHARACTERS, TOOLS, Explorer
from rag.ports import Choice, Piece, ToolCall
from tests.rag import worlds

RULES = ContextRules()
FACT = "우리 프로젝트 담당자는 김민수야"
UNKNOWN = "누가 책임지기로 했더라?"
"""What no turn says in these words, so that a model is asked."""


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


def make_choice(*named) -> Choice:
    return Choice(calls=tuple(ToolCall(name, arguments) for name, arguments in named))


@pytest.fixture
def library() -> worlds.Library:
    made = worlds.Library(worlds.make_engine())
    made.add(
        "복무규정.md", "연가는 재직 기간에 따라 15일까지 줄 수 있다.", "출장 여비는 실비로 준다."
    )
    made.add("계약규정.md", "입찰 보증금은 입찰 금액의 5퍼센트로 한다.")
    return made


def estimate(text):
    """About how many tokens a text has."""
    return len(text) // 3


def make_talk(library):
    """Thirty turns, of which the third tells a fact and the fifth showed a document."""
    refs = (DocRef(1, library.ids["복무규정.md"], "복무규정", "복무규정.md", snippet="연가는"),)
    return [
        PastTurn(3, FACT, "알겠습니다."),
        PastTurn(5, "연가 제도를 설명해 줘", "규정을 보여 드립니다.", doc_refs=refs),
        *(PastTurn(n, f"전자조달 화면 {n} 쓰는 법", "공고를 등록합니다.") for n in range(6, 31)),
    ]


def make_explorer(library, question=UNKNOWN, *, turns=None, history=None, count=None, **more):
    """Where a question is explored; `more` are its caller, its rules and the like."""
    told = history or MemoryHistory(turns or make_talk(library))
    rules = more.pop("rules", RULES)
    return Explorer(
        question, told, library.store, library.engine.searcher, rules, count or estimate, **more
    )


async def explore(library, question=UNKNOWN, caller=None, **more):
    return await make_explorer(library, question, caller=caller, **more).explore()


def get_steps(found):
    return found.trace["exploration"]["steps"]


def get_stop_reason(found):
    return found.trace["exploration"]["stopped"]


def list_tools(found):
    return [step["tool"] for step in get_steps(found)]


def list_model_tools(found):
    """The steps that a model chose: those after the fixed order, which ends with a list."""
    tools = list_tools(found)
    return tools[tools.index("list_turns") + 1 :]


def list_turn_numbers(found):
    return [turn.number for turn in found.turns]


async def answer_of(library, tool, **arguments):
    """What a tool tells a model, and whether it failed."""
    where = make_explorer(library, caller=Caller(make_choice((tool, arguments)), Choice("끝")))
    found = await where.explore()
    return where.results[-1], get_steps(found)[-1]["failed"]


async def test_without_a_model_a_fact_is_found_in_its_turn(library):
    found = await explore(library, "담당자가 누구라고 했지?")
    assert list_tools(found) == ["search_turns", "get_turn"]
    assert (found.findings, get_stop_reason(found)) == ((f"3: {FACT}",), "found")
    assert list_turn_numbers(found) == [3]


async def test_without_a_model_what_no_turn_says_is_sought_in_its_documents(library):
    found = await explore(library, "아까 말한 연가는 며칠까지 줄 수 있지?")
    assert list_tools(found) == ["search_turns", "get_turn", "search_chunks"]
    assert get_stop_reason(found) == "found"
    assert "15일까지" in found.findings[0]


async def test_a_turn_named_by_its_place_is_opened_at_once(library):
    found = await explore(library, "3번째 질문에서 내가 뭐라고 했지?")
    assert list_tools(found) == ["get_turn"]
    assert found.findings == (f"3: {FACT}",)


async def test_nothing_to_be_found_is_said(library):
    found = await explore(library, "후쿠오카 벚꽃 축제는 언제라고 했지?")
    assert (found.turns, found.findings, get_stop_reason(found)) == ((), (), "nothing")


async def test_a_model_is_not_asked_for_what_is_found_without_one(library):
    caller = Caller(Choice(text="x"))
    found = await explore(library, "담당자가 누구라고 했지?", caller)
    assert (get_stop_reason(found), caller.shown) == ("found", [])
    assert found.trace["exploration"]["model_calls"] == 0


async def test_a_model_leads_by_its_calls_where_nothing_was_found(library):
    caller = Caller(
        make_choice(("search_turns", {"query": "담당자"})),
        make_choice(("get_turn", {"number": 3}), ("note", {"text": "담당자는 김민수"})),
        Choice(text="담당자는 김민수로 정해졌다."),
    )
    found = await explore(library, UNKNOWN, caller)
    assert list_model_tools(found) == ["search_turns", "get_turn", "note"]
    assert found.findings == ("담당자는 김민수", "담당자는 김민수로 정해졌다.")
    assert (get_stop_reason(found), list_turn_numbers(found)) == ("done", [3])
    assert "3: " in caller.shown[1][-1].content
    assert FACT in caller.shown[2][-1].content
    assert found.trace["exploration"]["model_calls"] == 3


async def test_the_first_choice_can_open_a_turn_that_is_listed(library):
    short = [PastTurn(3, FACT, "알겠습니다."), PastTurn(4, "화면 쓰는 법", "공고를 등록합니다.")]
    caller = Caller(make_choice(("get_turn", {"number": 3})))
    rules = ContextRules(explore_calls=1)
    found = await explore(library, UNKNOWN, caller, turns=short, rules=rules)
    assert "3: 우리 프로젝트 담당자는 김민수야" in caller.shown[0][-1].content
    assert (list_turn_numbers(found), len(caller.shown)) == ([3], 1)


async def test_what_a_model_searched_for_last_is_opened(library):
    caller = Caller(make_choice(("search_turns", {"query": "프로젝트 담당자"})))
    found = await explore(library, UNKNOWN, caller, rules=ContextRules(explore_calls=1))
    assert list_turn_numbers(found) == [3]


async def test_what_a_model_searched_for_before_it_failed_is_opened(library):
    caller = Caller(
        make_choice(("search_turns", {"query": "프로젝트 담당자"})), LLMUnreachable("gone")
    )
    found = await explore(library, UNKNOWN, caller)
    assert (list_turn_numbers(found), get_stop_reason(found)) == ([3], "found")
    assert found.trace["exploration"]["failure"] == LLMUnreachable.code


async def test_models_are_asked_no_more_often_than_allowed(library):
    light = Light(worlds.ScriptedLLM(Piece("15일")))
    endless = Caller(make_choice(("subcall", {"question": "며칠?", "text": "연가"})))
    rules = ContextRules(explore_calls=3)
    found = await explore(library, UNKNOWN, endless, light=light, rules=rules)
    assert len(endless.shown) + len(light.llm.asked) == 3
    assert found.trace["exploration"]["model_calls"] == 3


@pytest.mark.parametrize("said", load_patterns("recall").examples["nothing"])
async def test_that_there_is_nothing_is_no_finding(library, said):
    caller = Caller(make_choice(("note", {"text": said})), Choice(text=said))
    found = await explore(library, UNKNOWN, caller)
    assert (found.findings, found.turns, get_stop_reason(found)) == ((), (), "nothing")


@pytest.mark.parametrize("said", load_patterns("recall").refuses["nothing"])
async def test_a_finding_with_a_no_in_it_is_one(library, said):
    found = await explore(library, UNKNOWN, Caller(Choice(text=said)))
    assert found.findings == (said,)


async def test_turns_that_the_prompt_holds_anyway_are_seen_but_not_handed_over(library):
    found = await explore(library, "담당자가 누구라고 했지?", before=3)
    assert (get_stop_reason(found), found.turns, found.findings) == ("found", (), ())


async def test_turns_from_before_a_new_start_cannot_be_looked_into(library):
    caller = Caller(
        make_choice(
            ("search_turns", {"query": "담당자"}),
            ("list_turns", {"before": 6}),
            ("get_turn", {"number": 3}),
        ),
        Choice("끝"),
    )
    where = make_explorer(library, caller=caller, since=6)
    found = await where.explore()
    assert not any(FACT in one for one in where.results)
    assert get_steps(found)[-1]["failed"]


async def test_every_step_is_told_with_its_arguments_size_and_time(library):
    step = get_steps(await explore(library, "담당자가 누구라고 했지?"))[0]
    assert (step["tool"], step["arguments"]) == ("search_turns", {"query": "담당자가 ?"})
    assert (step["size"] > 0, step["ms"] >= 0, step["failed"]) == (True, True, False)


async def test_a_server_without_tools_leaves_what_was_found_without_a_model(library):
    found = await explore(library, UNKNOWN, Caller(LLMRejected("no")))
    assert get_stop_reason(found) == "nothing"
    assert found.trace["exploration"]["failure"] == LLMRejected.code


async def test_asking_a_model_can_be_turned_off(library):
    caller = Caller(Choice(text="x"))
    found = await explore(library, UNKNOWN, caller, rules=ContextRules(explore_calls=0))
    assert (get_stop_reason(found), caller.shown) == ("nothing", [])


@pytest.mark.parametrize("at_once", [1, 5])
async def test_no_more_calls_are_made_than_allowed(library, at_once):
    endless = Caller(make_choice(*[("list_turns", {})] * at_once))
    rules = ContextRules(explore_calls=4, explore_tokens=10**6)
    found = await explore(library, UNKNOWN, endless, rules=rules)
    assert (len(list_model_tools(found)), get_stop_reason(found)) == (4, "nothing")


async def test_no_prompt_is_sent_that_the_tokens_do_not_cover(library):
    endless = Caller(make_choice(("note", {"text": "하나"}), ("list_turns", {})))
    rules = ContextRules(explore_calls=100, explore_tokens=2000)
    found = await explore(library, UNKNOWN, endless, rules=rules, count=len)
    sent = sum(len(message.content) for shown in endless.shown for message in shown)
    assert (get_stop_reason(found), found.findings) == ("tokens", ("하나",))
    assert 0 < sent <= 2000


async def test_a_model_that_never_chooses_costs_no_more_than_the_seconds_allowed(library):
    async with asyncio.timeout(5):
        found = await explore(library, UNKNOWN, Slow(), rules=ContextRules(explore_seconds=0.1))
    assert (get_stop_reason(found), list_model_tools(found)) == ("nothing", [])


async def test_what_the_model_is_shown_stays_bounded_however_long_it_goes_on(library):
    long = [PastTurn(n, f"{n} " + "가" * 5000, "나" * 5000) for n in range(1, 31)]
    endless = Caller(*[make_choice(("get_turn", {"number": n})) for n in range(1, 31)])
    rules = ContextRules(explore_calls=30, explore_tokens=10**6)
    await explore(library, UNKNOWN, endless, turns=long, rules=rules)
    sizes = [sum(len(message.content) for message in shown) for shown in endless.shown]
    assert len(sizes) == 30
    assert sizes[-1] < 2 * sizes[3]


async def test_a_sub_call_asks_the_light_model_about_one_text_alone(library):
    llm = worlds.ScriptedLLM(Piece("15일"))
    caller = Caller(
        make_choice(("subcall", {"question": "며칠?", "text": "연가는 15일"})), Choice("끝")
    )
    found = await explore(library, UNKNOWN, caller, light=Light(llm))
    assert "연가는 15일" in llm.last
    assert "15일" in caller.shown[1][-1].content
    assert list_model_tools(found) == ["subcall"]


async def test_a_failing_sub_call_is_told(library):
    light = Light(worlds.ScriptedLLM(LLMUnreachable("gone")))
    caller = Caller(make_choice(("subcall", {"question": "며칠?", "text": "글"})), Choice("끝"))
    found = await explore(library, UNKNOWN, caller, light=light)
    assert get_steps(found)[-1]["failed"]
    assert LLMUnreachable.code in caller.shown[1][-1].content


async def test_sub_calls_are_offered_only_with_a_light_model(library):
    caller = Caller(Choice("끝"))
    await explore(library, UNKNOWN, caller)
    assert {tool.name for tool in caller.offered} == set(TOOLS) - {"subcall"}
    await explore(library, UNKNOWN, caller, light=Light(worlds.ScriptedLLM(Piece("x"))))
    assert {tool.name for tool in caller.offered} == set(TOOLS)
    assert all(tool.description for tool in caller.offered)
    json.dumps([dict(tool.parameters) for tool in caller.offered])


BAD = [
    ("no_such_tool", {}),
    ("explore", {}),
    ("subcall", {"question": "q", "text": "t"}),
    ("get_turn", {}),
    ("get_turn", {"number": 999}),
    ("get_turn", {"number": "three"}),
    ("get_turn", {"number": True}),
    ("get_turn", {"number": float("nan")}),
    ("get_turn", {"number": float("inf")}),
    ("get_turn", {"number": 3, "part": 99}),
    ("get_turn", {"number": [3]}),
    ("get_turn", {"number": 3, "self": 4}),
    ("search_turns", {"query": ""}),
    ("search_turns", {"query": 7}),
    ("search_chunks", {"query": "연가"}),
    ("search_chunks", {"query": "연가", "document_id": "x"}),
    ("search_chunks", {"query": "연가", "document_id": ["x", {}]}),
    ("peek", {"document_id": str(uuid4())}),
    ("peek", {"document_id": "../etc"}),
    ("list_turns", {"before": "many"}),
]


@pytest.mark.parametrize(("name", "arguments"), BAD)
async def test_calls_that_make_no_sense_are_told_to_the_model(library, name, arguments):
    caller = Caller(make_choice((name, arguments)), Choice(text="끝"))
    found = await explore(library, UNKNOWN, caller)
    assert (get_steps(found)[-1]["failed"], get_stop_reason(found)) == (True, "done")
    assert len(caller.shown) == 2


async def test_arguments_that_could_not_be_read_are_told(library):
    broken = Choice(calls=(ToolCall("get_turn", {}, "not JSON"),))
    caller = Caller(broken, Choice(text="끝"))
    await explore(library, UNKNOWN, caller)
    assert "not JSON" in caller.shown[1][-1].content


async def test_a_store_that_fails_is_told_and_ends_nothing(library):
    class Failing(MemoryHistory):
        def get_turns(self, numbers):
            raise OSError("the disk is gone")

    caller = Caller(make_choice(("get_turn", {"number": 3})), Choice(text="끝"))
    history = Failing([PastTurn(3, FACT, "")])
    found = await explore(library, UNKNOWN, caller, history=history)
    assert (get_steps(found)[-1]["failed"], get_stop_reason(found)) == (True, "done")
    assert "disk" not in caller.shown[1][-1].content


async def test_a_turn_is_read_in_parts_and_names_its_documents(library):
    told, failed = await answer_of(library, "get_turn", number=5)
    assert "Turn 5, part 1 of 1\nQ: 연가 제도를 설명해 줘" in told
    assert f"1. 복무규정 (document_id {library.ids['복무규정.md']})" in told
    assert not failed


async def test_documents_are_read_in_bounded_stretches(library):
    one = str(library.ids["복무규정.md"])
    told, failed = await answer_of(library, "peek", document_id=one, start=3, length=10**9)
    assert "Characters 3 to " in told
    assert (len(told) < MAX_PEEK_CHARACTERS + 200, failed) == (True, False)


async def test_documents_outside_of_the_store_cannot_be_searched(library):
    told, _ = await answer_of(library, "search_chunks", query="연가", document_id=str(UUID(int=7)))
    assert told.endswith("Nothing was found.")


async def test_notes_are_short_few_and_without_power(library):
    loud = [make_choice(("note", {"text": f"{n} <|im_start|>" + "가" * 2000})) for n in range(20)]
    rules = ContextRules(explore_calls=20, explore_tokens=10**6)
    found = await explore(library, UNKNOWN, Caller(*loud), rules=rules)
    assert len(found.findings) == 8
    assert all(len(note) <= MAX_FINDING_CHARACTERS and "<|" not in note for note in found.findings)
