"""Many files at once: owners take turns, and what is killed meanwhile loses and doubles nothing."""

import contextlib
import threading
from concurrent.futures import ThreadPoolExecutor

import psutil
import psycopg
import pytest

from tests.documents.parsers.test_ocr import needs_tesseract, scan
from tests.product.client import Client
from tests.support import wait_until

pytestmark = [pytest.mark.product, pytest.mark.timeout(900)]

FILES = {"sample": 100, "whole": 200}
LOADING = 240
"""Seconds: the first file waits for the model, which is loaded beside those of other products."""
SENTENCE = "해솔시는 통합돌봄 정보시스템을 구축하고 담당자를 둔다. "
SETTLED = """
    SELECT count(*) FILTER (WHERE status <> 'COMPLETED'),
           count(*) FILTER (WHERE chunk_count = 0 OR chunk_count <> (
               SELECT count(*) FROM documents_chunk c WHERE c.document_id = d.id)),
           count(*) FILTER (WHERE chunk_count <> (
               SELECT count(DISTINCT index) FROM documents_chunk c WHERE c.document_id = d.id)),
           count(*) FILTER (WHERE 1 <> (
               SELECT count(*) FROM documents_documentpage p WHERE p.document_id = d.id)),
           count(*) FILTER (WHERE claim IS NOT NULL OR lease_until IS NOT NULL)
      FROM documents_document d WHERE name LIKE 'many-%%'
"""


@pytest.fixture
def second(product):
    return Client(product.url, product.add_user("second"))


def make_small_file(number):
    """A Markdown or text file of a page or two."""
    heading = f"# {number}호 공고\n\n" if number % 2 else f"{number}호 공고\n\n"
    kind = "md" if number % 2 else "txt"
    return f"many-{number}.{kind}", (heading + SENTENCE * 40 + str(number)).encode()


def get_queue(client):
    status, body = client.call("GET", "/documents/queue")
    return body if status == 200 else None


def count_left(client):
    now = get_queue(client)
    return now and now["waiting"] + now["working"]


def count_settled(product):
    with psycopg.connect(**product.database) as connection:
        return connection.execute(SETTLED).fetchone()


def test_many_files_let_others_through_and_survive_every_kill(product, client, second, whole):
    files = FILES["whole" if whole else "sample"]
    with ThreadPoolExecutor(4) as pool:
        documents = list(
            pool.map(lambda number: client.upload(*make_small_file(number)), range(files))
        )
    assert len({document["id"] for document in documents}) == files

    other = second.upload("other.md", b"# Other\n\nOne short file.")
    path = f"/documents/{other['id']}"
    wait_until(lambda: second.call("GET", path)[1]["status"] == "COMPLETED", LOADING)
    assert count_left(client) > files // 10

    for victim in ("documents", "redis", "postgres"):
        before = count_left(client)
        assert before > 3  # it is killed at work
        product.find_process(victim).kill()
        wait_until(lambda: product.status("/readyz") == 200, 60)
        wait_until(lambda before=before: (count_left(client) or 0) <= max(0, before - 3), 120)
    wait_until(lambda: count_left(client) == 0, 400, step=0.5)
    failed = client.call("GET", "/documents?status=FAILED&q=many-")[1]["results"]
    assert [document["error"] for document in failed] == []
    assert count_settled(product) == (0, 0, 0, 0, 0)


@needs_tesseract
def test_scans_hold_no_text_up_and_survive_a_kill(product, client, second, tmp_path):
    first = upload_text(second, 0)  # what reads and embeds texts is loaded
    wait_until(lambda: is_read(second, first), LOADING)
    scans = []
    for number in range(2):
        pages = [
            f"Page {page} of scan {number}\n" + "The boiler is hot.\n" * 20
            for page in range(SCANNED_PAGES)
        ]
        path = scan(tmp_path / f"many-scan {number}.pdf", *pages)
        scans.append(f"/documents/{client.upload(path.name, path.read_bytes())['id']}")
    wait_until(lambda: count_pages(client, scans), LOADING)  # a scan is being recognised

    with suspend_recognition(product):
        texts = [upload_text(second, number) for number in range(1, 4)]
        wait_until(lambda: all(is_read(second, path) for path in texts), 60)
        assert not any(is_read(client, path) for path in scans)

    product.find_process("documents").kill()
    late = upload_text(second, 4)
    wait_until(lambda: is_read(second, late), 120)
    wait_until(lambda: all(is_read(client, path) for path in scans), 240, step=0.5)
    assert [client.call("GET", path)[1]["page_count"] for path in scans] == [SCANNED_PAGES] * 2
    with psycopg.connect(**product.database) as connection:
        found = connection.execute(PAGES_OF_SCANS).fetchall()
    assert found == [(SCANNED_PAGES, SCANNED_PAGES)] * 2


SCANNED_PAGES = 8
"""Of each of two scans."""
PAGES_OF_SCANS = """
    SELECT count(*), count(*) FILTER (WHERE text LIKE '%%boiler is hot%%')
      FROM documents_documentpage p JOIN documents_document d ON d.id = p.document_id
     WHERE d.name LIKE 'many-scan%%' GROUP BY d.id
"""


@contextlib.contextmanager
def suspend_recognition(product):
    """No page is recognised meanwhile, however fast or slow the machine is."""
    held, over = [], threading.Event()

    def hold():
        while not over.is_set():
            with contextlib.suppress(psutil.NoSuchProcess):
                for process in product.find_process("documents").children(recursive=True):
                    if process.name() == "tesseract" and process not in held:
                        process.suspend()
                        held.append(process)
            over.wait(0.05)

    with ThreadPoolExecutor(1) as pool:
        holding = pool.submit(hold)
        try:
            wait_until(lambda: held)
            yield
        finally:
            over.set()
            holding.result()
            for process in held:
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.resume()


def upload_text(client, number):
    return f"/documents/{client.upload(f'beside {number}.md', f'# Short {number}'.encode())['id']}"


def is_read(client, path):
    return client.call("GET", path)[1]["status"] == "COMPLETED"


def count_pages(client, paths):
    return sum(client.call("GET", path)[1]["pages_done"] for path in paths)


def test_a_document_is_found_while_it_is_read_again(product, client):
    text = "\n\n".join(f"부엉이 관측소 {n}호는 해솔시에 있다. " * 8 for n in range(300))
    document = client.upload("owls.txt", text.encode())
    path = f"/documents/{document['id']}"
    wait_until(lambda: client.call("GET", path)[1]["indexed"], LOADING)
    documents = product.find_process("documents")
    documents.suspend()  # it could be read before the pause is asked for
    try:
        assert client.call("POST", f"{path}/reprocess")[0] == 202
        assert client.call("POST", f"{path}/pause")[0] == 202
    finally:
        documents.resume()
    wish = {"query": "부엉이 관측소는 어디에 있나?", "document_ids": [document["id"]]}
    status, answer = client.call("POST", "/search", wish)
    assert (status, bool(answer["hits"])) == (200, True)
    assert client.call("POST", f"{path}/resume")[0] == 202
    wait_until(lambda: client.call("GET", path)[1]["status"] == "COMPLETED", 60)
