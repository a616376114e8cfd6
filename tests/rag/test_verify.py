"""Sentences of an answer against the passages that they cite."""

import json
import time
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rag.generate.citations import CitationFilter
from rag.types import AnswerLabel, Box, CheckedSentence, Verdict
from rag.verify import Grounds, decide_label, summarise_verification, verify_answer
from rag.verify.sentences import split_answer
from tests.quality import hand
from tests.quality.hand import check
from tests.rag.analysers import without_kiwi
from tests.rag.passages import make_evidence as made_evidence

RULE = (
    "출장비의 상한은 1일 90,000원으로 한다. 신고하지 아니한 자는 허가를 받을 수 없다. "
    "이 규정은 2024년 3월 5일부터 시행한다. 예산은 1억 2천만 원이며 참여율은 37%이다. "
    "신청은 30일 이내에 하여야 한다."
)
LEAVE = "연차휴가는 15일을 부여한다. 휴가는 인사혁신처장에게 신청한다. 회의는 매주 월요일에 연다."
ENGLISH = (
    "Harlow Bridge opened on 14 May 1931. It was designed by Edith Marlowe. "
    "Lorries heavier than 18 tonnes are prohibited. Profit fell to $36 million."
)


def make_passages(*texts):
    return [
        made_evidence(text, slot=slot, name=f"문서 {slot}") for slot, text in enumerate(texts, 1)
    ]


def judge(answer, *texts):
    return check(answer, make_passages(*(texts or (RULE, LEAVE, ENGLISH))))


def verify(answer, evidence=None, **grounds):
    """The whole verification of an answer that cites by the numbers of its passages."""
    evidence = evidence or make_passages(RULE, LEAVE, ENGLISH)
    markers = CitationFilter(evidence)
    text = markers.feed(answer) + markers.flush()
    return verify_answer(text, markers.citations, evidence, grounds=Grounds(**grounds))


def judge_one(answer, *texts):
    (found,) = judge(answer, *texts)
    return found


@pytest.mark.parametrize(
    "answer",
    [
        "출장비 상한은 하루 9만 원입니다 [1].",
        "신고하지 않은 자는 허가를 받을 수 없습니다 [1].",
        "이 규정은 2024.3.5.부터 시행됩니다 [1].",
        "이 규정은 '24.3.5부터 시행됩니다 [1].",
        "예산은 120,000,000원입니다 [1].",
        "예산은 1.2억 원이고 참여율은 37퍼센트입니다 [1].",
        "신청은 30일 안에 하여야 합니다 [1].",
        "연차휴가는 15일입니다.",
        "Harlow Bridge opened on May 14, 1931 [3].",
        "Profit fell to 36 million dollars [3].",
    ],
)
def test_what_a_passage_says_in_other_words_is_supported(answer):
    assert judge_one(answer).verdict is Verdict.SUPPORTED


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ("출장비 상한은 하루 8만 원입니다 [1].", "number"),
        ("참여율은 37명입니다 [1].", "number"),
        ("이 규정은 2024년 4월 5일부터 시행합니다 [1].", "date"),
        ("회의는 매주 화요일에 엽니다 [2].", "date"),
        ("신고하지 않은 자는 허가를 받을 수 있습니다 [1].", "negation"),
        ("신청은 30일 이후에 해야 합니다 [1].", "negation"),
        ("휴가는 환경부장관에게 신청합니다 [2].", "name"),
        ("연차휴가는 매년 15일을 부여한다 [1].", "overlap"),
        ("주차장은 지하 2층에 있습니다 [1].", "overlap"),
        ("Harlow Bridge opened on 15 May 1931 [3].", "date"),
        ("Harlow Bridge was designed by Thomas Reed [3].", "name"),
        ("Lorries heavier than 18 tonnes are allowed [3].", "negation"),
        ("Profit did not fall to $36 million [3].", "negation"),
    ],
)
def test_what_a_passage_does_not_say_is_unsupported_for_a_reason(answer, reason):
    found = judge_one(answer)
    assert found.verdict is Verdict.UNSUPPORTED
    assert reason in found.reasons


