"""What kind of question it is, whether it follows, and when the conversation is to be forgotten."""

import unicodedata
from dataclasses import replace
from uuid import uuid4

import pytest

from rag.config import MemoryRules, RagConfig
from rag.conversation import Conversation, DocRef, Memory, MemoryHistory, PastTurn, Question
from rag.types import QuestionType, Scope, ScopeReason, Topic
from rag.understand.analysis import analyse_by_rules
from tests.quality import turn_sets
from tests.rag.worlds import LetterEmbedder

RULES = MemoryRules()
BEFORE = Conversation(
    (PastTurn(1, "공탁법에서 공탁 절차는 어떻게 되나요?", "공탁서를 두 통 작성해 냅니다. [1]"),),
    1,
    Memory((), "공탁법에서 공탁 절차는 어떻게 되나요?", "공탁서를 두 통 작성해 냅니다. [1]"),
)
ENGLISH = Conversation(
    (PastTurn(1, "What caused the Black Death in Europe?", "A bacterium carried by fleas. [1]"),),
    1,
    Memory((), "What caused the Black Death in Europe?", "A bacterium carried by fleas. [1]"),
)


def analyse(text, before=BEFORE, rules=RULES, *, embedder=None, topic=Topic.AUTO):
    """What is made of a message."""
    question = Question(text, Scope((), ScopeReason.ALL), before, topic)
    return analyse_by_rules(question, MemoryHistory(), RagConfig(memory=rules), embedder)


@pytest.mark.parametrize(("language", "follows", "kinds"), [("ko", 0.88, 0.94), ("en", 0.92, 0.95)])
def test_own_dialogues_are_told_as_well_as_they_were(language, follows, kinds):
    judged = turn_sets.judge(turn_sets.own(language), RULES)
    assert turn_sets.follow_f1(judged) >= follows
    assert turn_sets.kinds_f1(judged) >= kinds


def test_macro_f1_is_the_mean_over_the_classes():
    assert turn_sets.macro_f1([(1, 1), (1, 2), (2, 2)]) == pytest.approx((2 / 3 + 2 / 3) / 2)


@pytest.mark.parametrize(
    "text",
    [
        "새 주제",
        "리셋!",
        "이제 초기화해줘",
        "문서를 잊어줘",
        "이전 문서는 말고",
        "처음부터 다시 시작하자",
        "다른주제로 넘어가자",
        "주제 바꿔서 물어볼게",
        "이전 대화는 잊어줘",
        "new topic please",
        "Let's start over",
        "forget the documents",
        "RESET",
    ],
)
def test_a_wish_to_begin_anew_is_told_however_it_is_written(text):
    verdict = analyse(text)
    assert verdict.question_type is QuestionType.RESET
    assert verdict.forgets
    assert not verdict.follows


@pytest.mark.parametrize(
    "text",
    [
        "초기화 버튼은 어떻게 누르나요?",
        "비밀번호 초기화 방법",
        "reset the router how?",
        "초기화하지 마",
        "다른 주제의 논문도 있나요?",
        "How do I reset my password?",
        "새 주제를 정하는 절차는?",
        "리셋하면 설정이 지워지나요?",
    ],
)
def test_a_question_about_resetting_is_no_reset(text):
    verdict = analyse(text)
    assert verdict.question_type is not QuestionType.RESET
    assert not verdict.forgets


@pytest.mark.parametrize(
    ("text", "rest"),
    [
        ("새 주제로, 공탁법 제4조는?", "공탁법 제4조는?"),
        ("다른 주제인데, 예비군 훈련 기간은?", "예비군 훈련 기간은?"),
        ("new topic: how do I mount a volume?", "how do I mount a volume?"),
    ],
)
def test_a_question_behind_the_wish_stands_alone(text, rest):
    verdict = analyse(text)
    assert verdict.question_type is QuestionType.SINGLE
    assert verdict.forgets
    assert verdict.text == rest
    assert not verdict.follows


def test_decomposed_letters_are_a_reset_word_too():
    assert analyse(unicodedata.normalize("NFD", "초기화")).question_type is QuestionType.RESET


def test_own_reset_words_replace_those_of_the_list():
    rules = MemoryRules(reset_words=("갈아엎자",))
    assert analyse("갈아엎자", rules=rules).question_type is QuestionType.RESET
    assert analyse("초기화", rules=rules).question_type is not QuestionType.RESET


