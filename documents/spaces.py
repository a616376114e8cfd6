"""Embedding spaces: which model's vectors are stored and searched, and the index of each.

The active space decides, in every process and at every use, which model embeds questions and
uploads. The model in the environment or in the settings page applies only until vectors are stored;
after that the space has to be changed (`documents.reindex`).
"""

import random
import re
import time
from dataclasses import dataclass, replace
from urllib.parse import urlsplit, urlunsplit

from django.conf import settings
from django.db import OperationalError, connection, transaction
from django.db.models import Max, Min
from psycopg.errors import LockNotAvailable

from documents.connected.choice import find_endpoint, read_config
from documents.models import ChunkEmbedding, EmbeddingSpace
from jobs.connections import KeptQuery
from rag.config import Endpoint, RagConfig
from rag.factory import get_embedding_model_name, get_engine
from rag.ports import Embedder

SPACES_LOCK = 0x6E757261  # any constant: it only has to be the same in every process
MAX_INDEX_DIMENSIONS = 4000
"""Maximum of an HNSW index on halfvec; spaces with more dimensions are scanned exactly."""


class SpaceChangedError(Exception):
    """Another space became active while something was being embedded."""


@dataclass(frozen=True, slots=True)
class SpaceInUse:
    """The active space and the engine's configuration with its model.

    `space` is None if nothing is embedded yet.
    """

    space: EmbeddingSpace | None
    config: RagConfig


_active = KeptQuery(lambda: EmbeddingSpace.objects.filter(active=True).order_by("pk")[:1])


def get_active_space() -> EmbeddingSpace | None:
    """The active space; None before the first document."""
    return next(iter(_active.fetch()), None)


def get_space_in_use() -> SpaceInUse:
    """The space and configuration for questions. Loads and writes nothing."""
    space = get_active_space()
    if space is None or _is_replaceable(space):
        return SpaceInUse(None, read_config())
    return SpaceInUse(space, to_config(space))


def get_space_for_writing() -> tuple[EmbeddingSpace, RagConfig]:
    """The space and configuration for uploads; the first upload creates the space.

    May load the model or ask its endpoint. Raises `EmbedderFailed`.
    """
    space = get_active_space()
    if space is None or not has_vectors(space):
        space = ensure_active_space(get_engine(read_config()).embedder)
    return space, to_config(space)


def note_model_address() -> None:
    """Store the address of the model in use, for when the settings name another model."""
    config = read_config()
    EmbeddingSpace.objects.filter(active=True, model=get_embedding_model_name(config)).update(
        base_url=strip_credentials(config.embedding_endpoint)
    )


def ensure_active_space(embedder: Embedder) -> EmbeddingSpace:
    """The active space; created for this embedder if there is none, or only one without vectors."""
    identity = {
        "model": embedder.name,
        "dimensions": embedder.dimensions,
    }  # before the lock: it loads
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_xact_lock(%s)", (SPACES_LOCK,))
        active = get_active_space()
        if active and (
            has_vectors(active)
            or identity == {"model": active.model, "dimensions": active.dimensions}
        ):
            return active
        space = ensure_space(embedder, base_url=strip_credentials(read_config().embedding_endpoint))
        EmbeddingSpace.objects.filter(active=True).update(active=False)
        EmbeddingSpace.objects.filter(pk=space.pk).update(active=True)
        if space.dimensions <= MAX_INDEX_DIMENSIONS:
            cursor.execute(to_index_statement(space, "INDEX IF NOT EXISTS"))
        space.active = True
    return space


def ensure_space(embedder: Embedder, *, base_url: str) -> EmbeddingSpace:
    """The space of this embedder, created if needed; it does not become active."""
    space, _is_new = EmbeddingSpace.objects.get_or_create(
        model=embedder.name,
        dimensions=embedder.dimensions,
        defaults={"languages": sorted(embedder.languages), "base_url": base_url},
    )
    return space


def lock_active_space(space: EmbeddingSpace) -> None:
    """Lock the choice of the active space until the end of the transaction.

    Raises `SpaceChangedError` if `space` is not the active one.
    """
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_xact_lock_shared(%s)", (SPACES_LOCK,))
    if not EmbeddingSpace.objects.filter(pk=space.pk, active=True).exists():
        raise SpaceChangedError


def has_vectors(space: EmbeddingSpace) -> bool:
    """Whether it holds any vectors."""
    return ChunkEmbedding.objects.filter(space=space).exists()


