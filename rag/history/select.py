"""Which older turns bear on a question: at most a few, and none rather than a wrong one."""

import asyncio
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

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
SPREAD = 0.5
"""Share of a turn's score that it has from turns like it: a thread is found as one."""
SHARPNESS = 2
"""Exponent of the likeness of turns: weak likeness is chance."""
STEPS = 8
CLOSE = 0.8
"""A further turn is chosen when it scores at least this share of the best one."""
COVERED = 0.3
"""Share of the question's weight that the best turn must hold, or ..."""
NEAR = 0.3
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


@dataclass(frozen=True, slots=True)
class Candidate:
    """A turn with its score, and whether it bears on the question as far as scores tell."""

    line: TurnLine
    score: float
    chosen: bool


async def select(  # noqa: PLR0913 - what is chosen from and with, by name
    question: str,
    lines: Sequence[TurnLine],
    load: Callable[[Collection[int]], list[Turn]],
    *,
    light: Light | None,
    embedder: Embedder | None,
    limit: int = LIMIT,
) -> Selected:
    """Choose at most `limit` of `lines`, which hold no turn that the prompt has anyway.

    The light model chooses where there is one; where it fails or answers with something else, the
    scores do. `load` is called in a thread, and only for what was chosen.
    """
    candidates = await asyncio.to_thread(rank, question, lines, embedder, limit)
    if not candidates or not question.strip():
        return Selected()
    numbers = tuple(one.line.number for one in candidates if one.chosen)
    method, failure = "scores", ""
    if light is not None:
        try:
            numbers = await _asked(question, [one.line for one in candidates], light, limit)
            method = "light_llm"
        except LLMError as error:
            failure = error.code
    turns = await asyncio.to_thread(load, numbers) if numbers else []
    known = tuple(one.line.number for one in candidates)
    return Selected(tuple(turns), numbers, method, known, failure)


def rank(
    question: str,
    lines: Sequence[TurnLine],
    embedder: Embedder | None,
    limit: int = LIMIT,
) -> list[Candidate]:
    """At most `CANDIDATES` turns, best first, of which at most `limit` are chosen by their scores.

    A turn's score is its own likeness to the question and that of the turns like it.
    """
    if not lines:
        return []
    index = TurnIndex(lines)
    found = search.ranked(question, index, embedder)
    if not found:
        return []
    places = {line.number: place for place, line in enumerate(index.lines)}
    own = np.zeros(len(index.lines))
    for one in found:
        own[places[one.line.number]] = one.score
    scores = _spread(search.shares(own), likeness(index))
    best = max(found, key=lambda one: scores[places[one.line.number]])
    related = any(one.coverage >= COVERED or one.cosine >= NEAR for one in found[:limit])
    order = sorted(range(len(own)), key=lambda at: (-scores[at], -index.lines[at].number))
    least = CLOSE * scores[places[best.line.number]]
    return [
        Candidate(
            index.lines[at],
            float(scores[at]),
            chosen=related and rank < limit and bool(scores[at] >= least),
        )
        for rank, at in enumerate(order[:CANDIDATES])
    ]


def likeness(index: TurnIndex) -> NDArray[np.float64]:
    """How like any two turns are, 0..1: by their vectors, else by the weights of their terms."""
    lines = index.lines
    like = _lexical_likeness(index)
    for place, line in enumerate(lines):
        if line.vector is not None:
            cosines = np.clip(index.cosines(line.vector), 0.0, 1.0)
            known = [at for at, other in enumerate(lines) if other.vector is not None]
            like[place, known] = cosines[known]
    np.fill_diagonal(like, 0.0)
    return like


def _lexical_likeness(index: TurnIndex) -> NDArray[np.float64]:
    total = len(index.lines)
    places = {term: place for place, term in enumerate(index.frequencies)}
    rows = np.zeros((total, len(places)), dtype=np.float32)
    for row, terms in enumerate(index.terms):
        for term, count in terms.items():
            weight = np.log(1 + total / index.frequencies[term])
            rows[row, places[term]] = (1 + np.log(count)) * weight
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    rows /= np.where(lengths > 0, lengths, 1)
    return np.asarray(rows @ rows.T, dtype=np.float64)


def _spread(own: NDArray[np.float64], like: NDArray[np.float64]) -> NDArray[np.float64]:
    """Scores that walk along likeness, as in personalised PageRank."""
    ways = like**SHARPNESS
    sums = ways.sum(axis=1, keepdims=True)
    ways = ways / np.where(sums > 0, sums, 1)
    scores = own
    for _ in range(STEPS):
        scores = (1 - SPREAD) * own + SPREAD * ways @ scores
    return scores


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
