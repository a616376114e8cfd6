"""A document's own text, a stretch at a time: its pages joined by an empty line."""

from uuid import UUID

from documents.searching.database import Search
from rag.types import Excerpt

# The offsets of chunks count the same joint (`rag.chunking`).
STRETCH = """
    SELECT substring(whole FROM %(first)s FOR %(length)s), length(whole)
      FROM (SELECT string_agg(text, E'\n\n' ORDER BY number) AS whole
              FROM documents_documentpage WHERE document_id = %(document)s) joined
"""


def stretch(search: Search, document_id: UUID, start: int, length: int) -> Excerpt | None:
    """`length` characters from `start`; None where the document has no text (any more)."""
    rows = search.rows(STRETCH, document=document_id, first=start + 1, length=length)
    text, total = rows[0]
    return None if total is None else Excerpt(text, start, total)
