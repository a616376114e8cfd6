"""Documents named by their place: in the last answer, in the session, or among those offered."""

import time
from uuid import NAMESPACE_OID, uuid5

import pytest

from rag.conversation import Conversation, DocRef, PastTurn, View
from rag.understand.references import Unclear, resolve_reference
from tests.quality import slots

TITLES = ("공탁법", "공탁금관리위원회규칙", "상표법")


def make_refs(*titles) -> tuple[DocRef, ...]:
    return tuple(
        DocRef(slot, uuid5(NAMESPACE_OID, title), title, f"{title}.md")
        for slot, title in enumerate(titles, 1)
    )


SHOWN = make_refs(*TITLES)


def make_turn(number=1, titles=TITLES, text="회수할 수 있습니다 [1].", **fields) -> PastTurn:
    values = {"mode": "documents", "question_type": "single", **fields}
    return PastTurn(number, "공탁금 회수 절차는?", text, doc_refs=make_refs(*titles), **values)


def make_conversation(*turns, shown=None) -> Conversation:
    return Conversation(turns, len(turns), shown_turn=shown)


FIRST = make_turn()
ASKED = make_conversation(FIRST, shown=FIRST)


def nothing() -> tuple[DocRef, ...]:
    return ()


def list_titles(found) -> list[str]:
    return [ref.title for ref in found.documents]


def make_clarifying_turn(asked="아까 그 문서 전체 보여줘", number=2) -> PastTurn:
    return PastTurn(number, asked, "어느 문서를 말씀하시나요?", mode="clarify", candidates=SHOWN)


def make_reading_turn(part=2, parts=5, asked="1번 문서 전체 보여줘", number=2) -> PastTurn:
    view = View(SHOWN[0].document_id, part, parts)
    return PastTurn(number, asked, "『공탁법』", mode="document", view=view)


# The set


@pytest.fixture(scope="module")
def cases():
    found = slots.load()
    assert len(found) >= 250
    return found


def test_of_the_set_99_of_100_are_understood_exactly(cases):
    assert sum(slots.right(case, case.found()) for case in cases) / len(cases) >= 0.99


def test_no_document_of_the_set_is_taken_to_be_meant_that_is_not(cases):
    negatives = [case for case in cases if not case.titles]
    assert len(negatives) > 100
    assert not [case.text for case in cases if slots.resolves_falsely(case, case.found())]


def test_what_is_not_clear_is_always_asked_back(cases):
    unclear = [case for case in cases if case.unclear]
    assert sum(case.unclear == "nothing" for case in unclear) >= 25
    missed = [case.text for case in unclear if (case.found() or case).unclear != case.unclear]
    assert not missed


# Places


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("이전 1번 문서를 참고해서 알려줘", [0]),
        ("방금 2번", [1]),
        ("두 번째 문서", [1]),
        ("이 번 문서에서 벌칙은?", [1]),
        ("③ 문서 요약해줘", [2]),
        ("[2] 문서", [1]),
        ("문서 3에서 기한은?", [2]),
        ("１번 문서에서 기한은?", [0]),
        ("마지막 문서", [2]),
        ("앞의 두 문서", [0, 1]),
        ("마지막 두 문서 비교해줘", [1, 2]),
        ("3번과 1번 비교해줘", [2, 0]),
        ("1~3번 문서를 비교해줘", [0, 1, 2]),
        ("1번 말고 2번 보여줘", [1]),
        ("1번 빼고 나머지에서 찾아줘", [1, 2]),
        ("doc #3", [2]),
        ("the second one you cited", [1]),
        ("compare documents 1 and 3", [0, 2]),
        ("the last two sources", [1, 2]),
        ("2nd document, please", [1]),
    ],
)
def test_a_place_is_that_of_the_last_answer_with_documents(text, meant):
    found = resolve_reference(text, ASKED, nothing)
    assert found.unclear is None
    assert list_titles(found) == [TITLES[at] for at in meant]


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("문서 1과 2의 차이는?", [0, 1]),
        ("문서 1, 2, 3 비교", [0, 1, 2]),
        ("문서 1~3 비교해줘", [0, 1, 2]),
        ("문서 1, 2~3 비교해줘", [0, 1, 2]),
        ("문서 1부터 3까지 요약해줘", [0, 1, 2]),
        ("1번 2번 3번 문서 비교", [0, 1, 2]),
        ("1번 문서부터 3번 문서까지 비교해줘", [0, 1, 2]),
        ("첫 번째부터 세 번째 문서까지 비교해줘", [0, 1, 2]),
        ("Compare documents 1 to 3", [0, 1, 2]),
        ("Summarize sources 1 through 3", [0, 1, 2]),
        ("Compare documents one through three", [0, 1, 2]),
        ("Explain documents 1-3", [0, 1, 2]),
        ("Compare document 1 to document 3", [0, 2]),
    ],
)
def test_of_several_documents_named_none_is_left_out(text, meant):
    assert list_titles(resolve_reference(text, ASKED, nothing)) == [TITLES[at] for at in meant]


