"""Which of two spaces finds more, by the product's own search.

The questions stand in a file or are made from headings.
"""

import csv
import functools
import json
import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from uuid import UUID

from django.db import connection

from documents import spaces
from documents.models import Chunk, Document, EmbeddingSpace
from documents.search.store import ScopedStore
from rag.errors import EmbedderFailed
from rag.factory import Engine, get_engine
from rag.types import Scope, ScopeReason

MAX_QUESTIONS = 300
"""Headings that are asked; which ones is decided by a hash, so a second run asks the same."""
MAX_ANSWERS = 20
"""Headings over more chunks than that (of one owner) ask for nothing in particular."""
MIN_CHARACTERS = 4

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
class ReindexQuestion:
    """A question of one owner and the chunks any of which answers it."""

    text: str
    owner_id: int
    answers: frozenset[int]


def make_questions_from_headings() -> list[ReindexQuestion]:
    """Section titles as questions, the chunks below them as answers."""
    with connection.cursor() as cursor:
        cursor.execute(TITLES, (MIN_CHARACTERS, MAX_ANSWERS, MAX_QUESTIONS))
        return [
            ReindexQuestion(title, owner, frozenset(keys))
            for owner, title, keys in cursor.fetchall()
        ]


def read_questions(path: Path) -> list[ReindexQuestion]:
    """The questions of a JSON, JSON Lines or CSV file; see `docs/notes/retrieval.md`.

    Raises `QuestionsError`.
    """
    try:
        rows = _read_rows(path)
        made = [question for row in rows for question in _to_questions(row)]
    except (OSError, ValueError, KeyError, TypeError, AttributeError, csv.Error) as error:
        raise QuestionsError(f"{path}: {error}") from error
    if not made:
        raise QuestionsError(f"{path}: no question whose document or text is stored here")
    return made


def _read_rows(path: Path) -> list[dict[str, Any]]:
    text = path.read_text(encoding="utf-8-sig")
    if path.suffix.lower() == ".csv":
        return list(csv.DictReader(text.splitlines()))
    if path.suffix.lower() == ".jsonl":
        return [json.loads(line) for line in text.splitlines() if line.strip()]
    return list(json.loads(text))


def _to_questions(row: dict[str, Any]) -> Iterable[ReindexQuestion]:
    """One question per owner who has an answer."""
    chunks = Chunk.objects.filter(document__in=Document.objects.searchable())
    if document := row.get("document"):
        chunks = chunks.filter(**_to_document_filter(str(document)))
    if text := row.get("text"):
        chunks = chunks.filter(text__contains=text)
    if not document and not text:
        raise ValueError(f"neither document nor text: {row}")
    answers: dict[int, set[int]] = {}
    for key, owner in chunks.values_list("pk", "owner_id"):
        answers.setdefault(owner, set()).add(key)
    for owner, keys in sorted(answers.items()):
        yield ReindexQuestion(str(row["question"]), owner, frozenset(keys))


def _to_document_filter(document: str) -> dict[str, object]:
    try:
        return {"document_id": UUID(document)}
    except ValueError:
        return {"document__name": document}


NEAR, FAR = 5, 10
RESAMPLES = 1000
TOLERANCE = 0.02
"""A loss of at most that much is let through where chance may well have made it."""


@dataclass(frozen=True, slots=True)
class Recall:
    """Shares of the questions with an answer among the first 5 and 10 passages."""

    at_5: float
    at_10: float


@dataclass(frozen=True, slots=True)
class SpaceComparison:
    """Both spaces on the same questions; `chance` is the 95 % interval of the gain at 5 and 10."""

    questions: int
    old: Recall
    new: Recall
    chance: tuple[tuple[float, float], tuple[float, float]]

    @property
    def falls(self) -> bool:
        """Whether the new space finds less: by more than the tolerance, or than chance explains."""
        gains = (self.new.at_5 - self.old.at_5, self.new.at_10 - self.old.at_10)
        return any(
            gain < 0 and (gain < -TOLERANCE or high < 0)
            for gain, (_low, high) in zip(gains, self.chance, strict=True)
        )

    def as_json(self) -> dict[str, Any]:
        """For the row of the change."""
        return asdict(self) | {"falls": self.falls}


def compare_spaces(
    old: EmbeddingSpace,
    new: EmbeddingSpace,
    questions: Sequence[ReindexQuestion],
    on_question: Callable[[int, int], None],
) -> SpaceComparison:
    """Search each question in both spaces. Raises `EmbedderFailed` and what the store raises."""
    places: list[tuple[int, int]] = []
    scope = functools.cache(_to_owner_scope)
    engines = get_engine(spaces.to_config(old)), get_engine(spaces.to_config(new))
    for number, question in enumerate(questions, 1):
        mine = scope(question.owner_id)
        places.append(
            (
                _find_place(question, mine, engines[0], old),
                _find_place(question, mine, engines[1], new),
            )
        )
        on_question(number, len(questions))
    return judge_places(places)


def judge_places(places: Sequence[tuple[int, int]]) -> SpaceComparison:
    """From the places (0: first) of the best answer in both spaces."""
    before, after = [old for old, _new in places], [new for _old, new in places]
    return SpaceComparison(
        questions=len(places),
        old=Recall(_measure_share(before, NEAR), _measure_share(before, FAR)),
        new=Recall(_measure_share(after, NEAR), _measure_share(after, FAR)),
        chance=(_draw_interval(places, NEAR), _draw_interval(places, FAR)),
    )


def _to_owner_scope(owner_id: int) -> Scope:
    documents = Document.objects.searchable().filter(owner_id=owner_id)
    return Scope(tuple(documents.values_list("pk", flat=True)), ScopeReason.ALL)


def _find_place(
    question: ReindexQuestion, scope: Scope, used: Engine, space: EmbeddingSpace
) -> int:
    store = ScopedStore(scope.document_ids, space=space)
    retrieval = used.search(question.text, scope, store, top_k=FAR)
    if retrieval.failed:  # by words alone both spaces would find the same
        raise EmbedderFailed(f"{space} could not be searched")
    found = [i for i, hit in enumerate(retrieval.hits) if hit.passage.key in question.answers]
    return found[0] if found else FAR


def _measure_share(places: Sequence[int], among: int) -> float:
    return round(sum(place < among for place in places) / len(places), 4) if places else 0.0


def _draw_interval(places: Sequence[tuple[int, int]], among: int) -> tuple[float, float]:
    """95 % of the mean gains of questions drawn again and again (paired bootstrap)."""
    gains = [(new < among) - (old < among) for old, new in places]
    if not gains:
        return 0.0, 0.0
    dice = random.Random(0)  # noqa: S311 - a second run must judge the same
    means = sorted(sum(dice.choices(gains, k=len(gains))) / len(gains) for _ in range(RESAMPLES))
    return round(means[RESAMPLES // 40], 4), round(means[-RESAMPLES // 40], 4)
