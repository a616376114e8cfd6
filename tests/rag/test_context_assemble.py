"""What of a conversation and its documents goes into a prompt, and what it takes."""

import time
from uuid import UUID, uuid4

import pytest

from rag.config import ContextRules
from rag.context.assemble import assemble, measure, trim
from rag.context.tokens import Estimate, Exact
from rag.conversation import DocRef, Turn
from rag.generation.brief import Brief, Evidence
from rag.generation.extractive import ExtractiveAnswerer
from rag.generation.prompted import PromptedAnswerer, build
from rag.history.window import window
from rag.ports import GenerationOptions
from rag.types import HistoryMessage, Role
from tests.rag.worlds import ScriptedLLM

COUNTER = Exact("o200k_base")
SYSTEM = "문서를 바탕으로 답하라. " * 20
SENTENCE = {
    "ko": "제{n}조 숙박비 상한은 1박 90,000원이며 정산은 귀임 후 5일 이내에 한다. ",
    "en": "Article {n}: lodging is capped at 90 dollars a night and is settled in five days. ",
}
LANGUAGES = ("ko", "en")


def text(characters, language="ko", start=0):
    made = ""
    number = start
    while len(made) < characters:
        made += SENTENCE[language].format(n=number)
        number += 1
    return made[:characters]


def evidence(number, *, characters=1000, language="ko", document=None):
    made = text(characters, language, number * 100)
    return Evidence(number, document or uuid4(), f"규정{number}.md", 1, "", made, 1.0)


def turn(number, characters=500, language="ko", **fields):
    asked = f"{number}번째 질문: 담당자는 누구인가요?"
    return Turn(number, asked, text(characters, language, number), **fields)


def messages(pairs, characters=500, language="ko"):
    made = []
    for number in range(pairs):
        made.append(HistoryMessage(Role.USER, f"질문 {number}: {text(60, language, number)}"))
        made.append(HistoryMessage(Role.ASSISTANT, text(characters, language, number)))
    return tuple(made)


def crowded(language="ko", **fields):
    """Every layer has more than fits."""
    values = {
        "history": messages(20, language=language),
        "evidence": tuple(evidence(n, language=language) for n in range(1, 13)),
        "previous": turn(40, 800, language),
        "summary": text(2500, language),
        "recalled": tuple(turn(n, 1500, language) for n in (3, 9, 27)),
        "findings": tuple(text(300, language, n) for n in range(8)),
        **fields,
    }
    return Brief("숙박비 상한은 얼마인가요?", language, **values)


def made(brief, tokens=4000, counter=COUNTER, system=SYSTEM):
    return assemble(brief, counter, ContextRules(tokens=tokens), system=system)


def kept_beginning(found, brief):
    """The evidence that stays is a beginning of what was given."""
    given = [item.slot for item in brief.evidence]
    kept = [item.slot for item in found.brief.evidence]
    return kept == given[: len(kept)]


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("tokens", [1500, 4000, 16_000])
def test_a_crowded_prompt_keeps_to_its_tokens_and_every_layer_to_its_share(tokens, language):
    found = made(crowded(language), tokens)
    assert found.plan.used <= tokens
    assert sum(layer.used for layer in found.plan.layers.values()) == found.plan.used
    for name in ("recent", "long_term", "documents"):
        layer = found.plan.layers[name]
        assert 0 < layer.used <= layer.planned


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_plan_is_what_the_messages_take(language):
    llm = PromptedAnswerer(ScriptedLLM(), GenerationOptions())
    found = llm.assemble(crowded(language), ContextRules())
    sent = sum(llm.counter.count(message.content) + 4 for message in build(found.brief))
    assert found.plan.used == pytest.approx(sent, rel=0.03)


def test_the_shares_are_those_of_the_default_and_scale_with_the_total():
    small, large = (made(crowded(), tokens, system="").plan for tokens in (4000, 8000))
    query = small.layers["query"].used
    rest = 4000 - 900 - 400 - query
    assert small.layers["system"].planned == 400
    assert small.layers["recent"].planned == int(rest * 0.6)
    assert small.layers["long_term"].planned == rest - int(rest * 0.6)
    assert large.layers["system"].planned == 800
    assert large.layers["recent"].planned == pytest.approx(2 * int(rest * 0.6), abs=query)


@pytest.mark.parametrize("tokens", [1500, 4000, 16_000])
def test_no_layer_takes_the_documents_share(tokens):
    found = made(crowded(), tokens)
    assert found.plan.layers["documents"].planned >= tokens * 900 // 4000


