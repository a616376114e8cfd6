"""The devices on which one is signed in, and what a new password ends."""

import re
from datetime import UTC, datetime

import pytest
from allauth.usersessions.models import UserSession
from django.core import mail
from django.test import Client
from knox.models import AuthToken

from nura.accounts import services
from nura.accounts.services import describe_device, list_sessions
from tests.nura.accounts.conftest import PASSWORD

pytestmark = pytest.mark.django_db

NEW = "another long password 42"
PHONE = "Mozilla/5.0 (iPhone; CPU iPhone OS 18_0 like Mac OS X) Version/18.0 Mobile Safari/604.1"


def sign_in(name="minsu", agent="Mozilla/5.0 (X11; Linux x86_64) Chrome/140.0.0.0 Safari/537.36"):
    browser = Client(headers={"User-Agent": agent})
    browser.post("/accounts/login/", {"login": name, "password": PASSWORD})
    return browser


def is_in(browser):
    return browser.get("/settings/profile").status_code == 200


def find_other_session(user, browser):
    found = list_sessions(user=user, current_key=browser.session.session_key)
    return next(one for one in found if not one.is_current)


def test_every_device_is_listed_with_the_current_one_first(minsu):
    sign_in(agent=PHONE)
    page = sign_in().get("/settings/devices").content.decode()
    assert page.index("현재 기기") < page.index("iPhone")
    assert "Chrome · Linux" in page


@pytest.mark.parametrize("language", ["ko", "en"])
def test_times_are_in_the_zone_of_the_browser_else_in_the_servers(minsu, language):
    browser = sign_in()
    moment = datetime(2026, 11, 28, 13, 28, tzinfo=UTC)
    UserSession.objects.update(created_at=moment)
    browser.cookies["django_language"] = language
    shown = {"ko": "2026. 11. 28. 오전 8:28", "en": "Nov 28, 2026, 8:28 AM"}[language]
    browser.cookies["zone"] = "America/New_York"
    assert shown in browser.get("/settings/devices").content.decode()
    del browser.cookies["zone"]
    page = browser.get("/settings/devices").content.decode()
    assert shown.replace("오전 8", "오후 10").replace("8:28 AM", "10:28 PM") in page
    assert "+0900" in page


def test_a_chrome_without_a_window_is_a_chrome():
    sent = "Mozilla/5.0 (X11; Linux x86_64) HeadlessChrome/140.0.0.0 Safari/537.36"
    assert describe_device(sent) == "Chrome · Linux"


def test_one_device_is_signed_out_and_no_other(minsu):
    here, phone, tablet = sign_in(), sign_in(agent=PHONE), sign_in()
    known = {one.id for one in list_sessions(user=minsu) if one.device.endswith("iPhone")}
    assert here.post(f"/settings/devices/{known.pop()}/end").status_code == 302
    assert (is_in(here), is_in(phone), is_in(tablet)) == (True, False, True)


def test_all_other_devices_are_signed_out_at_once(minsu, stranger):
    here, phone, another = sign_in(), sign_in(agent=PHONE), sign_in("stranger")
    page = here.post("/settings/devices/end-others", follow=True).content.decode()
    assert "모두 로그아웃했습니다" in page
    assert (is_in(here), is_in(phone), is_in(another)) == (True, False, True)


def test_a_stranger_neither_sees_nor_ends_a_device(minsu, stranger):
    here, phone, another = sign_in(), sign_in(agent=PHONE), sign_in("stranger")
    session = find_other_session(minsu, here)
    assert "iPhone" not in another.get("/settings/devices").content.decode()
    assert another.post(f"/settings/devices/{session.id}/end").status_code == 404
    assert is_in(phone)


@pytest.mark.parametrize("path", ["/settings/devices/end-others", "/accounts/password/change/"])
def test_nobody_is_signed_out_by_a_link(minsu, path):
    here, phone = sign_in(), sign_in(agent=PHONE)
    here.get(path)
    assert is_in(phone)


@pytest.mark.parametrize(("chosen", "left"), [({}, 0), ({"keep_keys": "on"}, 1)])
def test_a_new_password_ends_the_keys_unless_they_are_to_stay(minsu, stranger, chosen, left):
    for user in (minsu, stranger):
        services.create_key(user=user)
    browser = sign_in()
    assert "API 키 유지" in browser.get("/accounts/password/change/").content.decode()
    form = {"oldpassword": PASSWORD, "password1": NEW, "password2": NEW} | chosen
    assert browser.post("/accounts/password/change/", form).status_code == 302
    assert AuthToken.objects.filter(user=minsu).count() == left
    assert AuthToken.objects.filter(user=stranger).count() == 1


def test_a_wrong_old_password_ends_no_key(minsu):
    services.create_key(user=minsu)
    form = {"oldpassword": "wrong", "password1": NEW, "password2": NEW}
    assert sign_in().post("/accounts/password/change/", form).status_code == 200
    assert AuthToken.objects.exists()


@pytest.mark.parametrize(("chosen", "left"), [({}, 0), ({"keep_keys": "on"}, 1)])
def test_a_password_reset_by_mail_ends_the_keys_unless_they_are_to_stay(
    client, minsu, settings, chosen, left
):
    settings.MAIL_WORKS = True
    services.create_key(user=minsu)
    client.post("/accounts/password/reset/", {"email": "minsu@example.com"})
    link = re.search(r"http://testserver(/accounts/password/reset/key/\S+)", mail.outbox[0].body)[1]
    address = client.get(link, follow=True).redirect_chain[-1][0]
    client.post(address, {"password1": NEW, "password2": NEW} | chosen)
    assert AuthToken.objects.count() == left
