"""Two nodes behind nginx are upgraded in turn, from a version before, while people work."""

import itertools
import os
import re
import subprocess
import tarfile
from io import BytesIO
from urllib.parse import urljoin

import pytest

from tests.product.browser import Browser
from tests.product.client import Client
from tests.product.test_deploy import NGINX, fetch, make_certificate, run_nginx
from tests.product.test_nodes import Load, check_all
from tests.product.test_streams_faults import WORDS
from tests.servers.llm import LLMServer, Stream
from tests.servers.postgres import PostgresServer
from tests.servers.redis import RedisServer
from tests.support import ROOT, Product, free_port, wait_until

FORMER = os.environ.get("NURA_UPGRADE_FROM", "96d05738")
"""What is upgraded: the last release, once there is one; till then the first version whose nodes
answer all that has reached them before they stop."""
STREAMS = 50

pytestmark = [
    pytest.mark.product,
    pytest.mark.whole,
    pytest.mark.timeout(500),
    pytest.mark.skipif(NGINX is None, reason="nginx is not installed"),
]


@pytest.fixture
def former(tmp_path):
    """A folder with the code of the version before."""
    packed = subprocess.run(["git", "archive", FORMER], cwd=ROOT, capture_output=True, check=False)
    if packed.returncode:
        pytest.skip(f"the history of git does not reach back to {FORMER}")
    folder = tmp_path / "former"
    with tarfile.open(fileobj=BytesIO(packed.stdout)) as archive:
        archive.extractall(folder, filter="data")
    return folder


@pytest.fixture
def writer():
    with LLMServer() as server:
        server.default = Stream(WORDS, delay=0.1)
        yield server


@pytest.fixture
def nodes(former, writer, small_models, tmp_path):
    """Both of the version before, on one Postgres, Redis and folder of files."""
    for name in ("postgres", "redis", "first", "second"):
        (tmp_path / name).mkdir(mode=0o700)
    (tmp_path / "first" / "files").mkdir(mode=0o700)
    (tmp_path / "second" / "files").symlink_to(tmp_path / "first" / "files")
    postgres, redis = PostgresServer.create(tmp_path / "postgres"), RedisServer(tmp_path / "redis")
    settings = small_models | {
        "SECRET_KEY": "the same on both nodes, and long enough to be one",
        "NURA_LLM_BASE_URL": writer.url,
        "NURA_LLM_MODEL": "stand-in",
        "NURA_TRUSTED_PROXIES": "1",
        "NURA_SHUTDOWN_SECONDS": "25",
        "DATABASE_URL": postgres.url,
        "REDIS_URL": redis.url,
    }
    first, second = (
        Product(tmp_path / name, prepared=False, code=former, **settings)
        for name in ("first", "second")
    )
    try:
        with first, second:
            yield first, second
    finally:
        redis.kill()
        postgres.close()


@pytest.fixture
def url(nodes, tmp_path, monkeypatch):
    folder, tls = tmp_path / "nginx", free_port()
    folder.mkdir()
    make_certificate(folder)
    monkeypatch.setenv("SSL_CERT_FILE", str(folder / "fullchain.pem"))
    with run_nginx(folder, plain=free_port(), tls=tls, nodes=[node.port for node in nodes]):
        yield f"https://localhost:{tls}"


NAMED = re.compile(r"""["'(](/static/|\./|\.\./)([\w./-]+\.[0-9a-f]{12}\.(?:js|css))["')]""")
"""How pages, scripts and styles name scripts and styles."""


def list_parts(address, content):
    """Addresses of what the page, script or style at an address loads, at once or later."""
    return {urljoin(address, "".join(found)) for found in NAMED.findall(content.decode())}


class Upgrade(Load):
    """The same with many streams at once, and with pages that are opened or stay open."""

    def __init__(self, site, cookie):
        super().__init__(site, *[self.keep_asking] * 4, self.open_page, self.go_on_with_page)
        self._cookie = cookie
        self.opened, self.went_on, self.missing = 0, 0, []
        self.most = 0
        self.former = {}
        for page in ("/", "/documents"):
            self._fetch_parts(page, self.former)
        self._parts = itertools.cycle(self.former.items())

    def keep_asking(self):
        """As long as fewer answers than wanted are being written."""
        written = sum(not listener.ended for _, listener in self.heard)
        self.most = max(self.most, written)
        if written < STREAMS:
            self.ask()

    def open_page(self):
        """A page of somebody who signed in before the upgrade, with what it loads at once."""
        status, _, page = fetch(self.site.url, "/documents", Cookie=self._cookie)
        parts = list_parts("/documents", page)
        assert parts, status
        self.missing += [part for part in parts if fetch(self.site.url, part)[0] != 200]
        self.opened += 1

    def go_on_with_page(self):
        """Load a part of a page that was opened before the upgrade, as it was then."""
        part, content = next(self._parts)
        if fetch(self.site.url, part)[::2] != (200, content):
            self.missing.append(part)
        self.went_on += 1

    def _fetch_parts(self, address, found):
        status, _, content = fetch(self.site.url, address, Cookie=self._cookie)
        assert status == 200, address
        if address.startswith("/static/"):
            found[address] = content
        for part in list_parts(address, content) - found.keys():
            self._fetch_parts(part, found)


def test_nodes_upgraded_in_turn_under_load_lose_and_double_nothing(nodes, url):
    site = Client(url, nodes[0].add_user("traveller"))
    browser = Browser(nodes[0].url)
    browser.sign_in("traveller")
    with Upgrade(site, browser.cookie) as load:
        wait_until(lambda: load.most >= STREAMS, 60)
        for node in nodes:
            assert node.stop() == 0
            node.code = ROOT
            node.start()
            count = len(load.heard)
            wait_until(lambda count=count: len(load.heard) > count + STREAMS, 60)
    assert load.missing == []
    assert load.opened > 10
    assert load.went_on > 3 * len(load.former)
    assert any("/katex." in part for part in load.former)  # which loads when a formula comes
    check_all(load, before=0)