@pytest.mark.parametrize(
    ("said", "meant"),
    [
        ("3천5백만 원", "35,000,000원"),
        ("3천 5백만 원", "3,500만 원"),
        ("1억 2천5백만원", "125,000,000원"),
        ("2조 3천억 원", "2,300,000,000,000원"),
        ("12만3천4백5십 원", "123,450원"),
        ("3백 5십 명", "350명"),
        ("1천2백34개", "1,234개"),
        ("제3조 5항의 5백만 원", "제3조 제5항의 5,000,000원"),
    ],
)
def test_korean_numbers_mean_what_they_say(said, meant):
    told = f"사업의 규모는 올해 {said} 정도로 정한다."
    assert judge_one(told.replace(said, meant)[:-1] + " [1].", told).verdict is Verdict.SUPPORTED
    wrong = told.replace(said, meant.replace("5", "7").replace("3", "8"))
    assert "number" in judge_one(wrong[:-1] + " [1].", told).reasons


@pytest.mark.parametrize(
    ("said", "meant", "wrong"),
    [("열흘", "10일", "3일"), ("3일", "사흘", "나흘"), ("보름", "15일", "열흘")],
)
def test_days_in_korean_words_are_numbers_of_days(said, meant, wrong):
    told = f"휴가 신청은 {said} 전까지 총무과에 한다."
    assert (
        judge_one(f"휴가 신청은 {meant} 전까지 총무과에 합니다 [1].", told).verdict
        is Verdict.SUPPORTED
    )
    assert "number" in judge_one(f"휴가 신청은 {wrong} 전까지 총무과에 합니다 [1].", told).reasons


def test_a_full_moon_is_no_number_of_days():
    told = "축제는 보름달이 뜨는 날 시청 앞에서 연다."
    assert (
        judge_one("축제는 시청 앞에서 보름달이 뜨는 날 엽니다 [1].", told).verdict
        is Verdict.SUPPORTED
    )
    assert (
        "number"
        not in judge_one(
            "보름달이 뜨는 날 시청 앞에서 축제를 엽니다 [1].", "축제는 시청 앞에서 연다."
        ).reasons
    )


@pytest.mark.parametrize("said", ["2024. 3. 4.(월)", "2024년 3월 4일 (월)", "Monday, 4 March 2024"])
def test_a_day_of_the_week_is_one_however_it_is_written(said):
    told = f"회의 meeting: {said}, 2층 대회의실."
    assert "date" not in judge_one("회의는 월요일에 대회의실에서 엽니다 [1].", told).reasons
    assert "date" in judge_one("회의는 화요일에 대회의실에서 엽니다 [1].", told).reasons
    assert "date" in judge_one("The meeting is on Tuesday, March 4 [1].", told).reasons


def test_dots_of_other_alphabets_stop_no_check():
    found = judge_one(
        "It takes 5 minutes to fill in the form [1].", "It takes 5 mınutes to fill it in."
    )
    assert found.verdict is Verdict.SUPPORTED


@pytest.mark.parametrize(
    "answer",
    [
        "안녕하세요!",
        "## 출장비",
        "**요약**",
        "내용은 다음과 같습니다:",
        "어떤 규정을 말씀하시나요?",
        "제공된 문서에는 식비에 관한 내용이 없습니다.",
        "병가에 관한 정보를 찾을 수 없습니다.",
        "The documents do not mention parking.",
        "I could not find this in the excerpts.",
        "더 궁금한 점이 있으면 말씀해 주세요.",
        "_앞뒤 내용은 출처에서 더 볼 수 있습니다._",
    ],
)
def test_what_claims_nothing_is_plain(answer):
    assert judge_one(answer).verdict is Verdict.PLAIN


