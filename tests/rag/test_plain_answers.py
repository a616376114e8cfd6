"""General conversation without a model: small talk, help about the product, and honesty."""

from dataclasses import replace
from uuid import uuid4

import pytest

from rag.conversation import DocRef, PastTurn
from rag.events import OTHER_LANGUAGE
from rag.generate.offline import answer_offline, find_product_topic
from rag.ports import Piece
from rag.types import AnswerLabel, Box, QuestionType, Scope, ScopeReason
from rag.understand.analysis import QuestionAnalysis
from rag.understand.references import Reference
from tests.quality import sets
from tests.rag.passages import make_evidence
from tests.rag.worlds import (
    LetterEmbedder,
    Library,
    ScriptedLLM,
    find_finished,
    join_text,
    make_engine,
)

ASKED = {
    "files": (
        "어떤 파일을 올릴 수 있어?",
        "한글 파일도 읽을 수 있나요?",
        "HTML 파일도 읽을 수 있나요?",
        "which file formats are supported?",
    ),
    "upload": ("문서는 어떻게 올려?", "파일 업로드 방법 알려줘", "How do I upload a document?"),
    "delete": ("올린 문서를 삭제하려면?", "대화를 어떻게 지워?", "how can I delete my files?"),
    "model": (
        "언어 모델은 어디서 설정해?",
        "너는 무슨 모델이야?",
        "where do I set the language model?",
    ),
    "privacy": ("내 데이터는 어디에 저장돼?", "제 문서가 외부로 전송되나요?", "Is my data safe?"),
}
OTHER = (
    "데이터 모델은 어떻게 설계하나요?",
    "개인정보 보호법에 따른 파기 방법은?",
    "압수한 파일은 누가 삭제하나요?",
    "보고서는 어떤 형식으로 제출하나요?",
    "회의록을 어디에 보관하나요?",
    "What model of car won the race?",
    "how do I delete a row in SQL?",
    "where is the data of the census stored?",
)


async def ask(text):
    return join_text(await Library(make_engine()).ask(text))


@pytest.mark.parametrize("asked", [(name, one) for name, many in ASKED.items() for one in many])
def test_a_question_about_the_product_is_known_by_its_topic(asked):
    name, question = asked
    assert find_product_topic(question) == f"help_{name}"


@pytest.mark.parametrize("question", OTHER)
def test_a_question_about_something_else_is_not_taken_for_help(question):
    assert not find_product_topic(question)


@pytest.mark.skipif(not sets.available(), reason="needs ../shared/data")
def test_no_utterance_and_no_question_of_the_sets_is_taken_for_help():
    asked = [one.text for name in ("korquad1_dev", "xquad_en") for one in sets.load(name).questions]
    assert not [text for text in [*sets.smalltalk(), *asked] if find_product_topic(text)]


async def test_who_asks_for_a_model_is_sent_to_the_administrator_in_both_languages():
    assert "관리자" in await ask("언어 모델은 어디서 설정해?")
    assert "administrator" in await ask("How do I configure the language model?")


@pytest.mark.parametrize("question", ["어떤 파일을 올릴 수 있어?", "뭘 할 수 있어?"])
async def test_help_names_every_format_that_is_read(question):
    told = await ask(question)
    formats = ("PDF", "DOCX", "HWP", "HWPX", "HTML", "마크다운", "텍스트")
    assert all(name in told for name in formats)


async def test_help_on_files_says_that_scans_need_text_recognition():
    assert "문자 인식(OCR)이 설치되어 있을 때만" in await ask("어떤 파일을 올릴 수 있어?")
    assert "if text recognition (OCR) is installed" in await ask(
        "which file formats are supported?"
    )


async def test_who_leaves_is_not_greeted():
    assert "안녕히 가세요" in await ask("안녕히 계세요")
    assert (await ask("bye")).startswith("Goodbye")


@pytest.mark.parametrize("text", ["심심한데 노래 불러줘", "What is the tallest mountain on Mars?"])
async def test_everything_else_hears_that_no_model_is_configured_and_whom_to_ask(text):
    told = await ask(text)
    assert "설정되어 있지 않습니다" in told or "none is configured" in told
    assert "관리자" in told or "administrator" in told


def test_without_documents_nothing_is_said_to_be_general_knowledge():
    asked = QuestionAnalysis(QuestionType.SINGLE, "연차는 며칠인가요?", Scope((), ScopeReason.ALL))
    answer = answer_offline(
        asked, [], (), is_whole_document=False, named_titles=(), notices=(), language="ko"
    )
    assert answer.label is AnswerLabel.INSUFFICIENT
    assert "읽을 수 있는 문서가 없습니다" in answer.text


