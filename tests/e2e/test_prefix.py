"""The product below a path of its host (NURA_URL_PREFIX): no page, script or file leaves it.

Each window is watched for requests outside the product's address (`tests/e2e/watching.py`).
"""

import http.client
import json
import re

import pytest
from playwright.sync_api import expect

from tests.e2e.chat import answer, ask
from tests.e2e.conftest import NOTICE, SAMPLES
from tests.e2e.people import Person
from tests.support import Product

PREFIX = "/nura"


class PrefixedProduct(Product):
    """Its address ends with the prefix."""

    def __init__(self, **environment: str) -> None:
        super().__init__(NURA_URL_PREFIX=PREFIX, **environment)
        self.url += PREFIX


@pytest.fixture(scope="module")
def reader_below(small_models):
    with PrefixedProduct(**small_models) as product:
        person = Person(product, "reader")
        person.upload(SAMPLES / "care-system-notice.pdf", NOTICE)
        person.wait_for_documents()
        yield person


def get(product, path, **headers):
    connection = http.client.HTTPConnection("127.0.0.1", product.port, timeout=10)
    connection.request("GET", path, headers=headers)
    response = connection.getresponse()
    body = response.read()
    connection.close()
    return response, body


def test_a_question_its_source_and_the_documents_stay_below_the_prefix(windows, reader_below):
    home = reader_below.product.url
    page = windows(reader_below)
    page.goto(f"{home}/")
    ask(page, "통합돌봄 정보시스템 사업의 예산은 얼마인가요?")
    answer(page)
    expect(page).to_have_url(re.compile(f"^{home}/c/"))
    page.reload()
    answer(page).get_by_role("button", name=NOTICE).first.click()
    page.goto(f"{home}/documents")
    page.get_by_role("link", name=NOTICE).first.click()
    expect(page).to_have_url(re.compile(f"^{home}/documents/"))
    page.goto(f"{home}/settings/keys")
    page.locator("a.brand").click()
    expect(page).to_have_url(f"{home}/")


def test_the_proxy_may_cut_the_prefix_off_or_leave_it(reader_below):
    for path in (f"{PREFIX}/api/v1/me", "/api/v1/me"):
        response, body = get(reader_below.product, path, Authorization=f"Token {reader_below.key}")
        assert (response.status, json.loads(body)["username"]) == (200, "reader")
    assert get(reader_below.product, "/readyz")[0].status == 200
    assert get(reader_below.product, f"{PREFIX}ly/api/v1/me")[0].status == 404


def test_redirects_cookies_and_errors_know_the_prefix(reader_below):
    product = reader_below.product
    response, _ = get(product, PREFIX)
    assert (response.status, response.headers["Location"]) == (301, f"{PREFIX}/")
    response, _ = get(product, f"{PREFIX}/")
    assert response.headers["Location"].startswith(f"{PREFIX}/accounts/login/")
    response, body = get(product, f"{PREFIX}/accounts/login/")
    assert f"Path={PREFIX}/" in response.headers["Set-Cookie"]
    assert f'"{PREFIX}/static/' in body.decode()
    response, body = get(product, f"{PREFIX}/v1/models")
    assert json.loads(body)["error"]["code"]
    response, body = get(product, f"{PREFIX}/api/v1/chats")
    assert json.loads(body)["status"] == 401
