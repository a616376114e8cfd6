"""Stores what an ingest makes of a document.

Pages, chunks and vectors are replaced by COPY, in one transaction. The rows are spooled to disk
first, so that they need no memory and the transaction is short. The spool files have no names and
vanish with their process.

Recognised pages are stored as they come, and deleted when the index is written (`delete_index`):
no page is recognised twice. A worker that stops, dies or passes its turn on loses only the pages it
was working on.
"""

import json
import tempfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self
from uuid import UUID

from django.conf import settings
from django.db import IntegrityError, connection, transaction
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
from rag.types import Box, IndexedChunk, Kind, Page, TextChunk

BLOCK_BYTES = 256 * 1024


class Spool:
    """Bytes that are written to disk and read back in order. A context manager.

    Raises `StorageFull` or `StorageFailed`.
    """

    def __init__(self) -> None:
        with _raise_storage_errors():
            folder = Path(settings.DATA_DIR) / "temp"
            folder.mkdir(parents=True, exist_ok=True)
            self._file = tempfile.TemporaryFile(dir=folder, buffering=BLOCK_BYTES)  # noqa: SIM115

    def write(self, data: bytes) -> None:
        """Append data."""
        with _raise_storage_errors():
            self._file.write(data)

    def clear(self) -> None:
        """Remove everything."""
        with _raise_storage_errors():
            self._file.seek(0)
            self._file.truncate()

    def read_blocks(self) -> Iterator[bytes]:
        """Everything, in blocks."""
        with _raise_storage_errors():
            self._file.seek(0)
        while block := self._file.read(BLOCK_BYTES):
            yield block

    def read_lines(self) -> Iterator[bytes]:
        """Everything, line by line."""
        with _raise_storage_errors():
            self._file.seek(0)
        yield from self._file

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with _raise_storage_errors():
            self._file.close()


