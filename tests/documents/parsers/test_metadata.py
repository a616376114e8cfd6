"""What the beginning of a document says of it, and what is only left over from a template."""

import time
from pathlib import Path

import pytest

from documents.parsers import formats, metadata
from documents.parsers.markdown import read_front_matter
from documents.parsers.metadata import derive_metadata
from tests.documents.parsers.reading import read, shared

TABLE = """제안요청서

| 사 업 명 | 차세대 연구관리<br>시스템 구축 | 발주기관 | 한국생산기술연구원 |
| --- | --- | --- | --- |
| 공고번호 | | 20260101-00 | |
| 담당부서 | 정보화팀 | 공고일 | 2026. 3. 1.(일) |
"""


def test_tables_hold_labels_in_several_columns() -> None:
    assert derive_metadata({}, TABLE, content_type=formats.HWP) == {
        "title": "제안요청서",
        "project_name": "차세대 연구관리 시스템 구축",
        "issuer": "한국생산기술연구원",
        "number": "20260101-00",
        "department": "정보화팀",
        "date": "2026-03-01",
    }


def test_labels_may_head_the_columns() -> None:
    head = "| 공고명 | 수요기관 | 공고일 |\n| :--- | :--- | :--- |\n"
    text = f"{head}| 청사 보수 공사 | 통계청 | 2026-01-02 |\n"
    found = derive_metadata({}, text)
    assert (found["project_name"], found["issuer"], found["date"]) == (
        "청사 보수 공사",
        "통계청",
        "2026-01-02",
    )


@pytest.mark.parametrize(
    ("line", "key", "value"),
    [
        ("○ 사업명: 클라우드 전환", "project_name", "클라우드 전환"),
        ("가. 용 역 명 ： 클라우드 전환", "project_name", "클라우드 전환"),
        ("사업명 클라우드 전환", "project_name", "클라우드 전환"),
        ("공고번호: 2026-12   수요기관: 통계청", "issuer", "통계청"),
        ("**발주처**: 「통계청」", "issuer", "통계청"),
        ("발행처 국회입법조사처", "issuer", "국회입법조사처"),
        ("보도시점 2024. 6. 21.(금) 11:00 배포 2024. 6. 20.(목) 09:00", "date", "2024-06-21"),
        ("AGENCY: Federal Aviation\nAdministration (FAA), DOT.", "issuer",
         "Federal Aviation Administration (FAA), DOT"),
        ("인사혁신처 공고 제2023 - 311호", "number", "제2023-311호"),
        ("인사혁신처 공고 제2023 - 311호", "issuer", "인사혁신처"),
        ("인 사 혁 신 처 장", "issuer", "인사혁신처"),
        ("2023년 6월 19일", "date", "2023-06-19"),
    ],
)  # fmt: skip
def test_a_line_names_what_it_says(line: str, key: str, value: str) -> None:
    assert derive_metadata({}, f"머리말\n{line}\n본문이 이어진다.\n")[key] == value


@pytest.mark.parametrize(
    "line",
    [
        "발주기관: -",
        "발주기관: ○○○",
        "발주기관: 미정",
        "발주기관: 해당 없음",
        "발주기관은 계약을 해지할 수 있다.",
        "발주기관 담당자는 이를 확인하여야 한다.",
        "| 발주기관 | 수요기관 |",
        "공고일: 추후 통보",
    ],
)
def test_placeholders_and_sentences_name_nothing(line: str) -> None:
    assert not {"issuer", "date"} & set(derive_metadata({}, f"{line}\n"))


def test_the_label_that_says_more_wins_wherever_it_stands() -> None:
    text = "공고기관: 조달청\n수요기관: 통계청\n발주기관: 한국정보원\n"
    assert derive_metadata({}, text)["issuer"] == "한국정보원"


def test_of_equal_labels_the_first_wins() -> None:
    assert (
        derive_metadata({}, "사업명: 첫째 사업\n사업명: 둘째 사업\n")["project_name"] == "첫째 사업"
    )


@pytest.mark.parametrize(
    "title",
    ["1", "3", "제목 없음", "Untitled", "문서1", "Document1", "Microsoft Word - ",
     "PowerPoint 프레젠테이션", "서식", "..."],
)  # fmt: skip
def test_titles_that_programs_leave_are_none(title: str) -> None:
    assert "title" not in derive_metadata(
        {"title": title}, "본문이 이어진다.\n", content_type=formats.PDF
    )


