"""What can be quoted of a stretch of a document, and where it stands."""

import time

import pytest

from rag.generate import reading
from rag.generate.reading import UnitKind
from rag.tokenize.text import to_letters
from tests.rag.passages import make_evidence

LAW = """##### 제7조 (등록의 말소)

**①** 시장은 다음 각 호의 어느 하나에 해당하면 등록을 말소할 수 있다. <개정 2023.6.9>

  1\\. 거짓으로 등록한 경우
  2\\. 사업을 그만둔 경우
    가\\. 폐업한 경우

**②** 말소된 사람은 30일 이내에 이의를 신청할 수 있다.
"""


def list_quotable_units(text):
    return [unit for unit in reading.read_units(text) if unit.kind is not UnitKind.HEADING]


def list_texts(text):
    return [unit.text for unit in list_quotable_units(text)]


def test_a_row_of_a_table_is_told_with_its_columns():
    table = "| 부품 | 청소 | 교체 |\n|---|---|---|\n| 헤파 필터 | 씻지 않음 | 6개월 |"
    assert list_texts(table) == ["헤파 필터 — 청소: 씻지 않음 · 교체: 6개월"]


def test_a_row_without_a_name_carries_that_of_the_row_above():
    table = "| 구분 | 값 |\n|---|---|\n| 수입 | 10 |\n|  | (1.5) |"
    assert [unit.cells[0] for unit in list_quotable_units(table)] == ["수입", "수입"]


def test_an_empty_row_makes_no_names_of_columns_of_the_row_above():
    table = "| 식비 | 1만원 |\n|  |  |\n| 숙박비 | 7만원 |"
    assert list_texts(table) == ["식비 — 1만원", "숙박비 — 7만원"]


def test_a_verb_that_the_margin_cut_is_quoted_whole():
    text = (
        "가동률은 99.5% 이상이며, 점검은 매월 둘째 주 일요일 02시부터 06시 사이에만 할 수 있\n"
        "다. 신청 2,000건을 처리할 수 있어야 한다."
    )
    first, second = list_quotable_units(text)
    assert first.text.endswith("사이에만 할 수 있다.")
    assert text[first.start : first.end].endswith("있\n다.")
    assert second.text == "신청 2,000건을 처리할 수 있어야 한다."


def test_an_item_with_the_letter_that_also_ends_verbs_stays_an_item():
    text = (
        "가. 신청할 수 있는 사람과 그 절차에 관한 사항으로서 시장이 정하는 것\n"
        "나. 신청을 받은 날부터 처리하기까지 걸리는 기간과 그 연장에 관한 사항\n"
        "다. 수수료"
    )
    assert [unit.mark for unit in list_quotable_units(text)] == ["가.", "나.", "다."]


def test_front_matter_and_headings_are_not_quoted_but_headings_are_known():
    heading, unit = reading.read_units(
        "---\ntitle: 설명서\n---\n\n## 4. 청소\n\n필터를 물로 씻습니다."
    )
    assert (heading.kind, heading.text) == (UnitKind.HEADING, "4. 청소")
    assert (unit.text, unit.heading) == ("필터를 물로 씻습니다.", 0)


def test_numbered_names_of_plain_text_are_headings():
    units = reading.read_units(
        "3. 제안서 평가\n3.1 평가 방법\n기술능력 평가 90점과 입찰가격 평가 10점을 더해 평가한다.\n"
        "3.2 배점\n| 부문 | 배점 |\n| --- | --- |\n| 기술 | 90 |\n"
        "4. 제출 안내\n제안서는 A4 세로 150쪽 이내로 쓰고 두 가지로 나누어 제출한다."
    )
    headings = [unit.text for unit in units if unit.kind is UnitKind.HEADING]
    assert headings == ["3. 제안서 평가", "3.1 평가 방법", "3.2 배점", "4. 제출 안내"]
    assert (units[2].heading, units[1].heading, units[0].heading) == (1, 0, None)


def test_a_unit_stands_under_the_headings_that_its_own_is_a_part_of():
    text = (
        "1. 사업 개요\n1.1 추진 배경\n신청 창구가 흩어져 있어 같은 정보를 여러 번 입력한다.\n"
        "1.2 추진 일정\n마감은 2월 26일이다."
    )
    (stretch,) = reading.read_stretches([make_evidence(text, section="제안요청서 > 1. 사업 개요")])
    assert list(stretch.list_headings(stretch.units[-1])) == ["1.2 추진 일정", "1. 사업 개요"]
    (later,) = reading.read_stretches(
        [make_evidence("1.3 예산\n예산은 3억 원이다.", section="제안요청서 > 1. 사업 개요")]
    )
    assert list(later.list_headings(later.units[-1])) == ["1.3 예산", "1. 사업 개요"]


