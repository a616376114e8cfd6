"""After a start, what searches read is read into Postgres' shared buffers, which are empty then.

A search takes several times as long where it meets pages for the first time
(docs/notes/retrieval-measurements.md). The embedded Postgres has no `pg_prewarm`, so these are
ordinary queries. A scan of a range of `ctid` reads ahead and, unlike a sequential scan of a large
table, keeps what it read in the buffers. B-trees are read in their order, and the graph of vectors
by searching it. The texts of passages come last: a search reads few of them.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import structlog
from django.db import Error, connections, transaction

from documents import spaces
from documents.models import EmbeddingSpace
from documents.search.store import EF_SEARCH, GRAPH_SETTINGS, MAX_SCANNED_CHUNKS
from jobs import replica

logger = structlog.get_logger()

BUFFERS_LOCK = 0x4E757266
"""Number of the advisory lock: of processes that start together, one reads."""
SHARE = 7 / 8
"""Of the buffers, at most."""
PIECE_PAGES = 4096
"""Of a table, in one statement: a fraction of a second."""
PROBES = 200
"""Searches of the graph, at most; each meets a few thousand pages."""
LATEST_PROBES, KNOWN_SHARE = 8, 0.97
"""Once the latest ones met that share of their pages in the buffers, the rest is not worth more."""
GOLDEN = 0.618_033_988_749_895
"""Steps of that share of a table keep away from all places where they have been."""

BASE = (
    ("documents_document", "count(*)"),
    ("documents_vectorcodes", "sum(bit_count(codes))"),
    ("documents_postingsegment", "sum(bit_count(keys))"),
    ("documents_postings", "sum(bit_count(chunks))"),
)
"""Tables that many searches read, and a figure for which all of a row has to be read, even what is
stored beside the table."""
ORDERS = (
    ("documents_document", "id", "id"),
    ("documents_document", "namespace", "id"),
    ("documents_document", "id", "namespace"),
    ("documents_vectorcodes", "id", "document_id"),
    ("documents_postings", "place", "segment_id"),
    ("documents_chunk", "id", "id"),
    ("documents_chunkterms", "chunk_id", "chunk_id"),
    ("documents_chunkterms", "document_id", "document_id"),
    ("documents_chunkembedding", "chunk_id", "chunk_id"),
    ("documents_chunkembedding", "document_id", "document_id"),
)
"""Table, column and order that an index alone tells."""
LARGE = (("documents_chunkembedding", "count(*)"), ("documents_chunkterms", "count(*)"))
"""Of these the newest part, where not all fits beside the graph."""
TEXTS = "documents_chunk"

SETTINGS = """
    SELECT set_config('statement_timeout', '60s', true),
           set_config('jit', 'off', true),
           set_config('max_parallel_workers_per_gather', '0', true),
           set_config('enable_seqscan', 'off', true),
           set_config('enable_bitmapscan', 'off', true),
           set_config('enable_sort', 'off', true)
"""
EXPLAIN = "EXPLAIN (ANALYZE, BUFFERS, TIMING OFF, FORMAT JSON)"
"""Runs a statement, and tells how many pages it read."""
RANGE = "SELECT {figure} FROM {table} WHERE ctid >= '({first},0)' AND ctid < '({behind},0)'"
ORDER = "SELECT count({column}) FROM (SELECT {column} FROM {table} ORDER BY {order}) AS entries"
PROBE = """
    SELECT chunk_id FROM documents_chunkembedding WHERE space_id = {space}
     ORDER BY vector::halfvec({dimensions}) <=> (
                  SELECT vector::halfvec({dimensions}) FROM documents_chunkembedding
                   WHERE ctid >= '({first},0)' AND ctid < '({behind},0)' AND space_id = {space}
                   LIMIT 1)
     LIMIT 1
"""
PAGES = """
    SELECT coalesce(pg_relation_size(to_regclass(%s)), 0) / current_setting('block_size')::int8
