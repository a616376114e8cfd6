"""HTML: what a reader of the page sees, in order, and nothing else."""

from pathlib import Path

import pytest

from documents.parsers.base import Corrupt
from rag.types import Kind, Page
from tests.documents.parsers.reading import Result, read


def read_body(folder: Path, body: str, head: str = "", encoding: str = "utf-8") -> Result:
    path = folder / "a.html"
    page = f"<!DOCTYPE html><html><head>{head}</head><body>{body}</body></html>"
    path.write_bytes(page.encode(encoding))
    return read(path)


def read_page(folder: Path, body: str) -> Page:
    (page,) = read_body(folder, body).pages
    return page


def list_regions(page: Page) -> list[tuple[Kind, str]]:
    return [(one.kind, page.text[one.start : one.end]) for one in page.regions]


def test_paragraphs_headings_and_links_come_in_order(tmp_path: Path) -> None:
    page = read_page(
        tmp_path,
        "<h1>제1장 <em>총칙</em></h1>앞글<p>첫\n  <b>문단</b>이다.<br>둘째 줄 &amp; "
        "<a href='http://a.b'>누리집</a>&nbsp;끝<h2>목적<a href='#x'>¶</a></h2><div>본문</div>",
    )

    assert page.text == ("제1장 총칙\n\n앞글\n\n첫 문단이다.\n둘째 줄 & 누리집 끝\n\n목적\n\n본문")
    assert [(one.level, one.title) for one in page.headings] == [(1, "제1장 총칙"), (2, "목적")]
    assert page.number is None


def test_scripts_navigation_and_hidden_elements_are_left_out(tmp_path: Path) -> None:
    page = read_page(
        tmp_path,
        "<nav>메뉴</nav><div role='navigation'>길</div><script>x()</script><style>p{}</style>"
        "<p hidden>가</p><p style='color: red; display:none'>나</p><template>다</template>"
        "<span aria-hidden='true'>라</span><!-- 마 --><button>바</button><noscript>사</noscript>"
        "<p>본문</p>",
    )

    assert page.text == "본문"


def test_text_behind_what_is_left_out_stays(tmp_path: Path) -> None:
    assert read_page(tmp_path, "<p>앞<script>x</script> 뒤<!-- x --> 끝</p>").text == "앞 뒤 끝"


def test_the_main_part_is_the_text_where_the_page_names_one(tmp_path: Path) -> None:
    page = read_page(tmp_path, "<div>사이트</div><main><p>본문</p></main><div>광고</div>")

    assert page.text == "본문"


def test_an_empty_main_part_leaves_the_whole_body(tmp_path: Path) -> None:
    assert read_page(tmp_path, "<main> </main><p>본문</p>").text == "본문"


def test_headers_and_footers_of_the_page_are_margins(tmp_path: Path) -> None:
    page = read_page(
        tmp_path,
        "<header>기관</header><article><header>부제</header><p>본문</p></article>"
        "<footer>주소</footer>",
    )

    assert page.text == "부제\n\n본문"
    assert page.margins == ("기관", "주소")


def test_a_header_that_holds_the_title_is_text(tmp_path: Path) -> None:
    assert read_page(tmp_path, "<header><h1>제목</h1></header><p>본문</p>").text == "제목\n\n본문"


def test_lists_keep_their_marks_numbers_and_depths(tmp_path: Path) -> None:
    page = read_page(
        tmp_path,
        "<ul><li>하나<ol type='a' start='3'><li>셋<li>넷</ol><li><p>둘</p></ul>"
        "<ol><li value='7'>일곱<li>여덟</ol>",
    )

    assert list_regions(page) == [
        (Kind.LIST, "- 하나\n    c. 셋\n    d. 넷\n- 둘"),
        (Kind.LIST, "7. 일곱\n8. 여덟"),
    ]


def test_terms_stand_above_what_explains_them(tmp_path: Path) -> None:
    page = read_page(tmp_path, "<dl><dt>공탁<dd>맡기는 일</dl>")

    assert list_regions(page) == [(Kind.LIST, "공탁\n    맡기는 일")]


