"""A search in Postgres: its scope, its short transaction, and the passages of rows."""
# ruff: noqa: S608 - every part of every statement is a constant

import contextvars
import json
import random
import struct
import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, LiteralString, TypeVar
from uuid import UUID

import numpy as np
import psycopg
from django.db import Error, connection, connections
from numpy.typing import NDArray
from psycopg import pq
from psycopg.adapt import Dumper

from jobs import replica
from rag.errors import RetrievalFailed
from rag.types import Box, Hit, Kind, Passage


@dataclass(frozen=True, slots=True)
class SearchedSpace:
    """The embedding space that is searched; `unrelated` as in `EmbeddingSpace`."""

    pk: int
    dimensions: int
    unrelated: float | None = None


@dataclass(frozen=True, slots=True)
class ScopeFacts:
    """Chunks in the scope and everywhere, and the space that is searched.

    Everywhere by an estimate; in scopes of more than `COUNTED_DOCUMENTS` so are those of the scope.
    `namespaces` are those of the documents that were counted; None where one has none.
    `whole`: it is such a scope, next to nothing lies outside of it, and none was counted. They are
    asked once a store, which lives as long as one question.
    """

    chunks: int
    everywhere: int
    space: SearchedSpace | None
    namespaces: frozenset[int] | None
    whole: bool = False


@dataclass(frozen=True, slots=True)
class Namespaces:
    """The namespaces that hold all chunks of a scope, and how many chunks are in them.

    `keys` is empty where that is not known, or where they are too many to ask for.
    """

    keys: tuple[int, ...]
    chunks: int


class SearchScope(Collection[UUID]):
    """Ids that passed `visible_to(user)`, in order, each once."""

    def __init__(self, document_ids: Collection[UUID], space: SearchedSpace | None = None) -> None:
        """`space` is the embedding space that is searched; None: the active one."""
        # by their numbers, which hash several times as fast: there may be tens of thousands
        self._members = {one.int: one for one in document_ids}
        self.documents = list(self._members.values())
        self.space = space
        self.facts: ScopeFacts | None = None
        self.namespaces: Namespaces | None = None
        self.postings: dict[tuple[bool, str], tuple[NDArray[Any], NDArray[Any]]] = {}
        """Keys and lengths of the chunks that a lookup found, by whether it was one of the whole
        and by what was looked up: a question put in other words has its own words again."""
        self.vectors: dict[int, bytes | None] = {}
        """As `halfvec_send` gives them, of chunks in scope that were read; None: there is none."""
        self.lock = threading.Lock()
        """Both legs ask for the facts at once: one of them does, the other one waits."""
        self._uuid_array: BinaryArray | None = None

    def __contains__(self, document: object) -> bool:
        return isinstance(document, UUID) and document.int in self._members

    def has_id_bytes(self, raw: bytes) -> bool:
        """Whether the document is in the scope whose id has these 16 bytes: a UUID takes longer."""
        return int.from_bytes(raw) in self._members

    def __iter__(self) -> Iterator[UUID]:
        return iter(self.documents)

    def __len__(self) -> int:
        return len(self.documents)

    @property
    def uuid_array(self) -> "BinaryArray":
        """The ids as Postgres receives an array."""
        self._uuid_array = self._uuid_array or to_uuid_array(self.documents)
        return self._uuid_array

    def sample_documents(self, most: int) -> list[UUID]:
        """At most that many by chance, spread over the list, the same ones each time."""
        if len(self.documents) <= most:
            return self.documents
        step = len(self.documents) / most
        chance = random.Random(len(self.documents)).random  # noqa: S311 - a sample
        return [self.documents[int((number + chance()) * step)] for number in range(most)]


class BinaryArray(bytes):
    """An array of UUIDs as it travels: reading thousands from text takes Postgres milliseconds."""


class _BinaryArrayDumper(Dumper):
    format = pq.Format.BINARY
    oid = psycopg.adapters.types["uuid"].array_oid

    def dump(self, obj: BinaryArray) -> BinaryArray:
        return obj


psycopg.adapters.register_dumper(BinaryArray, _BinaryArrayDumper)