"""
BUFFERS = "SELECT setting::int8 FROM pg_settings WHERE name = 'shared_buffers'"
CHUNKS = "SELECT reltuples::int8 FROM pg_class WHERE oid = 'documents_chunk'::regclass"
BLOCK = "SELECT current_setting('block_size')::int8"


@dataclass(frozen=True, slots=True)
class Filled:
    """How long it took, and how much was not in the buffers before."""

    seconds: float
    megabytes: float


def fill_buffers() -> list[Filled]:
    """Read into the buffers of each server that is searched, unless another process does.

    What fails is logged.
    """
    servers = [replica.PRIMARY, replica.REPLICA] if replica.has_replica() else [replica.PRIMARY]
    found = []
    for server in servers:
        try:
            with _try_lock(server) as is_ours:
                if is_ours:
                    found.append(_fill(server))
        except Error as error:
            logger.warning("buffers_not_filled", server=server, error=str(error)[:200])
        finally:
            connections[server].close()
    return found


@contextmanager
def _try_lock(server: str) -> Iterator[bool]:
    """Whether no other process holds it. It ends with the connection."""
    with connections[server].cursor() as cursor:
        cursor.execute("SELECT pg_try_advisory_lock(%s)", [BUFFERS_LOCK])
        is_ours = bool(cursor.fetchone()[0])
        try:
            yield is_ours
        finally:
            if is_ours:
                cursor.execute("SELECT pg_advisory_unlock(%s)", [BUFFERS_LOCK])


def _fill(server: str) -> Filled:
    began = time.monotonic()
    filling = _Filling(server)
    for table, figure in BASE:
        filling.read_table(table, figure)
    for entry in ORDERS:
        filling.read_order(*entry)
    graph = filling.find_graph()
    for table, figure in LARGE:
        filling.read_table(table, figure, kept=graph.pages if graph else 0)
    if graph:
        filling.probe(graph)
    filling.read_table(TEXTS, "count(*)")
    (block,) = filling.fetch(BLOCK)
    filled = Filled(round(time.monotonic() - began, 2), round(filling.pages_read * block / 1e6, 1))
    logger.info("buffers_filled", server=server, seconds=filled.seconds, megabytes=filled.megabytes)
    return filled


@dataclass(frozen=True, slots=True)
class _Graph:
    """The graph of the space that is searched."""

    space: EmbeddingSpace
    pages: int


class _Filling:
    """Reads on a server. `pages_left` are those that may still be read."""

    def __init__(self, server: str) -> None:
        self._server = server
        (buffers,) = self.fetch(BUFFERS)
        self.pages_left = int(buffers * SHARE)
        self.pages_read = 0

    def fetch(self, statement: str, *parameters: str) -> tuple[Any, ...]:
        """The only row."""
        with connections[self._server].cursor() as cursor:
            cursor.execute(statement, parameters)
            row: tuple[Any, ...] = cursor.fetchone()
        return row

    def read_table(self, table: str, figure: str, *, kept: int = 0) -> None:
        """The newest part first, as much as fits, but for so many pages that are kept free."""
        (behind,) = self.fetch(PAGES, table)
        while behind > 0 and self.pages_left > kept:
            first = max(0, behind - min(PIECE_PAGES, self.pages_left - kept))
            statement = RANGE.format(figure=figure, table=table, first=first, behind=behind)
            if self._read(table, statement, behind - first) is None:
                return
            behind = first

    def read_order(self, table: str, column: str, order: str) -> None:
        """An index."""
        if self.pages_left > 0:
            self._read(table, ORDER.format(table=table, column=column, order=order))

    def find_graph(self) -> _Graph | None:
        """The graph, if it is searched."""
        space = EmbeddingSpace.objects.using(self._server).filter(active=True).first()
        if space is None or self.fetch(CHUNKS)[0] <= MAX_SCANNED_CHUNKS:
            return None
        (pages,) = self.fetch(PAGES, spaces.to_index_name(space))
        return _Graph(space, pages) if pages else None

    def probe(self, graph: _Graph) -> None:
        """Search the graph for vectors from all over the table until it is in the buffers."""
        (pages,) = self.fetch(PAGES, "documents_chunkembedding")
        names = {"space": int(graph.space.pk), "dimensions": int(graph.space.dimensions)}
        latest: list[tuple[int, int]] = []
        for number in range(PROBES):
            if self.pages_left <= 0:
                return
            first = int(number * GOLDEN % 1 * pages)
            statement = PROBE.format(first=first, behind=first + PIECE_PAGES, **names)
            met = self._read(spaces.to_index_name(graph.space), statement)
            if met is None:
                return
            latest = [*latest[1 - LATEST_PROBES :], met]
            read, known = (sum(column) for column in zip(*latest, strict=True))
            if len(latest) == LATEST_PROBES and known >= KNOWN_SHARE * (read + known):
                return

    def _read(self, name: str, statement: str, pages: int = 0) -> tuple[int, int] | None:
        """Pages that were not in the buffers and pages that were; None if it failed.

        It takes `pages` of those that are left, or as many as were read if they are more.
        """
        try:
            with (
                transaction.atomic(using=self._server),
                connections[self._server].cursor() as cursor,
            ):
                cursor.execute(SETTINGS)
                cursor.execute(GRAPH_SETTINGS, {"ef_search": EF_SEARCH})
                cursor.execute(f"{EXPLAIN} {statement}")
                plan = cursor.fetchone()[0][0]["Plan"]
        except Error as error:
            logger.warning("buffers_not_filled", relation=name, error=str(error)[:200])
            return None
        read, known = plan["Shared Read Blocks"], plan["Shared Hit Blocks"]
        self.pages_read += read
        self.pages_left -= max(read, pages)
        return read, known
