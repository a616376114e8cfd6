"""Which of two spaces finds more, by the product's own search."""

import functools
import random
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from documents import spaces
from documents.models import Document, EmbeddingSpace
from documents.reindexing.questions import Question
from documents.search.store import ScopedStore
from rag.errors import EmbedderFailed
from rag.factory import Engine, engine
from rag.types import Scope, ScopeReason

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
class Comparison:
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


def compare(
    old: EmbeddingSpace,
    new: EmbeddingSpace,
    questions: Sequence[Question],
    on_question: Callable[[int, int], None],
) -> Comparison:
    """Search each question in both spaces. Raises `EmbedderFailed` and what the store raises."""
    places: list[tuple[int, int]] = []
    scope = functools.cache(_scope)
    engines = engine(spaces.to_config(old)), engine(spaces.to_config(new))
    for number, question in enumerate(questions, 1):
        mine = scope(question.owner_id)
        places.append(
            (_place(question, mine, engines[0], old), _place(question, mine, engines[1], new))
        )
        on_question(number, len(questions))
    return judged(places)


def judged(places: Sequence[tuple[int, int]]) -> Comparison:
    """From the places (0: first) of the best answer in both spaces."""
    before, after = [old for old, _new in places], [new for _old, new in places]
    return Comparison(
        questions=len(places),
        old=Recall(_share(before, NEAR), _share(before, FAR)),
        new=Recall(_share(after, NEAR), _share(after, FAR)),
        chance=(_interval(places, NEAR), _interval(places, FAR)),
    )


def _scope(owner_id: int) -> Scope:
    documents = Document.objects.searchable().filter(owner_id=owner_id)
    return Scope(tuple(documents.values_list("pk", flat=True)), ScopeReason.ALL)


def _place(question: Question, scope: Scope, used: Engine, space: EmbeddingSpace) -> int:
    store = ScopedStore(scope.document_ids, space=space)
    retrieval = used.search(question.text, scope, store, top_k=FAR)
    if retrieval.failed:  # by words alone both spaces would find the same
        raise EmbedderFailed(f"{space} could not be searched")
    found = [i for i, hit in enumerate(retrieval.hits) if hit.passage.key in question.answers]
    return found[0] if found else FAR


def _share(places: Sequence[int], among: int) -> float:
    return round(sum(place < among for place in places) / len(places), 4) if places else 0.0


def _interval(places: Sequence[tuple[int, int]], among: int) -> tuple[float, float]:
    """95 % of the mean gains of questions drawn again and again (paired bootstrap)."""
    gains = [(new < among) - (old < among) for old, new in places]
    if not gains:
        return 0.0, 0.0
    dice = random.Random(0)  # noqa: S311 - a second run must judge the same
    means = sorted(sum(dice.choices(gains, k=len(gains))) / len(gains) for _ in range(RESAMPLES))
    return round(means[RESAMPLES // 40], 4), round(means[-RESAMPLES // 40], 4)
