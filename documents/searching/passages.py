"""Passages by their keys: the one place that reads the wide rows of chunks."""
# ruff: noqa: S608 - every part of every statement is a constant

import json
from typing import Any

from rag.pages import Box, Kind
from rag.types import Passage

COLUMNS = (
    "chunk.id, chunk.document_id, document.name, document.version, chunk.index, chunk.text, "
    "chunk.page, chunk.page_end, chunk.section, chunk.boxes::text, chunk.kind, chunk.header, "
    "chunk.start, chunk.\"end\", coalesce(document.metadata->>'title', ''), "
    "coalesce(document.metadata->>'issuer', ''), coalesce(document.metadata->>'date', '')"
)
JOINED = "documents_chunk chunk JOIN documents_document document ON document.id = chunk.document_id"
WIDTH = 17
"""How many columns a passage has; what a statement adds stands behind them."""

BY_PLACE = f"""
    SELECT {COLUMNS} FROM {JOINED}
      JOIN unnest(%(wanted)s::uuid[], %(indexes)s::int[]) AS place(document_id, index)
        ON place.document_id = chunk.document_id AND place.index = chunk.index
     WHERE chunk.document_id IN (SELECT unnest(%(documents)s::uuid[]))
"""
ALL = f"""
    SELECT {COLUMNS} FROM {JOINED}
     WHERE chunk.document_id = ANY(%(documents)s::uuid[])
     ORDER BY array_position(%(documents)s::uuid[], chunk.document_id), chunk.index
"""
OPENING = f"""
    SELECT {COLUMNS} FROM {JOINED}
     WHERE chunk.document_id = ANY(%(documents)s::uuid[]) AND chunk.index < %(limit)s
     ORDER BY chunk.index, array_position(%(documents)s::uuid[], chunk.document_id) LIMIT %(limit)s
"""


def passage(row: tuple[Any, ...]) -> Passage:
    """The passage of a row that begins with `COLUMNS`."""
    key, document_id, name, version, index, text, page, page_end, *more = row[:WIDTH]
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