def test_a_sentence_on_lack_in_the_world_is_a_claim():
    assert judge_one("이 건물에는 승강기가 없습니다 [1].").verdict is Verdict.UNSUPPORTED


def test_a_marker_behind_the_full_stop_belongs_to_the_sentence_before():
    answer = "연차휴가는 15일입니다. [2] 출장비 상한은 90,000원입니다.[1]"
    first, second = judge(answer)
    assert answer[first.start : first.end] == "연차휴가는 15일입니다. [2]"
    assert (first.slots, second.slots) == ((2,), (1,))
    assert answer[second.start : second.end] == "출장비 상한은 90,000원입니다.[1]"


def test_a_marker_on_a_line_of_its_own_belongs_to_the_sentence_before():
    assert judge_one("연차휴가는 15일입니다.\n[2]").slots == (2,)


def test_places_count_code_points_of_the_answer():
    answer = "😀 안녕하세요! 👍🏽 연차휴가는 15일입니다 [2]."
    found = judge(answer)
    assert answer[found[-1].start : found[-1].end].endswith("연차휴가는 15일입니다 [2].")


def test_dates_decimals_and_abbreviations_end_no_sentence():
    answer = "시행일은 2024. 3. 5. 이고 값은 3.5입니다. Dr. Kim agreed, e.g. in No. 3."
    assert [answer[item.start : item.end] for item in judge(answer)] == [
        "시행일은 2024. 3. 5. 이고 값은 3.5입니다.",
        "Dr. Kim agreed, e.g. in No. 3.",
    ]


def test_items_and_rows_are_checked_and_heads_are_not():
    answer = (
        "| 항목 | 값 |\n|---|---|\n"
        "| 출장비 상한 | 90,000원 [1] |\n| 출장비 상한 | 70,000원 [1] |\n\n"
        "- 연차휴가 15일 [2]\n1. 연차휴가 20일 [2]\n"
    )
    assert [item.verdict for item in judge(answer)] == [
        Verdict.PLAIN,
        Verdict.SUPPORTED,
        Verdict.UNSUPPORTED,
        Verdict.SUPPORTED,
        Verdict.UNSUPPORTED,
    ]


def test_a_sentence_that_cites_two_passages_is_held_against_both():
    assert (
        judge_one("출장비 상한은 90,000원이고 연차휴가는 15일입니다 [1][2].").verdict
        is Verdict.SUPPORTED
    )


def test_words_of_another_language_are_not_compared_but_figures_are():
    passages = ("The fee is 90,000 won and is paid within 30 days.",)
    assert judge_one("수수료는 90,000원입니다 [1].", *passages).verdict is Verdict.SUPPORTED
    assert judge_one("수수료는 80,000원입니다 [1].", *passages).reasons == ("number",)


def test_a_name_of_the_document_or_its_section_is_known():
    item = made_evidence(
        "상한은 100,000원으로 한다.", name="여비 규정", page=1, section="제12조 (숙박비)"
    )
    (found,) = check("여비 규정 제12조에 따르면 숙박비 상한은 10만 원입니다 [1].", [item])
    assert found.verdict is Verdict.SUPPORTED


def test_without_the_analyser_words_and_figures_are_still_compared():
    with without_kiwi():
        assert judge_one("출장비 상한은 90,000원입니다 [1].").verdict is Verdict.SUPPORTED
        assert judge_one("주차장은 지하에 있습니다 [1].").verdict is Verdict.UNSUPPORTED


def test_the_summary_for_the_trace_is_plain_json():
    told = summarise_verification(
        verify("연차휴가는 15일입니다 [2]. 연차휴가는 20일입니다 [2]. 안녕하세요!")
    )
    assert json.loads(json.dumps(told)) == told
    assert (told["supported"], told["unsupported"], told["plain"]) == (1, 1, 1)
    assert told["doubted"][0]["reasons"] == ["number"]


