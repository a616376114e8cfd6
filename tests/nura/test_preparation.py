import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from django.db import connection

from nura import preparation


@pytest.fixture
def collected(settings, tmp_path, monkeypatch):
    """Counts how often the static files are collected."""
    settings.STATIC_ROOT = tmp_path / "static"
    calls = []

    def collect(name, **_):
        calls.append(name)
        settings.STATIC_ROOT.mkdir(exist_ok=True)

    monkeypatch.setattr(preparation, "call_command", collect)
    return calls


def test_static_files_are_collected_once(collected):
    assert preparation.collect_static()
    assert not preparation.collect_static()
    assert collected == ["collectstatic"]


def test_a_collection_that_was_cut_off_is_done_again(collected, settings):
    preparation.collect_static()
    (settings.STATIC_ROOT / ".stamp").unlink()
    assert preparation.collect_static()


def test_a_changed_static_file_changes_the_stamp(tmp_path):
    (tmp_path / "requirements").mkdir()
    (tmp_path / "requirements" / "lock.txt").write_text("a==1\n")
    (tmp_path / "static").mkdir()
    before = preparation.hash_static_files(tmp_path)
    (tmp_path / "static" / "page.css").write_text("body {}")
    after = preparation.hash_static_files(tmp_path)
    (tmp_path / "requirements" / "lock.txt").write_text("a==2\n")
    assert len({before, after, preparation.hash_static_files(tmp_path)}) == 3


@pytest.mark.django_db(transaction=True)
def test_of_two_nodes_that_start_together_one_waits(monkeypatch):
    inside, overlaps = threading.Semaphore(1), []

    class Executor:
        def __init__(self, _):
            self.loader = self
            self.graph = self

        def leaf_nodes(self):
            return []

        def migration_plan(self, _):
            overlaps.append(not inside.acquire(blocking=False))
            threading.Event().wait(0.1)
            inside.release()
            return []

    def node(_):
        try:
            preparation.migrate()
        finally:
            connection.close()

    monkeypatch.setattr(preparation, "MigrationExecutor", Executor)
    with ThreadPoolExecutor(3) as nodes:
        list(nodes.map(node, range(3)))
    assert overlaps == [False, False, False]
