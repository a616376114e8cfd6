"""Wrong passwords: whom they lock out, for how long, and that they tell nothing."""

import re
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from django.conf import settings as django_settings
from django.contrib.auth.hashers import MD5PasswordHasher
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client
from redis.lock import Lock

from nura.accounts import adapter
from tests.nura.accounts.conftest import PASSWORD

pytestmark = pytest.mark.django_db

LOCKED_AFTER, LOCKED_SECONDS = 5, 300
FLOOD, FEW = 100, 10


def sign_in_by_token(name, password, **extra):
    body = {"username": name, "password": password}
    return Client().post("/api/v1/auth/token", body, content_type="application/json", **extra)


def sign_in_by_page(name, password, **extra):
    return Client().post("/accounts/login/", {"login": name, "password": password}, **extra)


def sign_in_by_administration(name, password, **extra):
    """As a browser goes: the administration sends to the sign-in page."""
    sent_on = Client().post("/admin/login/?next=/admin/", **extra)
    return Client().post(sent_on.url, {"login": name, "password": password}, **extra)


WAYS = [sign_in_by_token, sign_in_by_page, sign_in_by_administration]
RIGHT = {sign_in_by_token: 200, sign_in_by_page: 302, sign_in_by_administration: 302}
WRONG = {sign_in_by_token: 401, sign_in_by_page: 200, sign_in_by_administration: 200}
every_way = pytest.mark.parametrize("sign_in", WAYS, ids=lambda way: way.__name__)


def read_retry_after(answer):
    assert answer.status_code == 429
    return int(answer.headers["Retry-After"])


def fail(sign_in, names):
    return [sign_in(name, "wrong") for name in names]


@every_way
def test_made_up_names_lock_nobody(minsu, sign_in):
    answers = fail(sign_in, [f"name{number}" for number in range(40)])
    assert {answer.status_code for answer in answers} == {WRONG[sign_in]}
    assert sign_in("minsu", PASSWORD).status_code == RIGHT[sign_in]


@every_way
@pytest.mark.parametrize("name", ["minsu", "nobody"])
def test_wrong_passwords_lock_the_name_for_the_address_alone(minsu, stranger, sign_in, name):
    answers = fail(sign_in, [name] * 20)
    codes = [answer.status_code for answer in answers]
    assert codes == [WRONG[sign_in]] * LOCKED_AFTER + [429] * (20 - LOCKED_AFTER)
    read_retry_after(sign_in(name, PASSWORD))
    assert sign_in("stranger", PASSWORD).status_code == RIGHT[sign_in]
    elsewhere = sign_in(name, PASSWORD, REMOTE_ADDR="10.1.1.1")
    assert elsewhere.status_code == (RIGHT if name == "minsu" else WRONG)[sign_in]


@every_way
def test_the_time_to_wait_is_the_time_that_is_left(minsu, monkeypatch, sign_in):
    start, passed = time.time(), 0.0
    monkeypatch.setattr(time, "time", lambda: start + passed)
    for number in range(LOCKED_AFTER):
        passed = number * 10.0
        sign_in("minsu", "wrong")
    passed = 50.0
    assert read_retry_after(sign_in("minsu", PASSWORD)) == LOCKED_SECONDS - 50
    passed = LOCKED_SECONDS - 0.5
    assert read_retry_after(sign_in("minsu", PASSWORD)) == 1
    passed = LOCKED_SECONDS + 0.0
    assert sign_in("minsu", PASSWORD).status_code == RIGHT[sign_in]


def test_all_ways_count_together(minsu):
    for way in (
        sign_in_by_token,
        sign_in_by_page,
        sign_in_by_administration,
        sign_in_by_token,
        sign_in_by_page,
    ):
        way("minsu", "wrong")
    for way in WAYS:
        read_retry_after(way("minsu", PASSWORD))


@pytest.mark.parametrize("variant", ["MINSU", " minsu ", "ｍｉｎｓｕ"])
def test_another_spelling_of_a_name_is_the_same_name(minsu, variant):
    fail(sign_in_by_token, ["minsu"] * LOCKED_AFTER)
    read_retry_after(sign_in_by_token(variant, PASSWORD))


def test_forged_headers_do_not_reset_the_count(minsu):
    for number in range(LOCKED_AFTER):
        forged = {"X-Forwarded-For": f"10.0.0.{number}", "Host": f"localhost:{number + 1}"}
        assert sign_in_by_token("minsu", "wrong", headers=forged).status_code == 401
    read_retry_after(sign_in_by_token("minsu", PASSWORD))


