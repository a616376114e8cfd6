"""From chunks to what search needs: terms and vectors, and the BM25 that every store follows."""

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice

from rag import tokenize
from rag.ports import Embedder
from rag.retrieve.candidates import MIN_KNOWN_SHARE
from rag.tokenize.text import estimate_dense_weight
from rag.types import IndexedChunk, TextChunk

K1 = 1.2
B = 0.75
REFERENCE_LENGTH = 250.0
"""`avgdl` of stored weights, in terms: measured 100 (English) to 550 (manuals with code).

One constant for all: the true mean changes with every upload and scope, stored figures must not.
"""
LEAST_EMPHASIS = 1.0
BACKGROUND = 1000
"""Chunks of ordinary prose that `coverage_weight` imagines beside the scope; see there."""


def compute_idf(df: float, total: float) -> float:
    """Weight of a term held by `df` of `total` chunks (Robertson and Spärck Jones)."""
    return math.log(1 + (total - df + 0.5) / (df + 0.5))


def compute_term_weight(
    tf: int, length: int, average_length: float, emphasis: float = 0.0
) -> float:
    """Saturated weight of a term that stands `tf` times in a chunk of `length` terms.

    `emphasis` (0, or `LEAST_EMPHASIS` and more) is what its title, section and first words add
    before saturation, whatever the chunk's length: BM25F (Robertson, Zaragoza and Taylor 2004).
    """
    norm = 1 - B + B * length / average_length if average_length else 1.0
    frequency = tf / norm + emphasis
    return frequency * (K1 + 1) / (frequency + K1)


def compute_coverage_weight(df: float, total: float) -> float:
    """What a term of the question weighs in `coverage`.

    Its IDF as if `BACKGROUND` more chunks stood beside the scope.

    In a scope of three chunks the plain IDF of a term that all hold is near nothing beside one that
    none holds, and a question that the scope answers would look uncovered. With the background,
    terms weigh alike in small scopes.
    """
    return math.log(1 + (total + BACKGROUND - df) / (df + 1))


TERMS_VERSION = 2
"""Raise it whenever the same text gets other terms or weights. From 2 on there are namespaces."""

WINDOW_CHUNKS = 512
"""Chunks that are looked at together: terms come from one batch, vectors from texts of one length
in a row, because a model computes every text of a batch as long as the longest."""
BATCH_CHUNKS = 32
TITLE_EMPHASIS = 4.0
SECTION_EMPHASIS = 1.0
LEAD_EMPHASIS = 1.0
"""See docs/notes/retrieval-measurements.md, "Fields", for how these were found."""
HEADER_EMPHASIS = 1.0
"""A header word counts once in each later part of its table."""

MAX_LEAD_CHARACTERS = 150
"""The first words of a passage say what it is about."""


def index_chunks(
    chunks: Iterable[TextChunk],
    title: str,
    embedder: Embedder,
    on_progress: Callable[[int, int], None],
    total: int,
) -> Iterator[IndexedChunk]:
    """Index the chunks of a document, in order; see `ChunkAnalyser` and `add_vectors`."""
    return add_vectors(ChunkAnalyser().analyse_chunks(chunks), title, embedder, on_progress, total)


def add_vectors(
    analysed: Iterable[IndexedChunk],
    title: str,
    embedder: Embedder,
    on_progress: Callable[[int, int], None],
    total: int,
) -> Iterator[IndexedChunk]:
    """Add vectors and the emphasis of the title to analysed chunks, a window at a time.

    `on_progress(done, total)` is called after every batch; what it raises ends it.

    Raises `EmbedderFailed`.
    """
    titled = _compute_title_emphasis(title)
    coming = iter(analysed)
    done = 0
    while window := list(islice(coming, WINDOW_CHUNKS)):
        vectors: list[tuple[float, ...] | None] = [None] * len(window)
        longest_first = sorted(
            range(len(window)), key=lambda index: -len(window[index].chunk.content)
        )
        for start in range(0, len(window), BATCH_CHUNKS):
            batch = longest_first[start : start + BATCH_CHUNKS]
            batch_vectors = embed_chunks(
                [(title, window[index].chunk) for index in batch], embedder
            )
            for index, vector in zip(batch, batch_vectors, strict=True):
                vectors[index] = vector
            on_progress(done + start + len(batch), total)
        for indexed, vector in zip(window, vectors, strict=True):
            yield IndexedChunk(
                indexed.chunk, indexed.terms, vector, _sum_weights(titled, indexed.emphasis)
            )
        done += len(window)


def index_terms(chunks: Iterable[TextChunk], title: str) -> Iterator[IndexedChunk]:
    """Chunks of a document, in order, with their terms and all of their emphasis; no vectors."""
    titled = _compute_title_emphasis(title)
    for analysed in ChunkAnalyser().analyse_chunks(chunks):
        yield IndexedChunk(
            analysed.chunk, analysed.terms, None, _sum_weights(titled, analysed.emphasis)
        )


def _compute_title_emphasis(title: str) -> dict[str, float]:
    return dict.fromkeys(tokenize.count_terms(title), TITLE_EMPHASIS)


class ChunkAnalyser:
    """Finds the terms of a document's chunks; remembers those of its sections and table headers."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[str, ...]] = {}

    def analyse_chunks(self, chunks: Iterable[TextChunk]) -> Iterator[IndexedChunk]:
        """Each chunk with its terms, in order, not yet with a vector; a window of them is held.

        The emphasis is that of the terms of all that it stands under, but for the title, and of
        those of its first words.
        """
        coming = iter(chunks)
        while window := list(islice(coming, WINDOW_CHUNKS)):
            self._remember_terms(
                {text for chunk in window for text in (chunk.section, chunk.header)}
            )
            read = tokenize.count_terms_and_leads(
                [chunk.text for chunk in window], MAX_LEAD_CHARACTERS
            )
            for chunk, (counts, lead) in zip(window, read, strict=True):
                emphasis = _sum_weights(
                    dict.fromkeys(self._known[chunk.section], SECTION_EMPHASIS),
                    dict.fromkeys(self._known[chunk.header], HEADER_EMPHASIS),
                    dict.fromkeys(lead, LEAD_EMPHASIS),
                )
                yield IndexedChunk(chunk, counts, None, emphasis)

    def _remember_terms(self, texts: set[str]) -> None:
        new = sorted(texts - self._known.keys())
        self._known |= zip(new, map(tuple, tokenize.count_terms_per_text(new)), strict=True)


def _sum_weights(*parts: Mapping[str, float]) -> dict[str, float]:
    total: dict[str, float] = defaultdict(float)
    for part in parts:
        for term, weight in part.items():
            total[term] += weight
    return dict(total)


def embed_chunks(
    titled: Sequence[tuple[str, TextChunk]], embedder: Embedder
) -> list[tuple[float, ...] | None]:
    """Vectors of chunks, each with the title of its document, whose language the embedder knows.

    None for others, which it would only place at random. Raises `EmbedderFailed`.
    """
    known = [
        i
        for i, (_title, chunk) in enumerate(titled)
        if estimate_dense_weight(chunk.text, embedder.languages) >= MIN_KNOWN_SHARE
    ]
    rows = embedder.embed_passages([to_embedded_text(*titled[i]) for i in known])
    found = {i: tuple(row) for i, row in zip(known, rows, strict=True)}
    return [found.get(i) for i in range(len(titled))]


def to_embedded_text(title: str, chunk: TextChunk) -> str:
    """The text of a chunk to embed, below the first line of the title."""
    return f"{title.partition(chr(10))[0]}\n{chunk.content}".lstrip()
