"""The services of a test run: one Postgres, one Redis, one models process for all its processes.

Every pytest-xdist process has its own database.
"""

import contextlib

import pytest
from django.test import TransactionTestCase

from nura.embedded import session
from tests import emptying

pytest_plugins = [
    "tests.servers.embeddings",
    "tests.servers.models",
    "tests.servers.speech",
    "tests.servers.worker",
]

LIGHT = ("tests/rag/", "tests/documents/parsers/", "tests/e2e/")
"""Folders of tests that need no database: they alone start nothing."""

WHOLE = "whole"
"""The marker of what only `--whole` runs: corpora of which each run takes a sample anyway."""

_services = contextlib.ExitStack()
_started = []


def _start():
    from django.conf import settings

    if _started:
        return
    _started.append(True)
    _services.enter_context(session.folder_lock(settings.DATA_DIR, "a test run"))
    _services.enter_context(session.running(settings.DATA_DIR, durable=False))
    _services.enter_context(session.running_models(settings.DATA_DIR, settings.RAG.models_socket))
    settings.STATIC_ROOT.mkdir(exist_ok=True)  # WhiteNoise warns about a missing one


def pytest_addoption(parser):
    parser.addoption("--whole", action="store_true", help="run whole corpora, not samples of them")


def pytest_configure(config):
    """Under pytest-xdist the controller starts them: it outlives its workers."""
    if getattr(config.option, "dist", "no") != "no" and not hasattr(config, "workerinput"):
        _start()


def pytest_collection_finish(session):
    """Alone, start them when a test may need them."""
    if hasattr(session.config, "workerinput") or session.config.option.collectonly:
        return
    if any(not item.nodeid.startswith(LIGHT) for item in session.items):
        _start()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config, items):
    """Under `--dist loadgroup` tests that share a running product stay in one process."""
    if not config.option.whole:
        left_out = [item for item in items if item.get_closest_marker(WHOLE)]
        items[:] = [item for item in items if not item.get_closest_marker(WHOLE)]
        config.hook.pytest_deselected(items=left_out)
    for item in items:
        item.add_marker(pytest.mark.xdist_group(_group(item)))


def _group(item):
    if item.nodeid.startswith("tests/e2e/"):
        return "browser"
    if item.nodeid.startswith("tests/product/") and "product" in item.fixturenames:
        return "product"
    return item.nodeid.partition("::")[0]


@pytest.fixture(scope="session", autouse=True)
def _quick_flush():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TransactionTestCase, "_fixture_teardown", emptying.empty)
        yield


@pytest.hookimpl(trylast=True)
def pytest_unconfigure(config):
    """Stop them when the run is over."""
    _services.close()
