"""The product on a primary and a replica that streams from it, both servers of our own."""

import re
import threading
import urllib.request

import pytest

from tests.product.client import Client
from tests.servers.postgres import PostgresServer
from tests.support import ROOT, Product, wait_until

pytestmark = [
    pytest.mark.product,
    pytest.mark.timeout(300),
]
RULES = "# 여비 규정\n\n숙박비는 하루 8만 원까지 실비로 지급한다.\n"
LENDING = "# 대출 규정\n\n책은 한 번에 다섯 권까지 두 주 동안 빌릴 수 있다.\n"


@pytest.fixture(scope="module")
def primary(tmp_path_factory):
    server = PostgresServer.create_migrated(tmp_path_factory.mktemp("primary"))
    yield server
    server.close()


@pytest.fixture(scope="module")
def replica(primary, tmp_path_factory):
    server = primary.clone(tmp_path_factory.mktemp("replica"))
    yield server
    server.close()


@pytest.fixture(scope="module")
def product(primary, replica, small_models, tmp_path_factory):
    shared = {"DATABASE_URL": primary.url, "DATABASE_REPLICA_URL": replica.url}
    folder = tmp_path_factory.mktemp("product") / "var"
    with Product(folder, **shared, **small_models) as running:
        yield running


@pytest.fixture(scope="module")
def staff(product):
    return product.add_user("keeper", staff=True)


@pytest.fixture(scope="module")
def client(product):
    return Client(product.url, product.add_user("traveller"))


@pytest.fixture(scope="module")
def reader(product):
    return Client(product.url, product.add_user("reader"))


@pytest.fixture(scope="module")
def rules(client):
    """A document of the traveller's that every test can count on."""
    return upload(client, "여비.md", RULES)


@pytest.fixture
def counts(product, staff, reader):
    """Reads so far by where they went."""

    def read():
        # what a process has counted it tells with its next read
        reader.call("GET", "/chats")
        reader.call("POST", "/search", {"query": "규정"})
        request = urllib.request.Request(f"{product.url}/metrics")
        request.add_header("Authorization", f"Token {staff}")
        with urllib.request.urlopen(request) as answer:
            text = answer.read().decode()
        found = re.findall(r'nura_replica_reads_total\{result="(\w+)"\} (\S+)', text)
        return {kind: float(count) for kind, count in found}

    return read


def await_replay(primary, replica):
    """Until the replica shows all that was written so far."""
    position = primary.execute("SELECT pg_current_wal_insert_lsn()")
    statement = f"SELECT pg_last_wal_replay_lsn() >= '{position}'"
    wait_until(lambda: replica.execute(statement), 30)


def upload(client, name, text):
    document = client.upload(name, text.encode())
    wait_until(lambda: get(client, f"/documents/{document['id']}")["status"] == "COMPLETED", 60)
    return document


def get(client, path):
    status, body = client.call("GET", path)
    assert status == 200, body
    return body


def list_names(client):
    return [one["name"] for one in get(client, "/documents")["results"]]


def search(client, query):
    """Names of the documents found."""
    status, body = client.call("POST", "/search", {"query": query})
    assert status == 200, body
    return {hit["document_name"] for hit in body["hits"]}


def test_after_a_start_what_searches_read_is_read_in_on_both_servers(product):
    wait_until(lambda: product.log.count("buffers_filled") == 2, 60)
    assert "buffers_not_filled" not in product.log


@pytest.mark.usefixtures("rules")
def test_searches_and_lists_are_read_from_the_replica(client, primary, replica, counts):
    await_replay(primary, replica)
    before = counts().get("replica", 0)
    assert "여비.md" in list_names(client)
    assert search(client, "숙박비는 하루 얼마까지야?") == {"여비.md"}
    assert counts()["replica"] >= before + 2


@pytest.fixture(params=["paused", "delayed"])
def late(request, replica):
    """A replica that is behind, in one of two ways."""
    begin, end = {
        "paused": (["SELECT pg_wal_replay_pause()"], ["SELECT pg_wal_replay_resume()"]),
        "delayed": (
            ["ALTER SYSTEM SET recovery_min_apply_delay = '1h'", "SELECT pg_reload_conf()"],
            ["ALTER SYSTEM RESET recovery_min_apply_delay", "SELECT pg_reload_conf()"],
        ),
    }[request.param]
    for statement in begin:
        replica.execute(statement)
    wait_until(lambda: request.param == "delayed" or replica.execute(PAUSED) == "paused", 10)
    yield request.param
    for statement in end:
        replica.execute(statement)


PAUSED = "SELECT pg_get_wal_replay_pause_state()"