@pytest.mark.parametrize(
    "text",
    [
        "문서 2에서 3은?",
        "문서 2, 30일 이내인지 알려줘",
        "문서 2 - 3줄로 요약해줘",
        "Shorten document 2 to 3 sentences",
    ],
)
def test_another_number_beside_a_place_names_no_document(text):
    assert list_titles(resolve_reference(text, ASKED, nothing)) == [TITLES[1]]


def test_a_range_beyond_the_documents_shown_is_asked_back():
    for text in ("1~30번 문서 비교해줘", "1~3000번 문서 비교해줘"):
        assert resolve_reference(text, ASKED, nothing).unclear is Unclear.OUT_OF_RANGE


@pytest.mark.parametrize(
    "text",
    [
        *("제1조", "1번 항목", "2번 출구", "질문 1번", "1번 문제 풀어줘", "3번 이상 위반하면?"),
        *("두 번째 위반 시 벌칙은?", "2차 문서", "문서 번호 3", "첫 번째 조건은?", "1호 서식"),
        *(
            "3번에 걸쳐 납부하면?",
            "한 번 더 설명해줘",
            "방금 올린 문서 요약해줘",
            "문서 3개 비교해줘",
        ),
        *("두 문서 비교해줘", "둘 다 요약해줘", "1번 문서 말고 다른 데서 찾아줘", "몇 번 문서야?"),
        *("version 2", "the second paragraph", "step 1", "page 2", "How do I file 3 copies?"),
        *("the first document to submit", "the number 2 rule", "the second source of income"),
    ],
)
def test_what_counts_other_things_is_no_reference(text):
    assert resolve_reference(text, ASKED, nothing) is None


def test_a_number_beyond_the_list_is_asked_back_with_the_list():
    found = resolve_reference("4번 문서에서 기한은?", ASKED, nothing)
    assert found.unclear is Unclear.OUT_OF_RANGE
    assert list_titles(found) == list(TITLES)


def test_a_number_that_the_answer_gave_to_its_own_lines_is_asked_back():
    turn = make_turn(text="1. 법인일 것\n2. 신고할 것 [1]")
    found = resolve_reference("2번은?", make_conversation(turn, shown=turn), nothing)
    assert found.unclear is Unclear.AMBIGUOUS
    assert list_titles(
        resolve_reference("2번 문서는?", make_conversation(turn, shown=turn), nothing)
    ) == [TITLES[1]]


def test_a_number_after_a_list_without_documents_means_the_list():
    listed = PastTurn(2, "요리법?", "1. 볶는다\n2. 끓인다", mode="general", question_type="single")
    assert (
        resolve_reference("2번 더 자세히", make_conversation(FIRST, listed, shown=FIRST), nothing)
        is None
    )


def test_thanks_in_between_do_not_hide_the_list():
    thanks = PastTurn(2, "고마워", "천만에요.", mode="general", question_type="smalltalk")
    assert list_titles(
        resolve_reference("2번은?", make_conversation(FIRST, thanks, shown=FIRST), nothing)
    ) == [TITLES[1]]


def test_the_whole_session_counts_only_when_it_is_said():
    session = make_refs("민사소송법", *TITLES)
    asked = []

    def all_shown():
        asked.append(1)
        return session

    assert list_titles(resolve_reference("1번 문서는?", ASKED, all_shown)) == ["공탁법"]
    assert not asked
    found = resolve_reference("세션 전체 기준 1번 문서는?", ASKED, all_shown)
    assert list_titles(found) == ["민사소송법"]
    assert found.whole_session
    assert list_titles(
        resolve_reference("document 4 of the whole conversation", ASKED, all_shown)
    ) == ["상표법"]


def test_an_earlier_answer_can_be_named():
    second = make_turn(2, ("저작권법",))
    conversation = make_conversation(FIRST, second, shown=second)
    assert list_titles(
        resolve_reference("첫 번째 답변의 2번 문서 요약해줘", conversation, nothing)
    ) == [TITLES[1]]