@pytest.mark.parametrize(
    "text",
    [
        "부서별로 표로 정리해 줘",
        "그거 언제까지야?",
        "그 문서 요약해줘",
        "위에서 말한 서류는?",
        "둘 다 신청할 수 있나요?",
        "기한은?",
        "왜?",
        "예외는?",
        "그럼 벌칙은?",
        "외국인도 되나요?",
        "해당 기관은 어디야?",
        "아까 그 내용 더 자세히",
    ],
)
def test_what_lacks_its_subject_or_points_back_follows(text):
    verdict = analyse(text)
    assert verdict.follows
    assert verdict.question_type is QuestionType.FOLLOWUP


@pytest.mark.parametrize(
    "text",
    [
        "Who discovered it?",
        "why?",
        "and for foreigners?",
        "how many of them died?",
        "what about children?",
    ],
)
def test_english_pronouns_and_fragments_follow(text):
    assert analyse(text, ENGLISH).follows


@pytest.mark.parametrize(
    "text",
    [
        "임종석이 여의도 농민 폭력 시위를 주도한 혐의로 지명수배 된 날은?",
        "상표법에서 상표등록 출원 절차는 어떻게 되나요?",
        "그럼 이번에는 증권거래세 세율이 얼마인지 알려 주세요",
        "더불어민주당의 당사는 어디에 있나요?",
    ],
)
def test_a_question_with_its_own_names_stands_alone(text):
    assert not analyse(text).follows


def test_words_in_different_lines_are_as_many_as_in_one():
    signals = [
        analyse(text).signals for text in ("여비 한도\n숙박비 상한", "여비 한도 숙박비 상한")
    ]
    assert signals[0] == signals[1]


def test_the_first_message_never_follows():
    verdict = analyse("그거 언제까지야?", Conversation())
    assert not verdict.follows
    assert verdict.question_type is QuestionType.SINGLE


@pytest.mark.parametrize(
    "text",
    [
        "안녕하세요!",
        "thank you",
        "ㅋㅋ 그렇구나",
        "네 알겠습니다",
        "great, thanks",
        "아하 이해했어요 감사합니다",
    ],
)
def test_small_talk_never_follows(text):
    verdict = analyse(text)
    assert verdict.question_type is QuestionType.SMALLTALK
    assert not verdict.follows


@pytest.mark.parametrize(
    "text",
    ["누구예요?", "할 수 있나요?", "수고비는?", "수고로움", "좋은 아침식사", "좋은하루요양원"],
)
def test_what_only_begins_like_a_greeting_is_a_question(text):
    assert analyse(text).question_type is not QuestionType.SMALLTALK


@pytest.mark.parametrize(
    "text",
    [
        "당사자가 서로 합의하면 어떻게 되나요?",
        "서로 다른 주소로 신청해도 되나요?",
        "Can I use a different address?",
    ],
)
def test_a_word_of_comparison_that_compares_nothing_makes_no_comparison(text):
    assert analyse(text, Conversation()).question_type is QuestionType.SINGLE


@pytest.mark.parametrize(
    "text",
    [
        "씨름의 날과 구강보건의 날은 서로 어떻게 다른가요?",
        "두 지침의 담당 부서가 서로 다른가요?",
        "두 제도는 서로 같은가요?",
        "How are leave and absence different?",
        "Is leave different from absence?",
    ],
)
def test_a_comparison_is_told_by_its_word(text):
    assert analyse(text, Conversation()).question_type is QuestionType.COMPARE


def test_thanks_with_a_question_are_no_small_talk():
    assert analyse("고마워요, 그럼 기한은?").question_type is QuestionType.FOLLOWUP


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("두 규정의 차이는?", QuestionType.COMPARE),
        ("전년 대비 증가율은?", QuestionType.COMPARE),
        ("A vs B", QuestionType.COMPARE),
        ("재난에 대비하여 무엇을 비축하나요?", QuestionType.SINGLE),
        ("비상대비에 관한 법률의 목적은?", QuestionType.SINGLE),
        ("비교적 쉬운 방법은 무엇인가요?", QuestionType.SINGLE),
        ("차이나타운은 어디에 있나요?", QuestionType.SINGLE),
        ("각 기관의 예산은?", QuestionType.MULTI),
        ("모든 문서에서 기한을 찾아줘", QuestionType.MULTI),
        ("발주기관은 어디야?", QuestionType.SINGLE),
        ("위원은 모두 몇 명인가요?", QuestionType.SINGLE),
    ],
)
def test_words_of_comparison_and_number_count_only_where_they_are_meant(text, kind):
    assert analyse(text, Conversation()).question_type is kind


