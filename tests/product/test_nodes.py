"""Two whole nodes behind nginx, each with its own data folder, on one Postgres, Redis and folder.

Servers die and nodes are restarted under streams, and nothing that was said or uploaded is lost.
"""

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from uuid import uuid4

import pytest

from tests.product.client import Client
from tests.product.sockets import TERMINAL, Socket, join_deltas
from tests.product.test_deploy import NGINX, make_certificate, run_nginx
from tests.product.test_streams_faults import WHOLE, WORDS
from tests.servers.llm import LLMServer, Stream
from tests.servers.postgres import PostgresServer
from tests.servers.redis import RedisServer, Sentinel
from tests.support import Product, free_port, wait_until

pytestmark = [
    pytest.mark.product,
    pytest.mark.timeout(300),
    pytest.mark.skipif(NGINX is None, reason="nginx is not installed"),
]
RULES = "# 여비 규정\n\n숙박비는 하루 8만 원까지 실비로 지급한다.\n"
QUESTIONS_A_NODE = 10


@pytest.fixture(scope="module")
def writer():
    """A stand-in for the language model of both."""
    with LLMServer() as server:
        yield server


@pytest.fixture(scope="module")
def postgres(tmp_path_factory):
    server = PostgresServer.create(tmp_path_factory.mktemp("postgres"))
    yield server
    server.close()


@pytest.fixture(scope="module")
def redis(tmp_path_factory):
    server = RedisServer(tmp_path_factory.mktemp("redis"))
    yield server
    server.kill()


@pytest.fixture(scope="module")
def second_redis(redis, tmp_path_factory):
    server = RedisServer(tmp_path_factory.mktemp("second-redis"), primary_port=redis.port)
    yield server
    server.kill()


@pytest.fixture(scope="module")
def sentinel(redis, second_redis):
    server = Sentinel(redis.port)
    yield server
    server.kill()


@pytest.fixture(scope="module")
def standby(postgres, tmp_path_factory):
    server = postgres.clone(tmp_path_factory.mktemp("standby"))
    yield server
    server.close()


@pytest.fixture(scope="module")
def nodes(writer, postgres, standby, sentinel, small_models, tmp_path_factory):
    """Both nodes; the first migrates, and the second's folder of files is the first's."""
    folder = tmp_path_factory.mktemp("nodes")
    settings = small_models | {
        "SECRET_KEY": "the same on both nodes, and long enough to be one",
        "NURA_LLM_BASE_URL": writer.url,
        "NURA_LLM_MODEL": "stand-in",
        "NURA_LLM_MAX_TOKENS": "20000",
        "NURA_TRUSTED_PROXIES": "1",
        "NURA_SHUTDOWN_SECONDS": "25",  # an answer of these tests takes four
        "DATABASE_URL": f"{postgres.url},{standby.quoted_host}&target_session_attrs=read-write",
        "REDIS_URL": sentinel.url,
    }
    for name in ("first", "second"):
        (folder / name).mkdir(mode=0o700)
    (folder / "first" / "files").mkdir(mode=0o700)
    (folder / "second" / "files").symlink_to(folder / "first" / "files")
    with (
        Product(folder / "first", **settings) as first,
        Product(folder / "second", **settings) as second,
    ):
        yield first, second


