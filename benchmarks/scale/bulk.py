"""A million chunks in minutes: rows as the product writes them, in the binary form of COPY.

The product's own way of writing takes two milliseconds a chunk, most of them in text forms that
are made and read again. Here the same values are sent as Postgres keeps them; what the rows hold is
compared with `documents.search.bm25` before the first one is written.
"""

import itertools
import json
import random
import struct
import time
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any
from uuid import UUID

import numpy as np

from benchmarks.scale.corpus import CHUNKS_A_DOCUMENT, Corpus, Sized
from rag.indexing import K1, REFERENCE_LENGTH, TERMS_VERSION, B, compute_term_weight
from rag.ports import Embedder

if TYPE_CHECKING:
    from documents.models import Document, EmbeddingSpace

LIBRARIES = 10
"""A document is in one of them by chance: each holds a tenth of the chunks."""
DOCUMENTS_AT_ONCE = 320
COPY_HEADER = b"PGCOPY\n\xff\r\n\0" + struct.pack(">ii", 0, 0)
COPY_END = struct.pack(">h", -1)
NULL = struct.pack(">i", -1)
BOXES = (
    b"\x01"
    + json.dumps(
        [
            {"page": 1, "x0": 0.1, "y0": 0.2, "x1": 0.8, "y1": 0.3},
            {"page": 1, "x0": 0.1, "y0": 0.3, "x1": 0.8, "y1": 0.4},
        ]
    ).encode()
)
SECTION = "제1장 > 제1절"
COPY_CHUNKS = (
    'COPY documents_chunk (id, document_id, owner_id, index, text, start, "end", page, page_end, '
    "section, boxes, kind, header, term_count, lexemes) FROM STDIN (FORMAT BINARY)"
)
COPY_TERMS = (
    "COPY documents_chunkterms (chunk_id, document_id, length, marks, surplus) "
    "FROM STDIN (FORMAT BINARY)"
)
COPY_VECTORS = (
    "COPY documents_chunkembedding (chunk_id, space_id, document_id, vector) "
    "FROM STDIN (FORMAT BINARY)"
)
COLUMNS = """
    SELECT lexemes = %s::tsvector, terms.marks = %s::sparsevec,
           coalesce(l2_norm(terms.surplus), 0) - coalesce(l2_norm(%s::sparsevec), 0)
      FROM documents_chunk chunk JOIN documents_chunkterms terms ON terms.chunk_id = chunk.id
     WHERE chunk.id = %s
"""
LEXICAL_INDEX = (
    "CREATE INDEX chunk_lexemes ON documents_chunk USING gin (lexemes) WITH (fastupdate = off)"
)
CODES = "SELECT write_vector_codes(id, %s) FROM documents_document"
"""What the database does by itself where its triggers are on."""
Row = bytes


class Encoder:
    """Values of a chunk as Postgres sends and takes them; remembers what belongs to a term."""

    def __init__(self, dimensions: int) -> None:
        self._dimensions = dimensions
        self._places: dict[str, int] = {}
        self._lexemes: dict[str, bytes] = {}

    def encode_lexemes(self, terms: Iterable[str]) -> bytes:
        """A tsvector without positions."""
        known = self._lexemes
        parts = []
        for term in terms:
            if term not in known:
                known[term] = term.encode() + b"\0\0\0"
            parts.append(known[term])
        return struct.pack(">i", len(parts)) + b"".join(parts)

    def encode_marks(self, terms: dict[str, int], length: int) -> tuple[bytes, bytes | None]:
        """Marks and surplus; see `documents.search.bm25`."""
        places, inverse = np.unique(self._find_places(terms), return_inverse=True)
        counts = np.bincount(inverse, list(terms.values()))
        several = counts > 1
        marks = self._encode_sparse(places, np.where(several, 2.0, 1.0))
        if not several.any():
            return marks, None
        once = compute_term_weight(1, length, REFERENCE_LENGTH)
        frequency = counts[several] / (1 - B + B * length / REFERENCE_LENGTH)
        more = frequency * (K1 + 1) / (frequency + K1) - once
        return marks, self._encode_sparse(places[several], more)

    def _find_places(self, terms: Iterable[str]) -> list[int]:
        from documents.search import bm25

        known = self._places
        found = []
        for term in terms:
            if term not in known:
                known[term] = bm25.hash_term(term) - 1
            found.append(known[term])
        return found

    def _encode_sparse(self, places: "np.ndarray", values: "np.ndarray") -> bytes:
        head = struct.pack(">iii", self._dimensions, len(places), 0)
        return head + places.astype(">i4").tobytes() + values.astype(">f4").tobytes()


