"""Reranking with a sentence-transformers cross-encoder."""

import threading
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from rag.errors import EngineUnavailable
from rag.types import Hit


class CrossEncoderReranker:
    """Scores question and passage together. Loaded at first use; thread-safe."""

    def __init__(self, model: str) -> None:
        self.name = model
        self._lock = threading.Lock()
        self._model: Any = None

    def rerank(self, query: str, hits: Sequence[Hit], top_k: int) -> list[Hit]:
        """The best `top_k` by the cross-encoder's score, kept under `scores["rerank"]`.

        Raises `EngineUnavailable` where the model cannot be loaded or fails.
        """
        with self._lock:  # one at a time: two would share the same cores and both be slower
            model = self._loaded()
            try:
                scores = model.predict(
                    [(query, hit.passage.content) for hit in hits], show_progress_bar=False
                )
            except (RuntimeError, ValueError, IndexError) as error:
                raise EngineUnavailable(f"the reranker {self.name} failed") from error
        scored = [
            replace(hit, score=float(score), scores={**hit.scores, "rerank": float(score)})
            for hit, score in zip(hits, scores, strict=True)
        ]
        return sorted(scored, key=lambda hit: -hit.score)[:top_k]

    def _loaded(self) -> Any:
        if self._model is None:
            try:
                from sentence_transformers import CrossEncoder

                self._model = CrossEncoder(self.name)
            except (ImportError, OSError, RuntimeError, ValueError) as error:
                raise EngineUnavailable(f"the reranker {self.name} cannot be loaded") from error
        return self._model
