"""Whether a question is bound to the conversation: what speaks for it and against it, weighed.

A logistic function of what its words show; see docs/retrieval.md, "Follow-ups".
"""

import math
from collections.abc import Mapping, Sequence

from rag import stems
from rag.config import MemoryRules
from rag.query import anaphora, asking, background, laws
from rag.query.background import Background
from rag.query.spoken import Spoken
from rag.words import phrases, words

_RELATIONAL = words("relational.ko") | {stems.stem(word) for word in words("relational.en")}
MOST = 4
"""Of what is counted, more says nothing new."""

WEIGHTS: Mapping[str, float] = {
    "bias": -0.6,
    "reference": 4.0,
    "weak_reference": 0.8,
    "connective": 1.6,
    "cue": 1.2,
    "empty": 2.2,
    "relational": 2.4,
    "fragment": 0.8,
    "shared": 0.9,
    "new": -0.9,
    "new_name": -2.2,
    "old_name": -1.0,
    "length": -0.2,
    "statement": -2.0,
}


def signals(said: Spoken, before: Background, rules: MemoryRules) -> dict[str, float]:
    """What the words of a question show; 0 where there is nothing of a kind."""
    nouns = background.content(said.text)
    names = laws.named(said.text)
    own = {noun for noun in nouns if noun not in _RELATIONAL}
    shared, new = own & before.words, own - before.words
    reference = anaphora.strength(said, len(new))
    connects = anaphora.connects(said, rules.followup_words)
    return {
        "bias": 1.0,
        "reference": float(reference >= 1),
        "weak_reference": float(0 < reference < 1),
        "connective": float(connects),
        "cue": float(not connects and said.holds(cues(rules))),
        "empty": float(not nouns),
        "relational": float(bool(nouns) and not own),
        "fragment": float(_is_fragment(said)),
        "shared": float(min(len(shared), MOST)) / 2,
        "new": float(min(len(new), MOST)),
        "new_name": float(bool(names - before.names)),
        "old_name": float(bool(names & before.names)),
        "length": math.log1p(len(said.text)),
        "statement": float(not asking.seeks(said.text)),
    }


def probability(found: Mapping[str, float]) -> float:
    """How likely a question with these signals follows, 0..1."""
    logit = sum(WEIGHTS[name] * value for name, value in found.items())
    return 1 / (1 + math.exp(-logit))


def cues(rules: MemoryRules) -> Sequence[str]:
    """The follow-up words in force."""
    return rules.followup_words or phrases("followup")


def _is_fragment(said: Spoken) -> bool:
    """A subject without a predicate: "외국인은?", "and the fee?"."""
    found = said.morphemes
    if not found:
        return len(said.text.split()) <= 4
    return not any(item.tag in ("VV", "VA", "XSV", "XSA", "VCP", "VCN") for item in found)