@pytest.fixture(scope="module")
def url(nodes, tmp_path_factory):
    """Where people reach them: nginx, with a certificate that this process trusts."""
    folder, tls = tmp_path_factory.mktemp("nginx"), free_port()
    make_certificate(folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SSL_CERT_FILE", str(folder / "fullchain.pem"))
        ports = [node.port for node in nodes]
        with run_nginx(folder, plain=free_port(), tls=tls, nodes=ports):
            yield f"https://localhost:{tls}"
    print((folder / "error.log").read_text())  # of what a failure shows


@pytest.fixture(scope="module")
def key(nodes):
    """Of somebody who is known on both."""
    return nodes[0].add_user("traveller")


@pytest.fixture
def site(url, key):
    return Client(url, key)


def follow_many(site, count):
    """Turns whose answers have begun, each with who listens to it."""
    with ThreadPoolExecutor(10) as threads:
        turns = list(threads.map(lambda _: site.ask("길게 이야기해 줘"), range(count)))
    heard = [(turn, site.follow(turn)) for turn in turns]
    wait_until(lambda: all(len(listener.text) > 50 for _, listener in heard), 60)
    return heard


def check_whole(site, heard):
    """Each answer was heard and stored whole, once."""
    wait_until(lambda: all(listener.ended for _, listener in heard), 120)
    for turn, listener in heard:
        message = site.message(turn)
        assert (message["status"], message["content"]) == ("COMPLETED", WHOLE)
        assert listener.text == WHOLE
        told = site.call("GET", f"/chats/{turn['chat_id']}/messages")[1]["results"]
        assert [one["role"] for one in told] == ["user", "assistant"]


def ask_as_a_page_does(site):
    """The events of a question that is sent until it is taken, and followed over new sockets."""
    question = {"client_id": str(uuid4()), "content": "길게 이야기해 줘"}
    events = []

    def take(socket):
        for event in list(socket.heard):
            if event["run_id"] and event["seq"] == len(events) + 1:
                events.append(event)
        return socket.closed.is_set() or (events and events[-1]["type"] in TERMINAL)

    while not (events and events[-1]["type"] in TERMINAL):
        with suppress(OSError, AssertionError), Socket(site.url, site.token) as socket:
            if events:
                socket.say("resume", run_id=events[0]["run_id"], after_seq=len(events))
            else:
                socket.say("send", **question)
            wait_until(partial(take, socket), 60)
    return events


def upload_and_read(site):
    """A document that is uploaded is read, too."""
    document = site.upload(f"{uuid4()}.md", f"# {uuid4()}".encode())
    place = f"/documents/{document['id']}"
    wait_until(lambda: site.call("GET", place)[1]["status"] == "COMPLETED", 60)
    assert site.call("GET", f"{place}/chunks")[0] == 200


def test_requests_are_shared_out(nodes, site):
    def count(node):
        return node.log.count("/api/v1/me")

    before = [count(node) for node in nodes]
    with ThreadPoolExecutor(4) as threads:
        assert set(threads.map(lambda _: site.call("GET", "/me")[0], range(40))) == {200}
    shares = [count(node) - old for node, old in zip(nodes, before, strict=True)]
    assert min(shares) >= 10, shares


def test_what_is_uploaded_at_one_node_is_asked_about_and_opened_at_the_other(nodes, key, writer):
    here, there = (Client(node.url, key) for node in nodes)
    writer.default = Stream(["하루 8만 원까지입니다. [1]"])
    document = here.upload("여비.md", RULES.encode())
    place = f"/documents/{document['id']}"
    wait_until(lambda: there.call("GET", place)[1]["status"] == "COMPLETED", 60)
    turn = there.ask("숙박비는 하루 얼마까지야?")
    wait_until(lambda: here.message(turn)["status"] == "COMPLETED", 60)
    (source,) = here.message(turn)["sources"]
    assert source["document_id"] == document["id"]
    assert there.call("GET", f"{place}/chunks")[1]["results"][0]["text"].endswith("지급한다.")


def ask_node(node, key, site, others):
    """Who listens to questions that this node takes: the `others`' answers process rests meanwhile.

    A pause of a few seconds, which costs no lease; one question may be told to who rests.
    """
    resting = others.find_process("answers")
    resting.suspend()
    try:
        client = Client(node.url, key)
        turns = [client.ask("길게 이야기해 줘") for _ in range(QUESTIONS_A_NODE)]
        heard = [(turn, site.follow(turn)) for turn in turns]
        wait_until(lambda: sum(len(one.text) > 100 for _, one in heard) > QUESTIONS_A_NODE // 2, 60)
    finally:
        resting.resume()
    return heard


def test_a_node_that_dies_under_its_streams_loses_nothing_that_was_said(nodes, key, site, writer):
    may_end = threading.Event()  # no answer ends before the node dies, however slow the others are
    writer.default = Stream(WORDS, delay=0.03, hold=may_end)
    first, second = nodes
    here, there = Client(first.url, key), Client(second.url, key)
    heard = ask_node(first, key, site, others=second) + ask_node(second, key, site, others=first)
    turns, listeners = zip(*heard, strict=True)
    wait_until(lambda: all(len(one.text) > 100 for one in listeners), 60)
    for process in second.processes():
        process.kill()
    may_end.set()
    wait_until(lambda: all(one.ended for one in listeners), 120)
    ends = set()
    for turn, listener in zip(turns, listeners, strict=True):
        message = site.message(turn)
        ends.add(message["status"])
        # what a dead worker had begun to say is not said anew, and what was stored was said
        assert WHOLE.startswith(listener.text)
        assert listener.text.startswith(message["content"])
        assert message["status"] == "INTERRUPTED" or message["content"] == WHOLE
        assert len(message["content"]) > 100
        told = here.call("GET", f"/chats/{turn['chat_id']}/messages")[1]["results"]
        assert [one["role"] for one in told] == ["user", "assistant"]
    assert ends == {"COMPLETED", "INTERRUPTED"}
    second.start()
    assert [there.message(turn) for turn in turns] == [here.message(turn) for turn in turns]


@pytest.mark.parametrize("name", ["redis", "postgres"])
def test_a_server_that_dies_under_the_streams_of_both_nodes_costs_no_character(
    site, writer, name, request
):
    """Redis forgets all that it held."""
    writer.default = Stream(WORDS, delay=0.06)
    server = request.getfixturevalue(name)
    heard = follow_many(site, 2 * QUESTIONS_A_NODE)
    server.kill()
    server.start()
    check_whole(site, heard)


PAUSE = 1.0
"""Seconds between what one of them does. Some ten answers are under way all the while; more would
only make the machine busier."""


class Load:
    """What people do all the while, by every way there is; each list is of what came of it."""

    def __init__(self, site, *works):
        self.site = site
        self.heard, self.waited, self.pages = [], [], []
        self.documents, self.looks = [], []
        self.over = threading.Event()
        self._works = (self.ask, self.upload, self.ask_and_wait, self.ask_by_socket, self.look)
        self._works += works or (self.ask,)
        self._threads = ThreadPoolExecutor(len(self._works))

    def __enter__(self):
        self._tasks = [self._threads.submit(self._repeat, work) for work in self._works]
        return self

    def __exit__(self, *_):
        self.over.set()
        self._threads.shutdown()
        for task in self._tasks:
            task.result()

    def ask(self):
        turn = self.site.ask("길게 이야기해 줘", client_id=str(uuid4()))
        self.heard.append((turn, self.site.follow(turn)))

    def upload(self):
        self.documents.append(self.site.upload(f"{uuid4()}.md", f"# {uuid4()}".encode()))

    def ask_and_wait(self):
        self.waited.append(self.site.call("POST", "/messages", {"content": "길게 이야기해 줘"}))

    def ask_by_socket(self):
        self.pages.append(ask_as_a_page_does(self.site))

    def look(self):
        self.looks.append(self.site.call("GET", "/chats")[0])

    def _repeat(self, work):
        while not self.over.is_set():
            work()
            self.over.wait(PAUSE)


def check_all(load, before):
    """All that was asked and uploaded is there, whole and once, beside the chats from `before`."""
    site = load.site
    check_whole(site, load.heard)
    assert set(load.looks) == {200}
    assert {status for status, _ in load.waited} == {201}
    assert {body["assistant_message"]["content"] for _, body in load.waited} == {WHOLE}
    assert {join_deltas(events) for events in load.pages} == {WHOLE}
    asked = len(load.heard) + len(load.waited) + len(load.pages)
    assert site.call("GET", "/chats")[1]["count"] == before + asked
    for document in load.documents:
        place = f"/documents/{document['id']}"
        wait_until(lambda place=place: site.call("GET", place)[1]["status"] == "COMPLETED", 60)
        assert site.call("GET", f"{place}/chunks")[0] == 200


def test_nodes_restarted_in_turn_under_load_lose_and_double_nothing(nodes, site, writer):
    writer.default = Stream(WORDS, delay=0.03)
    before = site.call("GET", "/chats")[1]["count"]
    with Load(site) as load:
        for node in nodes:
            count = len(load.heard)
            wait_until(lambda count=count: len(load.heard) > count + 5, 60)
            assert node.stop() == 0
            node.start()
    check_all(load, before)


def test_a_standby_of_redis_that_takes_over_costs_no_character(
    site, writer, redis, second_redis, sentinel
):
    writer.default = Stream(WORDS, delay=0.06)
    wait_until(lambda: "slave0" in redis.execute_command("INFO", "replication"), 30)
    heard = follow_many(site, 2 * QUESTIONS_A_NODE)
    redis.kill()
    check_whole(site, heard)
    assert second_redis.execute_command("INFO", "replication")["role"] == "master"
    check_whole(site, follow_many(site, QUESTIONS_A_NODE))
    upload_and_read(site)


def test_a_standby_of_postgres_that_is_promoted_costs_no_character(site, writer, postgres, standby):
    """What was committed has reached it, as with any standby that somebody may need."""
    writer.default = Stream(WORDS, delay=0.06)
    postgres.execute("ALTER SYSTEM SET synchronous_standby_names = '*'")
    postgres.execute("SELECT pg_reload_conf()")
    wait_until(lambda: postgres.execute(SYNCHRONOUS) == "sync", 30)
    heard = follow_many(site, 2 * QUESTIONS_A_NODE)
    postgres.kill()
    standby.execute("SELECT pg_promote()")
    check_whole(site, heard)
    upload_and_read(site)


SYNCHRONOUS = "SELECT sync_state FROM pg_stat_replication"
