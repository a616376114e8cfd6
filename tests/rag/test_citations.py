"""A model cites passages, the reader sees documents: no marker comes out without its source."""

import re
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rag.generate.citations import CitationFilter, to_numbered
from rag.types import Citation
from tests.rag.passages import make_evidence


def make_passages(*slots):
    """Passages numbered from 1, each of the document with its slot."""
    return [make_evidence("", number=number, slot=slot) for number, slot in enumerate(slots, 1)]


def filter_text(text, slots=(1, 2), step=0):
    markers = CitationFilter(make_passages(*slots))
    pieces = [text[i : i + step] for i in range(0, len(text), step)] if step else [text]
    out = "".join(markers.feed(piece) for piece in pieces) + markers.flush()
    return out, {citation.number for citation in markers.citations}


def list_cited(text, *slots, step=0):
    """What comes out, and every citation as its number with what stands at its offset."""
    markers = CitationFilter(make_passages(*slots))
    pieces = [text[i : i + step] for i in range(0, len(text), step)] if step else [text]
    out = "".join(markers.feed(piece) for piece in pieces) + markers.flush()
    return out, [(one.number, out[one.offset :][:3]) for one in markers.citations]


CASES = [
    ("상한은 90,000원입니다 [1].", "상한은 90,000원입니다 [1].", {1}),
    ("없는 근거 [7]. 끝", "없는 근거. 끝", set()),
    ("둘 [1, 2]", "둘 [1][2]", {1, 2}),
    ("섞임 [1,9]", "섞임 [1]", {1}),
    ("붙임[2][3]", "붙임[2]", {2}),
    ("글자 [abc] 그대로", "글자 [abc] 그대로", set()),
    ("코드 `arr[9]` 그대로 [9]", "코드 `arr[9]` 그대로", set()),
    ("```py\nx = a[7]\n```\n끝 [1]", "```py\nx = a[7]\n```\n끝 [1]", {1}),
    ("items[0] 값", "items[0] 값", set()),
    ("열린 [1", "열린 [1", set()),
    ("끝 공백  ", "끝 공백  ", set()),
    ("[1] 처음", "[1] 처음", {1}),
    ("빈 []과 [ ]", "빈 []과 [ ]", set()),
    ("빈칸 [ 1 ]과 [ 7 ]", "빈칸 [1]과", {1}),
    ("각주 [^1]와 [^7] [1]\n[^1]: 설명 [2]", "각주 [^1]와 [^7] [1]\n[^1]: 설명 [2]", {1, 2}),
    ("다른 괄호 【1】【7】", "다른 괄호 [1]", {1}),
    ("다른 괄호 【2†source】 【7†source】", "다른 괄호 [2]", {2}),
    ("전각 ［１］［７］", "전각 [1]", {1}),
    ("범위 [1–3] [1-2] [7~9]", "범위 [1][2]", {1, 2}),
    ("겹침 [[1]] [[7]]", "겹침 [1]", {1}),
    ("벗어남 \\[7\\] \\[1\\]", "벗어남 [1]", {1}),
    ("이름 붙임 [출처 1] [문서 7] [Source 2]", "이름 붙임 [1] [2]", {1, 2}),
    ("숨은 글자 [\u200b7] [\u200b1]", "숨은 글자 [1]", {1}),
    ("링크 [1](http://a.b/c)", "링크 [1] (http://a.b/c)", {1}),
    ("링크 [7](http://a.b/c)", "링크(http://a.b/c)", set()),
    ("[1]: http://a.b/c", "[1] : http://a.b/c", {1}),
    ("출처 [1]: 규정", "출처 [1]: 규정", {1}),
    ("표 [표 1]과 [2024년]", "표 [표 1]과 [2024년]", set()),
    ("홀로 ` 선 것 [7]\n다음 [7]", "홀로 ` 선 것\n다음", set()),
    ("``a ` [7] ` b`` [7]", "``a ` [7] ` b``", set()),
    ("말 ``` 안 [7]\n[7] 끝", "말 ``` 안\n 끝", set()),
    ("~~~\n[7]\n```\n[7]\n~~~\n[7]", "~~~\n[7]\n```\n[7]\n~~~\n", set()),
    ("````\n```\n[7]\n````\n[7].", "````\n```\n[7]\n````\n.", set()),
    ("속임 [ [9]8]", "속임 [(9)8]", set()),
    ("속임 [8[9]]", "속임 [8(9)]", set()),
    ("나열 [1], [2]와 [1], [9]", "나열 [1], [2]와 [1]", {1, 2}),
    ("나열 [1], 그리고", "나열 [1], 그리고", {1}),
]


@pytest.mark.parametrize("step", [0, 1, 2, 3])
@pytest.mark.parametrize(("text", "expected", "numbers"), CASES)
def test_markers_are_kept_or_dropped_however_the_text_is_cut(text, expected, numbers, step):
    assert filter_text(text, step=step) == (expected, numbers)


