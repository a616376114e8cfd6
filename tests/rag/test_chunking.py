"""Chunking: what holds for any text, and where real text is cut."""

import unicodedata
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from rag.chunking import Split, Splitter, split_pages
from rag.types import Box, Heading, Kind, Line, Page, Region

WORDS = st.sampled_from(
    [
        "계약은",
        "체결한다.",
        "3.5%",
        "Contract",
        "ends.",
        "가.",
        "\n",
        "\n\n",
        " ",
        "(끝)",
        "각",
        "e\u0301",
        "| 칸 |",
    ]
)
TEXTS = st.one_of(
    st.lists(WORDS, max_size=120).map(" ".join),
    st.lists(WORDS, max_size=120).map("".join),
    st.text(alphabet="가나다. \n\u3000a#", max_size=600),
)


@st.composite
def draw_regions(draw: st.DrawFn, text: str) -> tuple[Region, ...]:
    """Regions that do not overlap, of any kind; those of tables with or without a header."""
    places = sorted(draw(st.lists(st.integers(0, len(text)), max_size=8)))
    found = []
    for start, end in zip(places[::2], places[1::2], strict=False):
        kind = draw(st.sampled_from(Kind))
        header = draw(st.integers(start, end)) if kind is Kind.TABLE and draw(st.booleans()) else 0
        found.append(Region(start, end, kind, header, Box(1, 0.1, 0.1, 0.2, 0.2)))
    return tuple(found)


@st.composite
def draw_documents(draw: st.DrawFn) -> list[Page]:
    pages = []
    for number, text in enumerate(draw(st.lists(TEXTS, max_size=4)), start=1):
        starts = draw(st.lists(st.integers(0, len(text)), max_size=4))
        headings = tuple(
            Heading(start, draw(st.integers(1, 4)), f"제{start}조") for start in sorted(starts)
        )
        found = draw(st.one_of(st.just(()), draw_regions(text)))
        pages.append(Page(number, text, headings, regions=found))
    return pages


@given(pages=draw_documents(), size=st.integers(10, 200), overlap=st.integers(0, 60))
def test_any_document_is_covered_by_chunks_within_their_bounds(
    pages: list[Page], size: int, overlap: int
) -> None:
    result = split_pages(pages, size=size, overlap=overlap)

    covered = 0
    for index, chunk in enumerate(result.chunks):
        assert chunk.index == index
        assert result.text[chunk.start : chunk.end] == chunk.text
        assert chunk.text.strip() == chunk.text != ""
        assert len(chunk.header) + len(chunk.text) <= count_max_characters(
            pages[chunk.page - 1], size
        )
        assert not result.text[covered : chunk.start].strip()
        assert covered - chunk.start <= overlap
        assert chunk.end > covered
        covered = chunk.end
    assert not result.text[covered:].strip()


def count_max_characters(page: Page, size: int) -> int:
    """What a chunk of this page may hold: code may exceed the size."""
    code = any(region.kind is Kind.CODE for region in page.regions)
    return int(size * 1.5) if code else size


@given(pages=draw_documents(), size=st.integers(10, 200))
def test_pages_cut_one_by_one_give_the_chunks_of_the_whole(pages: list[Page], size: int) -> None:
    splitter = Splitter(size=size, overlap=20)
    found = []
    for page in pages:
        start = splitter.start
        chunks = splitter.add(page)
        assert [page.text[c.start - start : c.end - start] for c in chunks] == [
            c.text for c in chunks
        ]
        found += chunks

    assert tuple(found) == split_pages(pages, size=size, overlap=20).chunks


@given(letters=st.lists(st.sampled_from(["e\u0301", "각", "ก็", "x"]), min_size=1).map("".join))
def test_no_mark_is_cut_from_its_letter(letters: str) -> None:
    for chunk in split_pages([Page(1, letters * 9)], size=12, overlap=4).chunks:
        assert unicodedata.category(chunk.text[0])[0] == "L"
        assert chunk.text[0] not in "\u1161\u11a8"


@given(pages=draw_documents())
def test_a_chunk_names_the_pages_that_hold_its_ends(pages: list[Page]) -> None:
    result = split_pages(pages, size=80, overlap=20)

    for chunk in result.chunks:
        assert chunk.page is not None
        assert chunk.page_end is not None
        first, last = result.page_starts[chunk.page - 1], result.page_starts[chunk.page_end - 1]
        assert first <= chunk.start < first + len(pages[chunk.page - 1].text)
        assert last < chunk.end <= last + len(pages[chunk.page_end - 1].text)


def split_text(text: str, *, size: int = 100, overlap: int = 20) -> list[str]:
    return [
        chunk.text for chunk in split_pages([Page(None, text)], size=size, overlap=overlap).chunks
    ]