def test_a_kind_of_document_counts_where_both_ways_of_counting_agree():
    turn = make_turn(1, ("공탁법", "상표법", "채용 공고문"))
    assert list_titles(
        resolve_reference("두 번째 법에서 벌칙은?", make_conversation(turn, shown=turn), nothing)
    ) == ["상표법"]
    mixed = make_turn(1, ("채용 공고문", "공탁법", "상표법"))
    found = resolve_reference(
        "두 번째 법에서 벌칙은?", make_conversation(mixed, shown=mixed), nothing
    )
    assert found.unclear is Unclear.AMBIGUOUS


# That document


def test_that_document_is_the_only_one():
    turn = make_turn(1, ("상표법",))
    for text in ("아까 그 문서에서 기한은?", "in that document, what is the fee?"):
        assert list_titles(
            resolve_reference(text, make_conversation(turn, shown=turn), nothing)
        ) == ["상표법"]


def test_that_document_of_several_is_asked_back():
    found = resolve_reference("그 문서 전체 보여줘", ASKED, nothing)
    assert found.unclear is Unclear.AMBIGUOUS
    assert [ref.slot for ref in found.documents] == [1, 2, 3]


def test_part_of_a_title_tells_which_document_is_meant():
    assert list_titles(resolve_reference("아까 그 상표법 문서 보여줘", ASKED, nothing)) == [
        "상표법"
    ]
    found = resolve_reference("아까 그 공탁 문서 보여줘", ASKED, nothing)
    assert found.unclear is Unclear.AMBIGUOUS
    assert list_titles(found) == ["공탁법", "공탁금관리위원회규칙"]


def test_that_document_of_the_same_sentence_is_no_reference():
    text = "계약서를 잃어버렸는데 그 문서를 재발급받을 수 있나요?"
    assert resolve_reference(text, ASKED, nothing) is None


# Nothing to refer to


def test_where_nothing_was_shown_a_place_is_asked_back():
    for text in (
        "이전 1번 문서 참고해서 답해줘",
        "방금 2번",
        "the first document",
        "그 문서 보여줘",
    ):
        found = resolve_reference(text, Conversation(), nothing)
        assert found.unclear is Unclear.NOTHING
        assert found.documents == ()


def test_this_document_may_be_one_that_was_uploaded():
    assert resolve_reference("이 문서 요약해줘", Conversation(), nothing) is None


def test_after_the_memory_was_cleared_the_documents_of_the_session_are_offered():
    found = resolve_reference("이전 1번 문서 보여줘", make_conversation(FIRST), lambda: SHOWN)
    assert found.unclear is Unclear.NOTHING
    assert list_titles(found) == list(TITLES)


# What is wanted


@pytest.mark.parametrize(
    "text",
    [
        *(
            "1번 문서 전체 보여줘",
            "1번 문서 전문",
            "1번 문서의 원문을 보여 주세요",
            "1번 문서 열어줘",
        ),
        *("show me the whole of document 1", "the full text of the first document, please"),
    ],
)
def test_the_document_itself_is_wanted(text):
    found = resolve_reference(text, ASKED, nothing)
    assert (found.whole, found.part, list_titles(found)) == (True, 1, ["공탁법"])


@pytest.mark.parametrize(
    ("text", "rest"),
    [
        ("이전 1번 문서를 참고해서 공탁금 회수 절차를 알려줘", "공탁금 회수 절차를 알려줘"),
        ("1번 문서에서 기한은?", "기한은?"),
        ("1번 문서 전체 요약해줘", "전체 요약해줘"),
        ("공탁금 회수는 1번 문서에서 어떻게 설명해?", "공탁금 회수는 어떻게 설명해?"),
        ("According to source 1, when is it due?", "when is it due?"),
        ("방금 2번", "방금 2번"),
        ("What does document 2 say?", "What does it say?"),
        ("What's in the third source?", "What's in it?"),
        ("1번과 2번 이의신청 기한 비교해줘", "이의신청 기한 비교해줘"),
    ],
)
def test_an_answer_is_wanted_and_the_rest_can_be_searched(text, rest):
    found = resolve_reference(text, ASKED, nothing)
    assert not found.whole
    assert found.rest == rest


@pytest.mark.parametrize("text", ["2번은?", "그 두 번째 문서에서는?", "What about the second one?"])
def test_what_was_asked_before_is_asked_of_another_document(text):
    first = PastTurn(2, "1번 문서에서 이의신청 기한은?", "7일", mode="documents", doc_refs=SHOWN)
    again = PastTurn(3, "1번은?", "7일", mode="documents", doc_refs=SHOWN)
    found = resolve_reference(text, make_conversation(FIRST, first, again, shown=again), nothing)
    assert (list_titles(found), found.rest) == ([TITLES[1]], "이의신청 기한은?")


