"""A real Chromium before the whole product; both end with the last test of this folder.

(Playwright keeps an event loop running in the thread that it was started in.)
"""

import contextlib

import pytest
from playwright.sync_api import expect, sync_playwright

from tests.e2e.chromium import Chromium, program
from tests.e2e.people import Person
from tests.e2e.watching import Watch
from tests.servers.llm import LLMServer, Stream
from tests.support import ROOT, Product

SAMPLES = ROOT / "nura" / "samples"
MANUAL = "라온 HX-200 환기청정기 사용 설명서.md"
NOTICE = "해솔시 통합돌봄 정보시스템 제안요청서.pdf"
PATIENCE = 15_000
"""Milliseconds for what should happen at once: the machine may be busy with other tests."""
expect.set_options(timeout=PATIENCE)


def pytest_collection_modifyitems(items):
    for item in items:
        if item.nodeid.startswith("tests/e2e/"):
            item.add_marker(pytest.mark.browser)
            item.add_marker(pytest.mark.product)


@pytest.fixture(scope="package")
def chromium():
    """The system's Chromium, without a window."""
    executable = program()
    if executable is None:
        pytest.skip("no Chromium on this machine: install the package chromium-headless-shell")
    with sync_playwright() as playwright:
        browser = Chromium(playwright, executable)
        yield browser
        browser.close()


@pytest.fixture(scope="package")
def product(small_models):
    """The product without a language model, as it comes."""
    with Product(**small_models) as running:
        yield running


@pytest.fixture(scope="package")
def llm():
    """A stand-in for a language model."""
    with LLMServer() as server:
        yield server


@pytest.fixture(scope="package")
def product_with_model(llm, small_models):
    """The product with the stand-in as its language model."""
    model = {"NURA_LLM_BASE_URL": llm.url, "NURA_LLM_MODEL": "stand-in"}
    with Product(**model, **small_models) as running:
        yield running


@pytest.fixture(scope="package")
def reader(product):
    """Somebody with a Korean manual and a Korean PDF."""
    person = Person(product, "reader")
    person.upload(SAMPLES / "ventilator-manual.md", MANUAL)
    person.upload(SAMPLES / "care-system-notice.pdf", NOTICE)
    person.wait_for_documents()
    return person


@pytest.fixture(scope="package")
def talker(product_with_model):
    """Somebody without documents whose answers the stand-in writes."""
    return Person(product_with_model, "talker")


@pytest.fixture(autouse=True)
def _plain_model(request):
    yield
    if "llm" in request.fixturenames or "talker" in request.fixturenames:
        request.getfixturevalue("llm").default = Stream()


@pytest.fixture
def windows(chromium):
    """Opens browser windows; each is watched, and none may have done anything foul."""
    watches, contexts = [], []

    def open_window(person=None, product=None, **options):
        where = (person.product if person else product).url
        context, watch = new_context(chromium, where, **options)
        if person:
            context.add_cookies(person.cookies())
        contexts.append(context)
        watches.append(watch)
        return context.new_page()

    open_window.watches = watches
    yield open_window
    for context in contexts:
        chromium.close_context(context)
    for watch in watches:
        watch.assert_clean()


def new_context(chromium, home, **options):
    """A browser context with what it is watched by."""
    settings = {"viewport": {"width": 1280, "height": 800}, "locale": "ko-KR", **options}
    settings.setdefault("service_workers", "block")  # what a test answers must not pass by it
    context = chromium.new_context(base_url=home, **settings)
    context.set_default_timeout(PATIENCE)
    return context, Watch(context, home)


class Desk:
    """Windows of one person one after the other, in one context: scripts are compiled once."""

    def __init__(self, chromium, person):
        self._chromium, self._person = chromium, person
        self._home = person.product.url
        self._context = self._watch = self._blank = None

    @contextlib.contextmanager
    def window(self, watches):
        """A window on the first screen, with nothing left of the one before but what is cached."""
        if self._context is None or not self._context.browser.is_connected():
            self._context, self._watch = new_context(self._chromium, self._home)
            self._blank = self._context.new_page()
        watches.append(self._watch)
        try:
            self._context.add_cookies(self._person.cookies())
            page = self._context.new_page()
            page.goto("/")
            yield page
        finally:
            self._clear()

    def _clear(self):
        context, self._context = self._context, None  # unless all of this succeeds
        for page in context.pages:
            if page != self._blank:
                page.close()
        context.unroute_all()
        context.clear_permissions()
        context.set_offline(False)
        context.clear_cookies()
        stored = {"origin": self._home, "storageTypes": "all"}
        session = context.new_cdp_session(self._blank)
        session.send("Storage.clearDataForOrigin", stored)
        session.detach()
        self._context = context


@pytest.fixture(scope="package")
def desk_of_reader(chromium, reader):
    return Desk(chromium, reader)


@pytest.fixture(scope="package")
def desk_of_talker(chromium, talker):
    return Desk(chromium, talker)


@pytest.fixture
def page(windows, desk_of_reader):
    """A window of the reader's, on the first screen."""
    with desk_of_reader.window(windows.watches) as window:
        yield window


@pytest.fixture
def talk(windows, desk_of_talker):
    """A window of the talker's, on the first screen."""
    with desk_of_talker.window(windows.watches) as window:
        yield window
