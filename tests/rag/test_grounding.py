"""Markers without a source never reach the reader."""

import pytest

from rag.grounding.markers import MarkerFilter


def passed(text, slots=(1, 2), step=0):
    markers = MarkerFilter(set(slots))
    pieces = [text[i : i + step] for i in range(0, len(text), step)] if step else [text]
    out = "".join(markers.feed(piece) for piece in pieces) + markers.flush()
    return out, markers.cited


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
]


@pytest.mark.parametrize("step", [0, 1, 2, 3])
@pytest.mark.parametrize(("text", "expected", "cited"), CASES)
def test_markers_are_kept_or_dropped_however_the_text_is_cut(text, expected, cited, step):
    assert passed(text, step=step) == (expected, cited)


def test_in_general_conversation_no_marker_passes():
    assert passed("일반 답변 [1]입니다", slots=()) == ("일반 답변입니다", set())


def test_text_is_not_held_back_longer_than_a_marker_may_be():
    markers = MarkerFilter({1})
    assert markers.feed("안녕하세요") == "안녕하세요"
    assert markers.feed(" [1") == ""
    assert markers.feed("]") == " [1]"