def make_page(text: str) -> Page:
    headings, position = [], 0
    for line in text.split("\n"):
        if line.startswith("#"):
            level = len(line) - len(line.lstrip("#"))
            headings.append(Heading(position, level, line.lstrip("# ")))
        position += len(line) + 1
    return Page(None, text, tuple(headings))


def test_a_short_text_is_one_chunk() -> None:
    assert split_text("  여비는 실비로 지급한다.\n") == ["여비는 실비로 지급한다."]


def test_an_empty_document_has_no_chunks() -> None:
    assert split_pages([], size=100, overlap=20) == Split("", (), ())
    assert split_pages([Page(1, " \n ")], size=100, overlap=20).chunks == ()


def test_korean_sentences_are_kept_whole() -> None:
    sentences = [f"제{n}항의 비용은 발주기관이 부담한다." for n in range(20)]

    for chunk in split_text(" ".join(sentences), overlap=40):
        assert chunk.startswith("제")
        assert chunk.endswith("다.")


def test_a_date_or_a_list_mark_is_no_end_of_a_sentence() -> None:
    text = "계약 기간은 2026. 3. 11. 부터 2027. 3. 10. 까지로 한다. " * 6

    for chunk in split_text(text.strip(), size=90, overlap=0):
        assert chunk.endswith("한다.")


def test_paragraphs_are_preferred_to_sentences() -> None:
    paragraph = "첫 문장이다. 둘째 문장이다. 셋째 문장이다."

    chunks = split_text("\n\n".join([paragraph] * 6), size=70, overlap=0)

    assert all(chunk.startswith("첫") and chunk.endswith("셋째 문장이다.") for chunk in chunks)


def test_neighbours_share_whole_sentences() -> None:
    chunks = split_text(" ".join(f"{n}번 문장은 여기서 끝난다." for n in range(30)), overlap=40)

    for left, right in pairwise(chunks):
        shared = right.split(".")[0] + "."
        assert shared in left


def test_text_without_any_break_is_cut_at_the_size() -> None:
    assert [len(chunk) for chunk in split_text("가" * 250, overlap=0)] == [100, 100, 50]


def test_a_million_characters_without_a_break_are_cut_in_linear_time() -> None:
    assert len(split_text("가" * 1_000_000, size=1000, overlap=200)) == 1250


def test_a_section_begins_a_chunk_and_names_its_path() -> None:
    body = "이 법은 공탁의 절차를 정한다. " * 3
    page = make_page(f"# 공탁법\n\n## 제1장\n\n### 제1조\n\n{body}\n\n### 제2조\n\n{body}")

    chunks = split_pages([page], size=200, overlap=20).chunks

    assert [chunk.section for chunk in chunks] == [
        "공탁법 > 제1장 > 제1조",
        "공탁법 > 제1장 > 제2조",
    ]
    assert chunks[1].text.startswith("### 제2조")


def test_tiny_sections_share_a_chunk_named_by_what_they_have_in_common() -> None:
    page = make_page("# 규칙\n\n## 제1조\n\n시행한다.\n\n## 제2조\n\n폐지한다.")

    chunks = split_pages([page], size=1000, overlap=200).chunks

    assert [chunk.section for chunk in chunks] == ["규칙"]


def test_a_tiny_section_does_not_swallow_the_next_chapter() -> None:
    page = make_page("# 가\n\n## 나\n\n짧다.\n\n# 다\n\n다른 장이다.")

    assert [chunk.section for chunk in split_pages([page], size=1000, overlap=0).chunks] == [
        "가 > 나",
        "다",
    ]


def test_boxes_cover_exactly_the_characters_of_a_chunk() -> None:
    text = "가나다라마바사아자차\n카타파하"
    lines = (
        Line(0, 10, 0.1, 0.2, tuple(n / 10 for n in range(11))),
        Line(11, 15, 0.3, 0.4, (0.0, 0.1, 0.2, 0.3, 0.4)),
    )

    first, second, *_ = split_pages([Page(7, text, (), lines)], size=8, overlap=0).chunks

    assert [(box.page, box.x0, box.x1, box.y0) for box in first.boxes] == [(7, 0.0, 0.8, 0.1)]
    assert [(box.x0, box.x1, box.y0) for box in second.boxes] == [(0.8, 1.0, 0.1), (0.0, 0.4, 0.3)]


def test_no_chunk_reaches_over_a_page_so_its_page_and_boxes_are_right() -> None:
    line = Line(0, 2, 0.1, 0.2, (0.1, 0.2, 0.3))
    pages = [Page(1, "가나", (), (line,)), Page(2, "다라", (), (line,))]

    chunks = split_pages(pages, size=100, overlap=50).chunks

    assert [(chunk.text, chunk.page, chunk.page_end) for chunk in chunks] == [
        ("가나", 1, 1),
        ("다라", 2, 2),
    ]
    assert [[box.page for box in chunk.boxes] for chunk in chunks] == [[1], [2]]
