"""What is indexed of chunks, and how the header of a table is read with its later rows."""

from collections.abc import Iterator
from uuid import uuid4

import pytest

from rag import indexing, tokenize
from rag.chunking import split_pages
from rag.events import SourcesFound
from rag.types import Kind, Line, Page, Region, TextChunk
from tests.rag.worlds import (
    LetterEmbedder,
    Library,
    find_finished,
    join_text,
    make_chunk,
    make_engine,
)

HEADER = "| 사업 번호 | 담당 부서 | 승인 한도 | 정산 기한 |\n| --- | --- | --- | --- |\n"


def make_table_page(count: int = 60) -> Page:
    """A table of `count` rows between two paragraphs; each line has its place on the page."""
    before = "시설 개선 사업의 내역은 다음과 같다.\n\n<표 2> 사업별 현황\n"
    rows = "".join(
        f"| A-{n:03} | 시설{n}과 | {n * 37}만 원 | {n % 28 + 1}일 |\n" for n in range(1, count + 1)
    )
    text = before + HEADER + rows + "\n정산은 기한 안에 마친다."
    lines, start = [], 0
    for number, line in enumerate(text.split("\n")):
        top = number / 100
        edges = tuple(place / 200 for place in range(len(line) + 1))
        lines.append(Line(start, start + len(line), top, top + 0.008, edges))
        start += len(line) + 1
    end = len(before) + len(HEADER)
    return Page(
        1,
        text,
        lines=tuple(lines),
        regions=(Region(len(before), end + len(rows), Kind.TABLE, end),),
    )


def make_library(page: Page, name: str = "사업 현황.pdf") -> Library:
    made = Library(make_engine())
    chunks = split_pages([page], size=1000, overlap=200).chunks
    made.ids[name] = uuid4()
    indexed = made.engine.index_chunks(chunks, name, lambda *_: None, len(chunks))
    made.store.add(made.ids[name], name, list(indexed))
    return made


async def test_a_late_row_of_a_table_is_answered_with_its_column() -> None:
    made = make_library(make_table_page())

    events = await made.ask("A-055 사업의 승인 한도는 얼마인가?")

    said = join_text(events)
    assert "| 승인 한도 |" in said
    assert "**2035만 원**" in said
    assert find_finished(events).sources


async def test_the_source_of_a_late_row_shows_where_it_stands_and_no_header() -> None:
    page = make_table_page()
    made = make_library(page)

    events = await made.ask("A-055 사업의 승인 한도는 얼마인가?")

    found = next(event for event in events if isinstance(event, SourcesFound))
    source = found.sources[0]
    assert source.text.startswith(f"{HEADER.strip()}\n")
    text = source.text.removeprefix(f"{HEADER.strip()}\n")
    assert "A-055" in text
    assert not source.content_preview.startswith("| 사업 번호")
    rows = text.splitlines()
    assert {box.y0 for box in source.boxes} == {
        line.y0 for line in page.lines if page.text[line.start : line.end] in filter(None, rows)
    }


def test_a_row_is_found_by_the_name_of_its_column() -> None:
    made = Library(make_engine())
    row = "| A-055 | 시설55과 | 2035만 원 |"
    made.add("가.md", row, header="| 번호 | 부서 | 승인 한도 |\n| --- | --- | --- |")
    made.add("나.md", row, header="| 번호 | 부서 | 반환 금액 |\n| --- | --- | --- |")

    assert made.search("A-055 승인 한도").hits[0].passage.document_name == "가.md"
    assert made.search("A-055 반환 금액").hits[0].passage.document_name == "나.md"


def test_the_header_is_embedded_with_its_row_below_the_title() -> None:
    one = make_chunk(0, "| A-055 | 20 |", header="| Number | Limit |")

    assert indexing.to_embedded_text("Projects\n2026", one) == (
        "Projects\n| Number | Limit |\n| A-055 | 20 |"
    )


@pytest.mark.parametrize("count", [1, 40, indexing.WINDOW_CHUNKS + 40])
def test_chunks_come_in_order_whatever_their_length(count: int) -> None:
    texts = ["word " * (1 + n * 7 % 11) + str(n) for n in range(count)]
    embedder = LetterEmbedder()
    chunks = [make_chunk(n, text) for n, text in enumerate(texts)]

    found = list(indexing.index_chunks(iter(chunks), "t", embedder, lambda *_: None, count))

    assert [one.chunk for one in found] == chunks
    assert [one.vector for one in found] == [
        tuple(embedder.embed_passages([f"t\n{text}"])[0]) for text in texts
    ]


def test_texts_of_a_batch_are_of_like_length() -> None:
    embedder = Watching()
    chunks = [make_chunk(n, "word " * (1 + n * 7 % 50)) for n in range(200)]

    list(indexing.index_chunks(chunks, "t", embedder, lambda *_: None, 200))

    spread = [max(map(len, batch)) - min(map(len, batch)) for batch in embedder.batches]
    assert max(spread) < 60


def test_no_more_chunks_are_taken_than_a_window_before_the_first_is_given() -> None:
    taken: list[int] = []

    def coming() -> Iterator[TextChunk]:
        for n in range(3 * indexing.WINDOW_CHUNKS):
            taken.append(n)
            yield make_chunk(n, "word")

    next(
        indexing.index_chunks(
            coming(), "t", LetterEmbedder(), lambda *_: None, 3 * indexing.WINDOW_CHUNKS
        )
    )

    assert len(taken) <= indexing.WINDOW_CHUNKS + 1


def test_the_terms_of_the_first_words_come_from_the_same_reading_as_the_text() -> None:
    text = "납품 기한은 계약일부터 30일로 한다. " * 20

    ((counts, lead),) = tokenize.count_terms_and_leads([text], 16)

    assert counts == tokenize.count_terms(text)
    assert lead == set(tokenize.count_terms("납품 기한은 계약일부터 30일로"))


class Watching(LetterEmbedder):
    """Keeps what it was given."""

    def __init__(self) -> None:
        super().__init__()
        self.batches: list[list[str]] = []

    def embed_passages(self, texts):
        self.batches.append(list(texts))
        return super().embed_passages(texts)
