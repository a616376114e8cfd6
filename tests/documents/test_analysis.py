"""Chunks are analysed beside the reading of pages, and come back as if they had been after it."""

import threading

import pytest

from documents.ingest import MAX_BATCHES_AHEAD, MAX_CHUNKS_A_BATCH, ChunkAnalysis
from rag import indexing, tokenize
from rag.types import IndexedChunk, TextChunk

COUNT = 5 * MAX_CHUNKS_A_BATCH // 2


def make_chunk(index: int) -> TextChunk:
    return TextChunk(index, f"연차 휴가 {index}일을 준다.", 0, 9, 1, 1, f"제{index % 3}장")


def test_chunks_come_back_in_order_with_the_terms_that_they_have_alone() -> None:
    chunks = [make_chunk(index) for index in range(COUNT)]
    kept: list[IndexedChunk] = []

    with ChunkAnalysis(kept.append) as analysis:
        for one in chunks:
            analysis.add([one])
        analysis.finish()

    assert kept == list(indexing.ChunkAnalyser().analyse_chunks(chunks))


def test_what_is_kept_is_kept_by_whoever_adds() -> None:
    threads: set[int] = set()

    with ChunkAnalysis(lambda _one: threads.add(threading.get_ident())) as analysis:
        analysis.add([make_chunk(0)])
        analysis.finish()

    assert threads == {threading.get_ident()}


def test_few_chunks_wait_for_their_analysis() -> None:
    kept: list[IndexedChunk] = []

    with ChunkAnalysis(kept.append) as analysis:
        for index in range(10 * MAX_CHUNKS_A_BATCH):
            analysis.add([make_chunk(index)])
            assert index + 1 - len(kept) <= (MAX_BATCHES_AHEAD + 1) * MAX_CHUNKS_A_BATCH
        analysis.finish()


def test_an_error_of_the_analysis_ends_the_reading(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_texts: object, _characters: int) -> None:
        raise MemoryError

    monkeypatch.setattr(tokenize, "count_terms_and_leads", broken)
    with ChunkAnalysis(lambda _one: None) as analysis:
        analysis.add([make_chunk(0)])
        with pytest.raises(MemoryError):
            analysis.finish()
