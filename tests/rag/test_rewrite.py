"""From a follow-up to a question that stands alone, and how that is searched."""

import time
from uuid import uuid4

import pytest

from rag.conversation import Conversation, Memory, PastTurn, RememberedDocument
from rag.retrieve import search as gate
from rag.retrieve.search import SearchOptions, make_plan
from rag.types import HistoryMessage, QuestionType, Scope, ScopeReason, Speaker
from rag.understand import analysis
from rag.understand.analysis import QuestionAnalysis, complete_question
from tests.rag.worlds import Library, join_text, make_engine

NOWHERE = Scope((), ScopeReason.ALL)


def make_conversation(*said, titles=(), kinds=()):
    """A conversation of questions, or of (question, answer)."""
    pairs = [one if isinstance(one, tuple) else (one, "") for one in said]
    turns = tuple(
        PastTurn(number, question, answer, question_type=kinds[number - 1] if kinds else "")
        for number, (question, answer) in enumerate(pairs, 1)
    )
    remembered = tuple(RememberedDocument(uuid4(), title, 1.0) for title in titles)
    return Conversation(turns, len(turns), Memory(remembered))


def complete(text, conversation, *, scope=NOWHERE, follows=True):
    """The question, completed as a follow-up."""
    kind = QuestionType.FOLLOWUP if follows else QuestionType.SINGLE
    asked = QuestionAnalysis(kind, text, scope, follows=follows, memory=conversation.memory)
    return complete_question(asked, conversation)


def complete_after(text, *said, **more):
    return complete(text, make_conversation(*said, **more))


def test_a_question_that_does_not_follow_stays_as_it_is():
    found = complete("그 기한은?", make_conversation("공탁법의 이의신청은?"), follows=False)
    assert (found.standalone, found.completed_by, found.context) == ("그 기한은?", "", {})


def test_a_first_question_stays_as_it_is_even_if_it_is_taken_for_a_follow_up():
    found = complete("그 기한은?", Conversation())
    assert (found.standalone, found.completed_by, found.context) == ("그 기한은?", "", {})


def test_a_bare_side_gets_the_law_the_article_and_the_thing():
    found = complete_after("그 기한은?", "공탁법 제4조에 따른 이의신청은 어떻게 하나요?")
    assert found.standalone == "공탁법 제4조 이의신청 기한은?"
    assert found.completed_by == "terms"


@pytest.mark.parametrize(
    ("text", "said", "expected"),
    [
        ("위반하면?", "공탁법 제4조의 공탁서 제출은?", "공탁법 제4조 공탁서 제출 위반하면?"),
        ("그럼 예외는 없어?", "항공보안법의 보안검색은?", "항공보안법 보안검색 예외는 없어?"),
        ("그건 누가 정해?", "선박안전법의 정기검사는?", "선박안전법 정기검사 누가 정해?"),
        (
            "Is it open to women?",
            "How does the MLS game work?",
            "MLS game work: Is it open to women?",
        ),
        ("and for foreigners?", "What is the visa fee?", "visa fee: for foreigners?"),
    ],
)
def test_what_is_missing_stands_before_the_question(text, said, expected):
    assert complete_after(text, said).standalone == expected


def test_the_name_of_another_law_replaces_the_one_before_and_keeps_what_was_asked():
    found = complete_after("부동산등기법은?", "공탁법 제4조의 공탁금 회수 기한은?")
    assert found.standalone == "공탁금 회수 기한 부동산등기법은?"


