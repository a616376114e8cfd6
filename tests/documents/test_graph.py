"""The graph of the vectors is made anew while it serves; see `documents.spaces.renew_graph`."""

import subprocess
import sys
import textwrap
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest
from django.core.management import CommandError
from django.db import IntegrityError, connection

from documents import spaces
from documents.models import Chunk
from documents.search import database, store
from jobs.connections import run_and_release
from nura.management.commands import doctor
from tests.documents.changing import add, list_embedded_keys, run_reindex_command
from tests.documents.test_reindex_kill import kill
from tests.locks import has_waiting
from tests.support import ROOT, wait_until

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("library")]

INDEXES = """
    SELECT relname, indisvalid, reloptions FROM pg_index JOIN pg_class ON oid = indexrelid
     WHERE relname LIKE 'embedding\\_space\\_%'
"""
INSERT = """
    INSERT INTO documents_chunkembedding (chunk_id, space_id, document_id, vector)
    SELECT chunk_id, 0, document_id, vector FROM documents_chunkembedding LIMIT 1
"""
"""Of a space that is not there: its transaction is never committed."""
PROCESS = textwrap.dedent(
    """
    import sys
    import django
    from django.conf import settings
    settings.DATABASES["default"]["NAME"] = sys.argv[1]
    django.setup()
    from django.core.management import call_command
    call_command("reindex", graph="1GB")
    """
)


def indexes():
    with connection.cursor() as cursor:
        cursor.execute(INDEXES)
        return {name: (valid, options) for name, valid, options in cursor.fetchall()}


def list_usual_indexes():
    return {spaces.to_index_name(spaces.get_active_space()): (True, ["ef_construction=64"])}


@contextmanager
def hold_locks(statement):
    """What another connection's transaction locks with a statement; it is rolled back."""
    other = connection.copy()
    other.set_autocommit(False)
    try:
        with other.cursor() as cursor:
            cursor.execute(statement)
        yield
    finally:
        other.rollback()
        other.close()


def find_by_graph():
    """The documents that the index finds, with its own statement."""
    space = spaces.get_active_space()
    statement = store.to_graph_statement(space, within="")
    vector = store.to_halfvec([1.0] * space.dimensions)
    with database.open_search(database.SearchScope([])) as search:
        rows = search.fetch_rows(statement, vector=vector, limit=100, passed=0)
    return {row[1] for row in rows}


def test_a_new_graph_takes_the_place_of_the_old_one_and_uploads_cost_what_they_did(library):
    text = run_reindex_command(graph="1GB")
    assert "in use" in text
    assert indexes() == list_usual_indexes()
    assert find_by_graph() == {document.pk for document in library}


def test_uploads_and_searches_go_on_while_it_is_made(library, owner):
    with ThreadPoolExecutor(1) as pool:
        with hold_locks(INSERT):
            made = pool.submit(run_and_release, run_reindex_command, graph="1GB")
            wait_until(has_waiting_build)
            late = add(owner, "새 지침.md")
            assert late.pk in find_by_graph()
            assert not made.done()
        made.result(60)
    assert indexes() == list_usual_indexes()
    assert find_by_graph() == {late.pk, *(document.pk for document in library)}
    assert list_embedded_keys(spaces.get_active_space()) == set(
        Chunk.objects.values_list("pk", flat=True)
    )


def has_waiting_build():
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'CREATE INDEX CONCURRENTLY%'"
            " AND datname = current_database() AND wait_event_type = 'Lock'"
        )
        return cursor.fetchone()[0]


def test_it_waits_for_a_search_that_is_under_way_without_keeping_others_out(monkeypatch):
    put, tried = spaces._put_spare_in_place, []
    monkeypatch.setattr(spaces, "RETRY_SECONDS", 0.01)

    def put_beside_a_search(space):
        if tried:
            return put(space)
        with hold_locks("SELECT count(*) FROM documents_chunkembedding"):
            tried.append(put(space))
            assert not has_waiting()
            assert find_by_graph()
        return tried[0]

    monkeypatch.setattr(spaces, "_put_spare_in_place", put_beside_a_search)
    run_reindex_command(graph="1GB")
    assert tried == [False]
    assert indexes() == list_usual_indexes()