def test_a_part_of_a_document_is_wanted():
    for text, part in (("1번 문서 2쪽 보여줘", 2), ("show page 3 of document 1", 3)):
        found = resolve_reference(text, ASKED, nothing)
        assert (found.whole, found.part) == (True, part)


def test_a_document_shown_can_be_opened_by_its_title():
    found = resolve_reference("상표법 전문 보여줘", ASKED, nothing)
    assert (list_titles(found), found.whole) == (["상표법"], True)
    assert resolve_reference("상표법 제3조 전문 보여줘", ASKED, nothing) is None


# Going on with a document


@pytest.mark.parametrize(
    ("text", "part"),
    [
        *(("다음", 3), ("계속 보여줘", 3), ("next", 3), ("이전", 1), ("go back", 1)),
        *(("3번째 부분", 3), ("5쪽 보여줘", 5), ("part 4", 4), ("마지막 부분", 5), ("처음부터", 1)),
    ],
)
def test_pages_turn_in_the_document_shown(text, part):
    found = resolve_reference(
        text, make_conversation(FIRST, make_reading_turn(), shown=FIRST), nothing
    )
    assert (list_titles(found), found.whole, found.part) == (["공탁법"], True, part)


def test_pages_turn_only_where_a_document_is_shown():
    assert resolve_reference("다음", ASKED, nothing) is None
    conversation = make_conversation(FIRST, make_reading_turn(), shown=FIRST)
    assert resolve_reference("다음 회의는 언제야?", conversation, nothing) is None


def test_the_present_version_stays_present_while_it_is_read():
    first = make_reading_turn(1, asked="1번 문서 최신 버전 보여줘")
    conversation = make_conversation(
        FIRST, first, make_reading_turn(2, asked="다음", number=3), shown=FIRST
    )
    assert resolve_reference("다음", conversation, nothing).present
    assert not resolve_reference(
        "다음", make_conversation(FIRST, make_reading_turn(), shown=FIRST), nothing
    ).present


def test_while_a_document_is_read_places_are_still_those_of_the_list():
    view = View(SHOWN[0].document_id, 1, 5)
    turn = make_turn(2, ("공탁법",), mode="document", view=view)
    conversation = make_conversation(FIRST, turn, shown=turn)
    assert list_titles(resolve_reference("3번 문서에서 기한은?", conversation, nothing)) == [
        "상표법"
    ]
    assert list_titles(resolve_reference("그 문서에서 기한은?", conversation, nothing)) == [
        "공탁법"
    ]
    assert list_titles(resolve_reference("상표법 전문 보여줘", conversation, nothing)) == ["상표법"]


# Answers to a question back


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        *(("2번", [1]), ("첫 번째요", [0]), ("상표법이요", [2]), ("the last one", [2])),
        *(("1번하고 3번", [0, 2]), ("둘 다", [0, 1, 2]), ("공탁법하고 상표법", [0, 2])),
    ],
)
def test_a_choice_answers_what_was_asked_first(text, meant):
    found = resolve_reference(
        text, make_conversation(FIRST, make_clarifying_turn(), shown=FIRST), nothing
    )
    assert list_titles(found) == [TITLES[at] for at in meant]
    assert (found.unclear, found.whole, found.rest) == (None, True, "전체 보여줘")


def test_a_choice_that_is_none_is_asked_back_again():
    again = make_clarifying_turn("9번", number=3)
    conversation = make_conversation(
        FIRST, make_clarifying_turn("그 문서에서 기한은?"), again, shown=FIRST
    )
    assert resolve_reference("7번", conversation, nothing).unclear is Unclear.OUT_OF_RANGE
    assert resolve_reference("2번", conversation, nothing).rest == "기한은?"


def test_a_choice_after_a_number_alone_asks_what_was_asked_before():
    conversation = make_conversation(FIRST, make_clarifying_turn("9번은?"), shown=FIRST)
    assert resolve_reference("2번이요", conversation, nothing).rest == FIRST.user_text


def test_a_new_question_after_a_question_back_is_a_question():
    conversation = make_conversation(FIRST, make_clarifying_turn(), shown=FIRST)
    assert resolve_reference("공탁법 제4조는 무슨 내용이야?", conversation, nothing) is None