@pytest.mark.parametrize("step", [0, 1, 3])
@pytest.mark.parametrize(
    ("text", "expected", "found"),
    [
        ("가 [3]. 나 [1].", "가 [2]. 나 [1].", [(3, "[2]"), (1, "[1]")]),
        ("가 [1][2][3].", "가 [1][2].", [(1, "[1]"), (2, "[1]"), (3, "[2]")]),
        ("가 [1] [2] 나", "가 [1] 나", [(1, "[1]"), (2, "[1]")]),
        ("가 [1], [2].", "가 [1].", [(1, "[1]"), (2, "[1]")]),
        ("가 [3, 1, 3].", "가 [2][1].", [(3, "[2]"), (1, "[1]")]),
        ("가 [1][7][2] 나 [2]", "가 [1] 나 [1]", [(1, "[1]"), (2, "[1]"), (2, "[1]")]),
        ("`a[1]` 가 [2]", "`a[1]` 가 [1]", [(2, "[1]")]),
    ],
)
def test_each_passage_is_cited_where_its_documents_marker_stands(text, expected, found, step):
    assert list_cited(text, 1, 1, 2, step=step) == (expected, found)


@pytest.mark.parametrize(
    "text", ["가 [3]. 나 [1][3].", "`a[1]` 가 [1][2], 끝", "아무것도", "[2] 처음과 끝 [3]"]
)
def test_a_shown_text_is_turned_back_into_what_the_model_wrote(text):
    markers = CitationFilter(make_passages(1, 1, 2))
    out = markers.feed(text) + markers.flush()
    assert to_numbered(out, markers.citations) == text


def test_a_marker_that_the_end_of_a_text_cuts_has_its_number():
    assert to_numbered("가나다 [1", [Citation(4, 7)]) == "가나다 [7]"


def test_in_general_conversation_no_marker_passes():
    assert filter_text("일반 답변 [1]입니다", slots=()) == ("일반 답변입니다", set())


def test_text_is_not_held_back_longer_than_a_marker_may_be():
    markers = CitationFilter(make_passages(1))
    assert markers.feed("안녕하세요") == "안녕하세요"
    assert markers.feed(" [1") == ""
    assert markers.feed("]") == " [1]"


def test_an_opened_bracket_or_backtick_holds_back_only_so_much():
    for opened in ("[1 ", "`", "``` ", "[출처 ", "  "):
        markers = CitationFilter(make_passages(1))
        out = markers.feed(opened) + "".join(markers.feed("가나다라 ") for _ in range(200))
        assert len(opened) + 1000 - len(out) < 500


HOSTILE = st.lists(
    st.sampled_from(
        [
            *"[]【】［］^`~\\ \n-–,:(†\u200b",
            "1",
            "7",
            "１",
            "[1]",
            "[7]",
            "```",
            "가 ",
            "a",
            "[1](",
            "출처 ",
        ]
    ),
    max_size=30,
).map("".join)
READ_AS_MARKER = re.compile(r"\[\s*\^?(\d{1,4})\s*\]")


@given(HOSTILE, st.data())
def test_what_comes_out_does_not_depend_on_the_cuts(text, data):
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=8)))
    markers = CitationFilter(make_passages(1, 2))
    pieces = [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    assert "".join(map(markers.feed, pieces)) + markers.flush() == filter_text(text)[0]


@given(HOSTILE, st.data())
def test_every_citation_stands_at_a_marker_of_its_slot_however_the_text_is_cut(text, data):
    step = data.draw(st.integers(0, 4))
    slots = {1: 1, 7: 2}
    passages = [make_evidence("", number=number, slot=slot) for number, slot in slots.items()]
    markers = CitationFilter(passages)
    pieces = [text[i : i + step] for i in range(0, len(text), step)] if step else [text]
    out = "".join(map(markers.feed, pieces)) + markers.flush()
    for one in markers.citations:
        assert out[one.offset :].startswith(f"[{slots[one.number]}]")


@given(HOSTILE.filter(lambda text: "`" not in text and "~" not in text))
def test_no_marker_without_a_source_comes_out_outside_code(text):
    out = unicodedata.normalize("NFKC", filter_text(text)[0].replace("\u200b", ""))
    assert {int(number) for number in READ_AS_MARKER.findall(out)} <= {1, 2}


@given(st.text(alphabet="가나 .,!\n()abc*_#|<>-`~\\", max_size=80))
def test_text_without_numbers_in_brackets_comes_out_as_it_was(text):
    assert filter_text(text)[0] == text


@given(st.text(max_size=60))
def test_letters_outside_brackets_are_never_lost(text):
    plain = re.sub(r"[\[\]【】［］〔〕]", "", text)
    assert filter_text(plain)[0] == plain