def test_behind_a_proxy_that_is_trusted_addresses_count_apart(minsu, monkeypatch, settings):
    settings.ALLAUTH_TRUSTED_PROXY_COUNT = 1
    for _ in range(LOCKED_AFTER + 1):
        answer = sign_in_by_token(
            "minsu", "wrong", headers={"X-Forwarded-For": "1.1.1.1, 10.0.0.1"}
        )
    read_retry_after(answer)
    other = sign_in_by_token("minsu", PASSWORD, headers={"X-Forwarded-For": "1.1.1.1, 10.0.0.2"})
    assert other.status_code == 200


def test_a_right_password_counts_for_nothing(minsu):
    for _ in range(LOCKED_AFTER * 2):
        assert sign_in_by_token("minsu", PASSWORD).status_code == 200
    fail(sign_in_by_token, ["minsu"] * (LOCKED_AFTER - 1))
    assert sign_in_by_token("minsu", PASSWORD).status_code == 200
    assert sign_in_by_token("minsu", "wrong").status_code == 401
    read_retry_after(sign_in_by_token("minsu", PASSWORD))


def make_browser(name, **extra):
    """A browser in which somebody has signed in and out again."""
    browser = Client(**extra)
    browser.post("/accounts/login/", {"login": name, "password": PASSWORD})
    browser.post("/accounts/logout/")
    return browser


def sign_in_with(browser, name, password):
    return browser.post("/accounts/login/", {"login": name, "password": password})


@pytest.mark.parametrize("name", ["minsu", "minsu@example.com"])
def test_guesses_of_a_neighbour_do_not_lock_out_a_browser_that_is_known(minsu, name):
    known, new = make_browser("minsu"), Client()
    fail(sign_in_by_page, [name] * 20)
    read_retry_after(sign_in_with(new, name, PASSWORD))
    assert sign_in_with(known, name, PASSWORD).status_code == 302


def test_a_known_browser_that_guesses_locks_out_itself_alone(minsu):
    known, other = make_browser("minsu"), make_browser("minsu")
    codes = [sign_in_with(known, "minsu", "wrong").status_code for _ in range(7)]
    assert codes == [200] * LOCKED_AFTER + [429] * 2
    read_retry_after(sign_in_with(known, "minsu", PASSWORD))
    assert sign_in_with(other, "minsu", PASSWORD).status_code == 302
    assert sign_in_by_page("minsu", PASSWORD).status_code == 302


def test_a_browser_is_known_for_the_names_of_those_who_signed_in_alone(minsu, stranger):
    browser = make_browser("stranger")
    fail(sign_in_by_page, ["minsu"] * LOCKED_AFTER)
    read_retry_after(sign_in_with(browser, "minsu", PASSWORD))
    browser.cookies[adapter.DEVICE_COOKIE] = "a.b:c:d"
    read_retry_after(sign_in_with(browser, "minsu", PASSWORD))
    assert sign_in_with(browser, "stranger", PASSWORD).status_code == 302


def test_the_cookie_of_a_browser_names_nobody(minsu):
    cookie = make_browser("minsu").cookies[adapter.DEVICE_COOKIE]
    assert "minsu" not in cookie.value
    assert cookie["httponly"]


def test_who_goes_on_guessing_waits_for_minutes_then_for_an_hour_then_for_a_day(minsu, monkeypatch):
    start, passed = time.time(), 0.0
    monkeypatch.setattr(time, "time", lambda: start + passed)
    waits = []
    while len(waits) < 4:
        if sign_in_by_token("minsu", "wrong").status_code == 429:
            waits.append(read_retry_after(sign_in_by_token("minsu", PASSWORD)))
            passed += waits[-1]
    assert waits == [300, 3300, 300, 24 * 3600 - 3900]
    assert sign_in_by_token("minsu", PASSWORD).status_code == 200


def test_a_name_that_is_guessed_from_everywhere_has_one_try_at_each_address(minsu):
    known = make_browser("minsu")
    for number in range(FLOOD):
        sign_in_by_token("minsu", "wrong", REMOTE_ADDR=f"10.2.0.{number}")
    read_retry_after(sign_in_by_token("minsu", "wrong", REMOTE_ADDR="10.3.0.1"))
    read_retry_after(sign_in_by_token("minsu", PASSWORD, REMOTE_ADDR="10.3.0.1"))
    assert sign_in_by_token("minsu", PASSWORD, REMOTE_ADDR="10.3.0.2").status_code == 200
    assert sign_in_with(known, "minsu", PASSWORD).status_code == 302


@pytest.fixture
def flood(minsu, monkeypatch):
    """So many wrong passwords from our address that it is slowed down: fewer than the product's."""
    rates = {**django_settings.ACCOUNT_RATE_LIMITS, "login_flood": f"{FEW}/5m/ip"}
    monkeypatch.setattr(django_settings, "ACCOUNT_RATE_LIMITS", rates)
    fail(sign_in_by_token, [f"name{number}" for number in range(FEW)])


