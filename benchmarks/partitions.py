"""What partitions of the chunk tables cost and save: one library's rows in 1, 16 and 64 of them.

A document is of the library that the first byte of its id says (256 of them), and lies with it in
one partition. The product's own statements, which do not name the key, run over all partitions. The
tables of a partition bear the product's names in a schema of their own: with that first in the
search path the same statements read this partition alone, as they would if they named the key, and
as a shard on a machine of its own does. From these the cost of a search over all shards is summed.
"""

import itertools
import os
import random
import statistics
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import UUID

from benchmarks import report
from benchmarks.growth import make_adder
from benchmarks.scale import corpus, stock
from benchmarks.scale.corpus import Corpus, Question
from benchmarks.speed import Nura
from tests.quality import sets

CHUNKS = report.choose_size(100_000, quick=5_000)
PARTITIONS = (1, 16, 64)
ROUNDS = report.choose_size(3, quick=1)
"""Of each number of partitions, by turns, so that what else runs meets all of them."""
QUESTIONS = report.choose_size(20, quick=3)
"""Of each way and round, after as many as `WARMING`."""
WARMING = 3
SHARDS, ASKED_OF_A_SHARD = report.choose_size((16, 6), quick=(2, 2))
"""Partitions that are searched one by one, evenly chosen, and questions for each."""
FOLDER = Path(__file__).parents[1] / "var" / "bench"
TABLES = ("documents_chunk", "documents_chunkterms", "documents_chunkembedding")
LIBRARY_OF = "get_byte(uuid_send(document_id), 0)"


def main() -> None:
    """Make the tables where they are not there, measure, and keep the figures."""
    if not sets.available():
        print("\npartitions: left out, as the data they are made from is not beside the project")
        return
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    FOLDER.mkdir(parents=True, exist_ok=True)
    with stock.postgres(FOLDER, with_redis=True):
        texts = corpus.load(FOLDER)
        documents = stock.stocked(texts, CHUNKS)
        names = {count: _use_partitioned(texts, count) for count in PARTITIONS}
        times = _measure_in_turns(texts, documents, names)
        shards = {count: _measure_shards(texts, documents, names[count]) for count in PARTITIONS}
    ways = {
        way: {str(count): report.percentiles(times[count][way]) for count in PARTITIONS}
        for way in times[1]
    }
    report.write("partitions", {"chunks": CHUNKS, "ms": ways, "shards": shards})
    report.table(
        f"Medians in ms by the number of partitions, {CHUNKS:,} chunks",
        ["", *map(str, PARTITIONS)],
        [[way, *(found[str(count)]["p50"] for count in PARTITIONS)] for way, found in ways.items()],
    )
    report.table(
        "All documents of one partition",
        ["partitions", *next(iter(shards.values()))],
        [[count, *found.values()] for count, found in shards.items()],
    )


# The tables


def _use_partitioned(texts: Corpus, count: int) -> str:
    """The database of the same rows in that many partitions, made where it is not there."""
    from django.db import connection

    stock.stocked(texts, CHUNKS)
    whole = str(connection.settings_dict["NAME"])
    name = stock.use_database(f"partitions_{count}_{CHUNKS}", whole, copy_of=whole)
    with connection.cursor() as cursor:
        cursor.execute("SELECT relkind FROM pg_class WHERE oid = 'documents_chunk'::regclass")
        if count > 1 and cursor.fetchone()[0] != "p":
            cursor.execute(stock.BUILDING)
            for number in range(count):
                cursor.execute(f"CREATE SCHEMA {to_schema(number)}")
            for table in TABLES:
                _partition(cursor, table, count)
        cursor.execute("VACUUM (ANALYZE)")
    return name


def _partition(cursor: Any, table: str, count: int) -> None:
    """The table anew. What is unique is so within a partition only, and no keys are checked."""
    cursor.execute("SELECT indexdef FROM pg_indexes WHERE tablename = %s", [table])
    indexes = [row[0] for row in cursor.fetchall()]
    cursor.execute(f"ALTER TABLE {table} RENAME TO whole")
    cursor.execute(
        f"CREATE TABLE {table} (LIKE whole INCLUDING DEFAULTS INCLUDING IDENTITY INCLUDING STORAGE)"
        f" PARTITION BY LIST (({LIBRARY_OF} % {count}))"
    )
    for number in range(count):
        part = f"{to_schema(number)}.{table}"
        cursor.execute(f"CREATE TABLE {part} PARTITION OF {table} FOR VALUES IN ({number})")
    cursor.execute(f"INSERT INTO {table} SELECT * FROM whole")
    cursor.execute("DROP TABLE whole CASCADE")
    for statement in indexes:
        cursor.execute(statement.replace("UNIQUE INDEX", "INDEX"))
    if table != "documents_chunkterms":
        numbers = f"pg_get_serial_sequence('{table}', 'id')"
        cursor.execute(f"SELECT setval({numbers}, max(id)) FROM {table}")