def to_config(space: EmbeddingSpace) -> RagConfig:
    """The engine's configuration with the model of this space."""
    languages = frozenset(space.languages)
    config = build_config(space.model, space.base_url, languages, dimensions=space.dimensions)
    return replace(config, embedding_unrelated=space.unrelated)


def build_config(
    model: str, base_url: str, languages: frozenset[str], *, dimensions: int = 0
) -> RagConfig:
    """The engine's configuration with another embedding model.

    The endpoint is that of the current configuration if it has this model or address, else that of
    a connection with this address. A key is never sent to another address than its own.
    """
    config = read_config()
    endpoint_in_use = config.embedding_endpoint
    if model == get_embedding_model_name(config):
        endpoint = endpoint_in_use
    elif endpoint_in_use and base_url == strip_credentials(endpoint_in_use):
        endpoint = replace(endpoint_in_use, model=model)
    elif base_url and (connected_endpoint := find_endpoint(base_url, model)):
        endpoint = connected_endpoint
    else:
        key = settings.EMBEDDING_OTHER_API_KEY
        endpoint = Endpoint(base_url, model, api_key=key) if base_url else None
    return replace(
        config,
        embedding_model=model,
        embedding_endpoint=endpoint,
        embedding_languages=languages,
        embedding_dimensions=dimensions,
    )


def strip_credentials(endpoint: Endpoint | None) -> str:
    """The address of an endpoint, without user name and password."""
    if endpoint is None:
        return ""
    parts = urlsplit(endpoint.base_url)
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))


def to_index_statement(space: EmbeddingSpace, kind: str) -> str:
    """SQL that creates the space's HNSW index: partial, so that one graph never mixes models."""
    return f"CREATE {kind} {to_index_name(space)} ON {_describe_index(space, DEFAULT_CANDIDATES)}"


def to_index_name(space: EmbeddingSpace) -> str:
    """The name of the space's HNSW index."""
    return f"embedding_space_{space.pk:d}"


DEFAULT_CANDIDATES, DENSE_CANDIDATES = 64, 200
"""`ef_construction`: for uploads, and for rebuilding the whole graph, which then takes two to three
times as long."""


def _describe_index(space: EmbeddingSpace, candidates: int) -> str:
    return (
        "documents_chunkembedding "
        f"USING hnsw ((vector::halfvec({space.dimensions:d})) halfvec_cosine_ops) "
        f"WITH (ef_construction = {candidates:d}) WHERE space_id = {space.pk:d}"
    )


def describe_pending_reindex() -> str:
    """Why `manage.py reindex` is needed, as a sentence; "" if it is not. Loads nothing."""
    space = get_active_space()
    if space is None or _is_replaceable(space):
        return ""
    config = read_config()
    name, languages = get_embedding_model_name(config), config.embedding_languages
    if space.model != name:
        return (
            f"the settings name the embedding model {name}, but the stored vectors are of "
            f"{space.model}, which goes on to serve; `manage.py reindex` changes over"
        )
    if languages and languages != frozenset(space.languages):
        return (
            f"NURA_EMBEDDING_LANGUAGES is {','.join(sorted(languages))}, but the stored vectors "
            f"are of texts in {','.join(space.languages)}; `manage.py reindex` adds what is missing"
        )
    return ""


def _is_replaceable(space: EmbeddingSpace) -> bool:
    """Whether the model of the settings can replace it at once, as nothing is embedded yet."""
    return space.model != get_embedding_model_name(read_config()) and not has_vectors(space)


INDEX_IS_VALID = """
    SELECT index.indisvalid FROM pg_index index
      JOIN pg_class class ON class.oid = index.indexrelid
     WHERE class.relname = %s AND pg_table_is_visible(class.oid)
"""


def build_index(space: EmbeddingSpace) -> None:
    """Create the index if it is missing; what a killed build left is dropped first.

    Call it outside of any transaction. Spaces with too many dimensions have no index.
    """
    if space.dimensions > MAX_INDEX_DIMENSIONS:
        return
    valid = _is_index_valid(space)
    if valid is False:
        drop_index(space)
    if not valid:
        _build_index(to_index_statement(space, "INDEX CONCURRENTLY"))


def drop_index(space: EmbeddingSpace) -> None:
    """Drop the index and its spare one. Call it outside of any transaction."""
    for name in (to_index_name(space), _to_spare_name(space)):
        _drop_index(name)


class IndexBusyError(Exception):
    """Another process is building the index."""


