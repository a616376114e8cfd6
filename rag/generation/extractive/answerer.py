"""The answerer when no model is configured: the passages' own sentences, each with its source."""

import asyncio
import math
import re
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from dataclasses import dataclass

from rag import prompts, tokenize
from rag.config import ContextRules
from rag.context.assemble import measure
from rag.context.tokens import counter
from rag.generation import units
from rag.generation.brief import Assembled, Brief, Evidence
from rag.neutral import neutralise
from rag.pieces import Piece

MOST = 4
LONGEST = 400
ENOUGH = 0.6
"""A unit is quoted when it scores at least this share of the best one."""
NEWS = 1
"""Terms that a unit must at least hold beyond the question and its own headings."""
HEADING = 0.5
"""What a term counts that stands in the heading above a unit only."""
CARRIED = 0.35
"""What the terms count together that a follow-up carries over, beside its own."""
NUMBER = 1.3
"""A unit with a figure is worth more to a question that asks for one."""
PART = 0.2
"""Share of the question's weight that is a part of its own, as 예산 in "발주기관과 예산"."""
SAME = 0.8
"""Share of terms from which on two units say the same."""
_ASKS_NUMBER = re.compile(
    r"얼마|언제|며칠|몇|기한|기간|날짜|일정|마감|how (?:many|much|long|often)|when|date|deadline",
    re.IGNORECASE,
)
_NUMBER = re.compile(r"\d")
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
    about: str


class ExtractiveAnswerer:
    """Quotes up to four units that hold most of the question, in the order of the passages.

    Deterministic.
    """

    name = "extractive"

    def assemble(self, brief: Brief, rules: ContextRules) -> Assembled:
        """Everything: no model's window limits it."""
        return measure(brief, counter(self.name), rules)

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
    notes = (*brief.notices, "extractive_note")
    yield "\n\n".join(prompts.text(name, brief.language) for name in notes)


def _leading(evidence: Sequence[Evidence]) -> list[_Candidate]:
    """The first sentences of each document, in turn."""
    candidates = list(_candidates(evidence))
    firsts = sorted(candidates, key=lambda item: (item.order[1], item.order[0]))[:MOST]
    return sorted(firsts, key=lambda item: item.order)


@dataclass(frozen=True, slots=True)
class _Scored:
    """A unit with the terms of the question it holds itself, and all its terms."""

    item: _Candidate
    score: float
    answers: frozenset[str]
    terms: frozenset[str]


def _best(brief: Brief) -> list[_Candidate]:
    """The units that hold most of the question, each with news, none twice."""
    wanted = _wanted(brief)
    candidates = _touched(list(_candidates(brief.evidence)), wanted)
    held = _terms([item.text for item in candidates])
    about = _terms([item.about for item in candidates])
    weights = _weights(wanted, [own | context for own, context in zip(held, about, strict=True)])
    scored = [
        _scored(brief, item, own, context, weights)
        for item, own, context in zip(candidates, held, about, strict=True)
        if len(own - set(wanted) - context) >= NEWS  # else a title, or the question itself
    ]
    scored.sort(key=lambda one: (-one.score, one.item.order))
    return sorted((one.item for one in _chosen(scored, weights)), key=lambda item: item.order)


def _wanted(brief: Brief) -> dict[str, float]:
    """The terms that are asked for: the question's own, and less those that it carries over."""
    own = [t for t, weight in tokenize.query_terms(brief.question).items() if weight >= 1]
    asked = tokenize.query_terms(brief.standalone)
    carried = [t for t, weight in asked.items() if weight >= 1 and t not in own]
    share = min(1.0, len(own) / max(1, len(carried))) * CARRIED if own else 1.0
    return dict.fromkeys(carried, share) | dict.fromkeys(own, 1.0)


def _touched(candidates: list[_Candidate], wanted: Mapping[str, float]) -> list[_Candidate]:
    """The units in whose letters some term of the question stands: the others need no reading."""
    touched = [item for item in candidates if any(term in item.text.casefold() for term in wanted)]
    return touched or candidates


def _terms(texts: Sequence[str]) -> list[set[str]]:
    """The terms of each text; equal texts are read once."""
    different = list(dict.fromkeys(texts))
    found = dict(zip(different, map(set, tokenize.terms_of_all(different)), strict=True))
    return [found[text] for text in texts]


def _scored(
    brief: Brief,
    item: _Candidate,
    own: set[str],
    context: set[str],
    weights: Mapping[str, float],
) -> _Scored:
    score = sum(
        weight * (1.0 if term in own else HEADING)
        for term, weight in weights.items()
        if term in own or term in context
    )
    if _ASKS_NUMBER.search(brief.question) and _NUMBER.search(item.text):
        score *= NUMBER
    score *= 0.5 + 0.5 * brief.evidence[item.order[0]].relevance
    return _Scored(item, score, frozenset(own & weights.keys()), frozenset(own))


def _weights(wanted: Mapping[str, float], held: Sequence[set[str]]) -> dict[str, float]:
    """What each term of the question tells units apart by: little where nearly all hold it."""
    total = len(held)
    return {
        term: share * math.log(1 + (total + 1) / (1 + sum(term in terms for terms in held)))
        for term, share in wanted.items()
    }


def _chosen(scored: Sequence[_Scored], weights: Mapping[str, float]) -> list[_Scored]:
    """The best units; then those that answer a part of the question that none of these does."""
    kept: list[_Scored] = []
    for one in scored:
        if len(kept) < MOST and one.score >= scored[0].score * ENOUGH and _is_new(one, kept):
            kept.append(one)
    answered = frozenset[str]().union(*(one.answers for one in kept))
    known = frozenset[str]().union(*(one.answers for one in scored))
    least = PART * sum(weights[term] for term in known)
    for one in scored:
        gain = sum(weights[term] for term in one.answers - answered)
        if len(kept) < MOST and gain >= least and _is_new(one, kept):
            kept.append(one)
            answered |= one.answers
    return kept


def _is_new(one: _Scored, kept: Sequence[_Scored]) -> bool:
    return all(_overlap(one.terms, other.terms) < SAME for other in kept)


def _overlap(left: frozenset[str], right: frozenset[str]) -> float:
    return len(left & right) / max(1, min(len(left), len(right)))


def _candidates(evidence: Sequence[Evidence]) -> Iterator[_Candidate]:
    for rank, item in enumerate(evidence):
        for place, unit in enumerate(units.cut(neutralise(item.text))):
            if not _COMMAND.search(unit.text):
                about = f"{item.document_name} {item.section} {unit.heading}"
                yield _Candidate((rank, place), item.slot, _cut(unit.text), about)


def _cut(sentence: str) -> str:
    # a marker of the document's own would read as one of ours
    plain = re.sub(r"\[(\d+)\]", r"(\1)", sentence)
    return plain if len(plain) <= LONGEST else plain[: LONGEST - 1].rstrip() + "…"
