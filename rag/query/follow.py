"""Whether a question is bound to the conversation: what speaks for it and against it, weighed.

A logistic function of what its words show, fitted on dialogues as told in docs/retrieval.md.
"""

import math
from collections.abc import Mapping, Sequence

from rag.config import MemoryRules
from rag.query import anaphora, follow_en, follow_ko
from rag.query.background import Background
from rag.query.spoken import Spoken
from rag.words import phrases

KO: Mapping[str, float] = {
    "bias": 0.7,
    "reference": 1.26,
    "weak_reference": 0.4,
    "connective": 0.54,
    "cue": 0.38,
    "length": 0.19,
    "empty": -0.7,
    "relational": 0.73,
    "nouns": -1.03,
    "new_none": 0.79,
    "new_one": 0.56,
    "new_two": -0.5,
    "new_more": -0.96,
    "lone": 0.47,
    "shared": 0.24,
    "run": -0.64,
    "condition": 0.19,
    "proper": -1.36,
    "new_name": -0.78,
    "new_latin": -0.28,
    "also": 1.04,
    "topic": 1.43,
    "fragment": 0.21,
    "article": 0.17,
    "statement": -1.58,
    "self": -0.3,
}
EN: Mapping[str, float] = {
    "bias": 0.93,
    "reference": 1.79,
    "weak_reference": -0.02,
    "connective": 0.8,
    "length": 0.32,
    "empty": 0.16,
    "relational": 0.22,
    "nouns": -0.79,
    "new": -1.22,
    "shared": 1.16,
    "proper": -1.03,
    "old_name": -0.08,
    "definite": -0.07,
    "self": 1.13,
    "fragment": 0.73,
}


def signals(said: Spoken, before: Background, rules: MemoryRules) -> dict[str, float]:
    """What the words of a question show; 0 where there is nothing of a kind."""
    own = (follow_ko if said.korean else follow_en).signals(said, before)
    back = anaphora.points_back(said)
    connects = anaphora.connects(said, rules.followup_words)
    return {
        "bias": 1.0,
        "reference": float(back == 1),
        "weak_reference": float(0 < back < 1),
        "connective": float(connects),
        "cue": float(not connects and said.holds(cues(rules))),
        "length": math.log1p(len(said.text)),
        **own,
    }


def probability(said: Spoken, found: Mapping[str, float]) -> float:
    """How likely a question with these signals follows, 0..1."""
    weights = KO if said.korean else EN
    logit = sum(weights.get(name, 0.0) * value for name, value in found.items())
    return 1 / (1 + math.exp(-logit))


def cues(rules: MemoryRules) -> Sequence[str]:
    """The follow-up words in force."""
    return rules.followup_words or phrases("followup")
