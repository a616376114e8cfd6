"""Libraries of several sizes in the product's own Postgres, kept between runs."""

import contextlib
import fcntl
import hashlib
import os
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from uuid import UUID

from benchmarks.scale import bulk
from benchmarks.scale.corpus import Corpus, Sized

INDEXES = """
    SELECT count(*) FROM pg_index JOIN pg_class ON pg_class.oid = indexrelid
     WHERE indisvalid AND (relname LIKE 'embedding\\_space\\_%' OR relname = 'chunk_lexemes')
"""
LARGE_INDEXES = 2
"""They are made when all rows are there."""
ROOT = Path(__file__).parents[2]
WRITERS = ("rag/indexing.py", "benchmarks/scale/bulk.py", "benchmarks/scale/corpus.py")
"""What decides which rows are written: where one of them changed, the library is made anew."""

OURS = "SELECT datname FROM pg_database WHERE datname LIKE %s"
BUILDING = "SELECT set_config('maintenance_work_mem', '512MB', false)"


@dataclass(frozen=True, slots=True)
class Stored:
    """What the rivals are given: the chunks of the library in the order of their keys."""

    keys: list[int]
    documents: list[UUID]
    chunks: list[Sized]


class KnowsAll:
    """In place of the embedder: every language is known, so that both legs search every question.

    The vectors of the questions were made before; what that cost is told apart.
    """

    name = "speed"
    dimensions = 384
    languages = frozenset({"*"})

    def __init__(self, vectors: dict[str, tuple[float, ...]] | None = None) -> None:
        self._vectors = vectors or {}

    def embed_passages(self, texts: list[str]) -> list[list[float]]:
        return [list(self._vectors[text]) for text in texts]

    def embed_query(self, text: str) -> list[float]:
        return list(self._vectors[text])


def close_connections() -> None:
    """Close this thread's connection, and those that wait in the pool."""
    from django.db import connections

    connection: Any = connections["default"]
    connection.close()
    connection.close_pool()


@contextlib.contextmanager
def postgres(folder: Path, *, with_redis: bool = False) -> Iterator[None]:
    """Django on an embedded Postgres in that folder. Waits for a benchmark that uses it."""
    os.environ.update(NURA_DATA_DIR=str(folder), NURA_DOTENV=os.devnull)
    os.environ["DJANGO_SETTINGS_MODULE"] = "nura.settings.prod"
    os.environ.pop("DATABASE_URL", None)
    import django

    from nura.embedded import session

    django.setup()
    with (
        _lock_against_benchmarks(folder),
        session.lock_folder(folder, "a benchmark"),
        session.run_services(folder, with_redis=with_redis, makes_databases=True),
    ):
        yield


@contextlib.contextmanager
def _lock_against_benchmarks(folder: Path) -> Iterator[None]:
    """A quick run starts several at a time, some of which keep their libraries in one folder."""
    with (folder / "benchmark-lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def fill_buffers() -> list[dict[str, float]]:
    """Read into Postgres' buffers what searches read, as Nura does after a start; what it took."""
    from documents.search import buffers

    found = [asdict(one) for one in buffers.fill_buffers()]
    print("read into the buffers:", *found, flush=True)
    return found


def stocked(corpus: Corpus, size: int) -> list[UUID]:
    """The documents of the library of that many chunks, which is the one in use from here on."""
    from django.core.management import call_command
    from django.db import connection

    from documents.models import Chunk, Document

    _switch(size)
    call_command("migrate", verbosity=0)
    if Chunk.objects.count() != size or not _has_large_indexes():
        bulk.fill(corpus, size, KnowsAll())
    _write_segments()
    with connection.cursor() as cursor:
        cursor.execute("VACUUM (ANALYZE)")
    return list(Document.objects.order_by("created_at", "pk").values_list("pk", flat=True))


def multiplied(corpus: Corpus, size: int, times: int) -> list[UUID]:
    """The documents of a library of that many chunks, its documents `times` over; as `stocked`.

    The copies have new names, words in the lexical index, and no vectors: making a graph of a
    million takes longer than everything that is done without.
    """
    from django.db import connection

    from documents.models import Chunk, Document

    stocked(corpus, size)
    name = str(connection.settings_dict["NAME"])
    use_database(f"multiplied_{size * times}", name, copy_of=name)
    with connection.cursor() as cursor:
        if Chunk.objects.count() < size * times:
            cursor.execute("SET session_replication_role = replica")  # no check of keys
            cursor.execute("SET synchronous_commit = off")
            cursor.execute(BUILDING)
            cursor.execute("DROP INDEX chunk_lexemes")
            for table, changed in COPIED.items():
                _copy_rows(cursor, table, changed, times - 1)
            cursor.execute(bulk.LEXICAL_INDEX)
            cursor.execute(
                "SELECT setval(pg_get_serial_sequence('documents_chunk', 'id'), max(id))"
                " FROM documents_chunk"
            )
            cursor.execute("TRUNCATE documents_postings, documents_postingsegment")
            cursor.execute("SET session_replication_role = origin")
            _write_segments()
        cursor.execute("VACUUM (ANALYZE)")
    return list(Document.objects.order_by("created_at", "pk").values_list("pk", flat=True))


def _write_segments() -> None:
    """What workers do beside uploads; `bulk` fills tables without the trigger that notes them."""
    from django.db import connection

    from documents import segments

    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO documents_unsegmenteddocument (document_id)"
            " SELECT DISTINCT ON (namespace) id FROM documents_document WHERE namespace NOT IN"
            " (SELECT namespace FROM documents_postingsegment) ORDER BY namespace"
        )
    while segments.write_due_segments():
        pass


