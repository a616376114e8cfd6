"""Measures of answers: facts found, turns measured, configurations compared, verdicts read."""

import json
from datetime import date
from uuid import uuid4

import pytest

from rag.adapters.light import BadReply, Light
from rag.context.prompt import AnswerContext, build_messages
from rag.errors import LLMTimeout
from rag.evaluation import measures
from rag.evaluation.measures import (
    AnsweredTurn,
    Call,
    Recorder,
    compare_runs,
    judge_turn,
    measure_turn,
    summarise_turns,
)
from rag.evaluation.question_set import (
    ExpectedTurn,
    SetUnreadableError,
    find_missing_facts,
    measure_fact_share,
    parse_set,
)
from rag.ports import Choice, GenerationOptions, Piece, ToolCaller, Usage
from rag.tokenize.text import choose_reply_language
from rag.types import (
    AnswerLabel,
    AnswerMode,
    AnswerSource,
    CheckedSentence,
    HistoryMessage,
    Speaker,
    Verdict,
)
from tests.rag.passages import make_evidence
from tests.rag.worlds import ScriptedLLM


def has(fact, text, *, in_answer=True):
    alternatives = (fact,) if isinstance(fact, str) else tuple(fact)
    return measure_fact_share([alternatives], text, in_answer=in_answer) == 1


@pytest.mark.parametrize(
    ("fact", "text"),
    [
        ("17명 이내", "위원은 **17명** 이내로 한다"),
        ("3천만원 이하의 벌금", "3천만원\n이하의 벌금"),
        ("AES-256", "AES‑256 을 쓴다"),
        ("전자 조달", "전<b>자</b>조달"),
        ("2천만원", "연간 상한액은 2천만원이다"),
        ("| 서울 | 110,000원 |", "서울의 숙박비는 하루에 110,000원"),
        (("없는 말", "90,000원"), "상한은 90,000원"),
        ("2024", "시행일은 2024. 5. 1."),
        ("5%", "4%, 5%"),
    ],
)
def test_a_fact_is_found_however_it_is_set(fact, text):
    assert has(fact, text)


@pytest.mark.parametrize(
    ("fact", "text"),
    [
        ("2천만원", "12천만원"),
        ("9월 4", "9월 40일"),
        ("| 서울 | 110,000원 |", f"서울 {'다른 이야기 ' * 20} 110,000원"),
        ("| 서울 | 110,000원 |", "110,000원 서울"),
        ("90,000원", "90.000원"),
        ("500원", "1,500원"),
        ("5%", "0.5%"),
        ("12", "12.5"),
        ("최대 3", "최대 3,000원"),
    ],
)
def test_a_fact_is_not_found_in_something_else(fact, text):
    assert not has(fact, text)


def test_short_alternatives_count_in_an_answer_only():
    fact = ("위원장 1명을 포함한 17명 이내의 위원", "17명 이내")
    assert has(fact, "17명 이내입니다.")
    assert not has(fact, "심사는 17명 이내의 자문단이 한다.", in_answer=False)
    assert has(("17명",), "위원은 17명", in_answer=False)  # there is nothing longer to look for


def test_missing_facts_are_told_by_their_first_alternative():
    facts = [("하나입니다", "1"), ("둘입니다", "2")]
    assert find_missing_facts(facts, "1", in_answer=True) == ["둘입니다"]


def test_many_equal_cells_do_not_take_long():
    row = "|".join(["1 원"] * 40)
    assert not has(f"{row}|2 달러", "1 원 " * 3000)


def write_line(**fields):
    turn = {"user": "상한은?", "gold": [["90,000원"]], "answerable": True}
    return json.dumps({"id": "a", "turns": [turn]} | fields, ensure_ascii=False)


def test_a_set_is_read():
    one, two = parse_set(
        write_line(documents=["여비.md"])
        + "\n\n"
        + write_line(
            id="b",
            kind="talk",
            documents=["여비.md"],
            turns=[{"user": "안녕", "answerable": False, "choose": False, "gold": ["하나"]}],
        )
    )
    assert (one.documents, one.turns[0].is_ticked, one.turns[0].facts) == (
        ("여비.md",),
        True,
        (("90,000원",),),
    )
    turn = two.turns[0]
    assert (turn.is_ticked, turn.kind, turn.facts) == (False, "talk", (("하나",),))
    assert AnswerLabel.DOCUMENTS in one.turns[0].labels
    assert AnswerLabel.INSUFFICIENT in two.turns[0].labels


def test_each_turn_says_whether_the_documents_are_ticked_for_it():
    given = [{"user": "a"}, {"user": "b", "choose": False}, {"user": "c", "choose": None}]
    (one,) = parse_set(write_line(documents=["여비.md"], turns=given))
    assert [turn.is_ticked for turn in one.turns] == [True, False, True]
    (everything,) = parse_set(write_line(turns=given))
    assert not any(turn.is_ticked for turn in everything.turns)


