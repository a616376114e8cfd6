"""One form of text for index and question, and the text that a prompt shows."""

import sys
import time
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rag import tokenize
from rag.tokenize.text import normalise_text, to_prompt_text
from rag.types import Kind
from tests.rag.worlds import Library, make_engine

ODD = (
    "aB1한글다를을에서는.,-–‐‑\u2212\u00ad \u00a0\u2009\u3000\u200b\u200d\n\r\t"
    "\u0301\u3099\u11a8\u1161\u1100"
    "ㄱㅏㄴㅋ"
    "ﾡￂﾤカ\uff9e\uff76ＡＢ１：ﬁ①²½…·ㆍ•|#>`~()[]제조:\ud800\ufdfa\ufe0f\u2028"
)
PIECES = (
    "a-\nb",
    "한\n다. ",
    "라\n는 ",
    "[1] ",
    "- ",
    "```\n",
    "| a |\n",
    "1. ",
    "\n\n",
    "가" * 40 + "\n",
)
texts = st.lists(st.sampled_from([*ODD, *PIECES]), max_size=60).map("".join) | st.text(max_size=200)


@given(texts)
def test_what_is_normalised_stays_so(text):
    once = normalise_text(text)
    assert normalise_text(once) == once


@given(texts)
def test_nothing_visible_is_lost_from_a_prompt(text):
    shown = to_prompt_text(text)
    left = {sign for sign in normalise_text(shown) if sign.isalnum()}
    assert left >= {sign for sign in normalise_text(text) if sign.isalnum()} - {"‐"}


ALIKE = ("CJK UNIFIED IDEOGRAPH", "HANGUL SYLLABLE", "TANGUT", "EGYPTIAN HIEROGLYPH", "private")
"""How the names of large groups begin whose members are treated alike."""


def is_of_large_group(sign):
    return unicodedata.name(sign, "private").startswith(ALIKE)


def assert_normal_after_one_pass(sign):
    for text in (sign, f"a{sign}", f"가{sign}", f"カ{sign}b"):
        once = normalise_text(text)
        assert normalise_text(once) == once, hex(ord(sign))


def test_every_sign_is_normal_after_one_pass_alone_and_behind_others():
    for code in range(sys.maxunicode + 1):
        sign = chr(code)
        if unicodedata.category(sign) != "Cn" and (code % 31 == 0 or not is_of_large_group(sign)):
            assert_normal_after_one_pass(sign)


@pytest.mark.whole
def test_every_sign_of_the_large_groups_is_normal_after_one_pass_too():
    for code in range(sys.maxunicode + 1):
        sign = chr(code)
        if unicodedata.category(sign) != "Cn" and is_of_large_group(sign):
            assert_normal_after_one_pass(sign)


@pytest.mark.parametrize(
    ("printed", "typed"),
    [
        ("AES‑256", "AES-256"),
        ("AES‐256", "AES-256"),
        ("AES–256", "AES-256"),
        ("ＡＢＣ１２３", "ABC123"),
        ("ﬁnal oﬃce", "final office"),
        ("제\u00a05조\u3000정의", "제 5조 정의"),
        ("하도\u200b급", "하도급"),
        ("con\u00adtract", "contract"),
        ("−5℃", "-5°C"),
        ("교육ㆍ훈련", "교육·훈련"),
        ("10∼20명", "10~20명"),
        (unicodedata.normalize("NFD", "규정"), "규정"),
        ("ㅎㅏㄴㄱㅡㄹ", "한글"),
        ("infor-\nmation", "information"),
        ("infor\u00ad\nmation", "information"),
        ("제2024-\n15호", "제2024-15호"),
        ("call 231–\n3195", "call 231-3195"),
        ("중복\n적으로", "중복적으로"),
        ("처리한\n다. 끝", "처리한다. 끝"),
        ("기관\n에서는 한다", "기관에서는 한다"),
    ],
)
def test_what_is_printed_and_what_is_typed_are_one(printed, typed):
    assert normalise_text(printed) == normalise_text(typed) == typed
    assert tokenize.count_terms(printed) == tokenize.count_terms(typed)
    assert tokenize.weigh_query_terms(printed) == tokenize.weigh_query_terms(typed)


def test_a_compound_that_the_text_spells_with_a_hyphen_keeps_it_at_a_line_end():
    assert "self-service desk" in normalise_text("the self-\nservice desk. A self-service shop")


def test_a_word_at_a_line_end_that_may_begin_anew_keeps_its_line_end():
    assert normalise_text("담당\n이 규정은") == "담당\n이 규정은"


def test_a_korean_word_broken_at_a_line_end_is_found_whole_and_in_its_parts():
    terms = tokenize.count_terms(
        "이 사업은 지역 주민의 생활을 개선하는 정보\n보호 체계를 만드는 일이다."
    )
    assert terms.keys() >= {"정보", "보호", "정보보호"}


