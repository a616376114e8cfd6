"""The services of a test run: one Postgres, one Redis, one models process for all its processes.

Every pytest-xdist process has its own database.
"""

import contextlib

import pytest
from django.test import TransactionTestCase

from nura.embedded import session
from tests import emptying
from tests.support import NO_DATA

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
    """Under `--dist loadgroup` tests that share a running product stay in one process.

    Those go first: they wait a lot, while tests of other processes compute.
    """
    if not config.option.whole:
        left_out = [item for item in items if item.get_closest_marker(WHOLE)]
        items[:] = [item for item in items if not item.get_closest_marker(WHOLE)]
        config.hook.pytest_deselected(items=left_out)
    for item in items:
        item.add_marker(pytest.mark.xdist_group(_group(item)))
    items.sort(key=_turn)


def _group(item):
    if item.nodeid.startswith("tests/e2e/"):
        return "browser, model" if "product_with_model" in item.fixturenames else "browser"
    if item.nodeid.startswith("tests/product/") and "product" in item.fixturenames:
        return "product"
    return item.nodeid.partition("::")[0]


def _turn(item):
    """When it comes: first what shares a product for longest, last what needs none."""
    shared = ["browser, model", "browser", "product"]
    group = _group(item)
    if group in shared:
        return shared.index(group)
    return len(shared) + (item.get_closest_marker("product") is None)


@pytest.fixture(scope="session", autouse=True)
def _quick_flush():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TransactionTestCase, "_fixture_teardown", emptying.empty)
        yield


def pytest_terminal_summary(terminalreporter):
    """Say how much was left out for want of data: skipped tests are easily overlooked."""
    skipped = terminalreporter.stats.get("skipped", ())
    count = sum(NO_DATA in str(report.longrepr) for report in skipped)
    if count:
        terminalreporter.write_line(f"{count} tests were left out: {NO_DATA}", yellow=True)


@pytest.hookimpl(trylast=True)
def pytest_unconfigure(config):
    """Stop them when the run is over."""
    _services.close()