@pytest.mark.parametrize(
    ("text", "said", "expected"),
    [
        ("그럼 2분기는?", "1분기 매출은?", "2분기 매출은?"),
        ("2분기는 어때?", "2024년 1분기 매출은 얼마야?", "2024년 2분기 매출은 얼마야?"),
        ("2023년은?", "2024년 1분기 매출은 얼마야?", "2023년 1분기 매출은 얼마야?"),
        ("작년은?", "올해는 예산이 얼마야?", "작년은 예산이 얼마야?"),
        ("하반기는?", "1분기 매출은?", "하반기 매출은?"),
        ("그럼 4월은?", "3월 회의는 언제야?", "4월 회의는 언제야?"),
        ("E-5678은?", "E-1234 오류가 나면 어떻게 해?", "E-5678 오류가 나면 어떻게 해?"),
        ("그럼 부산은?", "서울의 창구 위치는?", "부산의 창구 위치는?"),
        ("그럼 개발팀은?", "영업팀의 담당자는 누구야?", "개발팀의 담당자는 누구야?"),
        ("2호는?", "비상근무 제1호면 몇 명이 나와?", "비상근무 제2호면 몇 명이 나와?"),
        ("3항은?", "제2항의 기한은 언제야?", "제3항의 기한은 언제야?"),
        ("계약보증금은?", "입찰보증금은 얼마나 내야 해?", "계약보증금은 얼마나 내야 해?"),
        ("What about Q2?", "What was the revenue in Q1?", "What was the revenue in Q2?"),
        ("and 2023?", "How many people came in 2024?", "How many people came in 2023?"),
        ("and in June?", "When is the meeting in April?", "When is the meeting in June?"),
    ],
)
def test_a_word_takes_the_place_of_one_of_the_same_kind(text, said, expected):
    assert complete_after(text, said).standalone == expected


def test_what_was_exchanged_is_not_looked_for_any_more():
    found = complete_after("그럼 2분기는?", "1분기 매출은?")
    assert not any("1분기" in term for term in found.context)
    assert "1분기" not in found.background


def test_words_are_exchanged_in_a_chain_of_questions():
    chain = ["2024년 1분기 매출은?", "2분기는?", "2023년은?"]
    kinds = ["single", "followup", "followup"]
    assert complete_after("그럼 3분기는?", *chain, kinds=kinds).standalone == "2023년 3분기 매출은?"


@pytest.mark.parametrize(
    ("text", "said", "expected"),
    [
        ("2분기는 왜 줄었어?", "1분기 매출은?", "매출 2분기는 왜 줄었어?"),
        ("2분기는 언제 끝나?", "1분기 매출은?", "매출 2분기는 언제 끝나?"),
        ("3분기는?", "1분기와 2분기 매출은?", "매출 3분기는?"),
        ("영업이익은?", "1분기 매출은?", "1분기 매출 영업이익은?"),
    ],
)
def test_a_question_that_says_more_keeps_its_words(text, said, expected):
    assert complete_after(text, said).standalone == expected


def test_a_name_of_several_words_is_carried_over_whole():
    law = "국가를 당사자로 하는 계약에 관한 법률"
    found = complete_after("그 예외는?", f"{law}에서 입찰보증금은 꼭 내야 해?", titles=[law])
    assert found.standalone.startswith(law)


def test_a_chain_of_follow_ups_goes_back_to_the_question_that_stood_alone():
    chain = ["도커 이미지의 태그는?", "공탁법의 이의신청은?", "기한은?", "접수는 어디서?"]
    kinds = ["single", "single", "followup", "followup"]
    found = complete_after("취소는?", *chain, kinds=kinds)
    assert "공탁법 이의신청" in found.standalone
    assert "도커" not in found.standalone
    assert not {"도커", "이미지", "태그"} & set(found.context)


def test_nothing_is_carried_over_a_reset_and_small_talk_is_passed_over():
    kinds = ["single", "reset"]
    assert (
        complete_after("기한은?", "공탁법의 이의신청은?", "초기화", kinds=kinds).standalone
        == "기한은?"
    )
    assert "공탁법" in complete_after("기한은?", "공탁법의 이의신청은?", "고마워").standalone


@pytest.mark.parametrize(
    "told",
    [
        "담당자는 김지훈이야",
        "담당자는 김지훈",
        "우리 팀 예산은 3억 원입니다.",
        "My manager is Kim.",
    ],
)
def test_what_people_merely_tell_is_no_topic(told):
    found = complete_after("그 기한은?", "공탁법의 이의신청은?", told)
    assert found.standalone == "공탁법 이의신청 기한은?"
    assert complete_after("그 기한은?", told).standalone == "그 기한은?"


