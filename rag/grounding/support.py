"""Each sentence of an answer against the passages that it cites."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from rag.generation.brief import Evidence
from rag.grounding import against, claims, plain, spans
from rag.grounding.holding import Held, hold
from rag.grounding.index import build

LONGEST_ANSWER = 20_000
"""Characters of an answer that are looked at; what follows is not checked."""
MOST_SENTENCES = 300
"""Sentences of an answer that are checked."""
MOST_TOLD = 20
"""Doubted sentences that a trace names."""
FEWEST = 2
"""Words that a sentence without markers, figures and names must have to claim something."""


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
    found = spans.split(answer[:LONGEST_ANSWER])
    index = build(evidence)
    open_ = [span for span in found if not plain.claims_nothing(span)][:MOST_SENTENCES]
    held = [item for claim in claims.read(open_) if _claims(item := hold(claim, index))]
    units = against.read(held)
    reasons = {
        item.claim.span: tuple(dict.fromkeys(against.reasons(item, index, units))) for item in held
    }
    return tuple(_checked(span, reasons.get(span)) for span in found)


def summary(checks: Sequence[Checked]) -> dict[str, object]:
    """How many sentences have which verdict, and the doubted ones, as plain JSON for a trace."""
    counts = {verdict.value: sum(item.verdict is verdict for item in checks) for verdict in Verdict}
    doubted = [
        {"start": item.start, "end": item.end, "slots": [*item.slots], "reasons": [*item.reasons]}
        for item in checks
        if item.verdict is Verdict.UNSUPPORTED
    ]
    return {**counts, "doubted": doubted[:MOST_TOLD]}


def _claims(held: Held) -> bool:
    """Whether there is enough in a sentence to be checked."""
    claim = held.claim
    if claim.figures or claim.dates or held.names:
        return True
    fewest = 1 if claim.span.slots else FEWEST
    return len(held.terms) >= fewest and not held.foreign


def _checked(span: spans.Span, reasons: tuple[str, ...] | None) -> Checked:
    verdict = Verdict.UNSUPPORTED if reasons else Verdict.SUPPORTED
    if reasons is None:
        verdict = Verdict.PLAIN
    return Checked(span.start, span.end, verdict, span.slots, reasons or ())
