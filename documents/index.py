"""Replaces a document's pages, chunks and vectors, by COPY, in one transaction.

The rows are written to disk first, so that they never are in memory and the transaction is short.
They wait in files without names, which end with their process.
"""

import json
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self
from uuid import UUID

from django.conf import settings
from django.db import connection, transaction
from django.db.backends.utils import CursorWrapper

from documents import metadata, queue, spaces
from documents.files import to_storage_error
from documents.models import (
    Chunk,
    ChunkEmbedding,
    ChunkTerms,
    Document,
    DocumentPage,
    EmbeddingSpace,
    RecognisedPage,
)
from documents.representation import StoredWarning
from documents.search import bm25, store
from jobs.lease import Lease, LeaseLostError
from rag.indexing import TERMS_VERSION
from rag.types import Box, IndexedChunk, Kind, Page
from rag.types import TextChunk as CutChunk

BLOCK_BYTES = 256 * 1024


class Spool:
    """Bytes that are written once and read back in order. Used within a `with`.

    Raises `StorageFull` or `StorageFailed`.
    """

    def __init__(self) -> None:
        with _raise_storage_errors():
            folder = Path(settings.DATA_DIR) / "temp"
            folder.mkdir(parents=True, exist_ok=True)
            self._file = tempfile.TemporaryFile(dir=folder, buffering=BLOCK_BYTES)  # noqa: SIM115

    def write(self, data: bytes) -> None:
        """Put `data` behind what is there."""
        with _raise_storage_errors():
            self._file.write(data)

    def clear(self) -> None:
        """Start over."""
        with _raise_storage_errors():
            self._file.seek(0)
            self._file.truncate()

    def read_blocks(self) -> Iterator[bytes]:
        """All of it, in pieces for a pipe."""
        with _raise_storage_errors():
            self._file.seek(0)
        while block := self._file.read(BLOCK_BYTES):
            yield block

    def read_lines(self) -> Iterator[bytes]:
        """All of it, by line."""
        with _raise_storage_errors():
            self._file.seek(0)
        yield from self._file

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with _raise_storage_errors():
            self._file.close()