class ChunkSpool(Spool):
    """The analysed chunks of a document; they can be iterated more than once."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def add(self, chunk: IndexedChunk) -> None:
        """Append a chunk with its terms, without a vector."""
        values = [*_to_values(chunk.chunk), chunk.terms, chunk.emphasis]
        self.write(json.dumps(values).encode() + b"\n")
        self.count += 1

    def __iter__(self) -> Iterator[IndexedChunk]:
        for line in self.read_lines():
            *values, terms, emphasis = json.loads(line)
            yield IndexedChunk(_from_values(values), terms, None, emphasis)


def _to_values(chunk: TextChunk) -> list[Any]:
    boxes = [(box.page, box.x0, box.y0, box.x1, box.y1) for box in chunk.boxes]
    span = (chunk.start, chunk.end, chunk.page, chunk.page_end)
    return [chunk.index, chunk.text, *span, chunk.section, boxes, chunk.kind, chunk.header]


def _from_values(values: Sequence[Any]) -> TextChunk:
    index, text, *span, section, boxes, kind, header = values
    start, end, page, page_end = span
    chunk_boxes = tuple(Box(*box) for box in boxes)
    return TextChunk(
        index, text, start, end, page, page_end, section, chunk_boxes, Kind(kind), header
    )


@contextmanager
def _raise_storage_errors() -> Iterator[None]:
    """Raise errors of the file system as errors that are explained to people."""
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
SELECT_NEW_KEYS = (
    "SELECT nextval(pg_get_serial_sequence('documents_chunk', 'id')) FROM generate_series(1, %s)"
)
KEYS_PER_QUERY = 500
NULL = "\\N"
ESCAPES = (("\\", r"\\"), ("\t", r"\t"), ("\n", r"\n"), ("\r", r"\r"))
"""The backslash comes first, because the others add some."""
COORDINATE_DIGITS = 5


class IndexDraft:
    """The future rows of a document, on disk in the format of COPY. A context manager.

    Raises `StorageFull` or `StorageFailed`.
    """

    def __init__(self, document: Document) -> None:
        self.page_count: int | None = None
        self.chunk_count = 0
        self.namespace = document.choose_namespace()
        self._document = document
        with ExitStack() as stack:
            spools = [stack.enter_context(Spool()) for _ in range(4)]
            self._stack = stack.pop_all()
        self._pages, self._chunks, self._terms, self._vectors = spools

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def add_page(self, page: Page, start: int) -> None:
        """Add the next page, which begins at offset `start` of the whole text."""
        margins = json.dumps([_to_storable(text) for text in page.margins])
        text = _to_storable(page.text)
        headings = json.dumps(
            [
                {
                    "start": heading.start,
                    "level": heading.level,
                    "title": _to_storable(heading.title),
                }
                for heading in page.headings
            ]
        )
        row = (self._document.pk, page.number or 1, start, text, margins, headings)
        self._pages.write(_to_copy_line(row))
        self.page_count = max(self.page_count or 0, page.number or 0) or None

    def index(self, chunks: Iterable[IndexedChunk], space: EmbeddingSpace) -> None:
        """Write all chunks, embedded in this space; those written before are discarded."""
        for spool in (self._chunks, self._terms, self._vectors):
            spool.clear()
        self.chunk_count = 0
        for key, indexed in zip(_generate_keys(), chunks, strict=False):
            self._add_chunk(key, indexed, space)
            self.chunk_count += 1

    def copy_rows(self, cursor: CursorWrapper) -> None:
        """Write the rows to the database."""
        statements = (COPY_PAGES, COPY_CHUNKS, COPY_TERMS, COPY_EMBEDDINGS)
        spools = (self._pages, self._chunks, self._terms, self._vectors)
        for statement, spool in zip(statements, spools, strict=True):
            # else `cursor.copy` raises errors of psycopg, which nothing treats as an outage
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
    """What an ingest found besides text; `seconds` returns the time of each stage."""

    metadata: dict[str, str] = field(default_factory=dict)
    warnings: Sequence[StoredWarning] = ()
    seconds: Callable[[], dict[str, float]] = dict


def replace_index(
    lease: Lease[Document],
    draft: IndexDraft,
    findings: IngestFindings,
    space: EmbeddingSpace,
    write_related: Callable[[], None] = lambda: None,
) -> None:
    """Replace the old rows by the new ones and complete the document, or change nothing.

    `write_related` writes what else belongs into the transaction, while the old rows still exist.
    Raises `LeaseLostError`, and `SpaceChangedError` if `space` is not the active one.
    """
    with transaction.atomic(), connection.cursor() as cursor:
        spaces.lock_active_space(space)
        document = lease.rows().select_for_update().first()
        if document is None:
            raise LeaseLostError
        write_related()
        delete_index(document.pk)
        draft.copy_rows(cursor)
        document.refresh_from_db(fields=("name",))  # a new version may have brought another
        merged = metadata.merge_metadata(findings.metadata, document.stated)
        metadata.rewrite_labels(document.pk, document.name, merged)
        queue.complete_document(
            lease,
            page_count=draft.page_count,
            pages_done=draft.page_count or 1,
            chunk_count=draft.chunk_count,
            metadata=merged,
            warnings=list(findings.warnings),
            seconds=findings.seconds(),
            terms_version=TERMS_VERSION,
            namespace=draft.namespace,
        )


def delete_index(document_id: UUID) -> None:
    """Delete pages, chunks and vectors without loading them. The caller has locked the row.

    Recognised pages are deleted as well: they are in the new index, or nothing needs them.
    """
    for rows in (
        ChunkEmbedding.objects.filter(document_id=document_id),
        ChunkTerms.objects.filter(document_id=document_id),
        Chunk.objects.filter(document_id=document_id),
        DocumentPage.objects.filter(document_id=document_id),
        RecognisedPage.objects.filter(document_id=document_id),
    ):
        rows._raw_delete(rows.db)  # noqa: SLF001 - `delete` would load every chunk with its text


def _generate_keys() -> Iterator[int]:
    """New keys for chunks; unused ones only leave a gap."""
    while True:
        with connection.cursor() as cursor:
            cursor.execute(SELECT_NEW_KEYS, (KEYS_PER_QUERY,))
            keys = [row[0] for row in cursor.fetchall()]
        yield from keys


def _to_chunk_row(
    key: int, document: Document, chunk: TextChunk, row: bm25.LexicalRow
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
    """Replace NUL and lone surrogates, one character each, so that offsets stay correct."""
    return text.replace("\0", "\ufffd").encode("utf-8", "replace").decode()


def _to_box_json(box: Box) -> dict[str, float]:
    sides = {"x0": box.x0, "y0": box.y0, "x1": box.x1, "y1": box.y1}
    return {"page": box.page} | {
        name: round(coordinate, COORDINATE_DIGITS) for name, coordinate in sides.items()
    }


# Recognised pages of documents that are not finished


@dataclass(frozen=True, slots=True)
class RecognisedPages:
    """`count` pages that need not be recognised again, encoded as `read_document` takes them.

    `last_page` is the number of the last one, 0 if there is none.
    """

    encoded: bytes = b""
    count: int = 0
    last_page: int = 0


def load_recognised_pages(document_id: UUID, sha256: str) -> RecognisedPages:
    """The recognised pages of the file with this hash, not those of other files of the document."""
    rows = RecognisedPage.objects.filter(document_id=document_id, sha256=sha256).order_by("index")
    data_by_index = dict(rows.values_list("index", "found"))
    if not data_by_index:
        return RecognisedPages()
    encoded = b",".join(
        b'"%d":' % index + zlib.decompress(data_by_index[index]) for index in data_by_index
    )
    return RecognisedPages(b"{%s}" % encoded, len(data_by_index), max(data_by_index) + 1)


def keep_recognised_page(document_id: UUID, sha256: str, index: int, data: bytes) -> None:
    """Store a recognised page; `data` is JSON. Raises `LeaseLostError`."""
    page = RecognisedPage(
        document_id=document_id, sha256=sha256, index=index, found=zlib.compress(data)
    )
    try:
        RecognisedPage.objects.bulk_create([page], ignore_conflicts=True)
    except IntegrityError as error:  # the document was deleted meanwhile
        raise LeaseLostError from error
