"""Every class of error as problem+json, and as a page for people."""

import json
import logging
import select
from urllib.parse import urljoin

import pytest
from django.core import exceptions as django_errors
from django.db import (
    DataError,
    IntegrityError,
    InternalError,
    OperationalError,
    connection,
    transaction,
)
from django.http import Http404, UnreadablePostError
from django.test import RequestFactory
from django.utils import translation
from redis.exceptions import ConnectionError as RedisConnectionError
from rest_framework import exceptions as drf_errors

from chats.errors import NotFound
from nura import errors
from rag.errors import EmbedderFailed, LLMTimeout

requests = RequestFactory()

CASES = [
    (drf_errors.ParseError(), 400, "malformed"),
    (drf_errors.ValidationError({"content": ["bad"]}), 400, "invalid"),
    (django_errors.ValidationError({"name": ["bad"]}), 400, "invalid"),
    (django_errors.SuspiciousOperation(), 400, "malformed"),
    (DataError("out of range"), 400, "malformed"),
    (UnreadablePostError(), 400, "malformed"),
    (drf_errors.NotAuthenticated(), 401, "not_authenticated"),
    (drf_errors.AuthenticationFailed(), 401, "authentication_failed"),
    (drf_errors.PermissionDenied("CSRF Failed: no cookie"), 403, "csrf_failed"),
    (drf_errors.PermissionDenied(), 404, "not_found"),
    (django_errors.PermissionDenied(), 404, "not_found"),
    (drf_errors.NotFound(), 404, "not_found"),
    (Http404(), 404, "not_found"),
    (NotFound(), 404, "not_found"),
    (drf_errors.MethodNotAllowed("PUT"), 405, "method_not_allowed"),
    (drf_errors.NotAcceptable(), 406, "not_acceptable"),
    (IntegrityError("duplicate key"), 409, "conflict"),
    (django_errors.RequestDataTooBig(), 413, "too_large"),
    (drf_errors.UnsupportedMediaType("text/x"), 415, "unsupported_media_type"),
    (drf_errors.Throttled(wait=7.2), 429, "throttled"),
    (RuntimeError("secret path /etc"), 500, "internal"),
    (LLMTimeout(), 502, "llm_timeout"),
    (EmbedderFailed(), 503, "embedder_failed"),
    (OperationalError("pool"), 503, "unavailable"),
    (RedisConnectionError(), 503, "unavailable"),
]


@pytest.mark.parametrize(("error", "status", "code"), CASES)
@pytest.mark.parametrize("language", ["ko", "en"])
def test_an_error_has_its_status_code_and_sentence(error, status, code, language):
    with translation.override(language):
        response = errors.to_problem(error).to_response()
    body = json.loads(response.content)
    assert response.headers["Content-Type"] == "application/problem+json"
    assert (response.status_code, body["status"], body["code"]) == (status, status, code)
    assert body["type"] == "about:blank"
    for text in (body["title"], body["detail"]):
        assert text
        assert any("가" <= letter <= "힣" for letter in text) == (language == "ko")


def test_what_is_not_there_and_what_is_not_ones_own_have_one_body():
    bodies = {
        errors.to_problem(error).to_response().content
        for error in (Http404("a"), NotFound(), django_errors.PermissionDenied("b"))
    }
    assert len(bodies) == 1


def test_wrong_fields_are_listed():
    problem = errors.to_problem(drf_errors.ValidationError({"content": ["empty"]}))
    assert problem.to_json()["errors"] == {"content": ["empty"]}


def test_errors_without_a_field_have_a_name_too():
    problem = errors.to_problem(drf_errors.ValidationError(["empty"]))
    assert problem.to_json()["errors"] == {"non_field_errors": ["empty"]}


@pytest.mark.parametrize(
    ("error", "seconds"),
    [
        (drf_errors.Throttled(wait=7.2), "8"),
        (OperationalError(), str(errors.RETRY_AFTER_SECONDS)),
        (EmbedderFailed(), str(errors.RETRY_AFTER_SECONDS)),
    ],
)
def test_what_passes_says_when_to_come_back(error, seconds):
    assert errors.to_problem(error).to_response().headers["Retry-After"] == seconds


def test_an_unexpected_error_is_logged_by_its_number_and_tells_nothing(caplog):
    with caplog.at_level(logging.ERROR, "nura.errors"):
        body = errors.to_problem(RuntimeError("secret path /etc")).to_json()
    assert "secret" not in str(body)
    assert body["instance"].removeprefix("urn:uuid:") in caplog.text
    assert "secret path /etc" in caplog.text