class ChunkSpool(Spool):
    """The analysed chunks of a document. They can be walked through more than once."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def add(self, analysed: IndexedChunk) -> None:
        """Put a chunk with its terms, not yet with a vector, behind the others."""
        value = [*_to_values(analysed.chunk), analysed.terms, analysed.emphasis]
        self.write(json.dumps(value).encode() + b"\n")
        self.count += 1

    def __iter__(self) -> Iterator[IndexedChunk]:
        for line in self.read_lines():
            *value, terms, emphasis = json.loads(line)
            yield IndexedChunk(_from_values(value), terms, None, emphasis)


def _to_values(chunk: CutChunk) -> list[Any]:
    boxes = [(box.page, box.x0, box.y0, box.x1, box.y1) for box in chunk.boxes]
    place = (chunk.start, chunk.end, chunk.page, chunk.page_end)
    return [chunk.index, chunk.text, *place, chunk.section, boxes, chunk.kind, chunk.header]


def _from_values(value: Sequence[Any]) -> CutChunk:
    index, text, *place, section, boxes, kind, header = value
    start, end, page, page_end = place
    drawn = tuple(Box(*box) for box in boxes)
    return CutChunk(index, text, start, end, page, page_end, section, drawn, Kind(kind), header)


@contextmanager
def _raise_storage_errors() -> Iterator[None]:
    """Errors of the file system as errors that people can read about."""
    try:
        yield
    except OSError as error:
        raise to_storage_error(error) from error


COPY_PAGES = (
    "COPY documents_documentpage (document_id, number, start, text, margins, headings) FROM STDIN"
)
COPY_CHUNKS = (
    'COPY documents_chunk (id, document_id, owner_id, index, text, start, "end", page, page_end, '
    "section, boxes, kind, header, term_count, lexemes) FROM STDIN"
)
COPY_TERMS = "COPY documents_chunkterms (chunk_id, document_id, length, marks, surplus) FROM STDIN"
COPY_EMBEDDINGS = (
    "COPY documents_chunkembedding (chunk_id, space_id, document_id, vector) FROM STDIN"
)
NEW_KEYS = (
    "SELECT nextval(pg_get_serial_sequence('documents_chunk', 'id')) FROM generate_series(1, %s)"
)
KEYS_AT_ONCE = 500
NULL = "\\N"
ESCAPES = (("\\", r"\\"), ("\t", r"\t"), ("\n", r"\n"), ("\r", r"\r"))
"""The backslash comes first, as the others bring some."""
COORDINATE_DIGITS = 5


class IndexDraft:
    """The rows of a document to be, as COPY takes them, on disk. Used within a `with`.

    Raises `StorageFull` or `StorageFailed`.
    """

    def __init__(self, document: Document) -> None:
        self.page_count: int | None = None
        self.chunk_count = 0
        self.namespace = document.choose_namespace()
        self._document = document
        with ExitStack() as opened:
            spools = [opened.enter_context(Spool()) for _ in range(4)]
            self._opened = opened.pop_all()
        self._pages, self._chunks, self._terms, self._vectors = spools

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._opened.close()

    def add_page(self, page: Page, start: int) -> None:
        """The next page, which begins at offset `start` of the whole text."""
        margins = json.dumps([_to_storable(text) for text in page.margins])
        text = _to_storable(page.text)
        headings = json.dumps(
            [
                {"start": one.start, "level": one.level, "title": _to_storable(one.title)}
                for one in page.headings
            ]
        )
        row = (self._document.pk, page.number or 1, start, text, margins, headings)
        self._pages.write(_to_copy_line(row))
        self.page_count = max(self.page_count or 0, page.number or 0) or None

    def index(self, chunks: Iterable[IndexedChunk], space: EmbeddingSpace) -> None:
        """All chunks, embedded in this space, in place of those from before."""
        for spool in (self._chunks, self._terms, self._vectors):
            spool.clear()
        self.chunk_count = 0
        for key, indexed in zip(_draw_keys(), chunks, strict=False):
            self._add_chunk(key, indexed, space)
            self.chunk_count += 1

    def copy(self, cursor: CursorWrapper) -> None:
        """Write the rows."""
        statements = (COPY_PAGES, COPY_CHUNKS, COPY_TERMS, COPY_EMBEDDINGS)
        spools = (self._pages, self._chunks, self._terms, self._vectors)
        for statement, spool in zip(statements, spools, strict=True):
            # Django lets psycopg's own errors out of `copy`, which nobody takes for an outage
            with cursor.db.wrap_database_errors, cursor.copy(statement) as copy:
                for block in spool.read_blocks():
                    copy.write(block)

    def _add_chunk(self, key: int, indexed: IndexedChunk, space: EmbeddingSpace) -> None:
        row = bm25.to_lexical_row(indexed, self.namespace)
        self._chunks.write(_to_copy_line(_to_chunk_row(key, self._document, indexed.chunk, row)))
        terms = (key, self._document.pk, row.length, row.marks, row.surplus)
        self._terms.write(_to_copy_line(terms))
        if indexed.vector is not None:
            vector = store.to_halfvec(indexed.vector)
            self._vectors.write(_to_copy_line((key, space.pk, self._document.pk, vector)))


@dataclass(frozen=True, slots=True)
class IngestFindings:
    """What an ingest found besides text. `seconds` returns the time of each stage."""

    metadata: dict[str, str] = field(default_factory=dict)
    warnings: Sequence[StoredWarning] = ()
    seconds: Callable[[], dict[str, float]] = dict


def replace_index(
    lease: Lease[Document],
    draft: IndexDraft,
    found: IngestFindings,
    space: EmbeddingSpace,
    beside: Callable[[], None] = lambda: None,
) -> None:
    """Put the new rows in place of the old and complete the document, or change nothing.

    `beside` does what else belongs into the transaction, while the old rows are still there.
    Raises `LeaseLostError`, and `SpaceChangedError` when `space` is not the active one.
    """
    with transaction.atomic(), connection.cursor() as cursor:
        spaces.hold_active_space(space)
        document = lease.rows().select_for_update().first()
        if document is None:
            raise LeaseLostError
        beside()
        delete_index(document.pk)
        draft.copy(cursor)
        document.refresh_from_db(fields=("name",))  # a new version may have brought another
        shown = metadata.merge_metadata(found.metadata, document.stated)
        metadata.rewrite_labels(document.pk, document.name, shown)
        queue.complete_document(
            lease,
            page_count=draft.page_count,
            pages_done=draft.page_count or 1,
            chunk_count=draft.chunk_count,
            metadata=shown,
            warnings=list(found.warnings),
            seconds=found.seconds(),
            terms_version=TERMS_VERSION,
            namespace=draft.namespace,
        )


def delete_index(document_id: UUID) -> None:
    """Delete pages, chunks and vectors without reading them. The caller holds the row.

    What is kept of recognised pages goes as well: the index holds it, or nothing needs it.
    """
    for rows in (
        ChunkEmbedding.objects.filter(document_id=document_id),
        ChunkTerms.objects.filter(document_id=document_id),
        Chunk.objects.filter(document_id=document_id),
        DocumentPage.objects.filter(document_id=document_id),
        RecognisedPage.objects.filter(document_id=document_id),
    ):
        rows._raw_delete(rows.db)  # noqa: SLF001 - `delete` would load every chunk with its text


def _draw_keys() -> Iterator[int]:
    """New keys for chunks; what stays unused is only a gap."""
    while True:
        with connection.cursor() as cursor:
            cursor.execute(NEW_KEYS, (KEYS_AT_ONCE,))
            keys = [row[0] for row in cursor.fetchall()]
        yield from keys


def _to_chunk_row(
    key: int, document: Document, chunk: CutChunk, row: bm25.LexicalRow
) -> tuple[object, ...]:
    return (
        key,
        document.pk,
        document.owner_id,
        chunk.index,
        _to_storable(chunk.text),
        chunk.start,
        chunk.end,
        chunk.page,
        chunk.page_end,
        _to_storable(chunk.section),
        json.dumps([_to_box_json(box) for box in chunk.boxes]),
        chunk.kind,
        _to_storable(chunk.header),
        row.length,
        row.lexemes,
    )


def _to_copy_line(values: Iterable[object]) -> bytes:
    r"""A row in the text form of COPY: tabs between values, \N for NULL."""
    return ("\t".join(map(_to_copy_field, values)) + "\n").encode()


def _to_copy_field(value: object) -> str:
    if value is None:
        return NULL
    text = str(value)
    for character, escaped in ESCAPES:  # far faster than `translate`, as texts hold few of them
        text = text.replace(character, escaped)
    return text


def _to_storable(text: str) -> str:
    """Without NUL and half surrogate pairs; what replaces them keeps the offsets true."""
    return text.replace("\0", "\ufffd").encode("utf-8", "replace").decode()


def _to_box_json(box: Box) -> dict[str, float]:
    sides = {"x0": box.x0, "y0": box.y0, "x1": box.x1, "y1": box.y1}
    return {"page": box.page} | {name: round(at, COORDINATE_DIGITS) for name, at in sides.items()}
