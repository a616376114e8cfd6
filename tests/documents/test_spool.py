"""What an ingest keeps on disk while it works."""

from pathlib import Path

import pytest

from documents import index, spaces
from documents.errors import StorageFull
from documents.index import ChunkSpool, Spool
from documents.models import Chunk, DocumentPage
from rag.types import Box, IndexedChunk, Kind, Page
from rag.types import TextChunk as CutChunk
from tests.documents.conftest import TinyEmbedder, make_row, store_rows
from tests.documents.test_ingest import run, upload

AWKWARD = 'a\tb\\nc\nd\r\\\\ \\N \\. "quoted" {1,2} \x1f 가나다 👩‍👩‍👧 \u2028'


def test_chunks_come_back_as_they_were():
    plain = CutChunk(0, AWKWARD, 3, 9, None, None, "절 > 1")
    table = CutChunk(
        1, "값", 9, 10, 2, 2, "", (Box(2, 0.1, 0.2, 0.3, 0.4),), Kind.TABLE, "| 이름 | 값 |"
    )
    analysed = [
        IndexedChunk(plain, {"값\\'\t": 2}, None),
        IndexedChunk(table, {"값": 1}, None, {"이름": 1.5, "절": 1.0}),
    ]
    with ChunkSpool() as chunks:
        for one in analysed:
            chunks.add(one)
        assert chunks.count == 2
        assert list(chunks) == analysed
        assert list(chunks) == analysed


@pytest.mark.django_db
def test_texts_with_any_character_are_stored_as_they_are(owner):
    make_row(owner)
    embedder = TinyEmbedder()
    chunk = CutChunk(0, AWKWARD, 0, len(AWKWARD), 1, 1, "절\t1", (), Kind.TABLE, "머리\n글\\")
    indexed = IndexedChunk(chunk, {"값\\'\t": 1, "\n": 2}, tuple(embedder.embed_query("a")))
    space = spaces.ensure_active_space(embedder)
    store_rows([Page(1, AWKWARD, margins=("위\t", "아래\\"))], [indexed], space)
    stored = Chunk.objects.get()
    assert (stored.text, stored.section, stored.header) == (AWKWARD, "절\t1", "머리\n글\\")
    assert (stored.kind, stored.embeddings.count()) == ("table", 1)
    page = DocumentPage.objects.get()
    assert (page.text, page.margins) == (AWKWARD, ["위\t", "아래\\"])


def test_nothing_of_a_spool_is_left_on_disk(tmp_path):
    with Spool() as spool:
        spool.write(b"x" * 2_000_000)
        assert sum(map(len, spool.read_blocks())) == 2_000_000
        assert not list((tmp_path / "temp").iterdir())


@pytest.mark.django_db
def test_a_full_disk_ends_the_document_with_a_clear_reason(owner, sent, tiny_engine, monkeypatch):
    full = Path("/dev/full")
    if not full.exists():
        pytest.skip("this system has no full device")
    monkeypatch.setattr("tempfile.TemporaryFile", lambda **_: full.open("wb", buffering=0))
    document = run(upload(owner))
    assert (document.status, document.error_code) == ("FAILED", "storage_full")
    with pytest.raises(StorageFull), Spool() as spool:
        spool.write(b"x")


@pytest.mark.django_db
def test_an_index_is_written_anew_for_another_space(owner):
    document = make_row(owner)
    embedder = TinyEmbedder()
    chunk = CutChunk(0, "하나", 0, 2, None, None, "")
    indexed = IndexedChunk(chunk, {"하나": 1}, tuple(embedder.embed_query("a")))
    with index.IndexDraft(document) as draft:
        draft.index([indexed] * 3, spaces.ensure_active_space(embedder))
        draft.index([indexed], spaces.ensure_active_space(embedder))
        assert draft.chunk_count == 1