@pytest.mark.parametrize("language", hand.LANGUAGES)
def test_of_answers_written_by_hand_most_are_judged_as_a_reader_does(language):
    rows = [row for written in hand.load(language) for row in hand.found(written)]
    for wanted, least in (("unsupported", 0.8), ("supported", 0.85), ("plain", 0.85)):
        judged_so = [said == wanted for _, verdict, said in rows if verdict == wanted]
        assert sum(judged_so) >= least * len(judged_so), wanted


@given(
    st.lists(
        st.sampled_from(
            [
                *"[]().,|#*`~\n -'「」:?%$",
                "1",
                "2024",
                "년",
                "3월",
                "만",
                "억",
                "가나다",
                "않",
                "not ",
                "[1]",
                "\ud800",
            ]
        )
        | st.text(max_size=3),
        max_size=40,
    ).map("".join)
)
def test_any_text_is_read_in_order_and_within_its_bounds(text):
    position = 0
    for item in check(text, make_passages(text[::-1], RULE)):
        assert position <= item.start < item.end <= len(text)
        position = item.end


def find_supporting(answer, *texts, **fields):
    """The sentences that support an answer, by the number of their passage."""
    passages = [
        made_evidence(text, slot=slot, **fields) for slot, text in enumerate(texts or (RULE,), 1)
    ]
    found = verify(answer, passages).spans
    return {number: [span.text for span in spans] for number, spans in found.items()}


def test_a_citation_is_tied_to_the_sentence_of_the_passage_that_bears_it():
    answer = "예산은 1억 2천만 원입니다 [1]. 휴가는 인사혁신처장에게 신청합니다 [2]."
    assert find_supporting(answer, RULE, LEAVE) == {
        1: ["예산은 1억 2천만 원이며 참여율은 37%이다."],
        2: ["휴가는 인사혁신처장에게 신청한다."],
    }


def test_each_citation_knows_which_sentences_of_its_passage_bear_its_own():
    answer = (
        "신청은 30일 안에 하여야 합니다 [1]. 예산은 1억 2천만 원입니다 [1]. "
        "연차휴가는 15일입니다 [2]."
    )
    found = verify(answer, make_passages(RULE, LEAVE))
    told = [
        (one.offset, [found.spans[one.number][at].text for at in one.spans])
        for one in found.citations
    ]
    assert told == [
        (answer.index("[1]"), ["신청은 30일 이내에 하여야 한다."]),
        (answer.rindex("[1]"), ["예산은 1억 2천만 원이며 참여율은 37%이다."]),
        (answer.index("[2]"), ["연차휴가는 15일을 부여한다."]),
    ]


def test_of_a_table_the_row_bears_it():
    table = "| 구분 | 상한 |\n|---|---|\n| 서울 | 100,000원 |\n| 그 밖의 곳 | 70,000원 |"
    assert find_supporting("서울의 상한은 100,000원입니다 [1].", table) == {
        1: ["| 서울 | 100,000원 |"]
    }


def test_a_stretch_is_told_by_its_place_in_the_document_as_it_is_stored():
    text = "ﬁrst li\u00adnes ｏｆ ２０２４. 숙박비\u200b 상한은 ９０,０００원이다. 정산은 5일 안에."
    item = made_evidence(text, page=3)
    item = replace(item, start=100, passage=replace(item.passage, start=100, end=100 + len(text)))
    ((span,),) = verify("숙박비 상한은 90,000원입니다 [1].", [item]).spans.values()
    assert span.text == text[span.start - 100 : span.end - 100]
    assert span.text == "숙박비\u200b 상한은 ９０,０００원이다."
    assert span.page == 3


def test_a_passage_that_says_nothing_of_the_sentence_has_no_stretch():
    assert find_supporting("우주선은 화성에 착륙했습니다 [1].") == {}


