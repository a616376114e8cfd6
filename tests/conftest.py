"""The services of a test run: Postgres, Redis and a models process, shared by all its processes.

Each pytest-xdist process has its own database.
"""

import contextlib
import fcntl
import functools
import gc
import json
import os

import httpcore2
import hypothesis
import pytest
from django.conf import LazySettings
from django.test import TransactionTestCase
from xdist.scheduler import LoadScopeScheduling

from nura.embedded import session
from tests import emptying
from tests.support import NO_DATA

pytest_plugins = [
    "tests.servers.embeddings",
    "tests.servers.models",
    "tests.servers.speech",
    "tests.servers.worker",
]

WITHOUT_DATABASE = ("tests/rag/", "tests/documents/parsers/", "tests/e2e/")
"""Folders of tests that need no database: a run of these alone starts no services."""

WHOLE = "whole"
"""The marker of tests that only `--whole` runs: other runs take a sample of the same corpora."""

DOCUMENT_BROWSER_TESTS = tuple(
    f"tests/e2e/test_{name}.py"
    for name in (
        *("accessibility", "diagrams", "document_pages", "documents", "exports", "filters"),
        *("passages", "reader", "reading", "sources", "uploads"),
    )
)
"""Browser tests of the product without a language model: about half of them. A second product costs
less time than running all with one."""
OWN_PRODUCTS = {
    "own products 1": (
        "tests/nura/test_up.py",
        *(f"tests/product/test_{name}.py" for name in ("deploy", "nodes")),
    ),
    "own products 2": (
        "tests/e2e/test_prefix.py",
        *(
            f"tests/product/test_{name}.py"
            for name in (
                *("backup", "erasure", "privileges", "reindex", "replicas"),
                "streams_limits",
            )
        ),
    ),
}
"""Tests that start products of their own, in two groups of about the same length."""
BROWSER, BROWSER_AND_DOCUMENTS, BROWSER_AND_MODEL = "browser", "documents", "model"
PRODUCT = "product"
LOADS_TORCH = tuple(
    f"tests/rag/test_{name}.py" for name in ("embedders", "reranker", "verifier_model")
)
TORCH = "torch"
"""The group of tests that load torch, which takes long, so that only one process does."""
WITH_MODEL = "with-model.json"
"""The file in which xdist processes put the ids of the browser tests whose product has a model."""
LONG_GROUPS = *OWN_PRODUCTS, BROWSER_AND_MODEL, BROWSER, BROWSER_AND_DOCUMENTS, PRODUCT
"""Groups of many files, in the order in which they begin. Those with products of their own come
first: they wait more than they compute, and nothing that begins later may take as long."""

_services = contextlib.ExitStack()
_started = []
_with_model = set()
"""Ids of the browser tests whose product has a language model."""


def _start_services():
    from django.conf import settings

    if _started:
        return
    _started.append(True)
    _services.enter_context(session.lock_folder(settings.DATA_DIR, "a test run"))
    _services.enter_context(session.run_services(settings.DATA_DIR, durable=False))
    _services.enter_context(session.run_models(settings.DATA_DIR, settings.RAG.models_socket))
    settings.STATIC_ROOT.mkdir(exist_ok=True)  # WhiteNoise warns about a missing one


def pytest_addoption(parser):
    parser.addoption("--whole", action="store_true", help="run whole corpora, not samples of them")


EXAMPLES = {"sample": 40, "whole": 300}
"""Cases that hypothesis generates for a test."""


def pytest_configure(config):
    """Set up hypothesis. With pytest-xdist, start the services in the controller: it ends last."""
    for name, examples in EXAMPLES.items():
        hypothesis.settings.register_profile(name, max_examples=examples, deadline=None)
    hypothesis.settings.load_profile("whole" if config.option.whole else "sample")
    if getattr(config.option, "dist", "no") != "no" and not hasattr(config, "workerinput"):
        _start_services()


def pytest_collection_finish(session):
    """Without pytest-xdist, start the services if a test may need them."""
    if hasattr(session.config, "workerinput") or session.config.option.collectonly:
        return
    if any(not item.nodeid.startswith(WITHOUT_DATABASE) for item in session.items):
        _start_services()