KILL_NOTICE_SECONDS = 10
"""How long a build goes on at most after its process was killed."""
SELECT_IS_BUILDING = """
    SELECT EXISTS (
        SELECT FROM pg_stat_progress_create_index WHERE index_relid = to_regclass(%s)
    )
"""


def _build_index(statement: str, **settings: str) -> None:
    interval = f"{KILL_NOTICE_SECONDS}s"
    _execute_untimed(statement, client_connection_check_interval=interval, **settings)


def _drop_index(name: str) -> None:
    """Drop an index, even one whose builder was killed a moment ago.

    Waits for a running build first: both statements would deadlock. Raises `IndexBusyError`.
    """
    ends_at = time.monotonic() + 2 * KILL_NOTICE_SECONDS
    while _is_being_built(name):
        if time.monotonic() > ends_at:
            raise IndexBusyError(name)
        time.sleep(RETRY_SECONDS)
    _execute_untimed(f"DROP INDEX CONCURRENTLY IF EXISTS {name}")


def _is_being_built(name: str) -> bool:
    with connection.cursor() as cursor:
        cursor.execute(SELECT_IS_BUILDING, (name,))
        return bool(cursor.fetchone()[0])


def _execute_untimed(statement: str, **settings: str) -> None:
    """Execute with these settings, and without the database's time limit for statements."""
    all_settings = {"statement_timeout": "0", **settings}
    with connection.cursor() as cursor:
        try:
            for name, value in all_settings.items():
                cursor.execute("SELECT set_config(%s, %s, false)", (name, value))
            cursor.execute(statement)
        finally:
            for name in all_settings:
                cursor.execute(f"RESET {name}")


LARGE_GRAPH = 300_000
"""From so many passages on, a graph that grew with its uploads misses some neighbours
(docs/notes/retrieval-measurements.md)."""
MAX_GROWTH = 2
"""A graph that grew by this factor since it was rebuilt is worth rebuilding."""
LOCK_TIMEOUT = "250ms"
"""How long searches and uploads may be blocked by the swap of the graphs."""
RETRY_SECONDS = 1.0
GRAPH_NOTE = re.compile(r"made anew in file (?P<file>\d+) of (?P<chunks>\d+) passages")
"""The comment on the index of a rebuilt graph."""
SELECT_GRAPH = """
    SELECT greatest(class.reltuples, 0)::int8, pg_relation_filenode(class.oid),
           coalesce(obj_description(class.oid, 'pg_class'), ''), to_regclass(%s) IS NOT NULL
      FROM pg_class class WHERE class.oid = to_regclass(%s)
"""


def estimate_graph_megabytes(space: EmbeddingSpace) -> int:
    """Memory that the database needs to build the space's graph; on disk it takes hours."""
    bytes_each = 2 * space.dimensions + 1000  # the vector, its neighbours, and what is around them
    return ChunkEmbedding.objects.filter(space=space).count() * bytes_each // 2**20 + 64


def describe_pending_graph() -> str:
    """Why `manage.py reindex --graph` is useful, as a sentence; "" if it is not."""
    space = get_active_space()
    if space is None:
        return ""
    with connection.cursor() as cursor:
        cursor.execute(SELECT_GRAPH, (_to_spare_name(space), to_index_name(space)))
        chunks, file_number, note, has_spare = cursor.fetchone() or (0, None, "", False)
    if has_spare:
        return (
            "`manage.py reindex --graph` is at work or was killed; if it was, run it again, as "
            "uploads take longer until then"
        )
    if chunks < LARGE_GRAPH:
        return ""
    match = GRAPH_NOTE.fullmatch(note)
    if match and int(match["file"]) == file_number and chunks <= MAX_GROWTH * int(match["chunks"]):
        return ""
    return (
        f"the graph of {chunks:,} passages grew with its uploads and misses some of what is near; "
        f"`manage.py reindex --graph {estimate_graph_megabytes(space)}MB` makes it anew with that "
        "much of the database's memory"
    )


def renew_graph(space: EmbeddingSpace, memory: str) -> None:
    """Build a new, denser index beside the one in use, and then swap the two.

    Later uploads cost the same as before. `memory` is in Postgres' notation. Call it outside of any
    transaction; a killed run leaves at most a spare index, which the next run drops. Raises
    `IndexBusyError` if another run is at work.
    """
    spare = _to_spare_name(space)
    _drop_index(spare)
    _build_index(
        f"CREATE INDEX CONCURRENTLY {spare} ON {_describe_index(space, DENSE_CANDIDATES)}",
        maintenance_work_mem=memory,
        # parallel workers would use shared memory, of which containers have little
        max_parallel_maintenance_workers="0",
    )
    while not _put_spare_in_place(space):
        time.sleep(RETRY_SECONDS)
    _drop_index(spare)