def test_what_a_build_that_failed_left_is_dropped(library):
    spare = f"{spaces.to_index_name(spaces.get_active_space())}_spare"
    with connection.cursor() as cursor, pytest.raises(IntegrityError):
        cursor.execute(
            f"CREATE UNIQUE INDEX CONCURRENTLY {spare} ON documents_chunkembedding ((1))"
        )
    assert indexes()[spare][0] is False
    (finding,) = [one for one in doctor.check_embedding_space() if "graph" in one.name]
    assert "run it again" in finding.detail
    run_reindex_command(graph="1GB")
    assert indexes() == list_usual_indexes()


def test_a_run_that_is_killed_leaves_the_old_graph_and_the_next_one_ends(library):
    with ThreadPoolExecutor(1) as pool:
        with hold_locks(INSERT):
            kill(begin_build())
            assert find_by_graph() == {document.pk for document in library}
            made = pool.submit(run_and_release, run_reindex_command, graph="1GB")
            wait_until(looks_at_the_spare)  # while Postgres has not noticed yet that it may end
        made.result(60)
    assert indexes() == list_usual_indexes()


def begin_build():
    """Another process that makes a graph and waits for what this one holds."""
    process = subprocess.Popen(
        [sys.executable, "-c", PROCESS, str(connection.settings_dict["NAME"])],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    wait_until(has_waiting_build, timeout=60)
    return process


def looks_at_the_spare():
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
            " AND pid <> pg_backend_pid()"
            " AND (query LIKE 'DROP INDEX%' OR query LIKE '%pg_stat_progress_create_index%')"
        )
        return cursor.fetchone()[0]


def test_two_runs_do_not_make_it_at_once(library, monkeypatch):
    monkeypatch.setattr(spaces, "KILL_NOTICE_SECONDS", 0.5)
    with hold_locks(INSERT):
        process = begin_build()
        with pytest.raises(CommandError, match="Another process"):
            run_reindex_command(graph="1GB")
    assert process.wait(60) == 0
    assert indexes() == list_usual_indexes()


def test_a_space_that_is_dropped_takes_a_spare_graph_along(embedding_server):
    old = spaces.get_active_space()
    run_reindex_command(model="words-32", base_url=embedding_server.url, languages="*")
    with connection.cursor() as cursor:
        spare = spaces._to_spare_name(old)
        cursor.execute(f"CREATE INDEX {spare} ON {spaces._describe_index(old, 200)}")
    run_reindex_command(drop_old=True)
    assert [*indexes()] == [spaces.to_index_name(spaces.get_active_space())]


def test_the_doctor_asks_for_it_where_a_large_graph_grew_with_its_uploads(owner, monkeypatch):
    def advice():
        return [one.detail for one in doctor.check_embedding_space() if "graph" in one.name]

    def count_anew():
        with connection.cursor() as cursor:
            cursor.execute("ANALYZE documents_chunkembedding")

    count_anew()
    assert advice() == []
    monkeypatch.setattr(spaces, "LARGE_GRAPH", 10)
    (detail,) = advice()
    needed = spaces.estimate_graph_megabytes(spaces.get_active_space())
    assert f"manage.py reindex --graph {needed}MB" in detail
    run_reindex_command(graph=f"{needed}MB")
    assert advice() == []
    for number in range(5):
        add(owner, f"지침 {number}.md")
    count_anew()
    assert len(advice()) == 1  # it has more than doubled
    run_reindex_command(graph="1GB")
    assert advice() == []
    with connection.cursor() as cursor:
        cursor.execute(f"REINDEX INDEX {spaces.to_index_name(spaces.get_active_space())}")
    assert len(advice()) == 1  # as after a restored backup: made in the usual way


@pytest.mark.parametrize("memory", ["2", "GB", "2 GB", "-1GB", "2GB; DROP TABLE documents_chunk"])
def test_what_is_no_amount_of_memory_is_refused(memory):
    with pytest.raises(CommandError, match="no amount of memory"):
        run_reindex_command(graph=memory)


def test_too_little_memory_is_refused_with_what_is_needed():
    with pytest.raises(CommandError, match="needs 64MB"):
        run_reindex_command(graph="63MB")


def test_without_a_graph_nothing_is_made(settings, embedding_server):
    run_reindex_command(
        model="words-4096", base_url=embedding_server.url, languages="*", force=True
    )
    with pytest.raises(CommandError, match="no graph"):
        run_reindex_command(graph="1GB")
