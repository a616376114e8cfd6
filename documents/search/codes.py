"""The sign codes of a scope's vectors; a process remembers those that it has read."""

import threading
from collections.abc import Mapping

import numpy as np

from documents.search.database import SearchTransaction, parse_numbers, to_number_array

MAX_REMEMBERED_BYTES = 96 << 20
"""Of a process: the codes of one and a half million vectors of 384 figures."""
_OVERHEAD = 150
"""Bytes that Python needs besides for the codes of a document."""

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


class RememberedCodes:
    """The codes of rows that were read, no more than `max_bytes`: once full, it begins anew."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._bytes = 0
        self._codes: dict[bytes, bytes] = {}
        self._lock = threading.Lock()

    def find(self, rows: list[bytes]) -> dict[bytes, bytes]:
        """The codes of those rows that are known."""
        found = zip(rows, map(self._codes.get, rows), strict=True)
        return {row: codes for row, codes in found if codes is not None}

    def add(self, read: Mapping[bytes, bytes]) -> None:
        """Remember the codes of these rows."""
        with self._lock:
            for row, codes in read.items():
                size = len(row) + len(codes) + _OVERHEAD
                if self._bytes + size > self._max_bytes:
                    self._codes, self._bytes = {}, 0
                if row not in self._codes:
                    self._codes[row] = codes
                    self._bytes += size


remembered = RememberedCodes(MAX_REMEMBERED_BYTES)


def read_codes(search: SearchTransaction, space: int) -> bytes:
    """The codes of all vectors in scope, one after another (`documents.models.VectorCodes`)."""
    ((sent,),) = search.fetch_rows(ROWS, space=space)
    rows = parse_numbers(sent, _ROW.str).tolist()
    found = remembered.find(rows)
    if len(found) < len(rows):
        known = to_number_array(np.frombuffer(b"".join(found), _ROW)["id"])
        missing = dict(search.fetch_rows(CODES, space=space, known=known))
        remembered.add(missing)
        found |= missing
    return b"".join(found.values())