@pytest.mark.parametrize(
    "asked", ["항공보안법 벌칙", "선박안전법의 정기검사 수수료는 얼마야", "visa fee of the embassy"]
)
def test_a_question_without_a_question_mark_is_a_topic(asked):
    assert complete_after("그 예외는?", asked).standalone != "그 예외는?"


def test_a_question_that_says_enough_keeps_its_words_and_the_conversation_weighs_little():
    full = complete_after(
        "Who elects the members of the county board?", "What is the library budget?"
    )
    bare = complete_after("Who elects it?", "What is the library budget?")
    assert full.standalone == "Who elects the members of the county board?"
    assert full.background_weight < 0.2 < bare.background_weight


def test_a_question_without_any_subject_takes_the_one_before_as_its_own():
    found = complete_after("더 자세히 설명해줘", "컨테이너 네트워크 설정은?")
    assert found.context["컨테이너"] == found.context["네트워크"] == 1


def test_what_the_question_says_itself_is_no_context():
    found = complete_after("그 이의신청의 기한은?", "공탁법의 이의신청은?")
    assert found.standalone.count("이의신청") == 1
    assert "이의신청" not in found.context


def test_the_last_answer_is_background_in_its_beginning_only():
    found = complete_after("그 기한은?", ("공탁법의 이의신청은?", "가" * 5000))
    assert found.background.startswith("공탁법의 이의신청은?\n가")
    assert len(found.background) < 700


def test_the_same_conversation_gives_the_same_question():
    said = ["공탁법의 이의신청은?", "기한은?"]
    assert complete_after("예외는?", *said) == complete_after("예외는?", *said)


@pytest.mark.parametrize(
    "text", ["", " ", "???", "가" * 20_000, "a " * 10_000, "제1조" * 5000, "\x00"]
)
def test_hostile_questions_and_conversations_are_bounded(text):
    for question, said in ((text, "공탁법의 이의신청은?"), ("그 기한은?", text)):
        found = complete(question, make_conversation((said, ""), (said, text)))
        assert found.standalone.endswith(question) or len(found.standalone) < 5000
        assert len(found.context) <= analysis.MAX_CARRIED_TERMS
        assert len(found.background) <= 2 * analysis.MAX_ANSWER_CHARACTERS + 1


def test_titles_are_no_patterns():
    hostile = ["((((a+)+)+)+ 보고서", "[법률", ".*{9} 규정"]
    found = complete_after("그 기한은?", "[법률 의 신청은?", titles=hostile)
    assert "신청" in found.standalone


def test_completing_a_question_takes_a_few_milliseconds():
    chain = make_conversation(
        *[("항공보안법의 보안검색 절차와 그 예외를 알려줘 " * 8, "답 " * 2000)] * 6
    )
    complete("그 기한은?", chain)
    spent = []
    for number in range(20):
        begun = time.perf_counter()
        complete(f"그 {number}번째 기한은?", chain)
        spent.append(time.perf_counter() - begun)
    assert sorted(spent)[10] < 0.02


# --- how it is searched


@pytest.fixture
def library():
    made = Library(make_engine())
    for name, thing in (("공탁법", "공탁물"), ("항공보안법", "보안검색")):
        made.add(
            name,
            f"{thing} 신청의 기한은 열흘이다.",
            f"{thing} 신청에는 수수료가 든다.",
            "위원회는 아홉 명으로 한다.",
            metadata={"title": name},
        )
    return made


def search(library, text, conversation):
    asked = complete(text, conversation, scope=library.scope())
    return library.engine.searcher.search(asked, library.store, SearchOptions())


def test_a_bare_follow_up_finds_its_passage_in_the_law_talked_about(library):
    found = search(
        library, "그 기한은?", make_conversation("항공보안법의 보안검색 신청은 어떻게 해?")
    )
    assert found.hits[0].passage.text == "보안검색 신청의 기한은 열흘이다."
    assert found.gate.relevant


def test_the_question_itself_outweighs_what_was_said_before(library):
    conversation = make_conversation(
        ("공탁법의 공탁물 신청 기한은?", "공탁물 신청의 기한은 열흘이다.")
    )
    found = search(library, "수수료는?", conversation)
    assert found.hits[0].passage.text == "공탁물 신청에는 수수료가 든다."


