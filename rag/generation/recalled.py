"""The answer from older turns when no model is configured: their own sentences, quoted."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rag import prompts, sentences, tokenize
from rag.conversation import Turn
from rag.history import recall, said
from rag.neutral import neutralise

MOST = 3
READ = 8000
"""Characters of a turn's texts that are read."""
LONGEST = 300
ENOUGH = 0.5
"""Share of the question's weight that a quoted sentence must hold, its turn's other words half."""
NEARBY = 0.5
"""What a term counts that stands elsewhere in the same text."""
CLOSE = 0.8
"""Further sentences are quoted that score at least this share of the best one."""
OWN = 1.3
"""What the user's own words are worth beside an answer's: the question is mostly after them."""
_QUESTION = re.compile(
    r"[?？]\s*$|"
    r"(?:나요|까요|인가요|니까|는지요?|던가요?|뭐야|누구야|언제야|어디야|얼마야)[.!\s]*$|"
    r"(?:알려|말해|설명해|보여)\s?(?:줘|주세요|줄래)[.!\s]*$|"
    r"^(?:what|who|when|where|why|which|how|is|are|do|does|did|can|could|tell me)\b",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Quote:
    """A sentence of a turn. `score` is the share of the question that it holds."""

    number: int
    text: str
    score: float


def answer(question: str, turns: Sequence[Turn], language: str) -> str:
    """The sentences of these turns that hold what is asked for; empty where none does."""
    quotes = quoted(question, turns)
    if not quotes:
        return ""
    lines = (
        prompts.fill("recalled_quote", language, number=str(one.number), text=one.text)
        for one in quotes
    )
    return prompts.fill("recalled", language, quotes="\n".join(lines))


def quoted(question: str, turns: Sequence[Turn]) -> list[Quote]:
    """At most `MOST` sentences, in the order of the conversation; of equal ones the latest.

    A turn that the question names by its place is quoted itself; otherwise no questions are.
    """
    if named := [turn for turn in turns if turn.number == recall.place(question)]:
        return [_whole(turn) for turn in named]
    asked = tokenize.query_terms(recall.subject(question))
    wanted = {term: weight for term, weight in asked.items() if weight >= 1}
    found = [one for turn in turns for one in _of_turn(turn, wanted)]
    best = max((one.score for one in found), default=0.0)
    if best < ENOUGH:
        return []
    near = [one for one in found if one.score >= max(ENOUGH, CLOSE * best)]
    latest = {one.text: one for one in sorted(near, key=lambda one: one.number)}
    chosen = sorted(latest.values(), key=lambda one: (-one.score, -one.number))[:MOST]
    return sorted(chosen, key=lambda one: one.number)


def _whole(turn: Turn) -> Quote:
    text = " ".join(neutralise(turn.user_text[:READ]).split())
    return Quote(turn.number, said.cut(text, LONGEST), 1.0)


def _of_turn(turn: Turn, wanted: dict[str, float]) -> Iterator[Quote]:
    for text, worth in ((turn.user_text, OWN), (said.answer(turn), 1.0)):
        parts = sentences.split(neutralise(text[:READ]))
        held = [set(terms) for terms in tokenize.terms_of_all(parts)]
        around = set[str]().union(*held)
        for part, own in zip(parts, held, strict=True):
            if not _QUESTION.search(part) and own - wanted.keys() and own & wanted.keys():
                score = worth * _share(wanted, own, around)
                yield Quote(turn.number, said.cut(part, LONGEST), score)


def _share(wanted: dict[str, float], own: set[str], around: set[str]) -> float:
    held = sum(
        weight * (1.0 if term in own else NEARBY)
        for term, weight in wanted.items()
        if term in own or term in around
    )
    return held / sum(wanted.values())
