"""Sentences of Korean and English prose."""

import pytest

from rag.tokenize.text import split_sentences


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "숙박비는 90,000원이다. 정산은 5일 이내이다.",
            ["숙박비는 90,000원이다.", "정산은 5일 이내이다."],
        ),
        ("끝났다.다음 문장이다.", ["끝났다.", "다음 문장이다."]),
        ("See Fig. 3 for details. It is 3.5 m.", ["See Fig. 3 for details.", "It is 3.5 m."]),
        ("# 제목\n\n본문이다", ["제목", "본문이다"]),
        ("- 하나\n- 둘", ["하나", "둘"]),
        ("1. 첫째\n2. 둘째", ["1. 첫째", "2. 둘째"]),
        ("줄이\n이어진다. 끝", ["줄이 이어진다.", "끝"]),
        ("", []),
    ],
)
def test_text_is_cut_into_its_sentences(text, expected):
    assert split_sentences(text) == expected


def test_nothing_is_lost():
    text = "가. 나! 다? 라… 마\n\n바"
    assert "".join("".join(split_sentences(text)).split()) == "".join(text.split())
