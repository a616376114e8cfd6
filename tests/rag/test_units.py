"""What can be quoted from a passage."""

from typing import NamedTuple

from rag.generation.extractive import reading


class Unit(NamedTuple):
    text: str
    heading: str


def cut(passage):
    """What could be quoted of a passage, in order."""
    return [
        Unit(part, block.heading) for block in reading.read(passage) for part in reading.told(block)
    ]


def texts(passage):
    return [unit.text for unit in cut(passage)]


def test_a_row_of_a_table_is_told_with_its_columns():
    table = "| 부품 | 청소 | 교체 |\n|---|---|---|\n| 헤파 필터 | 씻지 않음 | 6개월 |"
    assert texts(table) == ["헤파 필터 — 청소: 씻지 않음 · 교체: 6개월"]


def test_front_matter_and_headings_are_not_quoted_but_headings_are_known():
    passage = "---\ntitle: 설명서\n---\n\n## 4. 청소\n\n필터를 물로 씻습니다."
    (unit,) = cut(passage)
    assert (unit.text, unit.heading) == ("필터를 물로 씻습니다.", "4. 청소")


def test_a_line_that_the_margin_broke_is_joined_with_the_next():
    passage = (
        "돌봄 신청을 부서마다 다른 시스템으로 받고 있어 같은 가구의 정보를\n"
        "평균 3.4회 다시 입력하는 것으로 나타났다."
    )
    assert len(texts(passage)) == 1


def test_short_lines_stand_for_themselves():
    passage = (
        "발주기관 해솔시 스마트도시과\n사업 예산 1,240,000,000원(부가가치세 포함)\n사업 기간 9개월"
    )
    assert len(texts(passage)) == 3


def test_items_of_a_list_stand_for_themselves():
    assert texts("- 첫째 항목입니다\n- 둘째 항목입니다") == ["첫째 항목입니다", "둘째 항목입니다"]


def test_an_empty_passage_has_nothing_to_quote():
    assert texts(" \n\n ") == []
