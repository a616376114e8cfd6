import http.client
import json

import pytest
from django.test import override_settings

from tests.servers import asgi

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(scope="module")
def web():
    with asgi.running() as server:
        yield server


def post(web, path, body, headers):
    connection = http.client.HTTPConnection(web.host, timeout=20)
    try:
        connection.request(
            "POST", path, body, headers, encode_chunked="Transfer-Encoding" in headers
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


def test_an_upload_has_the_limit_of_uploads(web):
    with override_settings(MAX_UPLOAD_MB=1):
        status, problem = post(web, "/api/v1/documents", b"", {"Content-Length": str(5 * 2**20)})
    assert (status, problem["code"]) == (413, "too_large")