def test_what_programs_write_around_a_title_goes() -> None:
    assert metadata.clean_title("Microsoft Word - 사업 계획(안).hwp") == "사업 계획(안)"


def test_a_hangul_title_from_a_template_gives_way_to_the_first_line() -> None:
    carried = {"title": "지난해 공고문", "author": "user"}
    found = derive_metadata(carried, "보도자료\n\n올해 공고문 모집\n", content_type=formats.HWP)
    assert found == {"title": "올해 공고문 모집"}


def test_labels_of_the_text_go_before_properties_and_behind_front_matter() -> None:
    text = "작성자: 홍길동\n작성일: 2026-01-02\n"
    carried = {"author": "김영희", "date": "2020-01-01"}
    assert derive_metadata(carried, text, content_type=formats.DOCX)["author"] == "홍길동"
    assert derive_metadata(carried, text)["author"] == "김영희"


def test_the_first_heading_is_the_title_unless_it_is_numbered() -> None:
    headings = ["제1장 총칙", "여비 규정"]
    assert derive_metadata({}, "본문이 이어진다.\n", headings)["title"] == "여비 규정"


def test_what_looks_like_markup_in_a_heading_stays() -> None:
    assert derive_metadata({}, "", ["Rc<T>, 참조 카운트"])["title"] == "Rc<T>, 참조 카운트"


def test_lists_in_front_matter_are_values_and_lists_of_mappings_are_none() -> None:
    text = (
        "---\n소관부처:\n- 재정경제부\n- 법무부\n첨부파일:\n- 별표번호: '0001'\n  제목: 삭제\n---\n"
    )
    assert read_front_matter(text) == {"소관부처": "재정경제부, 법무부"}
    assert derive_metadata(read_front_matter(text), "")["issuer"] == "재정경제부, 법무부"


@pytest.mark.parametrize(
    ("text", "iso"),
    [
        ("2026-01-02", "2026-01-02"),
        ("2026. 1. 2.(금)", "2026-01-02"),
        ("2026년 1월 2일", "2026-01-02"),
        ("20260102", "2026-01-02"),
        ("January 2, 2026", "2026-01-02"),
        ("2 Jan 2026", "2026-01-02"),
        ("2026-01-02T10:00:00+09:00", "2026-01-02"),
        ("2026. 13. 40.", ""),
        ("2026년 상반기", ""),
        ("02-1234-5678", ""),
    ],
)
def test_plain_dates_are_written_in_one_way(text: str, iso: str) -> None:
    assert metadata.find_date(text) == iso


def test_values_are_on_one_line_without_markup_and_short() -> None:
    found = derive_metadata({}, f"사업명: <b>긴</b> &amp; 사업<sup>1</sup> {'가' * 900}\n")[
        "project_name"
    ]
    assert found.startswith("긴 & 사업 가")
    assert len(found) == metadata.MAX_VALUE_CHARACTERS


def test_reading_is_fast_on_hostile_beginnings() -> None:
    started = time.process_time()
    for piece in (
        "가 ",
        "가",
        "|",
        "<",
        "<sup>",
        "제",
        ":",
        "부",
        "- ",
        " ",
        "가나:",
        "1",
        "a.",
        "\n",
    ):
        assert len(derive_metadata({}, piece * 8_000, content_type=formats.HWP)) < 3
    assert time.process_time() - started < 5


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("hwp/gov_docs/mpm_recruitment_notice.hwpx",
         {"title": "인사혁신처 국민참여정책단 모집", "issuer": "인사혁신처", "date": "2023-06-19"}),
        ("hwp/gov_docs/2024년 1분기 해외직접투자 보도자료 ff.hwp",
         {"department": "대외경제국", "date": "2024-06-21"}),
        ("pdf/docling/normal_4pages.pdf", {"issuer": "국회입법조사처", "date": "2020-04-02"}),
        ("pdf/us_public_records/federal-register-2020-17221.pdf", {"date": "2020-08-06"}),
    ],
)  # fmt: skip
def test_real_documents_say_who_when_and_what(path: str, expected: dict[str, str]) -> None:
    found = read(Path(shared(path))).metadata
    assert {key: found.get(key) for key in expected} == expected
