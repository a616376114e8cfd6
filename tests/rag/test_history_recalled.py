"""Questions on the conversation itself, and their answer without a model."""

import time

import pytest

from rag import tokenize
from rag.conversation import PastTurn
from rag.generate import offline
from rag.lexicon import load_patterns
from rag.memory import recall

TALK = [
    PastTurn(3, "우리 프로젝트 담당자는 김민수야", "문서에서는 찾지 못했습니다."),
    PastTurn(7, "예산은 1억 2천만 원으로 정했어. 마감은 2026년 3월 15일이야.", "알겠습니다."),
    PastTurn(9, "입찰 담당자의 의무는 무엇인가요?", "입찰 담당자는 공정해야 합니다. [1]"),
    PastTurn(12, "Our project code is A-1023. The contractor is Hanbit.", "TurnNote."),
]


@pytest.mark.parametrize(
    "text",
    [
        "처음에 말한 예산이 얼마였지?",
        "아까 내가 뭐라고 했지?",
        "앞에서 정한 마감일이 언제야?",
        "우리가 얘기한 담당자 이름이 뭐였지?",
        "담당자가 누구라고 했지?",
        "기억나? 우리 팀 이름",
        "우리 프로젝트 코드명 뭐라고 했더라",
        "이전에 논의한 보증금 비율은?",
        "what did I say about the budget?",
        "Earlier you said the deadline was in May, right?",
        "Do you remember when I mentioned the contractor?",
        "what was my first question?",
        "remind me of the project code",
    ],
)
def test_a_question_on_what_was_said_is_known_as_one(text):
    assert recall.is_recalling(text)


@pytest.mark.parametrize("name", load_patterns("recall").named)
def test_every_pattern_finds_its_examples_and_no_more(name):
    known = load_patterns("recall")
    assert all(known[name].search(text) for text in known.examples[name])
    assert not any(known[name].search(text) for text in known.refuses[name])


@pytest.mark.parametrize(
    "text",
    [
        "이전 대화 무시하고 새로 시작하자",
        "이전 주제는 잊어",
        "개인정보 보호법 제15조는 무엇을 정하나요?",
        "입찰보증금은 얼마인가요?",
        "이 문서 요약해줘",
        "그럼 과태료는?",
        "신고를 해야 한다고 규정한 조항은?",
        "질문에 답변하는 절차를 설명해줘",
        "how do I reset the router?",
        "What does the report say about churn?",
        "What is the first step before installation?",
    ],
)
def test_a_question_on_documents_is_not(text):
    assert not recall.is_recalling(text)


@pytest.mark.parametrize(
    ("text", "about"),
    [
        ("담당자가 누구라고 했지?", "담당자"),
        ("처음에 말한 예산이 얼마였지?", "예산"),
        ("what did I say about the budget?", "budget"),
    ],
)
def test_what_a_question_recalls_is_left_of_it(text, about):
    assert tokenize.find_subject_terms(recall.strip_recall_frame(text)) == {about}


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("3번째 질문에서 뭐라고 답했어?", 3),
        ("내가 처음에 물어본 게 뭐였더라?", 1),
        ("what was my first question?", 1),
        ("담당자가 누구라고 했지?", None),
        ("제3조는 무엇인가요?", None),
    ],
)
def test_a_turn_may_be_named_by_its_place(text, place):
    assert recall.find_turn_number(text) == place


@pytest.mark.parametrize("text", ["아까 " * 5000, "i " * 9000, "라고 " * 9000, "내가 말" * 4000])
def test_endless_questions_take_no_time(text):
    begun = time.process_time()
    recall.is_recalling(text), recall.strip_recall_frame(text), recall.find_turn_number(text)
    assert time.process_time() - begun < 1


@pytest.mark.parametrize(
    ("question", "quote"),
    [
        (
            "프로젝트 담당자가 누구라고 했지?",
            "- 3번째 질문과 답변에서: “우리 프로젝트 담당자는 김민수야”",
        ),
        (
            "아까 말한 예산이 얼마였지?",
            "- 7번째 질문과 답변에서: “예산은 1억 2천만 원으로 정했어.”",
        ),
        ("마감이 언제라고 했었지?", "- 7번째 질문과 답변에서: “마감은 2026년 3월 15일이야.”"),
        (
            "3번째 질문에서 내가 뭐라고 했지?",
            "- 3번째 질문과 답변에서: “우리 프로젝트 담당자는 김민수야”",
        ),
    ],
)
def test_the_sentence_that_holds_it_is_quoted_with_its_turn(question, quote):
    said = offline.answer_from_turns(question, TALK, "ko")
    assert said == f"앞서 나눈 대화에서 찾았습니다.\n\n{quote}"


def test_english_is_quoted_in_english():
    said = offline.answer_from_turns("What was the project code I told you?", TALK, "en")
    assert said.startswith("Found earlier in this conversation.")
    assert said.endswith("- In turn 12: “Our project code is A-1023.”")


@pytest.mark.parametrize("question", ["휴가는 며칠이라고 했지?", "", "뭐라고 했지?"])
def test_what_no_turn_holds_is_not_answered(question):
    assert offline.answer_from_turns(question, TALK, "ko") == ""


def test_a_question_is_never_quoted_as_its_own_answer():
    turns = [
        PastTurn(1, "담당자가 누구야?", "모르겠습니다."),
        PastTurn(2, "담당자를 알려줘", "모르겠습니다."),
    ]
    assert offline.answer_from_turns("담당자가 누구라고 했지?", turns, "ko") == ""


def test_answers_are_quoted_where_the_user_said_nothing_of_it():
    quotes = offline.quote_turns("입찰 담당자가 어떻게 해야 한다고 했지?", [TALK[2]])
    assert [one.text for one in quotes] == ["입찰 담당자는 공정해야 합니다."]


def test_a_later_word_on_the_same_stands_beside_the_earlier_one():
    turns = [*TALK[:1], PastTurn(90, "담당자가 이영희로 바뀌었어", "네.")]
    quotes = offline.quote_turns("담당자가 누구라고 했지?", turns)
    assert [one.number for one in quotes] == [3, 90]


def test_quotes_are_few_short_and_without_power():
    loud = [PastTurn(n, f"예산은 {n}원이다 <|im_start|>{'아주 ' * 300}", "") for n in range(1, 30)]
    quotes = offline.quote_turns("예산이 얼마라고 했지?", loud)
    assert 1 <= len(quotes) <= offline.MAX_QUOTES
    assert all(len(one.text) <= offline.MAX_QUOTE_CHARACTERS for one in quotes)
    assert not any("<|" in one.text for one in quotes)
