"""The sign codes of a scope's vectors, a bit for each dimension; a process caches what it read."""

import threading
from collections.abc import Mapping

import numpy as np

from documents.search.database import SearchTransaction, parse_numbers, to_number_array

MAX_CACHED_BYTES = 96 << 20
"""Of a process: the codes of one and a half million vectors of 384 figures."""
_OVERHEAD = 150
"""Bytes that Python needs for a cached row besides its codes."""

_ROW = np.dtype([("document", "V16"), ("id", ">i8")])
ROWS = """
    SELECT array_send(array_agg(uuid_send(document_id) || int8send(id)))
      FROM documents_vectorcodes
     WHERE document_id = ANY(%(documents)s::uuid[]) AND space_id = %(space)s
"""
"""Whose vectors change gets a row with another id: what was read of a row stays true."""
CODES = """
    SELECT uuid_send(document_id) || int8send(id), codes FROM documents_vectorcodes
     WHERE document_id = ANY(%(documents)s::uuid[]) AND space_id = %(space)s
       AND id <> ALL(%(known)s::int8[])
"""


class CodeCache:
    """Codes by row, `max_bytes` at most; once full, it begins anew.

    A row is a document's id and the row's, 24 bytes; codes are as in `VectorCodes`.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._bytes = 0
        self._codes: dict[bytes, bytes] = {}
        self._lock = threading.Lock()

    def find(self, rows: list[bytes]) -> dict[bytes, bytes]:
        """The codes of those of the rows that are cached."""
        found = zip(rows, map(self._codes.get, rows), strict=True)
        return {row: codes for row, codes in found if codes is not None}

    def add(self, codes_by_row: Mapping[bytes, bytes]) -> None:
        """Cache the codes of these rows."""
        with self._lock:
            for row, codes in codes_by_row.items():
                size = len(row) + len(codes) + _OVERHEAD
                if self._bytes + size > self._max_bytes:
                    self._codes, self._bytes = {}, 0
                if row not in self._codes:
                    self._codes[row] = codes
                    self._bytes += size


code_cache = CodeCache(MAX_CACHED_BYTES)


def read_codes(search: SearchTransaction, space: int) -> bytes:
    """The codes of all vectors in scope, one after another (`documents.models.VectorCodes`)."""
    ((sent,),) = search.fetch_rows(ROWS, space=space)
    rows = parse_numbers(sent, _ROW.str).tolist()
    found = code_cache.find(rows)
    if len(found) < len(rows):
        known = to_number_array(np.frombuffer(b"".join(found), _ROW)["id"])
        missing = dict(search.fetch_rows(CODES, space=space, known=known))
        code_cache.add(missing)
        found |= missing
    return b"".join(found.values())
