"""The questions that both spaces are compared on: from a file, or made from headings."""

import csv
import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID

from django.db import connection

from documents.models import Chunk, Document

MOST = 300
"""Headings that are asked; which ones is decided by a hash, so a second run asks the same."""
MOST_ANSWERS = 20
"""Headings over more chunks than that (of one owner) ask for nothing in particular."""
LEAST_CHARACTERS = 4

TITLES = """
    SELECT chunk.owner_id, title.text, array_agg(chunk.id)
      FROM documents_chunk chunk
      JOIN documents_document document ON document.id = chunk.document_id,
           LATERAL (SELECT regexp_replace(chunk.section, '^.* > ', '') AS text) title
     WHERE document.indexed_at IS NOT NULL AND length(title.text) >= %s
     GROUP BY chunk.owner_id, title.text HAVING count(*) <= %s
     ORDER BY md5(chunk.owner_id || title.text), chunk.owner_id, title.text LIMIT %s
"""


class QuestionsError(Exception):
    """The file cannot be used; the message says why."""


@dataclass(frozen=True, slots=True)
class Question:
    """A question of one owner and the chunks any of which answers it."""

    text: str
    owner_id: int
    answers: frozenset[int]


def from_headings() -> list[Question]:
    """Section titles as questions, the chunks below them as answers."""
    with connection.cursor() as cursor:
        cursor.execute(TITLES, (LEAST_CHARACTERS, MOST_ANSWERS, MOST))
        return [Question(title, owner, frozenset(keys)) for owner, title, keys in cursor.fetchall()]


def from_file(path: Path) -> list[Question]:
    """The questions of a JSON, JSON Lines or CSV file; see `docs/notes/retrieval.md`.

    Raises `QuestionsError`.
    """
    try:
        rows = _rows(path)
        made = [question for row in rows for question in _questions(row)]
    except (OSError, ValueError, KeyError, TypeError, AttributeError, csv.Error) as error:
        raise QuestionsError(f"{path}: {error}") from error
    if not made:
        raise QuestionsError(f"{path}: no question whose document or text is stored here")
    return made


def _rows(path: Path) -> list[dict[str, Any]]:
    text = path.read_text(encoding="utf-8-sig")
    if path.suffix.lower() == ".csv":
        return list(csv.DictReader(text.splitlines()))
    if path.suffix.lower() == ".jsonl":
        return [json.loads(line) for line in text.splitlines() if line.strip()]
    return list(json.loads(text))


def _questions(row: dict[str, Any]) -> Iterable[Question]:
    """One question for each owner who holds an answer."""
    chunks = Chunk.objects.filter(document__in=Document.objects.searchable())
    if document := row.get("document"):
        chunks = chunks.filter(**_named(str(document)))
    if text := row.get("text"):
        chunks = chunks.filter(text__contains=text)
    if not document and not text:
        raise ValueError(f"neither document nor text: {row}")
    answers: dict[int, set[int]] = {}
    for key, owner in chunks.values_list("pk", "owner_id"):
        answers.setdefault(owner, set()).add(key)
    for owner, keys in sorted(answers.items()):
        yield Question(str(row["question"]), owner, frozenset(keys))


def _named(document: str) -> dict[str, object]:
    try:
        return {"document_id": UUID(document)}
    except ValueError:
        return {"document__name": document}
