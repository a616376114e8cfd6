"""Each sentence of an answer against the passages that it cites."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from rag.generation.brief import Evidence


class Verdict(StrEnum):
    """What the evidence says of a sentence; PLAIN claims nothing that could be checked."""

    SUPPORTED = "supported"
    UNSUPPORTED = "unsupported"
    PLAIN = "plain"


@dataclass(frozen=True, slots=True)
class Checked:
    """A sentence of an answer: `start`..`end` in its characters (code points), markers included.

    `slots` are those that it cites. `reasons` say what spoke against it: "number", "name", "date",
    "negation", "overlap".
    """

    start: int
    end: int
    verdict: Verdict
    slots: tuple[int, ...] = ()
    reasons: tuple[str, ...] = ()


def check(answer: str, evidence: Sequence[Evidence]) -> tuple[Checked, ...]:
    """Every sentence of the answer, in order.

    One that cites is held against the passages of its slots, one that does not against all.
    """
    del answer, evidence
    return ()