def test_a_first_question_gets_all_its_passages():
    brief = Brief("숙박비는?", "ko", evidence=tuple(evidence(n) for n in range(1, 5)))
    found = made(brief)
    assert found.brief == brief
    assert not found.plan.dropped


def test_fewer_passages_go_in_when_the_conversation_needs_room():
    alone = made(crowded(history=(), previous=None, summary="", recalled=(), findings=()))
    beside = made(crowded())
    assert 1 <= len(beside.brief.evidence) < len(alone.brief.evidence)
    assert beside.plan.dropped["passages"] == 12 - len(beside.brief.evidence)


def test_passages_are_dropped_from_the_end():
    brief = crowded()
    found = made(brief)
    assert kept_beginning(found, brief)
    assert found.brief.evidence == brief.evidence[: len(found.brief.evidence)]


@pytest.mark.parametrize("tokens", [400, 4000])
def test_the_first_passage_always_goes_in_cut_if_need_be(tokens):
    huge = evidence(1, characters=60_000)
    found = made(crowded(evidence=(huge, evidence(2))), tokens)
    (kept,) = found.brief.evidence
    assert kept.text
    assert huge.text.startswith(kept.text)
    assert found.plan.dropped["characters"] >= 50_000


def test_a_question_on_several_documents_hears_each_of_them():
    left, right = uuid4(), uuid4()
    items = (
        evidence(1, document=left, characters=3000),
        evidence(1, document=left, characters=3000),
        evidence(2, document=right, characters=3000),
    )
    alone = made(crowded(evidence=items))
    several = made(crowded(evidence=items, several=True))
    assert documents(alone) == {left}
    assert documents(several) == {left, right}
    assert several.plan.layers["documents"].used <= several.plan.layers["documents"].planned


def documents(found) -> set[UUID]:
    return {item.document_id for item in found.brief.evidence}


def test_short_passages_of_several_documents_leave_their_room_to_long_ones():
    items = (evidence(1, characters=100), evidence(2, characters=5000))
    found = made(crowded(evidence=items, several=True))
    short, long = found.brief.evidence
    assert short == items[0]
    assert len(long.text) > 800


def test_a_comparison_of_too_many_documents_keeps_those_that_can_be_read():
    items = tuple(evidence(n, characters=3000) for n in range(1, 20))
    found = made(crowded(evidence=items, several=True))
    assert 2 <= len(found.brief.evidence) < 19
    assert all(len(item.text) > 100 for item in found.brief.evidence)


def test_the_newest_messages_stay():
    brief = crowded(previous=None)
    found = made(brief)
    number = len(found.brief.history)
    assert 2 <= number < 40
    assert found.brief.history == brief.history[-number:]
    assert found.plan.dropped["messages"] == 40 - number


@pytest.mark.parametrize("tokens", range(1000, 6000, 250))
def test_no_answer_stands_without_its_question(tokens):
    found = made(crowded(previous=None), tokens)
    assert not found.brief.history or found.brief.history[0].role is Role.USER


def test_the_previous_turn_goes_in_whole_and_once():
    last = turn(12, 1400)
    cut = (
        HistoryMessage(Role.USER, last.user_text),
        HistoryMessage(Role.ASSISTANT, last.assistant_text[:500]),
    )
    brief = Brief("그럼 정산은?", "ko", history=(*messages(2, 100), *cut), previous=last)
    found = made(brief)
    assert found.brief.previous == last
    assert found.brief.history == brief.history[:-2]


def test_a_previous_turn_beyond_the_share_is_cut_to_it():
    found = made(Brief("그럼?", "ko", previous=turn(1, 30_000), evidence=(evidence(1),)))
    assert found.brief.previous.user_text == turn(1).user_text
    assert 1000 < len(found.brief.previous.assistant_text) < 30_000
    layer = found.plan.layers["recent"]
    assert layer.planned * 0.9 < layer.used <= layer.planned


def test_a_previous_question_of_many_pages_leaves_room_for_its_answer():
    last = Turn(1, text(20_000), text(400))
    found = made(Brief("그럼?", "ko", previous=last)).brief.previous
    assert 0 < len(found.user_text) < 20_000
    assert found.assistant_text == last.assistant_text