def test_cells_over_several_columns_and_rows_hold_their_text_once(tmp_path: Path) -> None:
    page = read_page(
        tmp_path,
        "<table><caption>예산</caption><tr><th rowspan=2>구분<th colspan=2>금액"
        "<tr><th>2025<th>2026<tr><td>국내<td>1<td>2<tr><td>국외<td colspan=2>3</table>",
    )

    (region,) = page.regions
    assert page.text[: region.start] == "예산\n\n"
    assert page.text[region.start : region.header_end] == (
        "| 구분 | 금액 |  |\n| --- | --- | --- |\n|  | 2025 | 2026 |"
    )
    assert page.text[region.header_end :] == "\n| 국내 | 1 | 2 |\n| 국외 | 3 |  |"


def test_a_table_that_only_places_things_is_its_content(tmp_path: Path) -> None:
    inner = "<table><tr><td>가<td>나<tr><td>다<td>라</table>"
    page = read_page(tmp_path, f"<table><tr><td><p>왼쪽</p><td>{inner}</table>")

    assert page.text == "왼쪽\n\n| 가 | 나 |\n| --- | --- |\n| 다 | 라 |"


def test_spans_beyond_reason_cost_nothing(tmp_path: Path) -> None:
    row = "<tr>" + "<td colspan=1000 rowspan=60000>값" * 10
    page = read_page(tmp_path, f"<table>{row * 200}</table>")

    assert len(page.text) < 20_000


def test_code_keeps_its_lines(tmp_path: Path) -> None:
    page = read_page(tmp_path, "<p>보기</p><pre><code>if x:\n    go()</code></pre><p>끝</p>")

    assert page.text == "보기\n\n```\nif x:\n    go()\n```\n\n끝"
    assert list_regions(page) == [(Kind.CODE, "```\nif x:\n    go()\n```")]


def test_the_head_gives_title_author_and_date(tmp_path: Path) -> None:
    head = (
        "<title>업무 안내서</title><meta name='author' content='홍길동'>"
        "<meta property='article:published_time' content='2026-03-01T09:00:00+09:00'>"
    )

    metadata = read_body(tmp_path, "<p>본문이 있다.</p>", head).metadata

    assert metadata == {"title": "업무 안내서", "author": "홍길동", "date": "2026-03-01"}


@pytest.mark.parametrize(
    ("encoding", "head"),
    [
        ("cp949", "<meta charset='euc-kr'>"),
        ("cp949", "<meta http-equiv='Content-Type' content='text/html; charset=ks_c_5601-1987'>"),
        ("cp949", ""),
        ("cp949", "<meta charset='utf-8'>"),
        ("utf-8", "<meta charset='euc-kr'>"),
        ("utf-8-sig", ""),
        ("utf-16", "<meta charset='utf-16'>"),
        ("utf-16-le", ""),
    ],
)
def test_korean_is_read_whatever_a_page_says_of_its_encoding(
    tmp_path: Path, encoding: str, head: str
) -> None:
    assert read_body(tmp_path, "<p>똠방각하 안내문</p>", head, encoding).text == "똠방각하 안내문"


def test_xhtml_is_read_with_its_closed_elements_and_entities(tmp_path: Path) -> None:
    (tmp_path / "a.xhtml").write_text(
        '<?xml version="1.0" encoding="UTF-8"?>\n<!DOCTYPE html PUBLIC "-//W3C//DTD XHTML 1.0 '
        'Strict//EN" "http://www.w3.org/TR/xhtml1/DTD/xhtml1-strict.dtd">\n'
        '<html xmlns="http://www.w3.org/1999/xhtml"><head><title>안내</title>'
        '<script src="a.js"/></head><body><p>본문&nbsp;글</p></body></html>'
    )

    assert read(tmp_path / "a.xhtml").text == "본문 글"


def test_entities_of_a_document_type_are_not_resolved(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("CANARY")
    path = tmp_path / "a.html"
    entity = f'<!ENTITY x SYSTEM "file://{tmp_path}/secret">'
    path.write_text(f"<!DOCTYPE html [{entity}]><html><body>&x; 본문</body></html>")

    assert "CANARY" not in read(path).text


def test_nesting_beyond_reason_is_corrupt(tmp_path: Path) -> None:
    with pytest.raises(Corrupt):
        read_body(tmp_path, "<div>" * 5_000 + "본문")