@pytest.mark.parametrize("sign", ["\u2028", "\u2029", "\x85"])
def test_only_a_line_feed_ends_a_line(sign):
    (one,) = parse_set(write_line(turns=[{"user": f"상한은{sign}얼마?"}]) + "\r\n")
    assert one.turns[0].user == f"상한은{sign}얼마?"


def test_a_kind_that_is_null_is_none():
    given = [{"user": "a", "kind": None}, {"user": "b", "kind": "fact"}]
    assert [one.kind for one in parse_set(write_line(kind=None, turns=given))[0].turns] == [
        "",
        "fact",
    ]
    assert parse_set(write_line(kind="list", turns=given))[0].turns[0].kind == "list"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "no questions"),
        ("{", "line 1 is not JSON"),
        ("[]", "expected an object"),
        (write_line() + "\n" + write_line(), "line 2: the id 'a' is there twice"),
        (write_line(id=""), "`id`"),
        (write_line(turns=[]), "`turns`"),
        (write_line(turns=["x"]), "a turn must be an object"),
        (write_line(turns=[{"user": " "}]), "`user`"),
        (write_line(turns=[{"user": "q", "gold": "90"}]), "`gold`"),
        (write_line(turns=[{"user": "q", "gold": [["-"]]}]), "empty"),
        (write_line(turns=[{"user": "q", "answerable": "yes"}]), "`answerable`"),
        (write_line(turns=[{"user": "q", "label": "sure"}]), "`label` knows no sure"),
        (write_line(turns=[{"user": "q", "choose": "no"}]), "`choose`"),
        (write_line(documents="여비.md"), "`documents`"),
        (write_line(documents=[]), "`documents` is empty"),
        ("[" * 100_000, "line 1 is not JSON"),
    ],
)
def test_a_set_that_cannot_be_read_says_where_and_why(text, why):
    with pytest.raises(SetUnreadableError, match=why):
        parse_set(text)


TRAVEL = make_evidence("숙박비 상한은 1박에 90,000원이다.", name="여비.md")
OTHER = make_evidence("연차 휴가는 15일이다.", slot=2, name="휴가.md")
EXPECTED = ExpectedTurn("숙박비 상한은?", (("90,000원이다", "90,000원"),), answerable=True)


def make_source(item, *, cited=True):
    passage = item.passage
    return AnswerSource(
        slot=item.slot,
        document_id=passage.document_id,
        document_name=passage.document_name,
        chunk_id=passage.chunk_id,
        page=None,
        similarity=0.9,
        content_preview=passage.text,
        section="",
        cited=cited,
        boxes=(),
        text=item.content,
    )


def call(prompt, name="m"):
    return Call(name, (HistoryMessage(Speaker.USER, prompt),), "", Usage(100, 5), 1.0)


def make_answered_turn(*items, prompt="", **fields):
    known = {
        "model": "m",
        "content": "90,000원입니다 [1].",
        "mode": AnswerMode.DOCUMENTS,
        "label": AnswerLabel.DOCUMENTS,
        "sources": tuple(map(make_source, items)),
        "evidence": tuple(map(make_source, items)),
        "calls": (call(prompt),),
        "calls_before_first_word": 1,
    }
    return AnsweredTurn(**known | fields)


def write_answer(question, *passages, standalone=""):
    """An answer that a model wrote to the product's own prompt."""
    context = AnswerContext(
        question=question,
        language=choose_reply_language(question),
        today=date(2026, 9, 1),
        fence="marks",
        standalone=standalone,
        evidence=tuple(map(make_evidence, passages)),
        was_searched=True,
    )
    made = Call("m", build_messages(context), "", Usage(100, 5), 1.0)
    return make_answered_turn(calls=(made,))


@pytest.mark.parametrize("question", ["90,000원이 맞나요?", "Is it 90,000원이?"])
def test_a_fact_of_the_question_is_no_evidence(question):
    expected = ExpectedTurn(question, (("90,000원이",),))
    found = measure_turn(expected, write_answer(question, standalone="여비 90,000원이 맞나요?"), ())
    assert (found["evidence"], found["evidence_all"], found["facts"]) == (0, 0, 0)


def test_a_passage_that_says_the_words_of_the_question_is_evidence():
    passage = "국내 출장 숙박비: 1박 90,000원"
    expected = ExpectedTurn("국내 출장 숙박비", ((passage,),))
    assert measure_turn(expected, write_answer(expected.user, passage), ())["evidence_all"] == 1


