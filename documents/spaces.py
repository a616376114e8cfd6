"""Embedding spaces: which model's vectors are stored and searched.

The active space decides, in every process and at every use, which model embeds questions and
uploads. The settings name the model of a new installation only: once vectors are stored,
`manage.py reindex` is the way to another model.
"""

from dataclasses import dataclass, replace
from urllib.parse import urlsplit, urlunsplit

from django.conf import settings
from django.db import connection, transaction

from documents.models import ChunkEmbedding, EmbeddingSpace
from rag.config import Endpoint, RagConfig
from rag.factory import engine, model_name
from rag.ports import Embedder

LOCK = 0x6E757261  # any constant: it only has to be the same in every process
WIDEST_INDEX = 4000
"""Most dimensions of an HNSW index on halfvec; wider spaces are scanned exactly."""


class SpaceChangedError(Exception):
    """Another space became the active one while something was embedded."""


@dataclass(frozen=True, slots=True)
class InUse:
    """The active space and the engine's configuration with its model: they belong together.

    `space` is None where nothing is embedded yet.
    """

    space: EmbeddingSpace | None
    config: RagConfig


def active() -> EmbeddingSpace | None:
    """The active space; None before the first document."""
    return EmbeddingSpace.objects.filter(active=True).first()


def in_use() -> InUse:
    """What questions are embedded and searched with now. Loads and writes nothing."""
    space = active()
    if space is None or _gives_way(space):
        return InUse(None, settings.RAG)
    return InUse(space, config_of(space))


def for_writing() -> tuple[EmbeddingSpace, RagConfig]:
    """What uploads are embedded with now; the first upload makes the space.

    May load the model or ask its endpoint. Raises `EmbedderFailed`.
    """
    space = active()
    if space is None or not has_vectors(space):
        space = active_space(engine(settings.RAG).embedder)
    return space, config_of(space)


def note_address() -> None:
    """Keep where the model in use is reached, for the time when the settings name another."""
    EmbeddingSpace.objects.filter(active=True, model=model_name(settings.RAG)).update(
        base_url=address(settings.RAG.embedding_endpoint)
    )


def active_space(embedder: Embedder) -> EmbeddingSpace:
    """The active space, made for this embedder where there is none or only one without vectors."""
    names = {"model": embedder.name, "dimensions": embedder.dimensions}  # before the lock: it loads
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_xact_lock(%s)", (LOCK,))
        now = active()
        if now and (
            has_vectors(now) or names == {"model": now.model, "dimensions": now.dimensions}
        ):
            return now
        space = of(embedder, base_url=address(settings.RAG.embedding_endpoint))
        EmbeddingSpace.objects.filter(active=True).update(active=False)
        EmbeddingSpace.objects.filter(pk=space.pk).update(active=True)
        if space.dimensions <= WIDEST_INDEX:
            cursor.execute(index_statement(space, "INDEX IF NOT EXISTS"))
        space.active = True
    return space


def of(embedder: Embedder, *, base_url: str) -> EmbeddingSpace:
    """The space of this embedder, made when there is none; it does not become active."""
    space, _made = EmbeddingSpace.objects.get_or_create(
        model=embedder.name,
        dimensions=embedder.dimensions,
        defaults={"languages": sorted(embedder.languages), "base_url": base_url},
    )
    return space


def hold(space: EmbeddingSpace) -> None:
    """Keep the active space as it is until the end of the transaction.

    Raises `SpaceChangedError` when it is another one than `space`.
    """
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_xact_lock_shared(%s)", (LOCK,))
    if not EmbeddingSpace.objects.filter(pk=space.pk, active=True).exists():
        raise SpaceChangedError


def has_vectors(space: EmbeddingSpace) -> bool:
    """Whether anything is embedded in it."""
    return ChunkEmbedding.objects.filter(space=space).exists()


def config_of(space: EmbeddingSpace) -> RagConfig:
    """The engine's configuration with the model of this space."""
    languages = frozenset(space.languages)
    config = config_for(space.model, space.base_url, languages, dimensions=space.dimensions)
    return replace(config, embedding_unrelated=space.unrelated)


def config_for(
    model: str, base_url: str, languages: frozenset[str], *, dimensions: int = 0
) -> RagConfig:
    """The engine's configuration with another embedding model.

    Where the settings name this model, or this address, the settings say how it is reached. Their
    key goes to no other address than theirs.
    """
    named = settings.RAG.embedding_endpoint
    if model == model_name(settings.RAG):
        endpoint = named
    elif named and base_url == address(named):
        endpoint = replace(named, model=model)
    else:
        key = settings.EMBEDDING_OTHER_API_KEY
        endpoint = Endpoint(base_url, model, api_key=key) if base_url else None
    return replace(
        settings.RAG,
        embedding_model=model,
        embedding_endpoint=endpoint,
        embedding_languages=languages,
        embedding_dimensions=dimensions,
    )


def address(endpoint: Endpoint | None) -> str:
    """Where an endpoint is, without name and password."""
    if endpoint is None:
        return ""
    parts = urlsplit(endpoint.base_url)
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))


def index_statement(space: EmbeddingSpace, kind: str) -> str:
    """Makes the space's own HNSW index: partial, so that one graph never mixes two models."""
    return (
        f"CREATE {kind} {index_name(space)} ON documents_chunkembedding "
        f"USING hnsw ((vector::halfvec({space.dimensions:d})) halfvec_cosine_ops) "
        f"WHERE space_id = {space.pk:d}"
    )


def index_name(space: EmbeddingSpace) -> str:
    """The name of the space's HNSW index."""
    return f"embedding_space_{space.pk:d}"


def pending() -> str:
    """Why `manage.py reindex` is needed, as a sentence; empty when it is not. Loads nothing."""
    space = active()
    if space is None or _gives_way(space):
        return ""
    name, spoken = model_name(settings.RAG), settings.RAG.embedding_languages
    if space.model != name:
        return (
            f"the settings name the embedding model {name}, but the stored vectors are of "
            f"{space.model}, which goes on to serve; `manage.py reindex` changes over"
        )
    if spoken and spoken != frozenset(space.languages):
        return (
            f"NURA_EMBEDDING_LANGUAGES is {','.join(sorted(spoken))}, but the stored vectors are "
            f"of texts in {','.join(space.languages)}; `manage.py reindex` adds what is missing"
        )
    return ""


def _gives_way(space: EmbeddingSpace) -> bool:
    """Whether the model of the settings takes its place at once, as nothing is embedded yet."""
    return space.model != model_name(settings.RAG) and not has_vectors(space)
