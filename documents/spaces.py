"""Embedding spaces: which model's vectors are stored and searched, and the index of each.

The active space decides, in every process and at every use, which model embeds questions and
uploads. The environment, or a choice in the page, names the model of a new installation only: once
vectors are stored, a change of the space (`documents.reindex`) is the way to another model.
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
"""Most dimensions of an HNSW index on halfvec; wider spaces are scanned exactly."""


class SpaceChangedError(Exception):
    """Another space became the active one while something was embedded."""


@dataclass(frozen=True, slots=True)
class SpaceInUse:
    """The active space and the engine's configuration with its model: they belong together.

    `space` is None where nothing is embedded yet.
    """

    space: EmbeddingSpace | None
    config: RagConfig


_active = KeptQuery(lambda: EmbeddingSpace.objects.filter(active=True).order_by("pk")[:1])


def get_active_space() -> EmbeddingSpace | None:
    """The active space; None before the first document."""
    return next(iter(_active.fetch()), None)


def get_space_in_use() -> SpaceInUse:
    """What questions are embedded and searched with now. Loads and writes nothing."""
    space = get_active_space()
    if space is None or _is_replaceable(space):
        return SpaceInUse(None, read_config())
    return SpaceInUse(space, to_config(space))


def get_space_for_writing() -> tuple[EmbeddingSpace, RagConfig]:
    """What uploads are embedded with now; the first upload makes the space.

    May load the model or ask its endpoint. Raises `EmbedderFailed`.
    """
    space = get_active_space()
    if space is None or not has_vectors(space):
        space = ensure_active_space(get_engine(read_config()).embedder)
    return space, to_config(space)


def note_model_address() -> None:
    """Keep where the model in use is reached, for the time when the settings name another."""
    config = read_config()
    EmbeddingSpace.objects.filter(active=True, model=get_embedding_model_name(config)).update(
        base_url=strip_credentials(config.embedding_endpoint)
    )


def ensure_active_space(embedder: Embedder) -> EmbeddingSpace:
    """The active space, made for this embedder where there is none or only one without vectors."""
    names = {"model": embedder.name, "dimensions": embedder.dimensions}  # before the lock: it loads
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_xact_lock(%s)", (SPACES_LOCK,))
        now = get_active_space()
        if now and (
            has_vectors(now) or names == {"model": now.model, "dimensions": now.dimensions}
        ):
            return now
        space = ensure_space(embedder, base_url=strip_credentials(read_config().embedding_endpoint))
        EmbeddingSpace.objects.filter(active=True).update(active=False)
        EmbeddingSpace.objects.filter(pk=space.pk).update(active=True)
        if space.dimensions <= MAX_INDEX_DIMENSIONS:
            cursor.execute(to_index_statement(space, "INDEX IF NOT EXISTS"))
        space.active = True
    return space


def ensure_space(embedder: Embedder, *, base_url: str) -> EmbeddingSpace:
    """The space of this embedder, made when there is none; it does not become active."""
    space, _made = EmbeddingSpace.objects.get_or_create(
        model=embedder.name,
        dimensions=embedder.dimensions,
        defaults={"languages": sorted(embedder.languages), "base_url": base_url},
    )
    return space


def hold_active_space(space: EmbeddingSpace) -> None:
    """Keep the active space as it is until the end of the transaction.

    Raises `SpaceChangedError` when it is another one than `space`.
    """
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_xact_lock_shared(%s)", (SPACES_LOCK,))
    if not EmbeddingSpace.objects.filter(pk=space.pk, active=True).exists():
        raise SpaceChangedError


def has_vectors(space: EmbeddingSpace) -> bool:
    """Whether anything is embedded in it."""
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

    Where the present choice is this model, or at this address, it says how the model is reached;
    else a connection with this address does. A key goes to no other address than its own.
    """
    chosen = read_config()
    named = chosen.embedding_endpoint
    if model == get_embedding_model_name(chosen):
        endpoint = named
    elif named and base_url == strip_credentials(named):
        endpoint = replace(named, model=model)
    elif base_url and (connected := find_endpoint(base_url, model)):
        endpoint = connected
    else:
        key = settings.EMBEDDING_OTHER_API_KEY
        endpoint = Endpoint(base_url, model, api_key=key) if base_url else None
    return replace(
        chosen,
        embedding_model=model,
        embedding_endpoint=endpoint,
        embedding_languages=languages,
        embedding_dimensions=dimensions,
    )