def test_what_a_follow_up_does_not_find_is_told_in_its_own_words():
    passage = make_evidence("보증 기간은 산 날부터 2년입니다.")
    asked = QuestionAnalysis(
        QuestionType.FOLLOWUP,
        "점심 메뉴는?",
        Scope((passage.document_id,), ScopeReason.ALL),
        follows=True,
        standalone="E-1234 오류 해결 점심 메뉴는?",
    )
    answer = answer_offline(
        asked, [passage], (), is_whole_document=False, named_titles=(), notices=(), language="ko"
    )
    assert answer.label is AnswerLabel.INSUFFICIENT
    assert "점심" in answer.text
    assert "해결" not in answer.text


@pytest.mark.parametrize("is_named", [True, False])
def test_what_another_document_said_before_is_no_answer_of_the_one_named(is_named):
    passage = make_evidence("공탁금은 청구로 회수한다.")
    turn = PastTurn(1, "상표법의 벌칙은?", "벌칙 조항은 벌금 300만원에 처한다. [1]")
    document = DocRef(1, passage.document_id, "공탁법", "공탁법")
    asked = QuestionAnalysis(
        QuestionType.SINGLE,
        "벌칙 조항 알려줘",
        Scope((passage.document_id,), ScopeReason.SLOT),
        reference=Reference((document,), "벌칙 조항 알려줘") if is_named else None,
    )
    answer = answer_offline(
        asked,
        [passage],
        (turn,),
        is_whole_document=False,
        named_titles=(),
        notices=(),
        language="ko",
    )
    assert ("300만원" in answer.text) is not is_named
    assert answer.label is (AnswerLabel.INSUFFICIENT if is_named else AnswerLabel.CONVERSATION)


def test_only_the_lines_of_what_is_shown_are_marked_on_the_page():
    text = "총칙이다.\n숙박비 상한은 1박 9만원이다.\n식비는 하루 2만원이다.\n정산은 5일 안에 한다."
    boxes = tuple(Box(3, 0.1, top / 10, 0.9, top / 10 + 0.02) for top in range(1, 5))
    item = make_evidence(text, page=3)
    item = replace(item, passage=replace(item.passage, boxes=boxes))
    scope = Scope((item.document_id,), ScopeReason.ALL)
    asked = QuestionAnalysis(QuestionType.SINGLE, "숙박비 상한은 얼마야?", scope)
    answer = answer_offline(
        asked, [item], (), is_whole_document=False, named_titles=(), notices=(), language="ko"
    )
    ((span,),) = answer.spans.values()
    assert (span.text, span.boxes) == ("숙박비 상한은 1박 9만원이다.", boxes[1:2])


def test_a_span_of_a_sentence_over_two_passages_is_what_stands_in_its_own():
    document_id = uuid4()
    before, after = "숙박비는 1박에 ", "9만원을 상한으로 하여 실비로 지급한다. 식비는 따로 정한다."
    pieces = (
        make_evidence(before, number=1, document_id=document_id),
        make_evidence(after, number=2, document_id=document_id, start=len(before)),
    )
    scope = Scope((document_id,), ScopeReason.ALL)
    asked = QuestionAnalysis(QuestionType.SINGLE, "숙박비는 얼마야?", scope)
    answer = answer_offline(
        asked, pieces, (), is_whole_document=False, named_titles=(), notices=(), language="ko"
    )
    spans = [span for found in answer.spans.values() for span in found]
    assert [span.text for span in spans] == ["9만원을 상한으로 하여 실비로 지급한다."]
    assert all((before + after)[span.start : span.end] == span.text for span in spans)


KOREAN = "제3조(숙박비) 숙박비의 상한은 1박에 10만원으로 한다. 초과분은 본인이 부담한다."
ENGLISH = "Section 3. The limit for accommodation is 100 dollars a night."


@pytest.mark.parametrize(
    ("question", "texts", "languages", "expected"),
    [
        ("What is the limit for hotels?", [KOREAN], {"en"}, True),
        ("What is the limit for hotels?", [KOREAN], {"*"}, False),
        (
            "What is the limit for hotels?",
            [KOREAN, ENGLISH.replace("limit", "rule")],
            {"en"},
            False,
        ),
        ("호텔 상한은 얼마야?", [ENGLISH], {"en"}, True),
        ("Thanks!", [KOREAN], {"en"}, False),
        ("외국인 등록은 어디서 해?", [KOREAN], {"en"}, False),
    ],
)
async def test_who_asks_in_another_language_than_the_documents_is_told(
    question, texts, languages, expected
):
    library = Library(make_engine(embedder=LetterEmbedder(frozenset(languages))))
    for number, text in enumerate(texts):
        library.add(f"{number}.md", text)
    notices = find_finished(await library.ask(question)).notices
    assert (OTHER_LANGUAGE in notices) == expected


async def test_a_model_that_finds_nothing_is_told_apart_from_one_that_just_talks():
    async def tell(reply):
        library = Library(make_engine(llm=ScriptedLLM(Piece(reply))))
        library.add("규정.md", KOREAN)
        return find_finished(await library.ask("What is the limit for hotels?")).notices

    assert OTHER_LANGUAGE in await tell("The documents do not mention hotels.")
    assert OTHER_LANGUAGE not in await tell("Hotels cost about as much as they look.")
