"""What an answer rests on, in one word: it follows from what it cites and from what holds."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from rag.types import AnswerLabel


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


@dataclass(frozen=True, slots=True)
class Grounds:
    """What is known of an answer beside its sentences.

    `asked`: it was asked of documents. `lacks`: it says itself that something is not to be found.
    `earlier`: what it says stands in earlier turns. `model`: a model wrote it; else it is made of
    found passages.
    """

    asked: bool = False
    lacks: bool = False
    earlier: bool = False
    model: bool = True


def decide_label(checks: Sequence[Checked], grounds: Grounds) -> AnswerLabel:
    """The label of an answer with these sentences."""
    if not any(item.slots for item in checks):
        return _uncited(grounds)
    if not grounds.model:
        return AnswerLabel.PASSAGES
    claims = [item.verdict is Verdict.SUPPORTED for item in checks if item.verdict != Verdict.PLAIN]
    if claims and not any(claims):
        return AnswerLabel.INSUFFICIENT
    if not claims:  # a marker behind a sentence that only says what is missing
        return AnswerLabel.INSUFFICIENT if grounds.lacks else AnswerLabel.DOCUMENTS
    return AnswerLabel.DOCUMENTS if all(claims) else AnswerLabel.PARTIAL


def _uncited(grounds: Grounds) -> AnswerLabel:
    if grounds.earlier:
        return AnswerLabel.CONVERSATION
    return AnswerLabel.INSUFFICIENT if grounds.asked and grounds.lacks else AnswerLabel.GENERAL