@pytest.hookimpl(wrapper=True)
def pytest_collection():
    """Exempt what is collected from garbage collection: it stays to the end."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(wrapper=True)
def pytest_collection_modifyitems(config, items):
    """Deselect what only `--whole` runs, and sort the rest after pytest-django did."""
    if not config.option.whole:
        left_out = [item for item in items if item.get_closest_marker(WHOLE)]
        items[:] = [item for item in items if not item.get_closest_marker(WHOLE)]
        config.hook.pytest_deselected(items=left_out)
    _with_model.update(one.nodeid for one in items if "product_with_model" in one.fixturenames)
    if hasattr(config, "workerinput"):
        _write_with_model()
    result = yield
    items.sort(key=lambda item: _get_order(item.nodeid))
    return result


def _write_with_model():
    """Write the ids for the controller, which knows no fixtures; each process writes the same."""
    from django.conf import settings

    (settings.DATA_DIR / WITH_MODEL).write_text(json.dumps(sorted(_with_model)), encoding="utf-8")


class SharedProducts(LoadScopeScheduling):
    """Gives the tests of one group to one process.

    xdist's own groups go by a suffix to the names of tests, which pytest 9 no longer lets it write.
    """

    def schedule(self):
        """Start when all processes have collected."""
        from django.conf import settings

        file = settings.DATA_DIR / WITH_MODEL
        if file.exists():  # missing if the processes could not collect, which they report
            _with_model.update(json.loads(file.read_text(encoding="utf-8")))
        super().schedule()

    def _split_scope(self, nodeid):
        return _get_group(nodeid)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """The scheduler for `--dist loadgroup`."""
    return SharedProducts(config, log) if config.option.dist == "loadgroup" else None


def _get_group(nodeid):
    """The group of a test: those that share a running product, else those of one file."""
    file = nodeid.partition("::")[0]
    if file in LOADS_TORCH:
        return TORCH
    for group, files in OWN_PRODUCTS.items():
        if file in files:
            return group
    if not nodeid.startswith(("tests/e2e/", "tests/product/")):
        return file
    if nodeid.startswith("tests/product/"):
        return PRODUCT
    if nodeid in _with_model:
        return BROWSER_AND_MODEL
    return BROWSER_AND_DOCUMENTS if file in DOCUMENT_BROWSER_TESTS else BROWSER


def _get_order(nodeid):
    """Sort key: the longest groups first, so that waiting and computing overlap."""
    group = _get_group(nodeid)
    if group in LONG_GROUPS:
        return LONG_GROUPS.index(group)
    return len(LONG_GROUPS) + (0 if group.startswith("tests/documents/") else 1)


@pytest.fixture(autouse=True)
def _cleared_caches():
    """Clear what the process caches of tables, which are emptied after each test."""
    from documents.connected.choice import forget_choices
    from nura.administration.record import list_shown_banners

    forget_choices()
    list_shown_banners.cache_clear()


@pytest.fixture(scope="session")
def whole(request):
    """Whether to use whole corpora instead of samples."""
    return request.config.option.whole


@pytest.fixture(scope="session")
def django_db_setup(request, django_db_modify_db_settings, django_db_blocker):
    """The first process migrates its database; the others start with a copy of it."""
    from django.conf import settings
    from django.db import connection

    if not hasattr(request.config, "workerinput"):
        request.getfixturevalue("django_db_setup")  # as pytest-django makes it
        return
    with (settings.DATA_DIR / "migrated").open("a+") as note:
        fcntl.flock(note, fcntl.LOCK_EX)  # the others wait for the first
        note.seek(0)
        template = note.read()
        connection.settings_dict["TEST"]["TEMPLATE"] = template or None
        request.getfixturevalue("django_db_setup")
        if not template:
            with django_db_blocker.unblock():
                connection.creation.clone_test_db("migrated", verbosity=0)
            note.write(connection.creation.get_test_db_clone_settings("migrated")["NAME"])


@pytest.fixture(scope="session", autouse=True)
def _fast_flush():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TransactionTestCase, "_fixture_teardown", emptying.empty_database)
        yield


@pytest.fixture(scope="session", autouse=True)
def _atomic_settings_changes():
    """Replace settings in one step. Django clears them first, and a worker in a thread of the test
    that reads one in between would find none.
    """
    set_attribute = LazySettings.__setattr__

    def replace_at_once(settings, name, value):
        if name == "_wrapped":
            object.__setattr__(settings, "__dict__", {name: value})
        else:
            set_attribute(settings, name, value)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LazySettings, "__setattr__", replace_at_once)
        yield


@pytest.fixture(scope="session", autouse=True)
def _cached_certificates():
    """Read the certificates once: reading them for each client takes longer than most tests."""
    make_context = httpcore2.default_ssl_context

    @functools.cache
    def make_context_once(_file, trust_env):
        return make_context(_trust_env=trust_env)

    def get_context(*, _trust_env=True):
        return make_context_once(os.environ.get("SSL_CERT_FILE"), _trust_env)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(httpcore2, "default_ssl_context", get_context)
        yield


def pytest_terminal_summary(terminalreporter):
    """Report how many tests were skipped for want of data: that is easily overlooked."""
    skipped = terminalreporter.stats.get("skipped", ())
    count = sum(NO_DATA in str(report.longrepr) for report in skipped)
    if count:
        terminalreporter.write_line(f"{count} tests were left out: {NO_DATA}", yellow=True)


@pytest.hookimpl(trylast=True)
def pytest_unconfigure(config):
    """Stop the services."""
    _services.close()
