"""From chunks to what search needs: terms and vectors, in batches with progress."""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence

from rag import tokenize
from rag.language import dense_weight
from rag.ports import Embedder
from rag.retrieval.similarity import KNOWN
from rag.types import Chunk, IndexedChunk

BATCH = 32
TITLE_EMPHASIS = 4.0
SECTION_EMPHASIS = 1.0
LEAD_EMPHASIS = 1.0
"""See docs/retrieval.md, "Fields", for how these were found."""

LEAD_CHARACTERS = 150
"""A passage says in its first words what it is about."""


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
            IndexedChunk(chunk, counts, vector, emphasis)
            for chunk, (counts, emphasis), vector in zip(batch, terms, found, strict=True)
        ]
        on_progress(len(indexed), len(chunks))
    return indexed


def _terms(batch: Sequence[Chunk], title: str) -> list[tuple[dict[str, int], dict[str, float]]]:
    """The terms of each chunk, and the emphasis of those of its title, section and first words."""
    texts = tokenize.terms_of_all([chunk.text for chunk in batch])
    leads = tokenize.terms_of_all([chunk.text[:LEAD_CHARACTERS] for chunk in batch])
    sections = tokenize.terms_of_all([chunk.section for chunk in batch])
    titled = dict.fromkeys(tokenize.terms(title), TITLE_EMPHASIS)
    return [
        (
            text,
            _sums(
                titled, dict.fromkeys(section, SECTION_EMPHASIS), dict.fromkeys(lead, LEAD_EMPHASIS)
            ),
        )
        for text, section, lead in zip(texts, sections, leads, strict=True)
    ]


def _sums(*parts: Mapping[str, float]) -> dict[str, float]:
    total: dict[str, float] = defaultdict(float)
    for part in parts:
        for term, weight in part.items():
            total[term] += weight
    return dict(total)


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


def embedded_text(title: str, chunk: Chunk) -> str:
    """What of a chunk is embedded: its text under the first line of the title."""
    return f"{title.partition(chr(10))[0]}\n{chunk.text}".lstrip()
