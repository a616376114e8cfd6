"""What the words of a message in English show of its bond to the conversation."""

import math
import re

from rag import stems
from rag.query.background import RELATIONAL, Background, content
from rag.query.spoken import Spoken
from rag.words import words

_PLAIN = {stems.stem(word) for word in words("plain.en")}
_NAME = re.compile(r"(?<=[a-z0-9,;:'\"] )[\"'(]?([A-Z][\w-]+|[A-Za-z]*\d[\w.-]*|[a-z]+[A-Z]\w*)")
_DEFINITE = re.compile(r"\b(?:the|my|our|your)\s+(\w+)")
_SELF = re.compile(r"\b(?:i|my|me|we|our)\b")
_VERB = re.compile(
    r"\b(?:is|are|was|were|do|does|did|has|have|had|can|could|will|would|should|must|may|might)\b"
)
_ARTICLE = re.compile(r"\b(?:section|article|chapter|page|paragraph|step)\s+\d+", re.IGNORECASE)
MOST_SHARED = 3


def signals(said: Spoken, before: Background) -> dict[str, float]:
    """Signals by name; 0 where there is nothing of a kind."""
    terms = content(said.text)
    own = terms - RELATIONAL - _PLAIN
    names = {stems.stem(name.lower()) for name in _NAME.findall(said.raw)} - {"i"}
    return {
        "empty": float(not terms - _PLAIN),
        "relational": float(bool(terms - _PLAIN) and not own),
        "nouns": math.log1p(len(terms - _PLAIN)),
        "new": math.log1p(len(own - before.words)),
        "shared": float(min(len(own & before.words), MOST_SHARED)),
        "proper": float(bool(names - before.words)),
        "old_name": float(bool(names & before.words)),
        "definite": float(bool(_DEFINITE.search(said.text))),
        "self": float(bool(_SELF.search(said.text))),
        "fragment": float(len(said.text.split()) <= 4 or not _VERB.search(said.text)),
        "article": float(bool(_ARTICLE.search(said.text))),
    }
