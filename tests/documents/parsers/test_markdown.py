"""Markdown: headings, front matter, and where its lists, tables and code stand."""

from pathlib import Path

import pytest
from markdown_it import MarkdownIt

from documents.parsers import markdown
from documents.parsers.base import Limits
from documents.parsers.markdown import let_stars_close_before_hangul, read_front_matter
from rag.types import Kind, Page
from tests.documents.parsers.reading import read


@pytest.fixture
def page(tmp_path: Path, request: pytest.FixtureRequest) -> Page:
    """The page of the text that the test is given."""
    path = tmp_path / "a.md"
    path.write_text(request.param)
    return read(path).pages[0]


def list_regions(page: Page) -> list[tuple[Kind, str]]:
    return [(one.kind, page.text[one.start : one.end]) for one in page.regions]


@pytest.mark.parametrize(
    "page", ["# 설치\n\n```sh\n# 주석\n```\n\n둘째\n---\n\n## 끝 ##\n"], indirect=True
)
def test_headings_of_both_kinds_are_found_but_not_inside_code(page: Page) -> None:
    found = [(heading.level, heading.title) for heading in page.headings]

    assert found == [(1, "설치"), (2, "둘째"), (2, "끝")]
    assert [page.text[heading.start] for heading in page.headings] == ["#", "둘", "#"]


@pytest.mark.parametrize(
    ("page", "title"),
    [
        ("# C#\n", "C#"),
        ("# **굵은** [링크](http://a.b) #\n", "굵은 링크"),
        ("### 셋 ###   \n", "셋"),
        ("표제\n===\n", "표제"),
    ],
    indirect=["page"],
)
def test_a_title_has_no_marks(page: Page, title: str) -> None:
    assert [heading.title for heading in page.headings] == [title]


@pytest.mark.parametrize(
    "page", ["#해시태그\n\n    # 예시\n\n---\n\n- 항목\n---\n\n| 표 |\n"], indirect=True
)
def test_what_only_looks_like_a_heading_is_none(page: Page) -> None:
    assert page.headings == ()


@pytest.mark.parametrize("page", ["글\n\n~~~\n가\n```\n나\n~~~\n\n끝\n"], indirect=True)
def test_code_is_kept_whole_with_its_fences(page: Page) -> None:
    assert list_regions(page) == [(Kind.CODE, "~~~\n가\n```\n나\n~~~")]


@pytest.mark.parametrize("page", ["글\n\n```\n끝이 없다\n"], indirect=True)
def test_code_without_an_end_goes_on_to_the_end(page: Page) -> None:
    assert list_regions(page) == [(Kind.CODE, "```\n끝이 없다")]


@pytest.mark.parametrize("page", ["> ```\n> 코드\n\n글\n\n# 제목\n"], indirect=True)
def test_code_in_a_quotation_ends_with_it(page: Page) -> None:
    assert [heading.title for heading in page.headings] == ["제목"]


@pytest.mark.parametrize(
    "page", ["표\n\n| 구분 | 금액 |\n|---|--:|\n| 국내 | 1 |\n| 국외 | 2 |\n\n끝\n"], indirect=True
)
def test_a_table_has_its_header(page: Page) -> None:
    (region,) = page.regions

    assert region.kind is Kind.TABLE
    assert page.text[region.start : region.header_end] == "| 구분 | 금액 |\n|---|--:|"
    assert page.text[region.header_end : region.end] == "\n| 국내 | 1 |\n| 국외 | 2 |"


@pytest.mark.parametrize("page", ["가 | 나\n--- | --- | ---\n다 | 라\n"], indirect=True)
def test_rows_that_do_not_fit_their_rule_are_no_table(page: Page) -> None:
    assert page.regions == ()


@pytest.mark.parametrize(
    "page", ["준비물\n- 신분증\n  - 사본\n\n  설명\n- 도장\n이어서\n\n끝\n"], indirect=True
)
def test_a_list_is_one_region_with_what_belongs_to_its_items(page: Page) -> None:
    assert list_regions(page) == [(Kind.LIST, "- 신분증\n  - 사본\n\n  설명\n- 도장\n이어서")]


@pytest.mark.parametrize("page", ["1. 설치\n   ```\n   go\n   ```\n2. 실행\n\n끝\n"], indirect=True)
def test_code_of_an_item_stands_between_two_parts_of_the_list(page: Page) -> None:
    assert list_regions(page) == [
        (Kind.LIST, "1. 설치"),
        (Kind.CODE, "   ```\n   go\n   ```"),
        (Kind.LIST, "2. 실행"),
    ]


@pytest.mark.parametrize("page", ["회의는\n2026. 3. 1.에 있다.\n"], indirect=True)
def test_a_date_at_the_beginning_of_a_line_is_no_list(page: Page) -> None:
    assert page.regions == ()


@pytest.mark.parametrize("page", ["---\n제목: 공탁법\n---\n# 총칙\n- 하나\n"], indirect=True)
def test_offsets_are_true_behind_front_matter(page: Page) -> None:
    assert page.headings
    assert page.text[page.headings[0].start :].startswith("# 총칙")
    assert list_regions(page) == [(Kind.LIST, "- 하나")]