COPIED_DOCUMENT = "md5({0}::text || number)::uuid"
COPIED = {
    "documents_document": {
        "id": COPIED_DOCUMENT.format("id"),
        "sha256": "encode(sha256((id::text || number)::bytea), 'hex')",
    },
    "documents_chunk": {
        "id": "id + number * 100000000",
        "document_id": COPIED_DOCUMENT.format("document_id"),
    },
    "documents_chunkterms": {
        "chunk_id": "chunk_id + number * 100000000",
        "document_id": COPIED_DOCUMENT.format("document_id"),
    },
}
"""What is another value in a copy, by table."""
COLUMNS = "SELECT column_name FROM information_schema.columns WHERE table_name = %s"


def _copy_rows(cursor: Any, table: str, changed: Mapping[str, str], times: int) -> None:
    cursor.execute(COLUMNS, [table])
    columns = [row[0] for row in cursor.fetchall()]
    into = ", ".join(f'"{name}"' for name in columns)
    values = ", ".join(changed.get(name, f'"{name}"') for name in columns)
    cursor.execute(
        f"INSERT INTO {table} ({into})"
        f" SELECT {values} FROM {table} CROSS JOIN generate_series(1, {times:d}) AS number"
    )


def stored(corpus: Corpus, size: int) -> Stored:
    """The same chunks for the rivals."""
    from documents.models import Chunk

    rows = Chunk.objects.order_by("document__created_at", "document_id", "index")
    pairs = list(rows.values_list("pk", "document_id"))
    chunks = [chunk for document in corpus.documents(size) for chunk in document]
    return Stored([key for key, _ in pairs], [document for _, document in pairs], chunks)


def _switch(size: int) -> None:
    """Go on in the database of this size, made if need be; those of earlier rows are dropped."""
    rows = b"".join((ROOT / name).read_bytes() for name in WRITERS)
    use_database(f"speed_{size}", hashlib.sha256(rows).hexdigest()[:8])


def use_database(kind: str, state: str = "0", *, copy_of: str = "template1") -> str:
    """Go on in the database of this kind and state, made if need be; others of it are dropped.

    Its name.
    """
    from django.conf import settings
    from django.db import connection

    from nura.embedded import postgres as embedded

    name = f"{kind}_{state}"
    close_connections()
    with embedded.connect(Path(settings.DATA_DIR), "postgres") as plain:
        like = kind.replace("_", "\\_") + "\\_%"
        there = [row[0] for row in plain.execute(OURS, (like,)).fetchall()]
        for old in {*there} - {name}:
            plain.execute(f'DROP DATABASE "{old}"')
        if name not in there:
            plain.execute(f'CREATE DATABASE "{name}" TEMPLATE "{copy_of}"')
    connection.settings_dict["NAME"] = name
    return name


def _has_large_indexes() -> bool:
    from django.db import connection

    with connection.cursor() as cursor:
        cursor.execute(INDEXES)
        return bool(cursor.fetchone()[0] == LARGE_INDEXES)