def test_a_document_picked_settles_the_question_asked_again():
    conversation = make_conversation(make_clarifying_turn("이전 1번 문서 전체 보여줘", number=1))
    picked = SHOWN[2].document_id
    found = resolve_reference("이전 1번 문서 전체 보여줘", conversation, nothing, [picked])
    assert (list_titles(found), found.unclear, found.whole) == (["상표법"], None, True)


def test_documents_picked_for_a_question_settle_what_is_unclear():
    found = resolve_reference("그 문서에서 기한은?", ASKED, nothing, [SHOWN[1].document_id])
    assert (list_titles(found), found.unclear) == ([TITLES[1]], None)
    other = uuid5(NAMESPACE_OID, "other")
    assert resolve_reference("그 문서에서 기한은?", ASKED, nothing, [other]) is None


# Bounds


@pytest.mark.parametrize(
    "piece",
    [
        *(
            "1번 문서 ",
            "2번과 ",
            "[1] ",
            "①",
            "그 ",
            "아까 그 ",
            "전체 보여줘 ",
            "첫 번째 ",
            "1,2,",
            "1~9999번 문서 ",
            "문서 1부터 ",
        ),
        *(
            "the second one you cited ",
            "document ",
            "documents 1 to 3, ",
            "show me the whole ",
            "and ",
            " ",
            "가",
            "번",
        ),
    ],
)
def test_hostile_messages_take_milliseconds(piece):
    text = (piece * 20_000)[:20_000]
    for conversation in (
        ASKED,
        make_conversation(FIRST, make_clarifying_turn(), shown=FIRST),
        make_conversation(make_reading_turn(number=1)),
    ):
        for message in (text, f"{text[:200]}!", f"{text} 1번 문서", f"2번은{text},"):
            started = time.process_time()
            resolve_reference(message, conversation, lambda: SHOWN)
            assert time.process_time() - started < 0.1


def test_a_reference_is_found_at_either_end_of_a_long_message():
    pasted = "조항을 옮겨 적습니다. " * 500
    assert list_titles(resolve_reference(f"2번 문서와 비교해줘: {pasted}", ASKED, nothing)) == [
        TITLES[1]
    ]
    found = resolve_reference(f"{pasted}\n방금 2번 문서를 참고해서 검토해줘", ASKED, nothing)
    assert list_titles(found) == [TITLES[1]]
    assert found.rest.endswith("검토해줘")


# Numbers that no answer has

ONLY = make_turn(titles=TITLES[:1])
TWO = make_turn(titles=TITLES[:2])


@pytest.mark.parametrize(
    ("text", "turn"),
    [
        ("0번 문서", FIRST),
        ("영번 문서 보여줘", FIRST),
        ("-1번 문서", FIRST),
        ("열 번째 문서에서 벌칙은?", FIRST),
        ("스무 번째 문서", FIRST),
        ("99999번 문서 보여줘", FIRST),
        ("이전 2번 문서를 참고해서 기한을 알려줘", ONLY),
        ("뒤에서 세 번째 문서", TWO),
        ("세션 전체 기준 7번", FIRST),
        ("What does document 4 say?", FIRST),
        ("the twelfth source you cited", FIRST),
        ("document number zero", FIRST),
    ],
)
def test_a_number_that_no_answer_has_is_asked_back_also_where_documents_are_chosen(text, turn):
    conversation = make_conversation(turn, shown=turn)
    chosen = [turn.doc_refs[0].document_id]
    for named in ((), chosen):
        found = resolve_reference(text, conversation, lambda: turn.doc_refs, named)
        assert found.unclear is Unclear.OUT_OF_RANGE


def test_a_number_before_any_answer_does_not_mean_the_chosen_document():
    found = resolve_reference(
        "2번 문서에서 기한은?", Conversation(), nothing, [SHOWN[0].document_id]
    )
    assert found.unclear is Unclear.NOTHING


@pytest.mark.parametrize(
    ("text", "title"),
    [
        ("뒤에서 두 번째 문서", "공탁금관리위원회규칙"),
        ("마지막에서 세 번째 문서", "공탁법"),
        ("the second to last document", "공탁금관리위원회규칙"),
        ("the penultimate source", "공탁금관리위원회규칙"),
    ],
)
def test_places_may_be_counted_from_the_end(text, title):
    assert list_titles(resolve_reference(text, ASKED, nothing)) == [title]


def test_a_number_beyond_the_documents_means_the_line_of_a_list():
    listed = make_turn(titles=TITLES[:1], text="요건은 셋입니다.\n1. 신청\n2. 접수\n3. 심사")
    assert (
        resolve_reference("2번 설명해줘", make_conversation(listed, shown=listed), nothing) is None
    )