@pytest.mark.parametrize(
    ("text", "body"),
    [
        ("---\ntitle: 안내\ntags:\n- 휴가\n\n# 주석\n---\n\n본문이다.\n", "본문이다."),
        (
            "---\ndescription: >-\n  두 줄로\n  쓴 말\n첨부:\n- 이름: 별표\n  url: x\n---\n글\n",
            "글",
        ),
    ],
)
def test_front_matter_is_no_part_of_the_text(tmp_path: Path, text: str, body: str) -> None:
    (tmp_path / "a.md").write_text(text)
    assert read(tmp_path / "a.md").text == body


@pytest.mark.parametrize(
    "text",
    [
        "---\n그는 말했다.\n---\n\n본문이다.",  # prose between two rules
        "---\n- 하나\n- 둘\n---\n본문이다.",
        "---\n제목: 안내\n본문이다.",  # nothing ends it
        "---\n제목: 안내\n---",  # there is nothing else
        "본문이다.\n\n---\n제목: 안내\n---\n\n끝",
    ],
)
def test_what_is_no_front_matter_stays(tmp_path: Path, text: str) -> None:
    (tmp_path / "a.md").write_text(text)
    assert read(tmp_path / "a.md").text == text


def test_lines_of_a_block_in_front_matter_are_one_value() -> None:
    found = read_front_matter("description: |\n  첫 줄\n  둘째: 줄\ntags: [a, b]\n  더\n")

    assert found == {"description": "첫 줄 둘째: 줄", "tags": "a, b"}


def test_front_matter_keeps_its_own_keys() -> None:
    found = read_front_matter("---\n제목: '공탁법'\n소관부처:\n- 법무부\n- 법원\na: &x [1]\n---\n")

    assert found == {"제목": "공탁법", "소관부처": "법무부, 법원"}


def test_aliases_of_front_matter_are_not_expanded() -> None:
    assert read_front_matter("---\na: &a [x, x]\nb: &b [*a, *a]\nc: [*b, *b]\n---\n") == {
        "c": "*b, *b"
    }


@pytest.mark.parametrize(
    ("page", "found"),
    [
        ("> - 하나\n> - 둘\n\n글\n", [(Kind.LIST, "> - 하나\n> - 둘")]),
        ("<!--\n- 하나\n-->\n\n글\n", []),
        ("1. 하나\n\n 다음 글\n", [(Kind.LIST, "1. 하나")]),
        ("| 가 |\n|---|\n| 나 |\n다\n\n글\n", [(Kind.TABLE, "| 가 |\n|---|\n| 나 |\n다")]),
        (
            "- 하나\n  ```\n  x\n  ```\n\n글\n\n- 둘\n",
            [(Kind.LIST, "- 하나"), (Kind.CODE, "  ```\n  x\n  ```"), (Kind.LIST, "- 둘")],
        ),
    ],
    indirect=["page"],
)
def test_blocks_are_those_that_a_reader_of_markdown_shows(
    page: Page, found: list[tuple[Kind, str]]
) -> None:
    assert list_regions(page) == found


@pytest.mark.parametrize(
    ("page", "titles"),
    [
        ("긴\n표제\n===\n", ["긴 표제"]),
        ("<!--\n# 옛 제목\n-->\n\n# 제목 \\* 하나\n", ["제목 * 하나"]),
        ("> # 인용\n\n- # 항목\n", []),
    ],
    indirect=["page"],
)
def test_headings_are_those_of_the_document_itself(page: Page, titles: list[str]) -> None:
    assert [heading.title for heading in page.headings] == titles


def test_a_text_of_unlucky_lines_is_read_within_its_limits(tmp_path: Path) -> None:
    path = tmp_path / "a.md"
    path.write_text("- 가\n" * 20_000)
    (page,) = read(path, Limits(seconds=30, memory=600 << 20)).pages

    assert [(one.start, one.end) for one in page.regions] == [(0, len(page.text))]


def test_only_the_beginning_of_an_endless_text_has_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(markdown, "MAX_STRUCTURED_LINES", 6)

    headings, found = markdown.find_blocks("# 하나\n\n글\n\n# 둘\n\n- 셋\n- 넷\n")

    assert [heading.title for heading in headings] == ["하나", "둘"]
    assert found == []


@pytest.mark.parametrize(  # front/tests/emphasis.test.js holds the page to the same cases
    ("written", "shown"),
    [
        ("세율은 **50%**를 넘는다", "세율은 <strong>50%</strong>를 넘는다"),
        ("**(가)**는 *“나”*와 다르다", "<strong>(가)</strong>는 <em>“나”</em>와 다르다"),
        ("**30%**와 **50%**의 차이", "<strong>30%</strong>와 <strong>50%</strong>의 차이"),
        (
            "그는 “**중요**”라고 **말**했다",
            "그는 “<strong>중요</strong>”라고 <strong>말</strong>했다",
        ),
        (
            "**시작 (**중요**) 끝**",
            "<strong>시작 (<strong>중요</strong>) 끝</strong>",
        ),
        ("**50%**rise, 2 * 3%*가", "**50%**rise, 2 * 3%*가"),
    ],
)
def test_stress_ends_before_a_particle(written: str, shown: str) -> None:
    parser = MarkdownIt()
    parser.use(let_stars_close_before_hangul)
    assert parser.renderInline(written) == shown