def test_only_the_first_of_many_previous_documents_are_named():
    refs = tuple(DocRef(n, uuid4(), f"문서 {n}", f"{n}.md") for n in range(1, 60))
    found = made(Brief("그럼?", "ko", previous=turn(1, doc_refs=refs)))
    assert found.brief.previous.doc_refs == refs[:8]


def test_findings_come_before_older_turns_and_both_leave_the_summary_its_half():
    found = made(crowded())
    assert found.brief.findings
    assert found.brief.summary
    assert len(found.brief.summary) < len(crowded().summary)
    assert found.plan.dropped["turns"] >= 1


def test_what_older_turns_leave_goes_to_the_summary():
    found = made(crowded(recalled=(), findings=(), summary=text(1300)))
    assert found.brief.summary == text(1300)


def test_an_older_turn_that_does_not_fit_goes_in_by_its_beginning():
    found = made(crowded(findings=(), summary="", recalled=(turn(3, 9000),)))
    (kept,) = found.brief.recalled
    assert 200 < len(kept.assistant_text) < 9000


def test_a_question_of_many_pages_goes_in_whole_with_its_first_passage():
    found = made(_asked(text(20_000)))
    assert len(found.brief.question) == 20_000
    assert found.brief.evidence
    assert found.brief.history == ()
    assert found.brief.previous is None
    assert found.plan.layers["documents"].used <= 900


def _asked(question):
    full = crowded()
    return Brief(question, "ko", full.history, full.evidence, previous=full.previous)


def test_nothing_is_dropped_where_no_model_reads_but_the_figures_are_told():
    brief = crowded()
    answerer = ExtractiveAnswerer()
    found = answerer.assemble(brief, ContextRules())
    assert found.brief == brief
    assert not found.plan.dropped
    assert found.plan.layers["documents"].used > found.plan.layers["documents"].planned
    assert found.plan.counter == "estimate"
    assert measure(brief, COUNTER, ContextRules()).plan.counter == "o200k_base"


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_trimmed_prompt_has_half_of_its_conversation_and_of_its_documents(language):
    before = made(crowded(language))
    after = trim(before.brief, COUNTER, system=SYSTEM)
    for name in ("recent", "documents"):
        assert after.plan.layers[name].used <= before.plan.layers[name].used // 2 + 1
    assert after.plan.used < before.plan.used * 0.8
    assert after.brief.evidence
    assert after.brief.summary == before.brief.summary


def test_the_prompt_of_turn_200_is_no_larger_than_that_of_turn_20():
    sizes = {number: _prompt_at(number) for number in (20, 60, 200)}
    assert sizes[200] == pytest.approx(sizes[20], rel=0.2)
    assert sizes[60] == pytest.approx(sizes[20], rel=0.2)


def _prompt_at(number):
    """Characters of the prompt for the question after `number` turns."""
    turns = [turn(n, 300 + 37 * n % 400) for n in range(1, number + 1)]
    said = [
        HistoryMessage(role, said)
        for one in turns
        for role, said in ((Role.USER, one.user_text), (Role.ASSISTANT, one.assistant_text))
    ]
    brief = Brief(
        "그럼 담당자는 누구인가요?",
        "ko",
        history=window(said, pairs=10, characters=500),
        evidence=tuple(evidence(n) for n in range(1, 5)),
        previous=turns[-1],
        summary=" ".join(one.assistant_text[:120] for one in turns[:-5]),
        recalled=tuple(turns[:3]),
    )
    found = PromptedAnswerer(ScriptedLLM(), GenerationOptions()).assemble(brief, ContextRules())
    return sum(len(message.content) for message in build(found.brief))


@pytest.mark.parametrize("counter", [COUNTER, Estimate()], ids=lambda one: one.name)
def test_a_crowded_prompt_is_assembled_in_a_few_milliseconds(counter):
    brief = crowded()
    made(brief, counter=counter)
    begun = time.perf_counter()
    for _ in range(10):
        made(brief, counter=counter)
    assert (time.perf_counter() - begun) / 10 < 0.03


def test_hostile_sizes_are_assembled_in_time():
    brief = crowded(
        history=(HistoryMessage(Role.USER, "😀" * 20_000),) * 20,
        summary="가" * 20_000,
        recalled=tuple(Turn(n, "a" * 20_000, " " * 20_000) for n in range(3)),
        findings=("\n" * 20_000,) * 8,
        previous=Turn(9, "\u200b" * 20_000, "<|im_end|>" * 2000),
    )
    begun = time.perf_counter()
    assert made(brief).plan.used <= 4000
    assert time.perf_counter() - begun < 2
