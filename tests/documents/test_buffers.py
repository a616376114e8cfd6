"""What searches read is read into the buffers of Postgres; in databases that were just copied.

Of such a copy nothing is in the buffers, as of any database after a start.
"""

import random

import psycopg
import pytest
from django.db import connection
from structlog.testing import capture_logs

from documents.models import Document
from documents.search import buffers
from documents.search import store as searching
from documents.search.store import ScopedStore
from tests.documents.conftest import make_owner
from tests.documents.test_store import index
from tests.documents.test_store_signs import SignedEmbedder

CHUNKS, DOCUMENTS = 150, 10
PAGE = 8192
READS = """
    SELECT relname, heap_blks_read + coalesce(toast_blks_read + tidx_blks_read, 0)
      FROM pg_statio_user_tables
     UNION ALL
    SELECT indexrelname, idx_blks_read FROM pg_statio_user_indexes
     WHERE indexrelname <> 'one_active'
       AND indexrelname NOT LIKE 'documents_chunkembedding_space_id%'
"""
"""Not of indexes of a few pages that only plans for small tables use."""
READ_PAGES = """
    EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON)
    SELECT count(*) FROM documents_chunkterms WHERE ctid >= '({},0)' AND ctid < '({},0)'
"""


def connect(name):
    """A connection to this database that no pool keeps."""
    server = connection.settings_dict
    where = {"host": server["HOST"], "user": server["USER"], "password": server["PASSWORD"]}
    return psycopg.connect(**where, dbname=name, autocommit=True)


def use_database(name, *, copy_of=""):
    """Go on in this database; with `copy_of` it is made."""
    connection.close()
    connection.close_pool()
    if copy_of:
        with connect("postgres") as plain:
            plain.execute(f'DROP DATABASE IF EXISTS "{name}"')
            plain.execute(f'CREATE DATABASE "{name}" TEMPLATE "{copy_of}" STRATEGY file_copy')
    connection.settings_dict["NAME"] = name


def fetch(statement):
    with connection.cursor() as cursor:
        cursor.execute(statement)
        return cursor.fetchone()[0]


def count_reads():
    """Pages by table and index that were read from outside the buffers since there are any."""
    fetch("SELECT pg_stat_force_next_flush()::text")
    with connection.cursor() as cursor:
        cursor.execute(READS)
        return dict(cursor.fetchall())


def drop_database(name):
    with connect("postgres") as plain:
        plain.execute(f'DROP DATABASE "{name}"')


@pytest.fixture(scope="module")
def library(django_db_setup, django_db_blocker):
    """The name of a database with 1,500 chunks."""
    usual = connection.settings_dict["NAME"]
    name = f"{usual}_library"
    with django_db_blocker.unblock():
        use_database(name, copy_of=usual)
        owner, dice = make_owner(), random.Random(3)
        words = [f"w{number}" for number in range(300)]
        for _ in range(DOCUMENTS):
            texts = [" ".join(dice.choices(words, k=30)) for _ in range(CHUNKS)]
            index(owner, texts, SignedEmbedder())
        with connection.cursor() as cursor:
            cursor.execute("REINDEX TABLE documents_document")  # earlier tests have swollen them
            cursor.execute("VACUUM (ANALYZE)")
        use_database(usual)
    yield name
    drop_database(name)


@pytest.fixture
def started(library, monkeypatch):
    """The library as after a start. Its graph is searched, as in large ones."""
    monkeypatch.setattr(searching, "MAX_SCANNED_CHUNKS", 0)
    monkeypatch.setattr(buffers, "MAX_SCANNED_CHUNKS", 0)
    usual = connection.settings_dict["NAME"]
    name = f"{library}_started"
    use_database(name, copy_of=library)
    yield
    use_database(usual)
    drop_database(name)


pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("started")]


def search():
    """Within one document and within all of them, by words and by vectors."""
    embedder, found = SignedEmbedder(), 0
    documents = list(Document.objects.values_list("pk", flat=True))
    for scope in (documents[:1], documents):
        store = ScopedStore(scope)
        found += len(store.find_by_terms({"w1": 1.0, "w2": 1.0}, 5))
        found += len(store.find_similar(embedder.embed_query("w3 w4"), 5))
    assert found == 20


def test_after_a_start_a_search_reads_much():
    before = count_reads()
    search()
    assert sum(count_reads().values()) > sum(before.values()) + 20


def test_once_the_buffers_are_filled_a_search_reads_nothing():
    with capture_logs() as logs:
        (filled,) = buffers.fill_buffers()
    before = count_reads()
    search()
    assert count_reads() == before
    assert filled.megabytes > 1
    (told,) = logs
    assert (told["event"], told["megabytes"]) == ("buffers_filled", filled.megabytes)


def test_no_more_is_read_than_fits_and_the_newest_part_first(monkeypatch):
    pages = fetch("SELECT pg_relation_size('documents_chunkterms')") // PAGE
    monkeypatch.setattr(buffers, "BASE", (("documents_chunkterms", "count(*)"),))
    monkeypatch.setattr(buffers, "PIECE_PAGES", 4)
    monkeypatch.setattr(buffers, "SHARE", 10 / fetch(buffers.BUFFERS))
    (filled,) = buffers.fill_buffers()
    assert filled.megabytes == round(10 * PAGE / 1e6, 1)
    for first, behind, read in ((pages - 10, pages, 0), (0, pages - 10, pages - 10)):
        plan = fetch(READ_PAGES.format(first, behind))[0]["Plan"]
        assert plan["Shared Read Blocks"] == read


def test_of_processes_that_start_together_one_reads():
    with connect(connection.settings_dict["NAME"]) as other:
        other.execute("SELECT pg_advisory_lock(%s)", [buffers.BUFFERS_LOCK])
        assert buffers.fill_buffers() == []
        other.execute("SELECT pg_advisory_unlock(%s)", [buffers.BUFFERS_LOCK])
    assert len(buffers.fill_buffers()) == 1
    assert len(buffers.fill_buffers()) == 1  # it is free again


def test_what_fails_is_logged_and_the_rest_is_read(monkeypatch):
    monkeypatch.setattr(buffers, "BASE", (("documents_document", "1 / 0"), *buffers.BASE))
    with capture_logs() as logs:
        assert len(buffers.fill_buffers()) == 1
    assert [(line["event"], line["log_level"]) for line in logs] == [
        ("buffers_not_filled", "warning"),
        ("buffers_filled", "info"),
    ]
    assert logs[0]["relation"] == "documents_document"
    before = count_reads()
    search()
    assert count_reads() == before


def test_without_a_database_nothing_is_read_and_nothing_raised():
    name = connection.settings_dict["NAME"]
    use_database("missing")
    with capture_logs() as logs:
        assert buffers.fill_buffers() == []
    use_database(name)
    assert [line["event"] for line in logs] == ["buffers_not_filled"]