def test_own_words_for_comparisons_and_several_replace_the_lists():
    rules = MemoryRules(compare_words=("견주",), multi_words=("죄다",))
    assert analyse("둘을 견주어 줘", Conversation(), rules).question_type is QuestionType.COMPARE
    assert analyse("기한을 죄다 알려줘", Conversation(), rules).question_type is QuestionType.MULTI
    assert analyse("두 규정의 차이는?", Conversation(), rules).question_type is QuestionType.SINGLE


def test_a_comparison_of_what_was_said_is_both():
    verdict = analyse("방금 두 법의 취소 사유를 비교해줘")
    assert verdict.question_type is QuestionType.COMPARE
    assert verdict.follows


def test_a_follow_up_word_of_the_settings_makes_following_likelier():
    text = "계속해서 등기부 열람 수수료 면제 대상"
    without = analyse(text).signals
    with_it = analyse(text, rules=MemoryRules(followup_words=("계속해서",))).signals
    assert not without["connective"]
    assert with_it["connective"]


@pytest.mark.parametrize(
    ("topic", "text", "follows"),
    [
        (Topic.NEW, "그거 언제까지야?", False),
        (Topic.SAME, "상표법에서 상표등록 출원 절차는 어떻게 되나요?", True),
        (Topic.WIDER, "상표법에서 상표등록 출원 절차는 어떻게 되나요?", True),
    ],
)
def test_what_the_user_says_of_the_topic_outranks_the_words(topic, text, follows):
    verdict = analyse(text, topic=topic)
    assert verdict.follows is follows
    assert verdict.by == "user"
    assert verdict.topic is topic


@pytest.mark.parametrize(
    ("text", "follows"),
    [("그거 언제까지야?", True), ("상표법에서 상표등록 출원 절차는 어떻게 되나요?", False)],
)
def test_whether_a_question_to_all_documents_follows_is_left_to_its_words(text, follows):
    verdict = analyse(text, topic=Topic.ALL)
    assert verdict.follows is follows
    assert verdict.by == "rules"


def test_words_of_before_a_new_start_bind_nothing():
    refs = (DocRef(1, uuid4(), "공탁금의 이자에 관한 규칙", "rule.md"),)
    turns = (replace(BEFORE.turns[0], doc_refs=refs), PastTurn(2, "새 주제", "", "reset"))
    asked = "공탁서는 공탁금의 이자에 관한 규칙에 따라 몇 통 작성해 내나요?"
    before = Conversation(turns, 2)
    assert analyse(asked, before).signals["shared"] > 0
    assert analyse(asked, replace(before, begins_at=2)).signals["shared"] == 0


def test_certainty_is_lower_in_between():
    plain = analyse("그거 언제까지야?").certainty
    between = analyse("긴급사태가 나면 뭘 해야 합니까").certainty
    assert 0.5 <= between < plain <= 1


def test_the_simple_rule_takes_short_questions_and_follow_up_words():
    rules = MemoryRules(mode="simple")
    assert analyse("상표법 제1조의 목적", rules=rules).follows
    long = "상표법에서 상표등록 출원을 하려는 사람이 특허청에 내야 하는 서류는 무엇입니까?"
    assert not analyse(long, rules=rules).follows
    assert analyse(f"추가로 {long}", rules=rules).follows
    assert analyse(long, rules=rules).by == "simple"


def test_the_simple_rule_asks_the_embedder_only_where_it_knows_the_language():
    rules = MemoryRules(mode="simple", similarity_threshold=0.5)
    embedder = LetterEmbedder()
    again = "What really caused the Black Death in Europe?"
    assert analyse(again, ENGLISH, rules, embedder=embedder).follows
    assert not analyse(
        "Please list all ports that this server listens on", ENGLISH, rules, embedder=embedder
    ).follows
    embedder.embedded.clear()
    analyse(
        "상표등록 출원을 하려는 사람이 특허청에 내야 하는 서류는 무엇입니까?",
        rules=rules,
        embedder=embedder,
    )
    assert embedder.embedded == []


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "?" * 5000,
        "가" * 20_000,
        "그 " * 8000,
        "reset " * 4000,
        "\u200b그거",
        "너무 " * 5000,
    ],
)
def test_hostile_messages_are_told_in_no_time(text):
    assert 0 <= analyse(text).certainty <= 1
