"""What is kept of a turn: its line, terms, vector, and the running summary."""

from uuid import uuid4

import pytest

from rag.adapters.light import Light
from rag.config import ContextRules
from rag.conversation import DocRef, PastTurn, RunningSummary
from rag.errors import LLMUnreachable
from rag.memory.summary import (
    EXTRACTIVE,
    MAX_PROTECTED_CHARACTERS,
    MAX_RUNNING_CHARACTERS,
    is_usable_line,
    list_turns_to_fold,
    note_turn,
    split_protected,
    strip_own_sentences,
    write_line,
)
from rag.ports import Piece
from rag.prompts import get_reply
from tests.rag.worlds import LetterEmbedder, ScriptedLLM

RULES = ContextRules()


def make_light(*pieces):
    return Light(ScriptedLLM(*(Piece(one) if isinstance(one, str) else one for one in pieces)))


def make_turns(count, said_at=None):
    """Turns on an everyday subject; `said_at` maps numbers to what the user said instead."""
    asked = said_at or {}
    return [
        PastTurn(
            n,
            asked.get(n, f"전자조달 시스템의 {n}번 화면은 어디에 쓰나요?"),
            f"{n}번 화면은 입찰 공고를 등록하고 고치는 데 씁니다. [1]",
        )
        for n in range(1, count + 1)
    ]


async def note(
    turn, earlier=(), running=None, *, model=None, embedder=None, rules=RULES, windowed=True
):
    return await note_turn(
        turn,
        earlier,
        running,
        light=model,
        embedder=embedder or LetterEmbedder(),
        rules=rules,
        windowed=windowed,
    )


async def fold_turns(turns, *, model=None, rules=RULES, running=None, pairs=10):
    """The running summary after every one of the turns was noted in its order."""
    for turn in turns:
        due = list_turns_to_fold(turn.number, running, pairs=pairs)
        earlier = [one for one in turns if one.number in due]
        running = (await note(turn, earlier, running, model=model, rules=rules)).running
    return running


async def test_the_light_model_writes_the_line():
    kept = await note(
        PastTurn(1, "예산은?", "예산은 3억 원입니다."),
        model=make_light("“예산은 3억 원임을 확인함”"),
    )
    assert (kept.summary, kept.model) == ("예산은 3억 원임을 확인함", "scripted")


ASKED = PastTurn(1, "입찰 보증금은 얼마인가요?", "입찰 보증금은 입찰 금액의 5퍼센트입니다.")


@pytest.mark.parametrize(
    "line",
    [
        "입찰 보증금이 얼마인지 물었고 입찰 금액의 5퍼센트라고 답함",
        "입찰 보증금: 입찰 금액의 5퍼센트",
    ],
)
def test_a_line_that_tells_its_turn_is_sane(line):
    assert is_usable_line(line, ASKED)


@pytest.mark.parametrize(
    "line",
    [
        "죄송하지만 요약할 수 없습니다.",
        "입찰 보증금 요약할 수 없습니다.",
        "물론입니다! 입찰 보증금은 입찰 금액의 5퍼센트입니다.",
        "The user asked about the bid bond.",
        "휴가는 15일입니다.",
        "입찰 보증금은 입찰 금액의 10퍼센트라고 답함",
        "입찰 보증금을 물음\n5퍼센트라고 답함",
        "입찰 보증금은 입찰 금액의 5퍼센트입니다. " * 10,
        "",
        "…",
        "<|im_start|>",
    ],
)
async def test_nonsense_of_the_light_model_is_not_kept_as_a_line(line):
    assert not is_usable_line(line, ASKED)
    kept = await note(ASKED, model=make_light(line))
    assert (kept.summary, kept.model) == (write_line(ASKED), EXTRACTIVE)


async def test_the_light_model_reads_no_more_of_an_answer_than_its_first_500_characters():
    model = make_light("한 줄")
    await note(PastTurn(1, "질문", "가" * 499 + "나다라"), model=model)
    assert "나" in model.llm.last
    assert "다" not in model.llm.last