def to_uuid_array(ids: Collection[UUID]) -> BinaryArray:
    """An array of UUIDs for a statement of a search."""
    header = struct.pack(">5i", 1, 0, psycopg.adapters.types["uuid"].oid, len(ids), 1)
    sent = np.empty(len(ids), [("bytes", ">i4"), ("value", "V16")])
    sent["bytes"] = 16
    sent["value"] = np.frombuffer(b"".join([one.int.to_bytes(16) for one in ids]), "V16")
    return BinaryArray(header + sent.tobytes())


def to_number_array(numbers: NDArray[Any]) -> str:
    """The text form of an array of numbers: the driver would look at each of them."""
    return "{" + str(numbers.tolist())[1:-1] + "}"


COUNTED_DOCUMENTS = 500
"""Of larger scopes so many are counted, and the rest is taken to be like them.

Looking up each of tens of thousands takes longer than the search, and only the choice of a way and
the weights of words hang on it.
"""


WHOLE_SHARE = 0.98
"""Scopes of that share of all documents are searched as if there were no others.

What is found outside is left out then. Sending and hashing tens of thousands of ids with every
statement takes longer than what they keep away, and so few do not change what words weigh.
"""
HITS_PER_SPARE = 4
"""There, one more is asked for with every so many hits, in place of what is left out."""


STATEMENT_TIMEOUT = "10s"
LIMITS = """
    SELECT set_config('statement_timeout', %(timeout)s, true),
           set_config('jit', 'off', true),  -- compiling costs more than these queries
           set_config('enable_seqscan', 'off', true)  -- such plans forget what wide values cost
"""


MIN_NAMESPACED_VERSION = 2
"""Of `Document.terms_version`: since then the terms of a chunk name its namespace."""
NAMESPACES_OF = """
    array_agg(DISTINCT CASE WHEN document.terms_version >= %(namespaced)s
                            THEN document.namespace END)
"""
FACTS = f"""
    WITH everywhere AS MATERIALIZED (
        SELECT chunk.reltuples::int8 AS chunks,
               chunk.reltuples > 0 AND document.reltuples > 0
               AND document.reltuples * %(whole_share)s <= %(size)s AS is_whole
          FROM pg_class chunk, pg_class document
         WHERE chunk.oid = 'documents_chunk'::regclass
           AND document.oid = 'documents_document'::regclass)
    SELECT everywhere.chunks, everywhere.is_whole, counted.chunks, counted.namespaces,
           space.id, space.dimensions, space.unrelated
      FROM everywhere,
           (SELECT coalesce(sum(document.chunk_count), 0)::int8 AS chunks,
                   {NAMESPACES_OF} FILTER (WHERE document.chunk_count > 0) AS namespaces
              FROM documents_document document
              JOIN unnest(%(documents)s::uuid[]) AS wanted(id) ON wanted.id = document.id
             WHERE NOT (SELECT is_whole FROM everywhere)
           ) AS counted
      LEFT JOIN documents_embeddingspace space ON space.active
"""
"""Of a scope that is the whole, nothing is counted."""


MAX_NAMESPACES = 8
"""Scopes of more of them are searched as if there were none: each takes its time."""
MAX_COUNTED_PER_DOCUMENT = 4
"""Documents of its namespaces that are counted for each one in scope; more are taken for all."""
NAMESPACES = f"""
    WITH there AS MATERIALIZED (
        SELECT id, chunk_count FROM documents_document
         WHERE namespace = ANY(%(known)s) AND terms_version >= %(namespaced)s LIMIT %(most)s)
    SELECT (SELECT CASE WHEN count(*) < %(most)s THEN sum(chunk_count)::int8 END FROM there),
           (SELECT {NAMESPACES_OF}
              FROM unnest(%(documents)s::uuid[]) AS wanted(id)
              JOIN documents_document document ON document.id = wanted.id
             WHERE document.chunk_count > 0
               AND NOT EXISTS (SELECT FROM there WHERE there.id = wanted.id))
"""
"""How many chunks the known namespaces hold, and in which ones the documents of the scope are
that were not met there: looking up each of thousands takes longer than to read a few indexes."""


WITHIN = "(document_id IN (SELECT unnest(%(documents)s::uuid[]))) IS TRUE AND"
"""Rows of the scope: looked at one by one, which an index of documents would take longer for."""
_ARRAY_HEADER = 20
"""Bytes before the first element of an array of one dimension; an empty one has fewer."""


