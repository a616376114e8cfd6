"""An embedder that knows the languages of a corpus, made from that corpus.

Cosines of character bigrams and trigrams weighed by tf-idf, kept nearly whole by a random
projection (Johnson and Lindenstrauss 1984): no match for a trained model, but its cosines mean
something in Korean, which shows what the product does with an embedder that knows all languages.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

DIMENSIONS = 2048
FEATURES = 100_000


class CorpusEmbedder:
    """Implements `rag.ports.Embedder`; thread-safe."""

    name = "character pieces of the corpus"
    dimensions = DIMENSIONS
    languages = frozenset({"*"})

    def __init__(self, texts: Sequence[str]) -> None:
        from sklearn.feature_extraction.text import TfidfVectorizer
        from sklearn.random_projection import SparseRandomProjection

        self._features: Any = TfidfVectorizer(
            analyzer="char_wb",
            ngram_range=(2, 3),
            min_df=2,
            max_features=FEATURES,
            sublinear_tf=True,
            dtype=np.float32,
        )
        self._projection: Any = SparseRandomProjection(DIMENSIONS, random_state=0)
        self._projection.fit(self._features.fit_transform(texts))

    def embed_passages(self, texts: Sequence[str]) -> list[list[float]]:
        """One unit vector a text; of texts that share nothing with the corpus always the same."""
        if not texts:
            return []
        rows = self._projection.transform(self._features.transform(texts)).toarray()
        rows[~rows.any(axis=1)] = 1.0
        found: list[list[float]] = (rows / np.linalg.norm(rows, axis=1, keepdims=True)).tolist()
        return found

    def embed_query(self, text: str) -> list[float]:
        """The vector of a question."""
        return self.embed_passages([text])[0]
