"""Whether a question is bound to the conversation: what speaks for it and against it, weighed.

A logistic function of what its words show, fitted on dialogues as told in docs/conversations.md.
"""

import math
from collections.abc import Mapping, Sequence

from rag.config import MemoryRules
from rag.query import anaphora, follow_en, follow_ko
from rag.query.background import Background
from rag.query.spoken import Spoken
from rag.words import phrases

KO: Mapping[str, float] = {
    "bias": 1.38,
    "reference": 1.54,
    "weak_reference": 0.53,
    "connective": 0.48,
    "cue": 0.54,
    "length": 0.03,
    "empty": -0.92,
    "relational": 0.77,
    "nouns": -0.99,
    "new_none": 1.21,
    "new_one": 0.44,
    "new_two": -0.76,
    "new_more": -1.09,
    "lone": -0.14,
    "shared": 0.34,
    "run": -0.83,
    "condition": 0.41,
    "proper": -1.25,
    "new_name": -1.1,
    "old_name": -0.02,
    "new_latin": -0.41,
    "also": 1.55,
    "topic": 2.07,
    "fragment": 0.42,
    "article": 0.25,
    "statement": -3.31,
    "self": -0.26,
}
EN: Mapping[str, float] = {
    "bias": 1.3,
    "reference": 2.31,
    "weak_reference": -0.05,
    "connective": 1.19,
    "length": 0.27,
    "empty": 0.21,
    "relational": 0.31,
    "nouns": -0.91,
    "new": -1.44,
    "shared": 1.82,
    "proper": -1.15,
    "old_name": -0.33,
    "definite": -0.02,
    "self": 1.54,
    "fragment": 0.78,
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