def test_what_another_model_was_asked_before_is_not_what_the_answer_was_written_from():
    light = call("질문을 이해하세요: 90,000원", name="light")
    shown = make_answered_turn(model=None, label=AnswerLabel.PASSAGES, calls=(light,))
    assert not {"evidence", "evidence_all"} & set(measure_turn(EXPECTED, shown, ()))


def test_evidence_and_facts_are_shares_of_the_facts():
    expected = ExpectedTurn("?", (("90,000원",), ("110,000원",)), answerable=True)
    found = measure_turn(expected, make_answered_turn(prompt="상한 90,000원, 서울 110,000원"), ())
    assert (found["evidence"], found["evidence_all"], found["facts"]) == (1, 1, 0.5)


def test_an_answer_that_no_model_wrote_has_no_evidence_in_a_prompt():
    found = measure_turn(
        EXPECTED, make_answered_turn(model=None, calls=(), calls_before_first_word=0), ()
    )
    assert "evidence" not in found
    assert found["calls"] == 0


@pytest.mark.parametrize(
    ("answerable", "mode", "name", "value"),
    [
        (True, AnswerMode.DOCUMENTS, "false_abstention", 0),
        (True, AnswerMode.GENERAL, "false_abstention", 1),
        (False, AnswerMode.GENERAL, "abstains", 1),
        (False, AnswerMode.DOCUMENTS, "abstains", 0),
    ],
)
def test_declining_is_right_where_the_documents_do_not_say(answerable, mode, name, value):
    expected = ExpectedTurn("?", answerable=answerable)
    found = measure_turn(expected, make_answered_turn(TRAVEL, mode=mode), ())
    assert found[name] == value


def test_documents_without_a_source_are_declining():
    assert measure_turn(EXPECTED, make_answered_turn(), ())["false_abstention"] == 1


def test_the_label_is_held_against_what_the_question_allows():
    allowed = ExpectedTurn("?", labels=frozenset({AnswerLabel.INSUFFICIENT}))
    assert measure_turn(allowed, make_answered_turn(), ())["label"] == 0
    assert (
        measure_turn(allowed, make_answered_turn(label=AnswerLabel.INSUFFICIENT), ())["label"] == 1
    )
    assert "label" not in measure_turn(ExpectedTurn("?"), make_answered_turn(), ())


def make_checked_sentence(slot, verdict):
    return CheckedSentence(0, 5, verdict, (slot,))


@pytest.mark.parametrize(
    ("checks", "share"),
    [
        ((), 0.5),
        ((make_checked_sentence(2, Verdict.SUPPORTED),), 1.0),
        (
            (
                make_checked_sentence(2, Verdict.SUPPORTED),
                make_checked_sentence(2, Verdict.UNSUPPORTED),
            ),
            0.5,
        ),
    ],
)
def test_a_citation_is_right_with_a_fact_in_it_or_a_sentence_that_holds(checks, share):
    found = measure_turn(EXPECTED, make_answered_turn(TRAVEL, OTHER, checks=checks), ())
    assert found["citations"] == share


def test_strangers_are_counted_in_characters_of_the_evidence():
    own = {TRAVEL.document_id}
    found = measure_turn(EXPECTED, make_answered_turn(TRAVEL, OTHER), own)
    sizes = [len(item.content) for item in (TRAVEL, OTHER)]
    assert found["strangers"] == pytest.approx(sizes[1] / sum(sizes))
    assert "strangers" not in measure_turn(EXPECTED, make_answered_turn(TRAVEL), ())


def test_an_answer_that_failed_counts_as_that_alone():
    cut = make_answered_turn(error="llm_failed", content="", calls=(), total_ms=3.0)
    assert measure_turn(EXPECTED, cut, ()) == {"failed": 1}
    assert measure_turn(EXPECTED, make_answered_turn(TRAVEL), ())["failed"] == 0


def test_shares_are_told_by_their_mean_and_amounts_by_their_median():
    turns = [{"facts": value, "total_ms": amount} for value, amount in ((0, 1), (0, 2), (1, 900))]
    assert summarise_turns(turns) == {"facts": pytest.approx(1 / 3, abs=1e-3), "total_ms": 2}


def test_differences_are_paired_and_the_same_every_time():
    before = [[{"facts": float(n % 3 == 0)}] for n in range(60)]
    after = [[{"facts": float(n % 3 != 1)}] for n in range(60)]
    found = compare_runs(before, after)["facts"]
    assert found.value == pytest.approx(1 / 3, abs=1e-3)
    assert 0 < found.low < found.value < found.high < 1
    assert found.is_certain
    assert compare_runs(before, after)["facts"] == found
    assert not compare_runs(before, before)["facts"].is_certain