def test_an_unknown_address_of_the_api_is_a_problem(client):
    response = client.get("/api/v1/nothing")
    assert response.status_code == 404
    assert response.json()["code"] == "not_found"


@pytest.mark.django_db
def test_an_id_that_is_none_is_404_like_any_other(client):
    made_up = client.get("/api/v1/nothing").content
    assert client.get("/api/v1/chats/not-a-uuid").content == made_up


def test_an_unknown_page_is_a_page(client):
    response = client.get("/nothing")
    assert response.status_code == 404
    assert "찾을 수 없음" in response.content.decode()


def test_an_unknown_page_speaks_english_when_chosen(client):
    client.cookies["django_language"] = "en"
    assert "Not found" in client.get("/nothing").content.decode()


@pytest.mark.parametrize(
    ("error", "status"), [(OperationalError(), 503), (RuntimeError("secret"), 500)]
)
def test_a_failing_page_is_told_in_words(error, status):
    def fail():
        raise error

    try:
        fail()
    except type(error):
        response = errors.server_error(requests.get("/"))
    assert response.status_code == status
    assert "secret" not in response.content.decode()
    assert ("Retry-After" in response.headers) == (status == 503)


@pytest.mark.django_db(transaction=True)
def test_a_transaction_that_stood_too_long_is_an_outage():
    def stand():
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute("SET LOCAL idle_in_transaction_session_timeout = '10ms'")
            select.select([connection.connection.pgconn.socket], [], [], 10)  # until it is ended
            cursor.execute("SELECT 1")

    with pytest.raises(InternalError) as ended:
        stand()
    assert errors.to_problem(ended.value).status == 503


@pytest.mark.django_db
class TestOverHttp:
    """The same through the whole stack, at `POST /auth/token`."""

    url = "/api/v1/auth/token"

    def post(self, client, body, content_type="application/json", **headers):
        return client.post(self.url, body, content_type=content_type, headers=headers)

    def test_broken_json_is_400(self, client):
        assert self.post(client, "{").json()["code"] == "malformed"

    def test_json_of_a_thousand_levels_is_400(self, client):
        assert self.post(client, "[" * 100_000).json()["code"] == "malformed"

    def test_json_that_is_not_utf8_is_400(self, client):
        assert self.post(client, b'{"username": "\xff"}').json()["code"] == "malformed"

    def test_a_list_instead_of_an_object_is_400(self, client):
        assert self.post(client, "[]").json()["code"] == "invalid"

    def test_a_nul_byte_is_400(self, client):
        answer = self.post(client, json.dumps({"username": "a\0", "password": "b"}))
        assert set(answer.json()["errors"]) == {"username"}

    def test_a_lone_surrogate_is_400(self, client):
        answer = self.post(client, '{"username": "\\ud800", "password": "b"}')
        assert set(answer.json()["errors"]) == {"username"}

    def test_another_content_type_is_415(self, client):
        assert self.post(client, "a=b", "text/plain").status_code == 415

    def test_a_body_over_the_limit_is_413(self, client, settings):
        settings.DATA_UPLOAD_MAX_MEMORY_SIZE = 100
        answer = self.post(client, json.dumps({"username": "a" * 200, "password": "b"}))
        assert (answer.status_code, answer.json()["code"]) == (413, "too_large")

    def test_another_method_is_405_and_names_the_right_ones(self, client):
        answer = client.put(self.url)
        assert (answer.status_code, answer.json()["code"]) == (405, "method_not_allowed")
        assert "POST" in answer.headers["Allow"]

    def test_another_format_is_406(self, client):
        assert self.post(client, "{}", Accept="image/png").status_code == 406

    def test_field_errors_are_korean_by_default(self, client):
        field_errors = self.post(client, "{}").json()["errors"]
        assert field_errors["username"] == ["필수 항목입니다."]

    def test_field_errors_are_english_on_request(self, client):
        answer = self.post(client, "{}", **{"Accept-Language": "en"})
        assert answer.json()["errors"]["username"] == ["This field is required."]


@pytest.mark.parametrize("page", ["documents", "settings/usage", "assistants"])
def test_a_page_is_found_with_a_trailing_slash(client, page):
    response = client.get(f"/{page}/?q=1")
    assert response.status_code == 302
    assert urljoin(f"/{page}/", response.url) == f"/{page}?q=1"


@pytest.mark.parametrize(
    "path",
    ["nothing", "settings/nothing/", "api/v1/documents/", "documents//", "documents" + "/" * 5000],
)
def test_no_other_path_is_found_by_its_slash(client, path):
    assert client.get(f"/{path}").status_code == 404
