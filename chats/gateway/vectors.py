"""Embeddings for programs, made by the model that embeds the documents."""

import asyncio
import base64
from array import array
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from weakref import WeakKeyDictionary

from chats.errors import ModelNotFound, TooLong, WrongDimensions, WrongInput
from chats.gateway.catalogue import EVERYTHING
from chats.gateway.schemas import EmbeddingsRequest, drop_unstorable
from chats.serializers import MAX_CONTENT_CHARACTERS
from documents import spaces
from jobs.connections import in_database
from jobs.fairness import FairPlaces, get_owner
from rag.context.tokens import get_counter
from rag.factory import get_embedding_model_name, get_engine

MAX_TEXTS = 256
PLACES, PLACES_OF_ONE = 4, 2
"""Requests that an answers process embeds at once, in total and for one owner."""

_threads = ThreadPoolExecutor(PLACES, thread_name_prefix="embedding")
_places: WeakKeyDictionary[asyncio.AbstractEventLoop, FairPlaces] = WeakKeyDictionary()


async def embed_request(
    request: dict[str, Any], _say: Callable[[str, Any], None]
) -> dict[str, Any]:
    """Runs in the worker: one vector per text, and the tokens read. Raises `EmbedderFailed`."""
    current = await in_database(spaces.get_space_in_use)
    embedder = get_engine(current.config).embedder
    owner = get_owner()
    async with _get_places().hold(owner):
        # separate threads: the loop's own are for questions and searches
        return await asyncio.get_running_loop().run_in_executor(
            _threads, _embed_texts, embedder, request["texts"], owner
        )


def _get_places() -> FairPlaces:
    loop = asyncio.get_running_loop()
    if loop not in _places:
        _places[loop] = FairPlaces(PLACES, PLACES_OF_ONE)
    return _places[loop]


def _embed_texts(embedder: Any, texts: Sequence[str], owner: str) -> dict[str, Any]:
    count = get_counter(embedder.name).count
    vectors = embedder.embed_passages(texts, outsider=owner or EVERYTHING)
    return {"vectors": vectors, "tokens": sum(count(text) for text in texts)}


def read_texts(body: EmbeddingsRequest) -> list[str]:
    """The texts of a request. Raises `WrongInput`, `TooLong`."""
    inputs = [body.input] if isinstance(body.input, str) else body.input
    if not isinstance(inputs, list) or not 0 < len(inputs) <= MAX_TEXTS:
        raise WrongInput
    texts = [drop_unstorable(one) for one in inputs if isinstance(one, str)]
    if len(texts) != len(inputs) or not all(text.strip() for text in texts):
        raise WrongInput
    if any(len(text) > MAX_CONTENT_CHARACTERS for text in texts):
        raise TooLong(param="input")
    return texts


def count_tokens(name: str, texts: Sequence[str]) -> int:
    """The number of tokens of the texts for the model of that name, at least one per text."""
    count = get_counter(name).count
    return sum(max(1, count(text)) for text in texts)


def check_model(name: str) -> str:
    """The name of the embedding model; "nura" stands for it. Raises `ModelNotFound`."""
    own = get_embedding_model_name(spaces.get_space_in_use().config)
    if name not in {EVERYTHING, own}:
        raise ModelNotFound
    return own


def to_reply(body: EmbeddingsRequest, model: str, result: dict[str, Any]) -> dict[str, Any]:
    """The reply. Raises `WrongDimensions`."""
    if body.dimensions not in {None, len(result["vectors"][0])}:
        raise WrongDimensions
    as_text = body.encoding_format == "base64"
    data = [
        {"object": "embedding", "index": i, "embedding": _to_base64(vector) if as_text else vector}
        for i, vector in enumerate(result["vectors"])
    ]
    usage = {"prompt_tokens": result["tokens"], "total_tokens": result["tokens"]}
    return {"object": "list", "data": data, "model": model, "usage": usage}


def _to_base64(vector: Sequence[float]) -> str:
    """The vector as little-endian 32-bit floats, in Base64."""
    packed = array("f", vector)
    return base64.b64encode(packed.tobytes()).decode()
