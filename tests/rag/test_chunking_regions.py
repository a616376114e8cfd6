"""Where tables, lists, code and pictures are cut, and what a later part says of its table."""

import pytest

from rag.chunking import Splitter, split_pages
from rag.types import Box, Kind, Page, Region, TextChunk

HEADER = "| 부서 | 예산 | 집행액 |\n| --- | --- | --- |\n"
PROSE = "사업은 계획에 따라 시행하고 그 결과를 보고한다. "


def make_rows(count: int) -> str:
    return "".join(f"| 제{n}부서 | {n}00만 원 | {n}0만 원 |\n" for n in range(1, count + 1))


def make_page(before: str, inside: str, after: str = "", *, kind: Kind, header: str = "") -> Page:
    """A page of one region between plain text."""
    start = len(before)
    header_end = start + len(header) if header else 0
    region = Region(start, start + len(inside), kind, header_end)
    return Page(1, before + inside + after, regions=(region,))


def cut(made: Page, *, size: int = 300, overlap: int = 60) -> list[TextChunk]:
    return Splitter(size=size, overlap=overlap).add(made)


def test_a_table_is_cut_between_rows_and_each_row_stands_in_one_chunk() -> None:
    chunks = cut(make_page("", HEADER + make_rows(40), kind=Kind.TABLE, header=HEADER))

    lines = [line for chunk in chunks for line in chunk.text.splitlines()]
    assert lines == (HEADER + make_rows(40)).splitlines()
    assert len(chunks) > 3


def test_later_parts_of_a_table_carry_its_header_within_the_size() -> None:
    first, *later = cut(make_page("", HEADER + make_rows(40), kind=Kind.TABLE, header=HEADER))

    assert first.header == ""
    assert first.text.startswith(HEADER)
    assert {chunk.header for chunk in later} == {HEADER.strip()}
    assert all(len(f"{chunk.header}\n{chunk.text}") <= 300 for chunk in later)


def test_a_table_without_a_header_is_cut_between_rows_all_the_same() -> None:
    chunks = cut(make_page("", make_rows(40), kind=Kind.TABLE))

    assert all(chunk.text.startswith("| 제") and chunk.header == "" for chunk in chunks)


def test_a_small_table_stays_whole_with_its_caption() -> None:
    caption = "<표 3> 부서별 집행 현황\n\n(단위: 만 원)\n"
    table = HEADER + make_rows(5)
    before = PROSE * 7 + "\n\n"

    chunks = cut(make_page(before + caption, table, PROSE, kind=Kind.TABLE, header=HEADER))

    assert any(caption + table.strip() in chunk.text for chunk in chunks)
    assert not any("<표 3>" in chunk.text and "제5부서" not in chunk.text for chunk in chunks)


def test_a_row_longer_than_a_chunk_is_cut_and_its_parts_carry_the_header() -> None:
    long = "| 제1부서 | " + PROSE * 30 + "|\n"

    first, *later = cut(make_page("", HEADER + long + make_rows(2), kind=Kind.TABLE, header=HEADER))

    assert first.text.startswith(HEADER)
    assert all(chunk.header == HEADER.strip() for chunk in later)


def test_a_header_that_would_leave_its_rows_no_room_is_not_repeated() -> None:
    header = "| " + "아주 긴 열의 이름 " * 20 + "|\n| --- |\n"

    chunks = cut(make_page("", header + make_rows(20), kind=Kind.TABLE, header=header))

    assert all(chunk.header == "" for chunk in chunks)


def test_text_behind_a_table_shares_nothing_with_its_rows() -> None:
    made = make_page("", HEADER + make_rows(9), "\n" + PROSE * 10, kind=Kind.TABLE, header=HEADER)

    behind = [chunk for chunk in cut(made, size=330) if chunk.start >= made.regions[0].end]

    assert behind
    assert not any("|" in chunk.text for chunk in behind)


def test_a_list_is_cut_between_its_items() -> None:
    items = "".join(f"{n}. {PROSE * 2}\n   가. {PROSE}\n" for n in range(1, 12))

    chunks = cut(make_page("", items, kind=Kind.LIST), overlap=0)

    assert len(chunks) > 3
    assert all(chunk.text[0].isdigit() and chunk.text[1] in ".0123" for chunk in chunks)