Cursor = psycopg.Cursor[tuple[Any, ...]]


@dataclass(frozen=True, slots=True)
class SearchTransaction:
    """An open transaction over a scope, and how much there is to search."""

    cursor: Cursor
    scope: SearchScope
    facts: ScopeFacts

    def fetch_rows(self, statement: str, **parameters: Any) -> list[tuple[Any, ...]]:
        """All rows of a statement; the scope's ids are its parameter `documents`."""
        if "%(documents)s" in statement:
            parameters["documents"] = self.scope.uuid_array
        return _fetch_rows(self.cursor, statement, parameters)

    def find_namespaces(self) -> Namespaces:
        """Where the scope stands in the word index; asked once a scope."""
        if self.scope.namespaces is None:
            self.scope.namespaces = self._find_namespaces()
        return self.scope.namespaces

    def _find_namespaces(self) -> Namespaces:
        known, most = self.facts.namespaces, MAX_COUNTED_PER_DOCUMENT * len(self.scope.documents)
        everywhere = self.facts.everywhere
        while known and len(known) <= MAX_NAMESPACES:
            asked = {"known": list(known), "most": most, "namespaced": MIN_NAMESPACED_VERSION}
            ((chunks, found),) = self.fetch_rows(NAMESPACES, **asked)
            others = _read_namespaces(found)
            if others is not None and others <= known:
                return Namespaces(tuple(known), min(everywhere, chunks or everywhere))
            known = None if others is None else known | others
        return Namespaces((), everywhere)

    def find_in_scope(
        self, find: Callable[["SearchTransaction", int], list[Hit]], limit: int
    ) -> list[Hit]:
        """What `find` finds of the scope; it asks `facts.whole` whether the ids are needed.

        Without them first, where the scope is all but the whole. What lies outside falls out, and
        if too little is left, the ids are needed after all.
        """
        if self.facts.whole:
            found = find(self, limit + limit // HITS_PER_SPARE)
            inside = [hit for hit in found if hit.passage.document_id in self.scope]
            if len(inside) >= limit or len(inside) == len(found):
                return inside[:limit]
        return find(replace(self, facts=replace(self.facts, whole=False)), limit)

    def apply_setting(self, statement: LiteralString, **parameters: Any) -> None:
        """Make a setting for the rest of the transaction, without waiting for it."""
        _apply_setting(self.cursor.connection, statement, **parameters)


T = TypeVar("T")


def run_search(scope: SearchScope, work: Callable[[SearchTransaction], T]) -> T:
    """What `work` returns of a search, on the replica where there is one (`jobs.replica`).

    Raises `RetrievalFailed`.
    """

    def run(server: str) -> T:
        with open_search(scope, server) as search:
            return work(search)

    try:
        return replica.read_from_replica(run)
    except Error as error:
        if not connection.in_atomic_block:
            connection.close_if_unusable_or_obsolete()
        raise RetrievalFailed(str(error)) from error


@contextmanager
def open_search(scope: SearchScope, server: str = replica.PRIMARY) -> Iterator[SearchTransaction]:
    """A short transaction with a time limit. Raises `django.db.Error`.

    It speaks through the driver's own cursor, whose values travel in binary beside the statement,
    and in a pipeline, whose statements are one transaction: none has to open and to commit it, and
    wait for that.
    """
    opened = connections[server]
    with opened.wrap_database_errors:
        opened.ensure_connection()
        with opened.connection.pipeline(), psycopg.Cursor(opened.connection) as cursor:
            _apply_setting(cursor.connection, LIMITS, timeout=STATEMENT_TIMEOUT)
            with scope.lock:
                facts = scope.facts = scope.facts or _fetch_facts(cursor, scope)
            yield SearchTransaction(cursor, scope, facts)


def _apply_setting(
    opened: psycopg.Connection[Any], statement: LiteralString, **parameters: Any
) -> None:
    """Not by the cursor of the search.

    In a pipeline the answer may come when the next statement was sent; it would pass for its rows.
    """
    psycopg.Cursor(opened).execute(statement, parameters)


def _fetch_facts(cursor: Cursor, scope: SearchScope) -> ScopeFacts:
    counted = scope.sample_documents(COUNTED_DOCUMENTS)
    is_large = len(counted) < len(scope.documents)
    asked = {
        "documents": to_uuid_array(counted),
        "namespaced": MIN_NAMESPACED_VERSION,
        "whole_share": WHOLE_SHARE,
        "size": len(scope.documents) if is_large else 0,
    }
    ((everywhere, whole, chunks, namespaces, *space),) = _fetch_rows(cursor, FACTS, asked)
    searched = scope.space or (SearchedSpace(*space) if space[0] else None)
    if whole:
        return ScopeFacts(everywhere, everywhere, searched, None, whole=True)
    if is_large:
        chunks = chunks * len(scope.documents) // len(counted)
    return ScopeFacts(chunks, max(everywhere, chunks), searched, _read_namespaces(namespaces))


def _read_namespaces(found: list[int | None] | None) -> frozenset[int] | None:
    """The namespaces of `NAMESPACES_OF`; None where a document has none."""
    named = frozenset(namespace for namespace in found or () if namespace is not None)
    return None if found and None in found else named


def _fetch_rows(
    cursor: Cursor, statement: str, parameters: Mapping[str, Any]
) -> list[tuple[Any, ...]]:
    cursor.execute(statement, parameters, binary=True)
    return cursor.fetchall()


def parse_numbers(sent: bytes | None, kind: str) -> NDArray[Any]:
    """What `array_send` gave: big-endian numbers of a fixed width without NULL, `kind` as in numpy.

    None, the array of no rows, is empty.
    """
    if sent is None or len(sent) <= _ARRAY_HEADER:
        return np.empty(0, dtype=kind)
    layout = np.dtype([("bytes", ">i4"), ("value", kind)])
    return np.frombuffer(sent, layout, offset=_ARRAY_HEADER)["value"]


MAX_CONCURRENT_SEARCHES = 4
"""Searches of a process that use a second connection at a time.

The pool has more than these and the threads that search, so that none waits for another's second.
"""
_threads = ThreadPoolExecutor(MAX_CONCURRENT_SEARCHES, thread_name_prefix="search")
_free_slots = threading.BoundedSemaphore(MAX_CONCURRENT_SEARCHES)


def run_concurrently(work: Callable[[], T]) -> Callable[[], T]:
    """See `rag.ports.PassageStore.run_concurrently`.

    Nothing runs beside a transaction, whose rows no other connection sees.
    """
    if connection.in_atomic_block or not _free_slots.acquire(blocking=False):
        return work
    return _threads.submit(contextvars.copy_context().run, _run_and_release, work).result


def _run_and_release(work: Callable[[], T]) -> T:
    """Give connection and place back, whatever happens."""
    try:
        return work()
    finally:
        connection.close()
        _free_slots.release()


PASSAGE_COLUMNS = (
    "chunk.id, chunk.document_id, document.name, document.version, chunk.index, chunk.text, "
    "chunk.page, chunk.page_end, chunk.section, chunk.boxes::text, chunk.kind, chunk.header, "
    "chunk.start, chunk.\"end\", coalesce(document.metadata->>'title', ''), "
    "coalesce(document.metadata->>'issuer', ''), coalesce(document.metadata->>'date', '')"
)
PASSAGE_TABLES = (
    "documents_chunk chunk JOIN documents_document document ON document.id = chunk.document_id"
)
PASSAGE_WIDTH = 17
"""How many columns a passage has; what a statement adds stands behind them."""


def to_passage(row: tuple[Any, ...]) -> Passage:
    """The passage of a row that begins with `PASSAGE_COLUMNS`."""
    key, document_id, name, version, index, text, page, page_end, *more = row[:PASSAGE_WIDTH]
    section, boxes, kind, header, start, end, title, issuer, date = more
    return Passage(
        key=key,
        document_id=document_id,
        document_name=name,
        version=version,
        index=index,
        text=text,
        page=page,
        page_end=page_end,
        section=section,
        boxes=tuple(Box(**box) for box in json.loads(boxes)) if boxes != "[]" else (),
        kind=Kind(kind),
        header=header,
        start=start,
        end=end,
        title=title,
        issuer=issuer,
        date=date,
    )