def strip_credentials(endpoint: Endpoint | None) -> str:
    """Where an endpoint is, without name and password."""
    if endpoint is None:
        return ""
    parts = urlsplit(endpoint.base_url)
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))


def to_index_statement(space: EmbeddingSpace, kind: str) -> str:
    """Makes the space's own HNSW index: partial, so that one graph never mixes two models."""
    return f"CREATE {kind} {to_index_name(space)} ON {_describe_index(space, USUAL_CANDIDATES)}"


def to_index_name(space: EmbeddingSpace) -> str:
    """The name of the space's HNSW index."""
    return f"embedding_space_{space.pk:d}"


USUAL_CANDIDATES, DENSE_CANDIDATES = 64, 200
"""Those of which a passage that is added chooses its neighbours in the graph: as uploads do it, and
where the whole graph is made anew, which takes two to three times as long."""


def _describe_index(space: EmbeddingSpace, candidates: int) -> str:
    return (
        "documents_chunkembedding "
        f"USING hnsw ((vector::halfvec({space.dimensions:d})) halfvec_cosine_ops) "
        f"WITH (ef_construction = {candidates:d}) WHERE space_id = {space.pk:d}"
    )


def describe_pending_reindex() -> str:
    """Why `manage.py reindex` is needed, as a sentence; empty when it is not. Loads nothing."""
    space = get_active_space()
    if space is None or _is_replaceable(space):
        return ""
    config = read_config()
    name, spoken = get_embedding_model_name(config), config.embedding_languages
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


def _is_replaceable(space: EmbeddingSpace) -> bool:
    """Whether the model of the settings takes its place at once, as nothing is embedded yet."""
    return space.model != get_embedding_model_name(read_config()) and not has_vectors(space)


INDEX_IS_VALID = """
    SELECT index.indisvalid FROM pg_index index
      JOIN pg_class class ON class.oid = index.indexrelid
     WHERE class.relname = %s AND pg_table_is_visible(class.oid)
"""


def build_index(space: EmbeddingSpace) -> None:
    """Make the index, unless it is there; what a killed build left is dropped first.

    Outside of any transaction. Spaces too wide for an index are scanned exactly and have none.
    """
    if space.dimensions > MAX_INDEX_DIMENSIONS:
        return
    valid = _is_index_valid(space)
    if valid is False:
        drop_index(space)
    if not valid:
        _build_index(to_index_statement(space, "INDEX CONCURRENTLY"))


def drop_index(space: EmbeddingSpace) -> None:
    """Drop the index, and one that was to take its place. Outside of any transaction."""
    for name in (to_index_name(space), _to_spare_name(space)):
        _drop_index(name)


class IndexBusyError(Exception):
    """Another process is making the index."""


NOTICED_SECONDS = 10
"""So long at most a build goes on whose process was killed."""
BUILDING = """
    SELECT EXISTS (
        SELECT FROM pg_stat_progress_create_index WHERE index_relid = to_regclass(%s)
    )
"""


def _build_index(statement: str, **settings: str) -> None:
    noticed = f"{NOTICED_SECONDS}s"
    _execute_untimed(statement, client_connection_check_interval=noticed, **settings)


def _drop_index(name: str) -> None:
    """Drop an index, also one whose builder was killed a moment ago.

    While it is built, each of the two would wait for the other. Raises `IndexBusyError`.
    """
    until = time.monotonic() + 2 * NOTICED_SECONDS
    while _is_being_built(name):
        if time.monotonic() > until:
            raise IndexBusyError(name)
        time.sleep(RETRY_SECONDS)
    _execute_untimed(f"DROP INDEX CONCURRENTLY IF EXISTS {name}")