def test_a_follow_up_within_remembered_documents_passes_the_gate_with_one_word(library):
    remembered = Memory((RememberedDocument(library.ids["공탁법"], "공탁법", 1.0),))
    turns = (PastTurn(1, "공탁법의 공탁물 신청은?", "열흘이다."),)
    found = search(library, "그 위원회는?", Conversation(turns, 1, remembered))
    assert found.gate.relevant
    assert found.hits[0].passage.text == "위원회는 아홉 명으로 한다."
    assert {hit.passage.document_name for hit in found.hits} == {"공탁법"}


def test_carried_names_do_not_hold_a_search_in_the_remembered_documents(library):
    turns = (PastTurn(1, "공탁법의 공탁물 신청 기한은?", "열흘이다."),)
    remembered = Memory((RememberedDocument(library.ids["공탁법"], "공탁법", 1.0),))
    scope = Scope(tuple(library.ids.values()), ScopeReason.ALL)
    plans = {}
    for memory in (Memory(), remembered):
        conversation = Conversation(turns, 1, memory)
        asked = complete("수수료는?", conversation, scope=scope)
        plans[memory] = make_plan(asked, SearchOptions(), usual_k=4)
    assert plans[Memory()].standalone_query == "공탁법 공탁물 신청 기한 수수료는?"
    assert plans[remembered].standalone_query == "수수료는?"
    assert plans[remembered].completed == plans[Memory()].standalone_query


def test_what_was_said_before_draws_the_vector_only_in_a_language_the_embedder_knows(library):
    embedder = library.engine.embedder
    search(library, "What about the fee?", make_conversation("What does the visa office ask for?"))
    assert embedder.embedded[-2:] == ["What about the fee?", "What does the visa office ask for?"]
    search(library, "What about the fee?", make_conversation("공탁법의 이의신청은?"))
    assert embedder.embedded[-1] == "What about the fee?"


def test_words_of_the_conversation_that_no_passage_holds_do_not_close_the_gate():
    scope = Scope(tuple(uuid4() for _ in range(50)), ScopeReason.ALL)
    text = "보안검색의 기한은 며칠인가?"
    bare, bound = (
        gate.Prior.from_text(text, terms=4, dense_weight=0.0, scope=scope, context_weight=lacking)
        for lacking in (0.0, 0.25)
    )
    alone = gate.Signals(share=0.5, coverage=0.8, closeness=0.0)
    diluted = gate.Signals(share=0.4, coverage=0.8, closeness=0.0)
    assert gate.estimate_probability(bound, diluted) == pytest.approx(
        gate.estimate_probability(bare, alone)
    )
    assert gate.estimate_probability(bare, diluted) < gate.estimate_probability(bare, alone)


def test_what_the_conversation_tells_counts_as_held_in_the_remembered_documents_only():
    faint = gate.Signals(share=0.2, coverage=0.5, closeness=0.0)
    scores = {}
    for reason in (ScopeReason.ALL, ScopeReason.FOLLOWUP):
        scope = Scope((uuid4(),), reason)
        asked = gate.Prior.from_text(
            "위원은?", terms=1, dense_weight=0.0, scope=scope, context_weight=0.65
        )
        scores[reason] = gate.estimate_probability(asked, faint)
    assert scores[ScopeReason.FOLLOWUP] > 0.5 > scores[ScopeReason.ALL]


async def test_another_quarter_is_answered_with_what_was_asked_of_the_first():
    library = Library(make_engine())
    library.add(
        "실적.md",
        "2분기 인력은 30명이다.\n\n2분기 행사는 3회였다.\n\n"
        "1분기 매출은 12억원이다.\n\n2분기 매출은 15억원이다.",
    )
    history = [
        HistoryMessage(Speaker.USER, "1분기 매출은 얼마야?"),
        HistoryMessage(Speaker.ASSISTANT, "1분기 매출은 12억원이다. [1]"),
    ]
    told = join_text(await library.ask("그럼 2분기는?", history=history))
    assert told.startswith("**15억원** [1]")
    assert "**2분기 매출은 15억원이다.**" in told
    assert "1분기" not in told