@pytest.mark.parametrize(("lines", "certain"), [(1, False), (9, False), (10, True)])
def test_a_few_conversations_make_nothing_certain(lines, certain):
    found = compare_runs([[{"facts": 0.0}] * 3] * lines, [[{"facts": 1.0}] * 3] * lines)["facts"]
    assert (found.low, found.high, found.lines, found.is_certain) == (1, 1, lines, certain)


def test_turns_of_one_conversation_are_not_taken_for_independent():
    alone = compare_runs([[{"facts": 0.0}]] * 40, [[{"facts": float(n < 20)}] for n in range(40)])
    in_two = compare_runs(
        [[{"facts": 0.0}] * 20] * 2, [[{"facts": float(n == 0)}] * 20 for n in range(2)]
    )
    assert in_two["facts"].high - in_two["facts"].low > alone["facts"].high - alone["facts"].low


def test_only_what_both_measured_is_compared():
    assert compare_runs([[{"facts": 1.0}]], [[{"label": 1.0}]]) == {}


def test_every_measure_of_a_turn_is_told_of():
    found = measure_turn(EXPECTED, make_answered_turn(TRAVEL, prompt="90,000원이다"), {uuid4()})
    assert set(found) <= {measure.name for measure in measures.MEASURES}


def turns(text="q"):
    return (HistoryMessage(Speaker.USER, text),)


async def test_a_recorded_model_says_the_same_and_its_calls_are_kept():
    recorder = Recorder()
    model = recorder.wrap(ScriptedLLM(Piece("안녕"), Piece("!", usage=Usage(7, 2))))
    said = [piece.text async for piece in model.stream(turns("어때?"), GenerationOptions())]
    assert (said, model.name) == (["안녕", "!"], "scripted")
    (call,) = recorder.calls
    assert (call.messages, call.reply, call.usage) == (turns("어때?"), "안녕!", Usage(7, 2))


async def test_a_call_that_fails_counts_and_its_tokens_are_estimated():
    recorder = Recorder()
    model = recorder.wrap(ScriptedLLM(Piece("안"), LLMTimeout()))
    with pytest.raises(LLMTimeout):
        [piece async for piece in model.stream(turns(), GenerationOptions())]
    (call,) = recorder.calls
    assert call.reply == "안"
    assert call.usage.estimated
    assert call.usage.prompt_tokens > 0


async def test_only_a_model_that_calls_tools_still_does():
    class Caller(ScriptedLLM):
        async def choose(self, turns, tools):
            return Choice("그래", ())

    recorder = Recorder()
    assert not isinstance(recorder.wrap(ScriptedLLM()), ToolCaller)
    caller = recorder.wrap(Caller())
    assert isinstance(caller, ToolCaller)
    assert (await caller.choose(turns(), ())).text == "그래"
    assert recorder.calls[0].reply == "그래"


GRADES = {"relevance": 1, "faithfulness": 0.5, "support": 0, "coherence": 0.25}


async def test_a_judge_reads_the_answer_and_its_passages_between_marks():
    model = ScriptedLLM(Piece(json.dumps(GRADES)))
    verdict = await judge_turn(
        Light(model), "숙박비는?", make_answered_turn(TRAVEL), [("전에는?", "그랬다")]
    )
    assert verdict == {name: float(value) for name, value in GRADES.items()}
    fence = model.last.splitlines()[0]
    assert fence in model.system
    assert all(text in model.last for text in (TRAVEL.text, "90,000원입니다", "그랬다"))


async def test_a_judge_reads_what_is_cited_first_under_the_numbers_of_the_answer():
    model = ScriptedLLM(Piece(json.dumps(GRADES)))
    long = make_evidence("이것은 다른 이야기다. " * 2000, name="긴 글.md")
    given = make_answered_turn(
        sources=(make_source(OTHER),), evidence=(make_source(long), make_source(OTHER))
    )
    await judge_turn(Light(model), "연차는?", given, ())
    assert f"[2] {OTHER.text}" in model.last
    assert model.last.index(f"[2] {OTHER.text}") < model.last.index("[1] 이것은")


async def test_coherence_is_not_graded_without_a_conversation():
    verdict = await judge_turn(
        Light(ScriptedLLM(Piece(json.dumps(GRADES)))), "?", make_answered_turn(), ()
    )
    assert "coherence" not in verdict


@pytest.mark.parametrize("grade", [None, "1", True, 1.5, -0.1, float("nan")])
async def test_a_verdict_that_is_none_is_refused(grade):
    model = ScriptedLLM(Piece(json.dumps(GRADES | {"support": grade})))
    with pytest.raises(BadReply):
        await judge_turn(Light(model), "?", make_answered_turn(), ())


async def test_a_verdict_that_is_no_object_is_refused():
    with pytest.raises(BadReply):
        await judge_turn(Light(ScriptedLLM(Piece("[1]"))), "?", make_answered_turn(), ())