@pytest.mark.parametrize(
    "text",
    [
        "1. 사업자등록증 사본\n2. 법인 인감증명서\n3. 사용 인감계",
        "1. 신청서를 제출한다\n접수한 날부터 14일 이내에 처리 결과를 신청인에게 알려야 한다.",
        "2.5 kg 이하의 물품은 받지 않는다.\n무게는 창구에서 잰다.",
        "1.1 사본\n1.2 원본\n1.3 그 밖의 서류",
    ],
)
def test_numbered_items_stay_quotable(text):
    assert all(unit.kind is UnitKind.SENTENCE for unit in reading.read_units(text)[:1])


def test_an_article_that_stands_in_its_line_is_a_heading():
    heading, unit = reading.read_units("제6조(신청) 신청서는 시장에게 낸다.")
    assert (heading.text, unit.text) == ("제6조(신청)", "신청서는 시장에게 낸다.")


def test_a_line_of_nothing_but_articles_is_read():
    headings = [
        unit for unit in reading.read_units("제1조(가)" * 3000) if unit.kind is UnitKind.HEADING
    ]
    assert len(headings) == 3000


def test_items_stand_under_what_announces_them():
    units = reading.read_units(LAW)
    lead = next(at for at, unit in enumerate(units) if unit.mark == "①")
    first, second = (at for at, unit in enumerate(units) if unit.lead == lead)
    assert (units[first].text, units[second].mark) == ("거짓으로 등록한 경우", "2.")
    assert [unit.text for unit in units if unit.lead == second] == ["폐업한 경우"]


def test_what_a_law_says_of_its_changes_is_left_out():
    assert "개정" not in " ".join(list_texts(LAW))


def test_every_unit_stands_where_it_says():
    for unit in list_quotable_units(LAW):
        assert to_letters(unit.text) in to_letters(LAW[unit.start : unit.end])


def test_a_line_that_the_margin_broke_is_joined_with_the_next():
    passage = (
        "돌봄 신청을 부서마다 다른 시스템으로 받고 있어 같은 가구의 정보를\n"
        "평균 3.4회 다시 입력하는 것으로 나타났다."
    )
    assert len(list_texts(passage)) == 1


def test_short_lines_stand_for_themselves():
    passage = (
        "발주기관 해솔시 스마트도시과\n사업 예산 1,240,000,000원(부가가치세 포함)\n사업 기간 9개월"
    )
    assert len(list_texts(passage)) == 3


def test_items_of_a_list_stand_for_themselves():
    assert list_texts("- 첫째 항목입니다\n- 둘째 항목입니다") == [
        "첫째 항목입니다",
        "둘째 항목입니다",
    ]


def test_a_date_with_points_ends_no_sentence():
    assert len(list_texts("이 규정은 2020.1.1. 시행한다. 접수는 2020. 3. 5. 마감한다.")) == 2


@pytest.mark.parametrize(
    "text",
    ["12. " * 5000, "# " + "**a " * 5000, "# a" + " " * 20_000 + "x", "# " + "#" * 20_000 + "x"],
)
def test_what_never_ends_is_read_in_linear_time(text):
    started = time.process_time()
    reading.read_units(text)
    assert time.process_time() - started < 1


def test_no_sentence_ends_within_brackets():
    text = "시장(자치구의 구청장을 말한다. 이하 같다)은 등록증을 내준다. 수수료는 없다."
    assert list_texts(text)[0] == "시장(자치구의 구청장을 말한다. 이하 같다)은 등록증을 내준다."


@pytest.mark.parametrize(
    "code", ["```` ```a``` ````", "~~~\n```\n~~~", "````\n```\ncode\n````", "```a``` b"]
)
def test_what_stands_below_code_is_read(code):
    assert list_texts(f"{code}\n\n수수료는 없다.")[-1] == "수수료는 없다."


def test_code_is_not_quoted():
    assert list_texts("```\ncode one\n~~~\n  ```\n수수료는 없다.") == ["수수료는 없다."]


def test_an_empty_passage_has_nothing_to_quote():
    assert list_texts(" \n\n ") == []