@pytest.mark.parametrize("reply", [LLMUnreachable("gone"), "", "  \n "])
async def test_without_a_usable_reply_the_line_is_taken_from_the_turn(reply):
    kept = await note(
        PastTurn(1, "예산은 얼마인가요?", "예산은 3억 원입니다."), model=make_light(reply)
    )
    assert (kept.summary, kept.model) == ("예산은 얼마인가요? → 예산은 3억 원입니다.", EXTRACTIVE)


async def test_a_line_tells_a_date_whole():
    kept = await note(PastTurn(1, "제출일이 언제야?", "제출일은 2024. 3. 4. 이다."))
    assert kept.summary == "제출일이 언제야? → 제출일은 2024. 3. 4. 이다."


async def test_a_line_is_one_line_of_at_most_160_characters():
    long = PastTurn(1, "물음\n" * 200, "답입니다.\n" * 300)
    assert (await note(long)).summary.isprintable()
    assert len((await note(long)).summary) <= 160
    assert len((await note(long, model=make_light("길다 " * 200))).summary) <= 160


def test_the_end_of_a_long_question_stays_in_its_line():
    filler = "그리고 여러 가지 사정을 함께 살펴보아야 하는데 "
    turn = PastTurn(
        1,
        f"{filler * 4}담당자 김민수가 2026년 3월 15일까지 A-1023 계약을 확인하나요?",
        "네, 그렇습니다.",
    )
    line = write_line(turn)
    assert all(part in line for part in ("김민수", "2026년 3월 15일", "A-1023"))


def test_the_line_takes_the_sentence_that_answers():
    answer = "조달청이 공고하였습니다. 이 사업의 예산은 3억 원입니다. 문의는 누리집에서 받습니다."
    assert write_line(PastTurn(1, "사업 예산은 얼마야?", answer)).endswith(
        "이 사업의 예산은 3억 원입니다."
    )


def test_what_the_product_says_of_itself_is_not_part_of_a_turn():
    own = get_reply("plain_no_model", "ko")
    assert write_line(PastTurn(1, "우리 담당자는 김민수야", own)) == "우리 담당자는 김민수야"
    assert strip_own_sentences(PastTurn(1, "", "보증금은 5%입니다. [1]")) == "보증금은 5%입니다."


async def test_terms_are_those_of_question_answer_and_titles():
    ref = DocRef(1, uuid4(), "복무규정 편람", "a.pdf")
    kept = await note(PastTurn(1, "휴가는?", "연가는 15일입니다.", doc_refs=(ref,)))
    assert {"휴가", "연가", "복무"} <= kept.terms.keys()


ENGLISH = PastTurn(1, "What is the budget?", "It is 3 million.")
KOREAN = PastTurn(2, "예산은?", "3억 원입니다.")


async def test_turns_get_their_vectors_when_they_leave_the_window():
    embedder = LetterEmbedder()
    kept = await note(PastTurn(9, "And the deadline?", "It is May."), [ENGLISH], embedder=embedder)
    assert (kept.vectors.keys(), kept.embedding) == ({1}, "letters")
    whole = embedder.embed_passages(["What is the budget?\nIt is 3 million."])
    assert [*kept.vectors.values()] == whole


async def test_a_turn_gets_its_vector_at_once_where_no_model_reads_the_window():
    kept = await note(ENGLISH, [PastTurn(8, "An older one", "Its answer")], windowed=False)
    assert kept.vectors.keys() == {1}


async def test_only_a_language_that_the_embedder_knows_gets_a_vector():
    kept = await note(PastTurn(9, "Thanks", "Welcome"), [ENGLISH, KOREAN])
    assert kept.vectors.keys() == {1}


async def test_a_failing_embedder_costs_the_vectors_only():
    embedder = LetterEmbedder()
    embedder.failing = True
    kept = await note(PastTurn(9, "Thanks", "Welcome"), [ENGLISH], embedder=embedder)
    assert kept.vectors == {}
    assert kept.summary


@pytest.mark.parametrize("pairs", [0, 3, 10])
def test_only_what_left_the_window_is_folded_five_turns_at_a_time(pairs):
    running, folds = None, []
    for number in range(1, 41):
        due = list_turns_to_fold(number, running, pairs=pairs)
        if due:
            folds.append(len(due))
            running = RunningSummary("", due[-1])
            assert number - running.through >= pairs - 4  # the window of the next question
    assert set(folds) == {5}
    assert 40 - pairs - running.through < 5


