"""Nearest chunks by cosine: one by one in small scopes, through the space's HNSW index in large."""
# ruff: noqa: S608 - every part of every statement is a constant

# ruff: noqa: S608 - every part of every statement is a constant
from array import array
from collections.abc import Sequence
from typing import Any

import numpy as np

from documents.search import database
from documents.search.database import SearchedSpace, SearchTransaction
from rag.types import Hit


def to_halfvec(vector: Sequence[float]) -> str:
    """The text form of a dense vector."""
    return "[" + ",".join(f"{value:.7g}" for value in vector) + "]"


EXACT_CHUNKS = 25_000
"""Scopes of at most that many chunks are compared one by one, larger ones through HNSW.

Below, the comparison takes no longer than the graph's walk and misses nothing; and the graph is
left with scopes where it need not skip most of what it sees.
"""


GRAPH_SETTINGS = """
    SELECT set_config('hnsw.iterative_scan', 'relaxed_order', true),
           set_config('hnsw.ef_search', %(ef_search)s, true)
"""


EF_SEARCH = "1000"
"""Recall@10 among half of 100,000 chunks: .988 with 400, .992 with 1,000 (docs/notes)."""


EXACT = f"""
    SELECT {database.PASSAGE_COLUMNS}, 1 - near.distance
      FROM {database.PASSAGE_TABLES}
      JOIN (SELECT chunk_id, vector <=> %(vector)s::halfvec AS distance
              FROM documents_chunkembedding
             WHERE document_id = ANY(%(documents)s::uuid[]) AND space_id = %(space)s
             ORDER BY distance, chunk_id LIMIT %(limit)s) near
        ON near.chunk_id = chunk.id ORDER BY near.distance, chunk.id
"""


APPROXIMATE = f"""
    WITH near AS MATERIALIZED (
        SELECT chunk_id,
               vector::halfvec({{dimensions}}) <=> %(vector)s::halfvec({{dimensions}}) AS distance
          FROM documents_chunkembedding
         WHERE (document_id IN (SELECT unnest(%(documents)s::uuid[]))) IS TRUE
           AND space_id = {{space}}
         ORDER BY vector::halfvec({{dimensions}}) <=> %(vector)s::halfvec({{dimensions}})
         LIMIT %(limit)s)
    SELECT {database.PASSAGE_COLUMNS}, 1 - near.distance
      FROM {database.PASSAGE_TABLES} JOIN near ON near.chunk_id = chunk.id
     ORDER BY near.distance, chunk.id
"""


VECTORS = """
    SELECT chunk_id, halfvec_send(vector) FROM documents_chunkembedding
     WHERE chunk_id = ANY(%(keys)s) AND space_id = %(space)s
       AND document_id IN (SELECT unnest(%(documents)s::uuid[]))
"""


_VECTOR_HEADER = 4
"""Bytes before the figures of a sent vector: its width and a reserve."""


def find_nearest_chunks(
    search: SearchTransaction, space: SearchedSpace, vector: Sequence[float], limit: int
) -> list[Hit]:
    """The nearest `limit` chunks; see `rag.ports.PassageStore.similar`."""
    if search.facts.chunks > EXACT_CHUNKS:
        found = _by_graph(search, space, vector, limit)
        if len(found) == limit:
            return found
    return compare_exactly(search, space, vector, limit)  # also where the graph's walk ended short


def compare_exactly(
    search: SearchTransaction, space: SearchedSpace, vector: Sequence[float], limit: int
) -> list[Hit]:
    """The same, compared one by one."""
    rows = search.rows(EXACT, vector=to_halfvec(vector), space=space.pk, limit=limit)
    return [_to_hit(row) for row in rows]


def _by_graph(
    search: SearchTransaction, space: SearchedSpace, vector: Sequence[float], limit: int
) -> list[Hit]:
    search.settle(GRAPH_SETTINGS, ef_search=EF_SEARCH)
    rows = search.rows(to_graph_statement(space), vector=to_halfvec(vector), limit=limit)
    return [_to_hit(row) for row in rows]


def to_graph_statement(space: SearchedSpace) -> str:
    """The statement whose order the index of this space gives; it names the space, as the index."""
    return APPROXIMATE.format(dimensions=int(space.dimensions), space=int(space.pk))


def load_vectors(
    search: SearchTransaction, space: SearchedSpace, keys: Sequence[int]
) -> dict[int, Sequence[float]]:
    """The stored vectors of these chunks."""
    rows = search.rows(VECTORS, keys=list(keys), space=space.pk)
    return {
        key: array("f", np.frombuffer(sent, ">f2", offset=_VECTOR_HEADER).astype("f4").tobytes())
        for key, sent in rows
    }


def _to_hit(row: tuple[Any, ...]) -> Hit:
    similarity = float(row[database.PASSAGE_WIDTH])
    return Hit(database.to_passage(row), similarity, {"similarity": similarity})