def test_lines_of_a_table_lend_each_other_no_words():
    assert "정보보호" not in tokenize.count_terms("정보\n보호")


WRAPPED = """제5조(정산) 출장자는 귀임한 날부터 5일 이내에 여비 정산서를 작성하여 소속
부서의 장에게 제출하여야 하며, 부서의 장은 제출된 정산서를 확인한 뒤에 회계
부서로 보내야 한다."""
BROKEN = """The travel expenses are settled five days after the informa-
tion of the traveller has reached the office, at the latest how-
ever by the end of the month."""
JOINED = WRAPPED.replace("\n", " ")


@pytest.mark.parametrize(
    ("printed", "shown"),
    [
        (WRAPPED, JOINED),
        (f"# 여비 규정\n\n{WRAPPED}\n\n끝", f"# 여비 규정\n\n{JOINED}\n\n끝"),
        (f"{WRAPPED}\n제6조(시행) 이 규정은", f"{JOINED}\n제6조(시행) 이 규정은"),
        (f"- {WRAPPED}\n- {WRAPPED}", f"- {JOINED}\n- {JOINED}"),
        (f"1. {WRAPPED}\n2. 다음", f"1. {JOINED}\n2. 다음"),
        (f"```a `b` c```라는 말\n\n{WRAPPED}", f"```a `b` c```라는 말\n\n{JOINED}"),
        (BROKEN, BROKEN.replace("-\n", "")),
        (
            "사업 기간은 계약을 체결한 날부터 시작하여 2024.\n12. 31.까지 마치는 것으로 한다.",
            "사업 기간은 계약을 체결한 날부터 시작하여 2024. 12. 31.까지 마치는 것으로 한다.",
        ),
    ],
)
def test_a_sentence_that_the_margin_broke_stands_on_one_line(printed, shown):
    assert to_prompt_text(printed) == shown


@pytest.mark.parametrize(
    "text",
    [
        "| 구분 | 금액 |\n| --- | --- |\n| 숙박비 상한은 지역마다 다르게 정할 수 있다 | 9만원 |",
        "```\nfirst_value = compute_the_first_value(of_the, whole_table)\nsecond_value = 2\n```",
        "    first_value = compute_the_first_value(of_the, whole_table)\n    second_value = 2",
        "성명: 홍길동, 소속: 여비 규정 개정 추진단 총괄\n주소: 서울특별시 중구 세종대로 110",
        "제1장 총칙과 이 규정에서 쓰는 말의 뜻 ................ 1\n제2장 여비 ................ 5",
        "03/10/2019 05/15/2019 STAFF TRANSPORTATION 907.96\nAIRFARE FOR M BERG TO SAINT LOUIS",
        "총무과 홍길동 1,200,000 1,350,000 1,420,000 3,970,000\n기획과 임꺽정 900,000 950,000",
        "서울의 봄\n부산의 여름\n대구의 가을",
        "이 규정은 공포한 날부터 시행하며 그 전의 일에는 미치지 않는다.\n그 밖의 일은 따로 정한다",
        "> 이 규정은 공포한 날부터 시행하며 그 전의 일에는 미치지\n> 않는다",
    ],
)
def test_what_is_no_broken_sentence_keeps_its_lines(text):
    assert to_prompt_text(text) == text


def test_lines_of_tables_and_code_are_left_alone():
    assert to_prompt_text(WRAPPED, Kind.TABLE) == to_prompt_text(WRAPPED, Kind.CODE) == WRAPPED


def test_a_prompt_shows_plain_hyphens_and_blanks_and_keeps_signs_that_mean_something():
    assert to_prompt_text("AES‑256, 10²㎡ ①\u00a0ＡＢ ﬁx 3–5") == "AES-256, 10²㎡ ① AB fix 3–5"


def test_a_phrase_across_line_ends_weighs_as_one_sentence():
    made = Library(make_engine())
    made.add("여비.md", WRAPPED)
    made.add("다른.md", "회계 부서는 2층에 있다. 제출된 서류는 정산서를 뺀다.")
    best = made.search("제출된 정산서를 확인한 뒤 회계 부서로").hits[0]
    assert best.passage.document_name == "여비.md"
    assert best.scores["sentence"] == pytest.approx(1.0)


@pytest.mark.parametrize(
    "block",
    [
        "가나 다라",
        "가\n",
        "한\n을\n",
        "a-\n",
        "\u0301",
        "가\u0301",
        "-",
        "- ",
        "ㄱㅏ",
        "Ａ",
        "\ufdfa",
        "`",
        "\u200b",
    ],
)
def test_a_megabyte_of_anything_takes_seconds_at_most(block, whole):
    """A quarter of it tells as much: what grows with the square would take half a minute."""
    megabytes = 1.0 if whole else 0.25
    text = block * int(megabytes * 1_000_000 / len(block))
    begun = time.process_time()
    normalise_text(text)
    to_prompt_text(text)
    assert time.process_time() - begun < 6 * megabytes