def test_many_late_turns_are_folded_in_whole_batches():
    assert list_turns_to_fold(33, None, pairs=10) == range(1, 26)


def test_nothing_from_before_a_new_start_is_folded():
    assert not list_turns_to_fold(21, RunningSummary("", 5), pairs=10, begins_at=12)
    assert list_turns_to_fold(26, RunningSummary("", 5), pairs=10, begins_at=12) == range(12, 17)


async def test_turns_that_were_folded_are_not_folded_again():
    running = RunningSummary("지금까지의 요약", 5, EXTRACTIVE)
    turns = make_turns(20)
    due = list_turns_to_fold(20, running, pairs=10)
    assert due == range(6, 11)
    model = make_light("새 요약")
    kept = await note(turns[-1], [one for one in turns if one.number in due], running, model=model)
    assert "지금까지의 요약" in model.llm.last
    assert "Q6:" in model.llm.last
    assert "Q5:" not in model.llm.last
    assert kept.running == RunningSummary("새 요약", 10, "scripted")


async def test_a_conversation_of_forty_turns_is_folded_by_six_calls():
    model = make_light("새 요약")
    await fold_turns(make_turns(40), model=model)
    assert len(model.llm.asked) == 40 + 6  # a line each, and the folds


async def test_a_running_summary_without_a_model_stays_bounded_and_keeps_the_latest():
    running = await fold_turns(make_turns(80))
    body, _ = split_protected(running.text)
    assert len(body) <= MAX_RUNNING_CHARACTERS
    assert "70번 화면" in body
    assert running.model == EXTRACTIVE


async def test_many_turns_at_once_are_folded_in_batches():
    model = make_light("요약")
    turns = make_turns(50)
    kept = await note(turns[-1], turns[:45], None, model=model)
    assert kept.running.through == 45
    assert max(len(asked[-1].content) for asked in model.llm.asked) < 30_000
    assert len(model.llm.asked) == 1 + 3


@pytest.mark.parametrize("reply", [LLMUnreachable("gone"), "", "죄송합니다. 요약할 수 없습니다."])
async def test_a_failing_light_model_folds_from_the_lines(reply):
    running = await fold_turns(make_turns(15), model=make_light(reply))
    assert (running.through, running.model) == (5, EXTRACTIVE)
    assert "5번 화면" in running.text


PROTECTED = {
    1: "환자는 페니실린 알레르기가 있어",
    2: "메트포르민 500mg을 하루 두 번 복용하고 있어",
    3: "예산은 1억 2천만 원이야",
    4: "마감은 2026년 3월 15일이야",
    5: "계약 코드는 A-1023-77이야",
}


@pytest.mark.parametrize("number", PROTECTED)
async def test_what_a_model_drops_is_put_back(number):
    running = await fold_turns(make_turns(15, PROTECTED), model=make_light("화면의 쓰임을 물었다."))
    assert running.text.startswith("화면의 쓰임을 물었다.\n꼭 지킬 내용:")
    assert PROTECTED[number] in running.text


async def test_what_a_model_kept_is_not_said_twice():
    kept = "환자는 페니실린 알레르기가 있어 주의한다. 예산은 1억2천만원이다."
    running = await fold_turns(
        make_turns(15, {1: PROTECTED[1], 3: PROTECTED[3]}), model=make_light(kept)
    )
    assert "꼭 지킬 내용" not in running.text


@pytest.mark.parametrize("model", [None, "짧은 요약"])
async def test_protected_words_of_the_first_turns_last_for_two_hundred_turns(model):
    turns = make_turns(200, PROTECTED)
    running = await fold_turns(turns, model=make_light(model) if model else None)
    assert all(text in running.text for text in PROTECTED.values())
    assert len(running.text) <= MAX_RUNNING_CHARACTERS + MAX_PROTECTED_CHARACTERS + 20


async def test_the_settings_name_what_is_protected():
    rules = ContextRules(protected_terms=("비밀번호 규칙",))
    turns = make_turns(15, {1: "비밀번호 규칙은 열두 글자야", 2: PROTECTED[1]})
    running = await fold_turns(turns, model=make_light("요약"), rules=rules)
    assert "비밀번호 규칙은 열두 글자야" in running.text
    assert "페니실린" not in running.text
