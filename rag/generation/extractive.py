"""The answerer when no model is configured: the passages' own sentences, each with its source."""

import asyncio
import re
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from dataclasses import dataclass

from rag import prompts, sentences, tokenize
from rag.generation.brief import Brief, Evidence
from rag.neutral import neutralise
from rag.types import Piece

MOST = 4
LONGEST = 400
ENOUGH = 0.6
"""A sentence is quoted when it scores at least this share of the best one."""
_COMMAND = re.compile(
    r"(?:답|대답|답변|응답|출력|표시|포함|나열|삽입)(?:을|를)?\s*"
    r"(?:하세요|하시오|하라|해라|하십시오)|넣으세요|"
    r"(?:이전|위의?|앞의?)\s*(?:모든\s*)?(?:지시|명령|규칙)|"
    r"ignore (?:all |any )?(?:previous|prior|above)|you are now|"
    r"(?:system|assistant) (?:prompt|mode)",
    re.IGNORECASE,
)
"""Sentences that talk to the machine instead of the reader: never quoted as an answer."""


@dataclass(frozen=True, slots=True)
class _Candidate:
    order: tuple[int, int]
    slot: int
    text: str
    score: float


class ExtractiveAnswerer:
    """Quotes one to four sentences that hold most of the question, in the order of the passages.

    Deterministic.
    """

    name = "extractive"

    def sizes(self, brief: Brief) -> Mapping[str, int]:
        """Characters read."""
        return {"evidence": sum(len(item.text) for item in brief.evidence)}

    async def stream(self, brief: Brief) -> AsyncGenerator[Piece, None]:
        """The quotes, sentence by sentence, then one line that says what they are."""
        for text in await asyncio.to_thread(lambda: list(_paragraphs(brief))):
            for piece in re.findall(r"\S+\s*|\s+", text):
                yield Piece(text=piece)
        yield Piece(finish_reason="stop")


def _paragraphs(brief: Brief) -> Iterator[str]:
    chosen = _leading(brief.evidence) if brief.opening else _best(brief)
    for item in chosen:
        yield f"{item.text} [{item.slot}]\n\n"
    yield prompts.text("extractive_note", brief.language)


def _leading(evidence: Sequence[Evidence]) -> list[_Candidate]:
    """The first sentences of each document, in turn."""
    candidates = list(_candidates(evidence))
    firsts = sorted(candidates, key=lambda item: (item.order[1], item.order[0]))[:MOST]
    return sorted(firsts, key=lambda item: item.order)


def _best(brief: Brief) -> list[_Candidate]:
    wanted = tokenize.query_terms(brief.question)
    candidates = list(_candidates(brief.evidence))
    held = list(tokenize.terms_of_all([item.text for item in candidates]))
    rarity = _rarity(wanted, held)
    scored = sorted(
        (
            _scored(item, terms, rarity, brief.evidence)
            for item, terms in zip(candidates, held, strict=True)
        ),
        key=lambda item: (-item.score, item.order),
    )
    best = scored[0].score if scored else 0.0
    kept = [item for item in scored[:MOST] if item.score >= best * ENOUGH]
    return sorted(_distinct(kept), key=lambda item: item.order)


def _candidates(evidence: Sequence[Evidence]) -> Iterator[_Candidate]:
    for rank, item in enumerate(evidence):
        for place, sentence in enumerate(sentences.split(neutralise(item.text))):
            if not _COMMAND.search(sentence):
                yield _Candidate((rank, place), item.slot, _cut(sentence), 0.0)


def _cut(sentence: str) -> str:
    # a marker of the document's own would read as one of ours
    plain = re.sub(r"\[(\d+)\]", r"(\1)", sentence)
    return plain if len(plain) <= LONGEST else plain[: LONGEST - 1].rstrip() + "…"


def _rarity(wanted: Mapping[str, int], held: Sequence[Mapping[str, int]]) -> dict[str, float]:
    return {term: 1 / (1 + sum(term in terms for terms in held)) ** 0.5 for term in wanted}


def _scored(
    item: _Candidate,
    terms: Mapping[str, int],
    rarity: Mapping[str, float],
    evidence: Sequence[Evidence],
) -> _Candidate:
    share = sum(weight for term, weight in rarity.items() if term in terms)
    score = share * (0.5 + 0.5 * evidence[item.order[0]].relevance) / (1 + 0.1 * item.order[0])
    return _Candidate(item.order, item.slot, item.text, score)


def _distinct(items: Sequence[_Candidate]) -> list[_Candidate]:
    """Overlapping chunks repeat sentences: the first reading stays."""
    seen: dict[str, _Candidate] = {}
    for item in items:
        seen.setdefault(item.text, item)
    return list(seen.values())