def test_what_somebody_wrote_he_finds_while_the_replica_is_behind(client, late, counts):
    name = f"대출-{late}.md"
    before = counts().get("behind", 0)
    document = upload(client, name, f"{LENDING}\n{late}\n")
    assert name in list_names(client)
    assert name in search(client, "책은 몇 권까지 빌려?")
    renamed = f"도서-{late}.md"
    assert client.call("PATCH", f"/documents/{document['id']}", {"name": renamed})[0] == 200
    assert list_names(client)[0] == renamed
    assert client.call("DELETE", f"/documents/{document['id']}")[0] == 204
    assert renamed not in list_names(client)
    assert renamed not in search(client, "책은 몇 권까지 빌려?")
    assert counts()["behind"] > before


def test_a_right_that_ended_is_not_read_from_a_replica_that_is_behind(
    product, client, reader, primary, replica, counts
):
    _, library = client.call("POST", "/libraries", {"name": "함께 읽는 것"})
    place = f"/libraries/{library['id']}"
    _, member = client.call("POST", f"{place}/members", {"user": "reader", "role": "reader"})
    document = upload(client, "비밀 절차.md", "# 절차\n\n금고는 두 사람이 함께 연다.\n")
    moved = {"library_id": library["id"]}
    assert client.call("PATCH", f"/documents/{document['id']}", moved)[0] == 200
    assert list_names(reader) == ["비밀 절차.md"]
    await_replay(primary, replica)
    replica.execute("SELECT pg_wal_replay_pause()")
    wait_until(lambda: replica.execute(PAUSED) == "paused", 10)
    try:
        assert search(reader, "금고는 몇 사람이 열어?") == {"비밀 절차.md"}
        before = counts()["replica"]
        assert client.call("DELETE", f"{place}/members/{member['id']}")[0] == 204
        assert list_names(reader) == []
        assert search(reader, "금고는 몇 사람이 열어?") == set()
        assert reader.call("GET", f"/documents/{document['id']}")[0] == 404
        assert counts()["replica"] > before  # it was asked all the same
    finally:
        replica.execute("SELECT pg_wal_replay_resume()")


@pytest.mark.usefixtures("rules")
def test_a_replica_that_is_killed_under_its_readers_is_no_error(client, primary, replica, counts):
    failed, stop = [], threading.Event()

    def go_on():
        while not stop.is_set():
            for method, path, body in (
                ("GET", "/documents", None),
                ("GET", "/chats", None),
                ("POST", "/search", {"query": "숙박비"}),
            ):
                status, answer = client.call(method, path, body)
                if status != 200:
                    failed.append((path, status, answer))

    await_replay(primary, replica)
    before = counts()["replica"]
    readers = [threading.Thread(target=go_on) for _ in range(3)]
    for thread in readers:
        thread.start()
    try:
        wait_until(lambda: counts()["replica"] > before + 10, 60)
        replica.kill()
        wait_until(lambda: counts().get("away", 0) > 10, 60)
        assert "여비.md" in list_names(client)
        replica.start()
        before = counts()["replica"]
        wait_until(lambda: counts()["replica"] > before + 10, 60)
    finally:
        stop.set()
        for thread in readers:
            thread.join()
    assert failed == []


def test_the_alerts_ask_for_what_is_told_of_the_replica(product, staff):
    request = urllib.request.Request(f"{product.url}/metrics")
    request.add_header("Authorization", f"Token {staff}")
    with urllib.request.urlopen(request) as answer:
        given = set(re.findall(r"# TYPE (\S+)", answer.read().decode()))
    files = [path.read_text(encoding="utf-8") for path in (ROOT / "deploy/monitoring").iterdir()]
    names = set(re.findall(r"\bnura_replica_\w+", " ".join(files)))
    assert len(names) == 3
    assert names <= given


def test_doctor_says_how_far_the_replica_is(product):
    said = product.call("doctor", check=False).stdout
    assert re.search(r"ok +replica +DATABASE_REPLICA_URL: \d+\.\d MB behind", said), said


def test_a_replica_that_was_promoted_is_not_read_any_more(client, product, replica, counts):
    replica.execute("SELECT pg_promote()")
    before = counts().get("promoted", 0)
    upload(client, "새 규정.md", "# 새 규정\n\n회의는 한 시간을 넘지 않는다.\n")
    assert "새 규정.md" in list_names(client)
    assert search(client, "회의는 얼마나 길어도 돼?") == {"새 규정.md"}
    # what has just been written may be the reason to read elsewhere for a moment
    wait_until(lambda: list_names(client) and counts().get("promoted", 0) > before)
    said = product.call("doctor", check=False).stdout
    assert "it follows nobody (promoted?)" in said
