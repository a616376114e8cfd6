"""Embedding texts for programs, with the model that embeds the documents."""

import asyncio
import base64
from array import array
from collections.abc import Callable, Sequence
from typing import Any

from chats.calls import in_database
from chats.errors import ModelNotFound, TooLong, WrongDimensions, WrongInput
from chats.gateway.catalogue import EVERYTHING
from chats.gateway.schemas import EmbeddingsRequest, drop_unstorable
from chats.serializers import MAX_CONTENT_CHARACTERS
from documents import spaces
from rag.context.tokens import get_counter
from rag.factory import get_embedding_model_name, get_engine

TEXTS = 256


async def work(request: dict[str, Any], _say: Callable[[str, Any], None]) -> dict[str, Any]:
    """The worker's side: one vector a text, and the tokens read. Raises `EmbedderFailed`."""
    used = await in_database(spaces.get_space_in_use)
    embedder = get_engine(used.config).embedder
    return await asyncio.to_thread(_embedded, embedder, request["texts"])


def _embedded(embedder: Any, texts: Sequence[str]) -> dict[str, Any]:
    count = get_counter(embedder.name).count
    vectors = embedder.embed_passages(texts)
    return {"vectors": vectors, "tokens": sum(count(text) for text in texts)}


def texts_of(body: EmbeddingsRequest) -> list[str]:
    """The texts of a request. Raises `WrongInput`, `TooLong`."""
    given = [body.input] if isinstance(body.input, str) else body.input
    if not isinstance(given, list) or not 0 < len(given) <= TEXTS:
        raise WrongInput
    texts = [drop_unstorable(one) for one in given if isinstance(one, str)]
    if len(texts) != len(given) or not all(text.strip() for text in texts):
        raise WrongInput
    if any(len(text) > MAX_CONTENT_CHARACTERS for text in texts):
        raise TooLong(param="input")
    return texts


def checked_model(name: str) -> str:
    """The name of the embedding model, asked for by it or as "nura". Raises `ModelNotFound`."""
    own = get_embedding_model_name(spaces.get_space_in_use().config)
    if name not in {EVERYTHING, own}:
        raise ModelNotFound
    return own


def shown(body: EmbeddingsRequest, model: str, result: dict[str, Any]) -> dict[str, Any]:
    """The reply. Raises `WrongDimensions`."""
    if body.dimensions not in {None, len(result["vectors"][0])}:
        raise WrongDimensions
    as_text = body.encoding_format == "base64"
    data = [
        {"object": "embedding", "index": i, "embedding": _base64(one) if as_text else one}
        for i, one in enumerate(result["vectors"])
    ]
    usage = {"prompt_tokens": result["tokens"], "total_tokens": result["tokens"]}
    return {"object": "list", "data": data, "model": model, "usage": usage}


def _base64(vector: Sequence[float]) -> str:
    """Floats of 32 bits, the lowest byte first."""
    packed = array("f", vector)
    return base64.b64encode(packed.tobytes()).decode()
