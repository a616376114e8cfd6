"""What the product is measured beside: plain BM25, the embedding model alone, and their fusion.

BM25 with k1 1.2 and b .75 over the texts of the units without their titles, as the figures in the
data's notes have it.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence

import numpy as np
from scipy import sparse

from rag.ports import Embedder
from rag.tokenize.korean import strip_particle

Tokens = Callable[[str], Sequence[str]]
Rankings = list[list[int]]

K1 = 1.2
B = 0.75
DEPTH = 100
"""Of each ranking that is fused."""
FUSION_K = 60

_WORD = re.compile(r"[가-힣]+|[^\W_가-힣]+")
_HANGUL = re.compile("[가-힣]")


def whitespace(text: str) -> list[str]:
    """What stands between blanks."""
    return text.split()


def bigrams(text: str) -> list[str]:
    """Character bigrams of Hangul words without their particles; other words in small letters."""
    found: list[str] = []
    for word in _WORD.findall(text):
        if not _HANGUL.match(word):
            found.append(word.lower())
            continue
        stem = strip_particle(word)
        found += [stem[at : at + 2] for at in range(len(stem) - 1)] or [stem]
    return found


class Bm25:
    """Okapi BM25 with the IDF that is never negative, over the tokens that one function makes."""

    def __init__(self, texts: Sequence[str], tokens: Tokens) -> None:
        self._tokens = tokens
        counts = [Counter(tokens(text)) for text in texts]
        self._places = {term: at for at, term in enumerate(_distinct(counts))}
        tf = _matrix(counts, self._places)
        lengths = np.asarray(tf.sum(axis=1)).ravel()
        norms = K1 * (1 - B + B * lengths / max(lengths.mean(), 1e-9))
        held = np.bincount(tf.indices, minlength=len(self._places))
        idf = np.log(1 + (len(texts) - held + 0.5) / (held + 0.5))
        rows = np.repeat(np.arange(len(texts)), np.diff(tf.indptr))
        tf.data = tf.data * (K1 + 1) / (tf.data + norms[rows]) * idf[tf.indices]
        self._weights = tf.T.tocsr()

    def rank(self, questions: Sequence[str], depth: int) -> Rankings:
        """The best units of each question; only such as hold a term of it."""
        asked = _matrix([Counter(self._tokens(text)) for text in questions], self._places)
        scores = (asked @ self._weights).tocsr()
        found: Rankings = []
        for row in range(len(questions)):
            part = slice(scores.indptr[row], scores.indptr[row + 1])
            order = np.argsort(-scores.data[part], kind="stable")[:depth]
            found.append(scores.indices[part][order].tolist())
        return found


class Dense:
    """Cosine of vectors, of every text in whatever language."""

    def __init__(self, texts: Sequence[str], embedder: Embedder) -> None:
        self._embedder = embedder
        self._vectors = np.asarray(embedder.embed_passages(texts), dtype=np.float32)

    def rank(self, questions: Sequence[str], depth: int) -> Rankings:
        """The nearest units of each question."""
        asked = np.asarray(self._embedder.embed_passages(questions), dtype=np.float32)
        return [np.argsort(-row)[:depth].tolist() for row in asked @ self._vectors.T]


def fused(*rankings: Rankings) -> Rankings:
    """Reciprocal rank fusion with equal weights."""
    return [_fused(parts) for parts in zip(*rankings, strict=True)]


def _fused(parts: Iterable[Sequence[int]]) -> list[int]:
    totals: Counter[int] = Counter()
    for part in parts:
        for rank, place in enumerate(part, 1):
            totals[place] += 1 / (FUSION_K + rank)  # type: ignore[assignment]
    return [place for place, _ in totals.most_common(DEPTH)]


def _distinct(counts: Iterable[Counter[str]]) -> dict[str, None]:
    return dict.fromkeys(term for count in counts for term in count)


def _matrix(counts: Sequence[Counter[str]], places: dict[str, int]) -> sparse.csr_matrix:
    known = [
        (row, places[term], n)
        for row, count in enumerate(counts)
        for term, n in count.items()
        if term in places
    ]
    rows, columns, values = zip(*known, strict=True) if known else ((), (), ())
    shape = (len(counts), len(places))
    return sparse.csr_matrix((np.array(values, dtype=np.float64), (rows, columns)), shape=shape)
