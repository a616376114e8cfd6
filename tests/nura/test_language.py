"""Which language a request speaks."""

from datetime import UTC, datetime

import pytest
from django.test import RequestFactory
from django.utils import translation
from django.utils.formats import date_format

from nura.middleware import choose_language, choose_zone

requests = RequestFactory()


@pytest.mark.parametrize("accepted", ["", "en-US,en;q=0.9", "fr", "*", ";;;q=x"])
def test_a_page_is_korean_whatever_the_browser_says(accepted):
    assert choose_language(requests.get("/", headers={"Accept-Language": accepted})) == "ko"


def test_a_page_is_in_the_language_chosen_in_it():
    request = requests.get("/")
    request.COOKIES["django_language"] = "en"
    assert choose_language(request) == "en"


def test_an_unknown_chosen_language_is_the_default():
    request = requests.get("/")
    request.COOKIES["django_language"] = "xx"
    assert choose_language(request) == "ko"


@pytest.mark.parametrize(
    ("accepted", "language"),
    [
        ("en-US,en;q=0.9,ko;q=0.8", "en"),
        ("ko-KR", "ko"),
        ("fr;q=0.9,en;q=0.2", "en"),
        ("fr", "ko"),
        ("", "ko"),
        ("*", "ko"),
    ],
)
@pytest.mark.parametrize("path", ["/api/v1/me", "/v1/models", "/ws/chat/"])
def test_a_program_gets_the_language_it_accepts(path, accepted, language):
    assert choose_language(requests.get(path, headers={"Accept-Language": accepted})) == language


@pytest.mark.django_db
def test_the_default_language_is_a_setting(settings):
    settings.LANGUAGE_CODE = "en"
    assert choose_language(requests.get("/")) == "en"


@pytest.mark.django_db
def test_choosing_a_language_in_the_page_is_remembered(client):
    client.post("/i18n/setlang/", {"language": "en", "next": "/accounts/login/"})
    assert client.get("/accounts/login/").headers["Content-Language"] == "en"


@pytest.mark.django_db
def test_one_request_leaves_no_language_to_the_next(client):
    answer = client.get("/api/v1/me", headers={"Accept-Language": "en"})
    assert answer.headers["Content-Language"] == "en"
    assert client.get("/api/v1/me").headers["Content-Language"] == "ko"
    translation.deactivate()


@pytest.mark.parametrize("told", ["", "Mars/Olympus", "../../etc/passwd", "/etc/passwd", "Asia"])
def test_a_zone_that_is_not_known_is_the_servers(told):
    request = requests.get("/")
    request.COOKIES["zone"] = told
    assert choose_zone(request) is None


def test_times_are_written_as_the_browser_writes_them():
    moment = datetime(2026, 11, 28, 13, 28, tzinfo=UTC)
    with translation.override("ko"):
        assert date_format(moment, "DATETIME_FORMAT") == "2026년 11월 28일 오후 1:28"
        assert date_format(moment, "SHORT_DATETIME_FORMAT") == "2026. 11. 28. 오후 1:28"
        assert date_format(moment, "TIME_FORMAT") == "오후 1:28"
    with translation.override("en"):
        assert date_format(moment, "DATETIME_FORMAT") == "November 28, 2026 at 1:28 PM"
        assert date_format(moment, "SHORT_DATETIME_FORMAT") == "Nov 28, 2026, 1:28 PM"
