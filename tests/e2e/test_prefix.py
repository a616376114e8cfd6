"""The product below a path of its host (NURA_URL_PREFIX): no page, script or file leaves it.

Each window is watched for requests outside the product's address (`tests/e2e/watching.py`). It is
the one product of the browser tests with a light model, too.
"""

import http.client
import json
import re

import pytest
from playwright.sync_api import expect

from tests.e2e.chat import answer, ask
from tests.e2e.conftest import MANUAL, NOTICE, SAMPLES
from tests.e2e.people import Person
from tests.servers.llm import Stream
from tests.support import Product

PREFIX = "/nura"


class PrefixedProduct(Product):
    """Its address ends with the prefix."""

    def __init__(self, **environment: str) -> None:
        super().__init__(NURA_URL_PREFIX=PREFIX, **environment)
        self.url += PREFIX


@pytest.fixture(scope="module")
def product_below(llm, small_models):
    models = {"NURA_LLM_MODEL": "main", "NURA_LIGHT_LLM_MODEL": "light"}
    with PrefixedProduct(NURA_LLM_BASE_URL=llm.url, **models, **small_models) as running:
        yield running


@pytest.fixture(scope="module")
def reader_below(product_below):
    person = Person(product_below, "reader")
    person.upload(SAMPLES / "care-system-notice.pdf", NOTICE)
    person.wait_for_documents()
    return person


def get(product, path, **headers):
    connection = http.client.HTTPConnection("127.0.0.1", product.port, timeout=10)
    connection.request("GET", path, headers=headers)
    response = connection.getresponse()
    body = response.read()
    connection.close()
    return response, body


def test_a_question_its_source_and_the_documents_stay_below_the_prefix(windows, reader_below, llm):
    llm.default = Stream(["사업의 예산은 문서에 있습니다. [1]"])
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


def test_what_the_light_model_sees_coming_is_offered_a_moment_after_the_answer(
    windows, product_below, llm
):
    next_one = "청소는 얼마나 자주 하나요?"

    def reply(request):
        if request["model"] == "main":
            return Stream(
                ["필터는 6개월마다 교체합니다. [1]", "\n\n| 필터 | 개월 |\n|---|---|\n| 헤파 | 6 |"]
            )
        wanted = "이어서 물을" in request["messages"][0]["content"]
        return Stream([json.dumps({"questions": [next_one] if wanted else []})])

    llm.default = reply
    person = Person(product_below, "curious")
    person.upload(SAMPLES / "ventilator-manual.md", MANUAL)
    person.wait_for_documents()
    page = windows(person)
    page.goto(f"{product_below.url}/")
    ask(page, "헤파 필터는 언제 교체하나요?")
    expect(answer(page).locator(".followup")).to_have_text([next_one])
    expect(answer(page).locator(".prose table")).to_have_count(1)
    page.reload()
    expect(answer(page).locator(".followup")).to_have_text([next_one])