def test_what_is_read_from_the_middle_of_a_passage_keeps_its_place_in_the_document():
    whole = RULE + "\n" + LEAVE
    item = made_evidence(whole)
    start = whole.index(LEAVE)
    item = replace(item, text=LEAVE, start=start)
    ((span,),) = verify("연차휴가는 15일입니다 [1].", [item]).spans.values()
    assert whole[span.start : span.end] == span.text == "연차휴가는 15일을 부여한다."


def lines(*tops):
    return tuple(Box(7, 0.1, top, 0.9, top + 0.02) for top in tops)


def test_only_the_lines_of_the_stretch_are_marked_on_the_page():
    text = "신청은 30일 안에 한다.\n연차휴가는 15일을\n부여한다.\n회의는 월요일이다."
    item = made_evidence(text, page=7)
    item = replace(item, passage=replace(item.passage, boxes=lines(0.1, 0.2, 0.3, 0.4)))
    ((span,),) = verify("연차휴가는 15일입니다 [1].", [item]).spans.values()
    assert span.text == "연차휴가는 15일을\n부여한다."
    assert (span.page, span.boxes) == (7, lines(0.2, 0.3))


def test_lines_are_told_by_their_width_where_the_text_has_other_ones():
    text = "신청은 삼십 일 안에 한다. 연차휴가는 십오 일이다. 회의는 월요일에 열린다고 한다."
    item = made_evidence(text, page=7)
    item = replace(item, passage=replace(item.passage, boxes=lines(0.1, 0.2, 0.3)))
    ((span,),) = verify("회의는 월요일에 열립니다 [1].", [item]).spans.values()
    assert lines(0.3)[0] in span.boxes
    assert lines(0.1)[0] not in span.boxes


@given(st.text(alphabet="가나다 90원\n.|-\u00ad\u200bａﬁ\u1112\u1161", max_size=60))
def test_stretches_are_within_the_stored_text_whatever_it_holds(text):
    item = made_evidence("앞. " + text + " 상한은 90원이다.")
    for spans in verify("상한은 90원이다 [1].", [item]).spans.values():
        for span in spans:
            assert item.text[span.start : span.end] == span.text != ""


S, U, P = Verdict.SUPPORTED, Verdict.UNSUPPORTED, Verdict.PLAIN


@pytest.mark.parametrize(
    ("sentences", "grounds", "label"),
    [
        ([(S, 1)], {}, AnswerLabel.DOCUMENTS),
        ([(P, 0), (S, 1), (S, 0)], {}, AnswerLabel.DOCUMENTS),
        ([(S, 1), (U, 0)], {}, AnswerLabel.PARTIAL),
        ([(S, 1), (U, 1)], {}, AnswerLabel.PARTIAL),
        ([(U, 1)], {}, AnswerLabel.INSUFFICIENT),
        ([(U, 1), (U, 0)], {"lacks": True}, AnswerLabel.INSUFFICIENT),
        ([(P, 1)], {}, AnswerLabel.DOCUMENTS),
        ([(P, 1)], {"lacks": True}, AnswerLabel.INSUFFICIENT),
        ([(S, 1), (P, 0)], {"lacks": True}, AnswerLabel.DOCUMENTS),
        ([(P, 0)], {"asked": True, "lacks": True}, AnswerLabel.INSUFFICIENT),
        ([(P, 0)], {"lacks": True}, AnswerLabel.GENERAL),
        ([(U, 0)], {"asked": True}, AnswerLabel.GENERAL),
        ([(S, 0)], {"asked": True}, AnswerLabel.GENERAL),
        ([(U, 0)], {"asked": True, "earlier": True}, AnswerLabel.CONVERSATION),
        ([(S, 1)], {"earlier": True}, AnswerLabel.DOCUMENTS),
        ([(U, 0)], {"tools": True, "earlier": True}, AnswerLabel.TOOLS),
        ([(P, 0)], {"asked": True, "tools": True}, AnswerLabel.TOOLS),
        ([(P, 0)], {"asked": True, "lacks": True, "tools": True}, AnswerLabel.INSUFFICIENT),
        ([(S, 1)], {"tools": True}, AnswerLabel.DOCUMENTS),
        ([(U, 1), (S, 1)], {"model": False}, AnswerLabel.PASSAGES),
        ([(P, 0)], {"model": False, "asked": True, "lacks": True}, AnswerLabel.INSUFFICIENT),
        ([], {}, AnswerLabel.GENERAL),
    ],
)
def test_the_label_follows_from_what_is_cited_and_what_holds(sentences, grounds, label):
    checks = [
        CheckedSentence(0, 1, verdict, (slot,) if slot else ()) for verdict, slot in sentences
    ]
    assert decide_label(checks, Grounds(**grounds)) is label


