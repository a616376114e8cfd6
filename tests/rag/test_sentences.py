"""Sentences of Korean and English prose."""

import time

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
        ("제출일은 2024. 3. 4. 이다. 끝", ["제출일은 2024. 3. 4. 이다.", "끝"]),
        ("24. 3. 5. 시행한다. 끝", ["24. 3. 5. 시행한다.", "끝"]),
        ("2024. 3. 기준이다. 끝", ["2024. 3. 기준이다.", "끝"]),
        ("제출일은 2024.\n3. 4. 이다", ["제출일은 2024. 3. 4. 이다"]),
        ("제출: 2024. 3. 4.\n작성: 김하늘", ["제출: 2024. 3. 4.", "작성: 김하늘"]),
        ("1. 값은 5.\n2. 둘째", ["1. 값은 5.", "2. 둘째"]),
        ("목표는 2025.\n\n1. 첫째", ["목표는 2025.", "1. 첫째"]),
        ("See Vol. 2 by Prof. Kim. It is long.", ["See Vol. 2 by Prof. Kim.", "It is long."]),
        ("Send it by May 21,\n2020. Thanks.", ["Send it by May 21, 2020.", "Thanks."]),
        ("사과,\n2. 배", ["사과,", "2. 배"]),
        ("It closes Sept. 21, 2020. Soon.", ["It closes Sept. 21, 2020.", "Soon."]),
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


@pytest.mark.parametrize("piece", ["A. ", "12. ", "2024. ", "가. ", "(a. "])
def test_stops_without_end_are_read_in_linear_time(piece):
    started = time.process_time()
    split_sentences(piece * 10_000)
    assert time.process_time() - started < 3