def test_an_address_is_slowed_down_after_a_hundred_wrong_passwords(minsu):
    fail(sign_in_by_token, [f"name{number}" for number in range(FLOOD - 1)])
    assert sign_in_by_token("minsu", "wrong").status_code == 401
    read_retry_after(sign_in_by_token("minsu", "wrong"))


@every_way
def test_in_a_flood_the_right_password_of_who_has_not_failed_is_taken(flood, sign_in):
    fail(sign_in_by_token, [f"more{number}" for number in range(30)])
    assert sign_in("minsu", PASSWORD).status_code == RIGHT[sign_in]


@every_way
@pytest.mark.parametrize("name", ["minsu", "nobody"])
def test_in_a_flood_each_name_has_one_try_and_is_told_the_same(flood, sign_in, name):
    waits = [read_retry_after(sign_in(name, password)) for password in ("wrong", "wrong", PASSWORD)]
    assert all(LOCKED_SECONDS - 60 < seconds <= LOCKED_SECONDS for seconds in waits)


def test_a_flood_ends_with_its_window(flood, monkeypatch):
    sign_in_by_token("minsu", "wrong")
    seconds = read_retry_after(sign_in_by_token("minsu", PASSWORD))
    start = time.time()
    monkeypatch.setattr(time, "time", lambda: start + seconds)
    assert sign_in_by_token("minsu", PASSWORD).status_code == 200


@pytest.mark.django_db(transaction=True)
def test_passwords_of_a_flood_are_checked_one_after_the_other(flood, monkeypatch):
    together = threading.Barrier(2)
    check, met = User.check_password, []

    def watched(user, password):
        try:  # nobody comes while one checks
            met.append(together.wait(0.1))
        except threading.BrokenBarrierError:
            together.reset()
        return check(user, password)

    def ask(_):
        try:
            return sign_in_by_token("minsu", PASSWORD).status_code
        finally:
            connection.close()

    monkeypatch.setattr(User, "check_password", watched)
    with ThreadPoolExecutor(4) as pool:
        codes = list(pool.map(ask, range(4)))
    assert 200 in codes
    assert not met


def test_a_turn_that_does_not_come_is_told_to_wait(flood, monkeypatch):
    monkeypatch.setattr(adapter, "MAX_TURN_WAIT_SECONDS", 0.2)
    with adapter.connections.get_client().lock("nura:sign-in:127.0.0.1", timeout=5):
        assert 0 < read_retry_after(sign_in_by_token("minsu", PASSWORD)) <= 5
    assert sign_in_by_token("minsu", PASSWORD).status_code == 200


def test_a_known_browser_waits_for_no_turn_in_a_flood(minsu, request, monkeypatch):
    known = make_browser("minsu")
    request.getfixturevalue("flood")
    monkeypatch.setattr(adapter, "MAX_TURN_WAIT_SECONDS", 0.2)
    with adapter.connections.get_client().lock("nura:sign-in:127.0.0.1", timeout=5):
        assert sign_in_with(known, "minsu", "wrong").status_code == 200
        assert sign_in_with(known, "minsu", PASSWORD).status_code == 302


@pytest.mark.django_db(transaction=True)
def test_who_waits_for_a_turn_holds_no_connection_to_the_database(flood, monkeypatch):
    held = []

    def come_too_late(_turn):
        held.append(connection.connection is not None)
        return False

    monkeypatch.setattr(Lock, "acquire", come_too_late)
    read_retry_after(sign_in_by_token("minsu", PASSWORD))
    assert held == [False]


def test_nobody_makes_keys_without_end(minsu, monkeypatch):
    rates = {**django_settings.ACCOUNT_RATE_LIMITS, "login_done": "3/m/user"}
    monkeypatch.setattr(django_settings, "ACCOUNT_RATE_LIMITS", rates)
    codes = [sign_in_by_token("minsu", PASSWORD).status_code for _ in range(4)]
    assert codes == [200] * 3 + [429]


def test_the_page_of_a_lock_is_korean(client, minsu):
    fail(sign_in_by_page, ["minsu"] * LOCKED_AFTER)
    page = sign_in_by_page("minsu", "wrong").content.decode()
    assert re.search("요청이 너무 많습니다|잠시", page)


@pytest.mark.parametrize("flooded", [False, True])
def test_a_known_name_costs_as_much_as_an_unknown_one(minsu, request, monkeypatch, flooded):
    if flooded:
        request.getfixturevalue("flood")
    made = []
    encode = MD5PasswordHasher.encode
    monkeypatch.setattr(
        MD5PasswordHasher, "encode", lambda *given: made.append(given) or encode(*given)
    )
    costs = {}
    for name in ("minsu", "nobody"):
        made.clear()
        fail(sign_in_by_token, [name] * (LOCKED_AFTER + 1))
        costs[name] = len(made)
    assert costs["minsu"] == costs["nobody"] == (1 if flooded else LOCKED_AFTER)
