import http.client
import json
import re
import uuid

import psutil
import pytest
from django.contrib.auth.models import User
from drf_spectacular.generators import SchemaGenerator
from knox.models import AuthToken

from documents.models import Document
from nura.asgi import BodyLimit
from nura.limits import BEGUN, CALLER, Caller
from tests.servers import asgi

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(scope="module")
def web():
    with asgi.run_server() as server:
        yield server


MEGABYTE = 2**20


def post(web, path, body, headers, method="POST"):
    connection = http.client.HTTPConnection(web.host, timeout=60)
    try:
        connection.request(
            method, path, body, headers, encode_chunked="Transfer-Encoding" in headers
        )
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read())
    finally:
        connection.close()


def test_a_body_declared_too_large_is_refused_before_it_comes(web):
    status, problem = post(web, "/api/v1/messages", b"", {"Content-Length": str(10**12)})
    assert (status, problem["code"]) == (413, "too_large")


def test_a_body_without_a_declared_length_is_counted(web):
    pieces = (b"x" * 65536 for _ in range(200))
    status, problem = post(web, "/api/v1/messages", pieces, {"Transfer-Encoding": "chunked"})
    assert (status, problem["code"]) == (413, "too_large")


def list_routes():
    """(path, method, whether it takes a form) of every call in the schema that takes a body."""
    for path, calls in SchemaGenerator().get_schema(public=True)["paths"].items():
        for method, call in calls.items():
            if method in {"post", "put", "patch"}:
                told = call.get("requestBody", {}).get("content", {})
                yield (
                    re.sub(r"\{\w+\}", str(uuid.uuid4()), path),
                    method,
                    "multipart/form-data" in told,
                )


async def lets_through(path, method, size):
    """Whether a body of this declared size reaches the application."""
    reached, sent = [], []

    async def application(scope, receive, send):
        reached.append(scope)

    async def send(message):
        sent.append(message)

    headers = [(b"content-length", str(size).encode())]
    scope = {"type": "http", "path": path, "method": method.upper(), "headers": headers}
    scope |= {BEGUN: 0.0, CALLER: Caller("192.0.2.9")}
    await BodyLimit(application)(scope, None, send)
    assert reached or sent[0]["status"] == 413
    return bool(reached)


async def test_every_upload_of_the_schema_and_nothing_else_has_the_limit_of_uploads(settings):
    settings.MAX_UPLOAD_MB = 20
    found = {True: set(), False: set()}
    for path, method, form in list_routes():
        found[form].add((path, method))
        limit = 21 if form else 3
        assert await lets_through(path, method, limit * MEGABYTE), (method, path)
        assert not await lets_through(path, method, limit * MEGABYTE + 1), (method, path)
    assert len(found[True]) >= 2
    assert len(found[False]) > 10


@pytest.fixture
def owner(transactional_db):
    return User.objects.create_user("owner", "owner@example.com", "pw")


def make_form(size):
    """A form with one file of so many bytes: its length, and its pieces one by one."""
    head = (
        b'--x\r\nContent-Disposition: form-data; name="file"; filename="a.txt"\r\n'
        b"Content-Type: text/plain\r\n\r\n"
    )
    tail = b"\r\n--x--\r\n"
    piece = "가나다라 마바사.\n".encode() * 1000
    count = size // len(piece)

    def pieces():
        yield head
        for _ in range(count):
            yield piece
        yield tail

    return len(head) + len(tail) + count * len(piece), pieces()


def test_large_files_come_in_by_every_upload_and_memory_stays_flat(web, owner, settings, tmp_path):
    settings.MEDIA_ROOT, settings.DATA_DIR = tmp_path / "files", tmp_path
    key = AuthToken.objects.create(owner)[1]
    here = psutil.Process()
    document = None
    for method, path, done in (("POST", "/api/v1/documents", 201), ("PUT", "", 202)):
        length, body = make_form((50 if method == "PUT" else 40) * MEGABYTE)
        before = here.memory_info().rss
        status, document = post(
            web,
            path or f"/api/v1/documents/{document['id']}/file",
            body,
            {
                "Authorization": f"Token {key}",
                "Content-Length": str(length),
                "Content-Type": "multipart/form-data; boundary=x",
            },
            method,
        )
        assert status == done, document
        assert here.memory_info().rss - before < 20 * MEGABYTE
    assert Document.objects.count() == 1