def _to_spare_name(space: EmbeddingSpace) -> str:
    return f"{to_index_name(space)}_spare"


def _put_spare_in_place(space: EmbeddingSpace) -> bool:
    """Swap the indexes. False: not done, because others would have been blocked too long."""
    used, spare = to_index_name(space), _to_spare_name(space)
    try:
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute("SELECT set_config('lock_timeout', %s, true)", (LOCK_TIMEOUT,))
            # for later uploads; takes an exclusive lock, so it waits for everybody who uses it
            cursor.execute(f"ALTER INDEX {spare} SET (ef_construction = {DEFAULT_CANDIDATES:d})")
            cursor.execute(f"ALTER INDEX IF EXISTS {used} RENAME TO {used}_before")
            cursor.execute(f"ALTER INDEX {spare} RENAME TO {used}")
            cursor.execute(f"ALTER INDEX IF EXISTS {used}_before RENAME TO {spare}")
            cursor.execute(SELECT_GRAPH, (spare, used))
            ((chunks, file_number, *_),) = cursor.fetchall()
            # an index made in another way, for example by a restore, is in another file
            note = f"made anew in file {file_number} of {chunks} passages"
            cursor.execute(f"COMMENT ON INDEX {used} IS %s", (note,))
    except OperationalError as error:
        if isinstance(error.__cause__, LockNotAvailable):
            return False
        raise
    return True


def _is_index_valid(space: EmbeddingSpace) -> bool | None:
    """Whether the index is complete; None if there is none."""
    with connection.cursor() as cursor:
        cursor.execute(INDEX_IS_VALID, (to_index_name(space),))
        row = cursor.fetchone()
    return bool(row[0]) if row else None


SAMPLE_PAIRS = 2000
MIN_PAIRS = 500
MIN_CHUNKS = 50
SAMPLE_KEYS = 16_000
"""More than needed, because the range of keys has gaps."""

MEAN_OF_PAIRS = """
    SELECT avg(1 - (one.vector <=> other.vector)), count(*)
      FROM unnest(%s::bigint[], %s::bigint[]) AS pair(one, other)
      JOIN documents_chunkembedding one ON one.chunk_id = pair.one AND one.space_id = %s
      JOIN documents_chunkembedding other ON other.chunk_id = pair.other AND other.space_id = %s
     WHERE one.document_id <> other.document_id
"""


def measure_unrelated(space: EmbeddingSpace) -> float | None:
    """Measure and store the mean cosine of random pairs of chunks of different documents.

    None, and nothing is stored, if there are too few.
    """
    keys = _sample_chunk_keys(space)
    if len(keys) < MIN_CHUNKS:
        return None
    sampler = random.Random(1)  # noqa: S311 - a sample
    ones, others = sampler.choices(keys, k=SAMPLE_PAIRS), sampler.choices(keys, k=SAMPLE_PAIRS)
    with connection.cursor() as cursor:
        cursor.execute(MEAN_OF_PAIRS, (ones, others, space.pk, space.pk))
        mean, count = cursor.fetchone() or (None, 0)
    if mean is None or count < MIN_PAIRS:
        return None
    EmbeddingSpace.objects.filter(pk=space.pk).update(unrelated=mean)
    return float(mean)


def measure_missing_unrelated() -> None:
    """Measure the active space if that was not done yet and is possible now."""
    for space in EmbeddingSpace.objects.filter(active=True, unrelated=None):
        measure_unrelated(space)


def _sample_chunk_keys(space: EmbeddingSpace) -> list[int]:
    """Keys of random chunks of the space, the same ones each time."""
    rows = ChunkEmbedding.objects.filter(space=space)
    ends = rows.aggregate(low=Min("chunk_id"), high=Max("chunk_id"))
    if ends["low"] is None:
        return []
    sampler = random.Random(0)  # noqa: S311 - a sample
    sample = {sampler.randint(ends["low"], ends["high"]) for _ in range(SAMPLE_KEYS)}
    return sorted(rows.filter(chunk_id__in=sample).values_list("chunk_id", flat=True))