def _is_being_built(name: str) -> bool:
    with connection.cursor() as cursor:
        cursor.execute(BUILDING, (name,))
        return bool(cursor.fetchone()[0])


def _execute_untimed(statement: str, **settings: str) -> None:
    """Without the time limit that the database may set for statements, and with these settings."""
    changed = {"statement_timeout": "0", **settings}
    with connection.cursor() as cursor:
        try:
            for name, value in changed.items():
                cursor.execute("SELECT set_config(%s, %s, false)", (name, value))
            cursor.execute(statement)
        finally:
            for name in changed:
                cursor.execute(f"RESET {name}")


LARGE_GRAPH = 300_000
"""From so many passages on, a graph that grew with its uploads misses some of what is near
(docs/notes/retrieval-measurements.md)."""
GROWN = 2
"""So many times as large as when it was made anew, it is worth to be made again."""
LOCK_TIMEOUT = "250ms"
"""How long searches and uploads wait for the new graph to take its place."""
RETRY_SECONDS = 1.0
GRAPH_NOTE = re.compile(r"made anew in file (?P<file>\d+) of (?P<chunks>\d+) passages")
"""What the database keeps as the comment of a graph that was made anew."""
GRAPH = """
    SELECT greatest(class.reltuples, 0)::int8, pg_relation_filenode(class.oid),
           coalesce(obj_description(class.oid, 'pg_class'), ''), to_regclass(%s) IS NOT NULL
      FROM pg_class class WHERE class.oid = to_regclass(%s)
"""


def estimate_graph_megabytes(space: EmbeddingSpace) -> int:
    """What the database needs to make the space's graph in memory; on the disk it takes hours."""
    bytes_each = 2 * space.dimensions + 1000  # the vector, its neighbours, and what is around them
    return ChunkEmbedding.objects.filter(space=space).count() * bytes_each // 2**20 + 64


def describe_pending_graph() -> str:
    """Why `manage.py reindex --graph` is of use, as a sentence; empty where it is not."""
    space = get_active_space()
    if space is None:
        return ""
    with connection.cursor() as cursor:
        cursor.execute(GRAPH, (_to_spare_name(space), to_index_name(space)))
        chunks, stored_in, note, has_spare = cursor.fetchone() or (0, None, "", False)
    if has_spare:
        return (
            "`manage.py reindex --graph` is at work or was killed; if it was, run it again, as "
            "uploads take longer until then"
        )
    if chunks < LARGE_GRAPH:
        return ""
    made = GRAPH_NOTE.fullmatch(note)
    if made and int(made["file"]) == stored_in and chunks <= GROWN * int(made["chunks"]):
        return ""
    return (
        f"the graph of {chunks:,} passages grew with its uploads and misses some of what is near; "
        f"`manage.py reindex --graph {estimate_graph_megabytes(space)}MB` makes it anew with that "
        "much of the database's memory"
    )


def renew_graph(space: EmbeddingSpace, memory: str) -> None:
    """Make the index anew, denser, beside the one that serves, which it then replaces.

    Uploads go on to cost what they did. `memory` as Postgres reads it. Outside of any transaction;
    a run that was killed leaves at most a spare index, which the next one drops. Raises
    `IndexBusyError` beside a run that is at work.
    """
    spare = _to_spare_name(space)
    _drop_index(spare)
    _build_index(
        f"CREATE INDEX CONCURRENTLY {spare} ON {_describe_index(space, DENSE_CANDIDATES)}",
        maintenance_work_mem=memory,
        # the memory is its own then, not shared memory, which containers have little of
        max_parallel_maintenance_workers="0",
    )
    while not _put_spare_in_place(space):
        time.sleep(RETRY_SECONDS)
    _drop_index(spare)


def _to_spare_name(space: EmbeddingSpace) -> str:
    return f"{to_index_name(space)}_spare"


