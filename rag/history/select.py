"""Which older turns bear on a question: at most a few, and none rather than a wrong one."""

import asyncio
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from uuid import UUID

import numpy as np
from numpy.typing import NDArray

from rag import prompts
from rag.conversation import Turn, TurnLine
from rag.errors import LLMError
from rag.history import search
from rag.history.said import cut
from rag.history.search import TurnIndex
from rag.language import reply_language
from rag.llms.light import BadReply, Light
from rag.neutral import neutralise
from rag.ports import Embedder

LIMIT = 3
CANDIDATES = 50
"""Turns that the light model may choose from."""
REPLY_TOKENS = 60
LINE = 200
"""Characters of a turn as the light model sees it."""
SHARED = 1.0
"""What documents weigh that the question's search found and the turn showed."""
SPREAD = 0.5
"""Share of a turn's score that it has from turns like it: a thread is found as one."""
SHARPNESS = 2
"""Exponent of the likeness of turns: weak likeness is chance."""
STEPS = 8
CLOSE = 0.7
"""A further turn is chosen when it scores at least this share of the best one."""
COVERED = 0.2
"""Share of the question's weight that the best turn must hold, or ..."""
NEAR = 0.15
"""... the cosine it must have; else the question is on something else."""


@dataclass(frozen=True, slots=True)
class Selected:
    """The chosen turns, oldest first; `numbers` are theirs, best first.

    `method` is "light_llm" or "scores", `candidates` the prefiltered numbers, best first, and
    `failure` the code of the error for which the light model's choice was done without.
    """

    turns: tuple[Turn, ...] = ()
    numbers: tuple[int, ...] = ()
    method: str = "scores"
    candidates: tuple[int, ...] = ()
    failure: str = ""


async def select(  # noqa: PLR0913 - what is chosen from and with, by name
    question: str,
    lines: Sequence[TurnLine],
    load: Callable[[Collection[int]], list[Turn]],
    *,
    light: Light | None,
    embedder: Embedder | None,
    documents: Collection[UUID] = (),
    limit: int = LIMIT,
) -> Selected:
    """Choose at most `limit` of `lines`, which hold no turn that the prompt has anyway.

    The light model chooses where there is one; where it fails or answers with something else, the
    scores do. `load` is called in a thread, and only for what was chosen. `documents` are those
    that the question's search found.
    """
    candidates, numbers = await asyncio.to_thread(
        rank, question, lines, embedder, documents=documents, limit=limit
    )
    method, failure = "scores", ""
    if light is not None and candidates:
        try:
            numbers = await _asked(question, candidates, light, limit)
            method = "light_llm"
        except LLMError as error:
            failure = error.code
    turns = await asyncio.to_thread(load, numbers) if numbers else []
    known = tuple(line.number for line in candidates)
    return Selected(tuple(turns), numbers, method, known, failure)


def rank(
    question: str,
    lines: Sequence[TurnLine],
    embedder: Embedder | None,
    *,
    documents: Collection[UUID] = (),
    limit: int = LIMIT,
) -> tuple[list[TurnLine], tuple[int, ...]]:
    """At most `CANDIDATES` turns, best first, and the numbers of those that scores choose.

    A turn's score is its own likeness to the question and that of the turns like it.
    """
    if not lines or not question.strip():
        return [], ()
    index = TurnIndex(lines)
    found = search.ranked(question, index, embedder)[:CANDIDATES]
    if not found:
        return [], ()
    near = index.of([one.line for one in found])
    own = np.array([one.score for one in found])
    own += SHARED * search.shares(_shared(near.lines, documents))
    scores = _spread(search.shares(own), likeness(near))
    order = [int(at) for at in np.argsort(-scores, kind="stable")]
    candidates = [near.lines[at] for at in order]
    related = any(one.coverage >= COVERED or one.cosine >= NEAR for one in found[:limit])
    if not related:
        return candidates, ()
    chosen = [at for at in order[:limit] if scores[at] >= CLOSE * scores[order[0]]]
    best = int(own.argmax())
    if best not in chosen:  # the most like of all, though in a thread of its own
        chosen = [*chosen[: limit - 1], best]
    return candidates, tuple(near.lines[at].number for at in chosen)


def likeness(index: TurnIndex) -> NDArray[np.float64]:
    """How like any two turns are, 0..1: by their vectors, else by the weights of their terms."""
    like = _lexical_likeness(index)
    vectors = [line.vector for line in index.lines if line.vector]
    width = len(vectors[0]) if vectors else 0
    usable = [
        at for at, line in enumerate(index.lines) if width and len(line.vector or ()) == width
    ]
    cosines = index.cosines([index.lines[at].vector or () for at in usable])
    like[np.ix_(usable, usable)] = cosines[:, usable]
    np.fill_diagonal(like, 0.0)
    return like


def _lexical_likeness(index: TurnIndex) -> NDArray[np.float64]:
    """Cosines of the turns' terms, weighed by TF-IDF."""
    total = len(index.lines)
    places = {term: place for place, term in enumerate(index.frequencies)}
    rows = np.zeros((total, len(places)))
    for row, terms in zip(rows, index.terms, strict=True):
        row[[places[term] for term in terms]] = list(terms.values())
    rows = np.log1p(rows) * np.log1p(total / np.array([*index.frequencies.values(), 1])[:-1])
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    rows /= np.where(lengths > 0, lengths, 1)
    return np.asarray(rows @ rows.T)


def _shared(lines: Sequence[TurnLine], documents: Collection[UUID]) -> NDArray[np.float64]:
    """How many of these documents every turn showed."""
    wanted = set(documents)
    return np.array([float(len(wanted & set(line.document_ids))) for line in lines])


def _spread(own: NDArray[np.float64], like: NDArray[np.float64]) -> NDArray[np.float64]:
    """Scores that walk along likeness, as in personalised PageRank."""
    ways = like**SHARPNESS
    sums = ways.sum(axis=1, keepdims=True)
    ways = ways / np.where(sums > 0, sums, 1)
    scores = own
    for _ in range(STEPS):
        scores = (1 - SPREAD) * own + SPREAD * (ways @ scores)
    return np.asarray(scores)


async def _asked(
    question: str, lines: Sequence[TurnLine], light: Light, limit: int
) -> tuple[int, ...]:
    """The numbers that the light model names. Raises `LLMError`, `BadReply`."""
    language = reply_language(question)
    listed = "\n".join(
        f"{line.number}: {cut(' '.join(neutralise(line.summary or line.question).split()), LINE)}"
        for line in sorted(lines, key=lambda line: line.number)
    )
    reply = await light.read(
        prompts.fill("select", language, limit=str(limit)),
        prompts.fill("select_turns", language, turns=listed, question=neutralise(question)),
        max_tokens=REPLY_TOKENS,
    )
    return _numbers(reply, {line.number for line in lines}, limit)


def _numbers(reply: object, known: Collection[int], limit: int) -> tuple[int, ...]:
    """The numbers of a strict JSON array of known ones; an empty array chooses nothing."""
    if not isinstance(reply, list):
        raise BadReply("not a JSON array")
    numbers = [one for one in reply if isinstance(one, int) and one in known]
    if reply and not numbers:
        raise BadReply("no known number")
    return tuple(dict.fromkeys(numbers))[:limit]