def fill(corpus: Corpus, size: int, space_of: Embedder) -> None:
    """Documents, chunks, terms and vectors; the lexical index, then the vectors' one."""
    from django.contrib.auth.models import User
    from django.db import connection

    from documents import spaces

    owner, _ = User.objects.get_or_create(username="bench")
    space = spaces.get_active_space() or spaces.ensure_active_space(space_of)
    with connection.cursor() as cursor:
        cursor.execute("SET synchronous_commit = off")
        cursor.execute("SET session_replication_role = replica")  # no check of keys for each row
        cursor.execute("TRUNCATE documents_document, documents_library CASCADE")
        cursor.execute("TRUNCATE documents_vectorcodes, documents_unsegmenteddocument")
        cursor.execute("TRUNCATE documents_postings, documents_postingsegment")
        for name in ("chunk_lexemes", spaces.to_index_name(space)):
            cursor.execute(f'DROP INDEX IF EXISTS "{name}"')
        made = list(_add_documents(owner, -(-size // CHUNKS_A_DOCUMENT), size))
        _copy(cursor, zip(made, corpus.documents(size), strict=True), owner.pk, space.pk)
        cursor.execute(
            "SELECT setval(pg_get_serial_sequence('documents_chunk', 'id'), %s)", [size + 1]
        )
        cursor.execute("SET session_replication_role = origin")
        cursor.execute(CODES, [space.pk])
        cursor.execute("VACUUM (ANALYZE)")
        cursor.execute("SELECT set_config('maintenance_work_mem', '2GB', false)")
        _time("the word index", lambda: cursor.execute(LEXICAL_INDEX))
        _time("the graph of the vectors", lambda: _make_graph(space, size))
        cursor.execute("SELECT set_config('maintenance_work_mem', '64MB', false)")
    spaces.measure_unrelated(space)


def _make_graph(space: "EmbeddingSpace", size: int) -> None:
    """As a small installation has it, and a large one whose administrator did what he was told."""
    from documents import spaces

    if size < spaces.LARGE_GRAPH:
        spaces.build_index(space)
    else:
        spaces.renew_graph(space, f"{spaces.estimate_graph_megabytes(space)}MB")


def _time(what: str, work: Callable[[], object]) -> None:
    begun = time.perf_counter()
    work()
    print(f"{what} took {time.perf_counter() - begun:.0f} s", flush=True)


INDEXED = {
    "status": "COMPLETED",
    "stage": "done",
    "page_count": 10,
    "terms_version": TERMS_VERSION,
}


def make_document(number: int, **given: Any) -> "Document":
    """A document that is not saved yet, as just uploaded; `INDEXED`: as read and embedded, too."""
    from documents.models import Document

    name = f"문서 {number:05d}.pdf"
    return Document(
        name=name,
        original_name=name,
        file=f"documents/{number}/original.pdf",
        content_type="application/pdf",
        size=1,
        sha256=f"{number:064x}",
        **given,
    )


def _add_documents(owner: object, count: int, size: int) -> Iterator[tuple[UUID, int]]:
    """The documents' rows; key and namespace of each."""
    from django.utils import timezone

    from documents import metadata
    from documents.models import Document, DocumentLabel, Library

    libraries = Library.objects.bulk_create(
        [Library(name=f"library{number}") for number in range(LIBRARIES)]
    )
    chance, now = random.Random(29), timezone.now()
    for numbers in _batches(count):
        rows = [
            make_document(
                number,
                pk=UUID(int=chance.getrandbits(128), version=4),
                owner=owner,
                library=chance.choice(libraries),
                **INDEXED,
                chunk_count=min(CHUNKS_A_DOCUMENT, size - number * CHUNKS_A_DOCUMENT),
                indexed_at=now,
            )
            for number in numbers
        ]
        for row in rows:
            row.namespace = row.choose_namespace()
        Document.objects.bulk_create(rows)
        DocumentLabel.objects.bulk_create(
            DocumentLabel(document=row, field=field, value=value, name=name)
            for row in rows
            for (field, name), value in metadata.list_labels(row.name, {}).items()
        )
        yield from ((row.pk, row.namespace) for row in rows)


def _batches(count: int) -> Iterator[range]:
    for start in range(0, count, 2_000):
        yield range(start, min(start + 2_000, count))


def _copy(
    cursor: object,
    documents: Iterator[tuple[tuple[UUID, int], list[Sized]]],
    owner: int,
    space: int,
) -> None:
    from documents.models import LEXICAL_DIMENSIONS

    encoder, key, begun = Encoder(LEXICAL_DIMENSIONS), 0, time.perf_counter()
    while part := list(itertools.islice(documents, DOCUMENTS_AT_ONCE)):
        tables: tuple[list[Row], list[Row], list[Row]] = ([], [], [])
        first = key + 1
        for (document, namespace), chunks in part:
            for place, chunk in enumerate(chunks):
                key += 1
                made = _encode(encoder, key, document, namespace, place, chunk, owner, space)
                for rows, row in zip(tables, made, strict=True):
                    rows.append(row)
        for statement, rows in zip((COPY_CHUNKS, COPY_TERMS, COPY_VECTORS), tables, strict=True):
            with cursor.copy(statement) as copy:  # type: ignore[attr-defined]
                copy.write(COPY_HEADER + b"".join(rows) + COPY_END)
        if first == 1:
            (_, namespace), (chunk, *_) = part[0]
            _compare(cursor, chunk, namespace)
        print(f"{key} chunks after {time.perf_counter() - begun:.0f} s", flush=True)


def _encode(  # noqa: PLR0913, PLR0917
    encoder: Encoder,
    key: int,
    document: UUID,
    namespace: int,
    place: int,
    chunk: Sized,
    owner: int,
    space: int,
) -> tuple[Row, Row, Row]:
    """The rows of a chunk in its three tables."""
    from documents.search import bm25

    terms = bm25.clean_terms(chunk.terms)
    length = sum(terms.values())
    marks, surplus = encoder.encode_marks(terms, length)
    vector = struct.pack(">hh", len(chunk.vector), 0) + chunk.vector.astype(">f2").tobytes()
    number, small, text = struct.Struct(">q").pack, struct.Struct(">i").pack, chunk.text
    one = small(1)
    return (
        _row(
            number(key),
            document.bytes,
            number(owner),
            small(place),
            text.encode(),
            small(0),
            small(len(text)),
            one,
            one,
            SECTION.encode(),
            BOXES,
            b"text",
            b"",
            small(length),
            encoder.encode_lexemes([*terms, bm25.to_namespace_term(namespace)]),
        ),
        _row(number(key), document.bytes, small(length), marks, surplus),
        _row(number(key), number(space), document.bytes, vector),
    )


def _row(*values: bytes | None) -> Row:
    fields = (NULL if one is None else struct.pack(">i", len(one)) + one for one in values)
    return struct.pack(">h", len(values)) + b"".join(fields)


def _compare(cursor: object, chunk: Sized, namespace: int) -> None:
    """The first chunk, as the product would have written it. Raises `AssertionError`."""
    from documents.search import bm25
    from rag.types import IndexedChunk, TextChunk

    cut = TextChunk(0, chunk.text, 0, len(chunk.text), 1, 1, SECTION, ())
    row = bm25.to_lexical_row(IndexedChunk(cut, chunk.terms, None), namespace)
    cursor.execute(COLUMNS, (row.lexemes, row.marks, row.surplus, 1))  # type: ignore[attr-defined]
    lexemes, marks, difference = cursor.fetchone()  # type: ignore[attr-defined]
    assert lexemes, "lexemes differ"
    assert marks, "marks differ"
    assert abs(difference) < 1e-5, "surplus differs"
