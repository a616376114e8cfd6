"""How much of a question one sentence of a passage holds, together with what stands above it.

BM25 does not see whether the words of a question stand together or all over a passage. Judged by
the letters alone, because an analysis of every candidate would cost more than the whole search.
"""

import math
import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Mapping, Sequence

from rag.tokenize import normalise
from rag.types import Hit

_END = re.compile(r"[.!?。]\s|\n")


def best_sentences(terms: Mapping[str, float], hits: Sequence[Hit], depth: int) -> list[float]:
    """For each of the first `depth` hits: the share (0..1) of `terms` that its best sentence holds.

    Of those terms that any hit holds; each weighs as in the question and by its rarity among the
    hits. Terms of the document's name, the section and the table's header count for every sentence.
    """
    texts = [normalise(hit.passage.text).lower() for hit in hits]
    heads = [_heading(hit) for hit in hits]
    held = [
        [term for term in terms if term in text or term in head]
        for text, head in zip(texts, heads, strict=True)
    ]
    weights = _weights(terms, held)
    total = sum(weights.values())
    if not total:
        return [0.0] * min(depth, len(hits))
    best = zip(texts[:depth], heads, held, strict=False)
    return [_best(text, head, found, weights) / total for text, head, found in best]


def _heading(hit: Hit) -> str:
    passage = hit.passage
    return normalise(f"{passage.document_name}\n{passage.section}\n{passage.header}").lower()


def _weights(terms: Mapping[str, float], held: Sequence[Sequence[str]]) -> dict[str, float]:
    """As if as many passages again held none of them: what all of these hold still counts."""
    total = 2 * len(held)
    frequencies = Counter(term for found in held for term in found)
    return {
        term: terms[term] * math.log(1 + (total - count + 0.5) / (count + 0.5))
        for term, count in frequencies.items()
    }


def _best(text: str, head: str, found: Sequence[str], weights: Mapping[str, float]) -> float:
    ends = [match.end() for match in _END.finditer(text)]
    sums = [0.0] * (len(ends) + 1)
    above = 0.0
    for term in found:
        if term in head:
            above += weights[term]
            continue
        at = text.find(term)
        while at >= 0:
            sentence = bisect_right(ends, at)
            sums[sentence] += weights[term]
            at = text.find(term, ends[sentence]) if sentence < len(ends) else -1
    return above + max(sums)
