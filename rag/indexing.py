"""From chunks to what search needs: terms and vectors, in batches with progress."""

from collections.abc import Callable, Sequence

from rag import tokenize
from rag.language import dense_weight
from rag.ports import Embedder
from rag.retrieval.similarity import KNOWN
from rag.types import Chunk, IndexedChunk

BATCH = 32


def index(
    chunks: Sequence[Chunk],
    title: str,
    embedder: Embedder,
    on_progress: Callable[[int, int], None],
) -> list[IndexedChunk]:
    """Index the chunks of a document.

    `on_progress(done, total)` is called after every batch; what it raises ends it.

    Raises `EmbedderFailed`.
    """
    indexed: list[IndexedChunk] = []
    for start in range(0, len(chunks), BATCH):
        batch = chunks[start : start + BATCH]
        terms = _terms(batch, title)
        found = vectors([(title, chunk) for chunk in batch], embedder)
        indexed += [
            IndexedChunk(chunk, counts, vector)
            for chunk, counts, vector in zip(batch, terms, found, strict=True)
        ]
        on_progress(len(indexed), len(chunks))
    return indexed


def _terms(batch: Sequence[Chunk], title: str) -> list[dict[str, int]]:
    texts = list(tokenize.terms_of_all([chunk.text for chunk in batch]))
    headings = list(tokenize.terms_of_all([f"{title}\n{chunk.section}" for chunk in batch]))
    return [
        tokenize.chunk_terms(text, heading) for text, heading in zip(texts, headings, strict=True)
    ]


def vectors(
    titled: Sequence[tuple[str, Chunk]], embedder: Embedder
) -> list[tuple[float, ...] | None]:
    """Vectors of chunks, each with the title of its document, whose language the embedder knows.

    None for others, which it would only place at random. Raises `EmbedderFailed`.
    """
    known = [
        i
        for i, (_title, chunk) in enumerate(titled)
        if dense_weight(chunk.text, embedder.languages) >= KNOWN
    ]
    rows = embedder.embed_passages([embedded_text(*titled[i]) for i in known])
    found = {i: tuple(row) for i, row in zip(known, rows, strict=True)}
    return [found.get(i) for i in range(len(titled))]


def embedded_text(_title: str, chunk: Chunk) -> str:
    """What of a chunk is embedded."""
    return chunk.text