def to_schema(number: int) -> str:
    """Where the tables of a partition are."""
    return f"shard_{number}"


@contextmanager
def _only(number: int | None) -> Iterator[None]:
    """New connections see the tables of this partition; None: of all."""
    from django.db import connection

    name = connection.settings_dict["NAME"]
    if number is not None:
        _execute(f'ALTER DATABASE "{name}" SET search_path = {to_schema(number)}, public')
    try:
        yield
    finally:
        if number is not None:
            _execute(f'ALTER DATABASE "{name}" RESET search_path')


def _execute(statement: str) -> None:
    """Run it, and begin anew with all connections."""
    from django.db import connection

    with connection.cursor() as cursor:
        cursor.execute(statement)
    stock.close_connections()


# What is measured


def _measure_in_turns(
    texts: Corpus, documents: Sequence[UUID], names: dict[int, str]
) -> dict[int, dict[str, list[float]]]:
    """Milliseconds of each way with each number of partitions."""
    times: dict[int, dict[str, list[float]]] = {count: defaultdict(list) for count in PARTITIONS}
    for turn, count in itertools.product(range(ROUNDS), PARTITIONS):
        _connect(names[count])
        chance = random.Random(turn)
        for way, (number, run) in _list_ways(texts, documents, count, chance).items():
            with _only(number):
                for asked in range(WARMING + QUESTIONS):
                    took = report.time_once(run)
                    if asked >= WARMING:
                        times[count][way].append(took)
    return times


def _connect(name: str) -> None:
    from django.db import connection

    stock.close_connections()
    connection.settings_dict["NAME"] = name


Way = tuple[int | None, Callable[[], object]]
"""The partition that it is told to read, and what it does."""


def _list_ways(
    texts: Corpus, documents: Sequence[UUID], count: int, chance: random.Random
) -> dict[str, Way]:
    from django.contrib.auth.models import User

    from documents import services
    from documents.models import Document

    nura, asked = Nura(texts.questions), itertools.cycle(chance.sample(texts.questions, QUESTIONS))
    library = chance.choice(documents).bytes[0]
    few = [one for one in documents if one.bytes[0] == library][:5]
    hundred = chance.sample(list(documents), min(100, len(documents)))
    owner, _ = User.objects.get_or_create(username="adder")
    adding, added = make_adder(texts, owner), []

    def delete() -> None:
        services.delete_document(document=Document.objects.get(pk=added.pop()))

    own = library % count if count > 1 else None
    return {
        "search within 5 documents of a library": (None, lambda: nura.search(next(asked), few)),
        "the same, with the key": (own, lambda: nura.search(next(asked), few)),
        "search within 100 documents": (None, lambda: nura.search(next(asked), hundred)),
        "search within all": (None, lambda: nura.search(next(asked), documents)),
        "index a document of 31 chunks": (None, lambda: added.append(adding())),
        "delete a document": (None, delete),
    }


def _measure_shards(texts: Corpus, documents: Sequence[UUID], name: str) -> dict[str, float]:
    """What a search over all documents of one partition takes, over some of the partitions."""
    _connect(name)
    count = int(name.split("_")[1])
    nura, asked = Nura(texts.questions), texts.questions[: WARMING + ASKED_OF_A_SHARD]
    medians = []
    for number in range(0, count, max(1, count // SHARDS)):
        own = [one for one in documents if one.bytes[0] % count == number]
        with _only(number if count > 1 else None):
            medians.append(_search_all(nura, asked, own))
    return {
        "chunks of one": round(CHUNKS / count),
        "median_ms": round(statistics.median(medians), 1),
        "slowest_ms": round(max(medians), 1),
        "all_one_after_the_other_ms": round(statistics.fmean(medians) * count, 1),
    }


def _search_all(nura: Nura, asked: Sequence[Question], documents: Sequence[UUID]) -> float:
    took = [report.time_once(lambda one=one: nura.search(one, documents)) for one in asked]
    return statistics.median(took[WARMING:])


if __name__ == "__main__":
    main()