@pytest.mark.parametrize(
    ("answer", "label"),
    [
        ("연차휴가는 15일입니다 [2].", AnswerLabel.DOCUMENTS),
        ("연차휴가는 15일입니다 [2]. 반차는 4시간 단위로 씁니다 [2].", AnswerLabel.PARTIAL),
        ("연차휴가는 21일입니다 [2].", AnswerLabel.INSUFFICIENT),
        ("제공된 문서에는 병가에 관한 내용이 없습니다.", AnswerLabel.INSUFFICIENT),
        ("대한민국의 수도는 서울이며 인구는 900만 명이 넘습니다.", AnswerLabel.GENERAL),
        ("The documents do not say anything about parking.", AnswerLabel.INSUFFICIENT),
    ],
)
def test_an_answer_is_labelled_by_what_it_rests_on(answer, label):
    assert verify(answer, asked=True).label is label


def test_an_answer_from_earlier_turns_is_labelled_so():
    earlier = ["담당자는 누구야?", "담당자는 기획조정실 김지훈 사무관입니다."]
    found = verify_answer(
        "앞서 말씀드린 담당자는 김지훈 사무관입니다.",
        (),
        (),
        grounds=Grounds(asked=True),
        earlier=earlier,
    )
    assert found.label is AnswerLabel.CONVERSATION


def test_passages_are_read_once_for_an_answer_and_what_it_is_rewritten_to():
    evidence = make_passages(
        *(f"{n}번 위원회는 매월 {n}일에 예산 {n}만 원을 정한다. " * 60 for n in range(20))
    )
    spent = []
    judge_one("연차휴가는 15일입니다 [2].")  # the analyser is there
    for number in range(1, 9):
        started = time.process_time()
        verify(f"{number}번 위원회는 예산을 정합니다 [{number + 1}].", evidence)
        spent.append(time.process_time() - started)
    assert sum(spent[1:]) < 3 * spent[0]


def test_the_sentences_that_nothing_supports_are_told_as_they_stand():
    answer = "연차휴가는 15일입니다 [2]. 연차휴가는 21일입니다 [2]. 안녕하세요!"
    doubted = [answer[one.start : one.end] for one in verify(answer).doubted]
    assert doubted == ["연차휴가는 21일입니다 [2]."]


def test_code_within_longer_fences_claims_nothing():
    code = "````\n```\n```\n연차휴가는 21일입니다 [2].\n````"
    answer = f"{code}\n연차휴가는 15일입니다 [2]."
    verdicts = [one.verdict for one in judge(answer)]
    assert verdicts[-1] is Verdict.SUPPORTED
    assert set(verdicts[:-1]) == {Verdict.PLAIN}


@pytest.mark.parametrize(
    "text", ["-" * 1500 + " 제목", "." * 20_000 + "x", "\n".join(["문단이다. 끝."] * 2000)]
)
def test_an_answer_of_nothing_but_signs_is_read_in_linear_time(text):
    started = time.process_time()
    split_answer(text)
    assert time.process_time() - started < 1
