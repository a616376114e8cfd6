"""What each part of a prompt may take of its tokens, and what it took."""

from collections.abc import Mapping
from dataclasses import dataclass, field

USUAL = 4000
"""Tokens of a prompt for which the shares below are given; they scale with the total."""
SYSTEM = 400
DOCUMENTS = 900
RECENT = 0.6
"""Share of what system, question and documents leave that the last messages may take.

The rest of it is for older turns.
"""


@dataclass(frozen=True, slots=True)
class Layer:
    """Tokens that a part of a prompt could take, and that it took."""

    planned: int
    used: int


@dataclass(frozen=True, slots=True)
class TokenPlan:
    """A prompt's tokens by part: system, query, recent, long_term, documents.

    `dropped` counts what did not fit: messages, turns, findings, passages, and the characters cut
    off texts that stayed. `counter` is the vocabulary that counted, or "estimate".
    """

    total: int
    layers: Mapping[str, Layer]
    counter: str
    dropped: Mapping[str, int] = field(default_factory=dict)

    @property
    def used(self) -> int:
        """Tokens of all parts."""
        return sum(layer.used for layer in self.layers.values())


@dataclass(frozen=True, slots=True)
class Shares:
    """Tokens for each part, before one knows what it needs."""

    total: int
    system: int
    query: int
    recent: int
    long_term: int
    documents: int

    def documents_with(self, *others: int) -> int:
        """The documents' room when the other parts took that much: never below their share."""
        return max(self.documents, self.total - sum(others))


def shares(total: int, *, system: int, query: int) -> Shares:
    """Split `total` tokens; `system` and `query` are what these two need, whatever it is."""
    reserved = max(total * SYSTEM // USUAL, system)
    documents = total * DOCUMENTS // USUAL
    rest = max(0, total - reserved - query - documents)
    recent = int(rest * RECENT)
    return Shares(total, total * SYSTEM // USUAL, query, recent, rest - recent, documents)