def _put_spare_in_place(space: EmbeddingSpace) -> bool:
    """Whether it was done, and not given up for those who would have had to wait."""
    used, spare = to_index_name(space), _to_spare_name(space)
    try:
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute("SELECT set_config('lock_timeout', %s, true)", (LOCK_TIMEOUT,))
            # what is uploaded from here on; it keeps everybody out, and waits for all who are in
            cursor.execute(f"ALTER INDEX {spare} SET (ef_construction = {USUAL_CANDIDATES:d})")
            cursor.execute(f"ALTER INDEX IF EXISTS {used} RENAME TO {used}_before")
            cursor.execute(f"ALTER INDEX {spare} RENAME TO {used}")
            cursor.execute(f"ALTER INDEX IF EXISTS {used}_before RENAME TO {spare}")
            cursor.execute(GRAPH, (spare, used))
            ((chunks, stored_in, *_),) = cursor.fetchall()
            # whatever makes the index in another way, as a restored backup, puts it into another
            note = f"made anew in file {stored_in} of {chunks} passages"
            cursor.execute(f"COMMENT ON INDEX {used} IS %s", (note,))
    except OperationalError as error:
        if isinstance(error.__cause__, LockNotAvailable):
            return False
        raise
    return True


def _is_index_valid(space: EmbeddingSpace) -> bool | None:
    """Whether the index is whole; None when there is none."""
    with connection.cursor() as cursor:
        cursor.execute(INDEX_IS_VALID, (to_index_name(space),))
        row = cursor.fetchone()
    return bool(row[0]) if row else None


PAIRS_DRAWN = 2000
MIN_PAIRS = 500
MIN_CHUNKS = 50
KEYS_DRAWN = 16_000
"""Keys are drawn from a range with gaps: more than are needed."""

MEAN_OF_PAIRS = """
    SELECT avg(1 - (one.vector <=> other.vector)), count(*)
      FROM unnest(%s::bigint[], %s::bigint[]) AS pair(one, other)
      JOIN documents_chunkembedding one ON one.chunk_id = pair.one AND one.space_id = %s
      JOIN documents_chunkembedding other ON other.chunk_id = pair.other AND other.space_id = %s
     WHERE one.document_id <> other.document_id
"""


def measure_unrelated(space: EmbeddingSpace) -> float | None:
    """Keep the mean cosine of random pairs of chunks of different documents in the space.

    None, and nothing is kept, where there are too few of them.
    """
    keys = _draw_chunk_keys(space)
    if len(keys) < MIN_CHUNKS:
        return None
    dice = random.Random(1)  # noqa: S311 - a sample
    ones, others = dice.choices(keys, k=PAIRS_DRAWN), dice.choices(keys, k=PAIRS_DRAWN)
    with connection.cursor() as cursor:
        cursor.execute(MEAN_OF_PAIRS, (ones, others, space.pk, space.pk))
        mean, count = cursor.fetchone() or (None, 0)
    if mean is None or count < MIN_PAIRS:
        return None
    EmbeddingSpace.objects.filter(pk=space.pk).update(unrelated=mean)
    return float(mean)


def measure_missing_unrelated() -> None:
    """Measure the active space where that was not done yet and can be done now."""
    for space in EmbeddingSpace.objects.filter(active=True, unrelated=None):
        measure_unrelated(space)


def _draw_chunk_keys(space: EmbeddingSpace) -> list[int]:
    """Chunks of the space, drawn at random, the same ones each time."""
    rows = ChunkEmbedding.objects.filter(space=space)
    ends = rows.aggregate(low=Min("chunk_id"), high=Max("chunk_id"))
    if ends["low"] is None:
        return []
    dice = random.Random(0)  # noqa: S311 - a sample
    drawn = {dice.randint(ends["low"], ends["high"]) for _ in range(KEYS_DRAWN)}
    return sorted(rows.filter(chunk_id__in=drawn).values_list("chunk_id", flat=True))