@pytest.mark.parametrize("intro", ["제출할 서류는 다음과 같다.\n", "제출 서류:\n\n"])
def test_what_announces_a_list_stays_with_its_first_item(intro: str) -> None:
    items = "".join(f"- {PROSE}\n" for _ in range(20))

    for filling in range(1, 12):
        chunks = cut(make_page(PROSE * filling + "\n\n" + intro, items, kind=Kind.LIST))
        assert any(f"{intro}- 사업은" in chunk.text for chunk in chunks)


def test_code_is_left_whole_up_to_one_and_a_half_times_the_size() -> None:
    code = "```\n" + "\n\n".join(f"let value{n} = compute({n});" for n in range(14)) + "\n```"
    assert 300 < len(code) <= 450

    for filling in range(12):
        chunks = cut(make_page(PROSE * filling + "\n\n", code, "\n\n" + PROSE * 5, kind=Kind.CODE))
        assert any(code in chunk.text for chunk in chunks)


def test_longer_code_is_cut_at_its_blank_lines() -> None:
    parts = [f"def step{n}():\n    first({n})\n    second({n})" for n in range(30)]

    chunks = cut(make_page("", "\n\n".join(parts), kind=Kind.CODE), overlap=0)

    assert all(chunk.text.startswith("def") and len(chunk.text) <= 300 for chunk in chunks)


def test_a_picture_is_a_chunk_of_its_own_with_its_place() -> None:
    box = Box(1, 0.2, 0.3, 0.6, 0.7)
    seen = "매출은 2분기에 가장 높다."
    region = Region(4, 4 + len(seen), Kind.PICTURE, box=box)

    chunks = cut(Page(1, f"앞글\n\n{seen}\n\n뒷글", regions=(region,)))

    assert [(chunk.text, chunk.kind, chunk.boxes) for chunk in chunks] == [
        ("앞글", Kind.TEXT, ()),
        (seen, Kind.PICTURE, (box,)),
        ("뒷글", Kind.TEXT, ()),
    ]


def test_what_was_recognised_is_cut_as_text_and_says_so() -> None:
    text = PROSE * 30
    plain = [chunk.text for chunk in cut(Page(1, text))]

    chunks = cut(make_page("", text, kind=Kind.RECOGNISED))

    assert [chunk.text for chunk in chunks] == plain
    assert {chunk.kind for chunk in chunks} == {Kind.RECOGNISED}


def test_a_chunk_is_of_the_kind_that_most_of_it_is() -> None:
    table = HEADER + make_rows(2)

    assert [c.kind for c in cut(make_page("짧은 말.\n\n", table, kind=Kind.TABLE))] == [Kind.TABLE]
    assert [c.kind for c in cut(make_page(PROSE * 4 + "\n\n", table, kind=Kind.TABLE))] == [
        Kind.TEXT
    ]


def test_a_table_that_nobody_marked_is_still_cut_between_rows() -> None:
    chunks = split_pages([Page(None, HEADER + make_rows(40))], size=300, overlap=0).chunks

    assert all(chunk.text[0] == chunk.text[-1] == "|" for chunk in chunks)


@pytest.mark.parametrize(
    "no_end",
    ["제2조.", "10.", "가.", "2024. 5. 3.", "3.5", "e.g.", "No.", "J."],
)
def test_no_cut_stands_behind_what_ends_no_sentence(no_end: str) -> None:
    text = f"여기서는 {no_end} 그리고 이어지는 말이 조금 더 있다. " * 12

    for chunk in cut(Page(1, text.strip()), size=100, overlap=0):
        assert chunk.text.endswith("있다.")


@pytest.mark.parametrize(
    "end", ["한다.", "해요.", "할까?", "제출함.", "있음.", "끝!", "(예외).", "말.”"]
)
def test_a_cut_stands_behind_the_ends_of_korean_sentences(end: str) -> None:
    sentence = f"신청인은 서류를 모두 갖추어 {end} "

    for chunk in cut(Page(1, (sentence * 20).strip()), size=100, overlap=0):
        assert chunk.text.endswith(end)
