"""Sign-up, sign-in, sign-out, change and reset of the password, in both languages."""

import re
import time
import unicodedata

import pytest
from django.contrib.auth.models import User
from django.core import mail
from django.test import Client
from django.utils.html import strip_tags

from nura.accounts.profile import MIN_RESET_SECONDS
from tests.nura.accounts.conftest import PASSWORD

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def open_with_mail(settings):
    """Everybody may sign up, and mail goes out."""
    settings.SIGNUP, settings.MAIL_WORKS = "open", True


OPEN_PAGES = ("/accounts/login/", "/accounts/signup/", "/accounts/password/reset/")
PAGES_OF_A_USER = ("/accounts/logout/", "/accounts/password/change/")
SAME_IN_BOTH = {"Nura", "API", "English", "Authorization", "Token"}


def find_english_words(response):
    page = re.sub(r"<(script|style)\b.*?</\1>", "", response.content.decode(), flags=re.DOTALL)
    return set(re.findall(r"[A-Za-z]{3,}", strip_tags(page))) - SAME_IN_BOTH


@pytest.mark.parametrize("page", OPEN_PAGES)
def test_a_page_for_everybody_is_korean_by_default(client, page):
    response = client.get(page, headers={"Accept-Language": "en-US"})
    assert response.status_code == 200
    assert '<html lang="ko"' in response.content.decode()
    assert not find_english_words(response)


@pytest.mark.parametrize("page", PAGES_OF_A_USER)
def test_a_page_of_a_user_is_korean_by_default(minsus_client, page):
    response = minsus_client.get(page)
    assert response.status_code == 200
    assert not find_english_words(response) - {"minsu"}


@pytest.mark.parametrize("page", OPEN_PAGES)
def test_a_page_holds_no_korean_once_english_is_chosen(english_client, page):
    text = strip_tags(english_client.get(page).content.decode()).replace("한국어", "")
    assert not re.search("[가-힣]", text)


def test_pages_of_allauth_that_settings_replace_lead_there(minsus_client):
    for old, page in (
        ("email", "/settings/email"),
        ("2fa", "/settings/two-step"),
        ("sessions", "/settings/devices"),
        ("3rdparty", "/settings/sign-on"),
    ):
        assert minsus_client.get(f"/accounts/{old}/").url == page


def test_signing_up_signs_in(client):
    form = {
        "username": "하나",
        "email": "hana@example.com",
        "password1": PASSWORD,
        "password2": PASSWORD,
    }
    response = client.post("/accounts/signup/", form)
    assert (response.status_code, response.url) == (302, "/")
    assert client.session["_auth_user_id"] == str(User.objects.get(username="하나").pk)


def test_a_weak_password_is_refused_in_korean(client):
    form = {"username": "hana", "email": "h@example.com", "password1": "1234", "password2": "1234"}
    response = client.post("/accounts/signup/", form)
    assert response.status_code == 200
    assert "비밀번호" in response.content.decode()
    assert not User.objects.filter(username="hana").exists()
    assert not find_english_words(response)


def test_a_closed_sign_up_says_so_and_makes_nobody(client, settings):
    settings.SIGNUP = "closed"
    form = {
        "username": "hana",
        "email": "h@example.com",
        "password1": PASSWORD,
        "password2": PASSWORD,
    }
    response = client.post("/accounts/signup/", form)
    assert not find_english_words(response)
    assert not User.objects.filter(username="hana").exists()


@pytest.mark.parametrize("login", ["minsu", "minsu@example.com"])
def test_signing_in_with_name_or_address(client, minsu, login):
    response = client.post("/accounts/login/", {"login": login, "password": PASSWORD})
    assert (response.status_code, response.url) == (302, "/")


def test_signing_in_returns_to_where_one_was_going(client, minsu):
    form = {"login": "minsu", "password": PASSWORD, "next": "/settings/keys"}
    assert client.post("/accounts/login/", form).url == "/settings/keys"


def test_signing_in_never_leads_to_another_site(client, minsu):
    form = {"login": "minsu", "password": PASSWORD, "next": "https://elsewhere.example/"}
    assert client.post("/accounts/login/", form).url == "/"


def test_a_wrong_password_and_an_unknown_name_read_the_same(client, minsu):
    def errors(login):
        response = client.post("/accounts/login/", {"login": login, "password": "wrong"})
        return response.status_code, response.context["form"].errors

    assert errors("minsu") == errors("nobody")


def test_a_deactivated_user_cannot_sign_in(client, minsu):
    User.objects.update(is_active=False)
    response = client.post("/accounts/login/", {"login": "minsu", "password": PASSWORD})
    assert response.url == "/accounts/inactive/"
    assert "_auth_user_id" not in client.session
    assert not find_english_words(client.get("/accounts/inactive/"))


def test_signing_out_ends_the_session(minsus_client):
    assert minsus_client.post("/accounts/logout/").status_code == 302
    assert "_auth_user_id" not in minsus_client.session


def test_opening_the_sign_out_page_signs_nobody_out(minsus_client):
    minsus_client.get("/accounts/logout/")
    assert "_auth_user_id" in minsus_client.session


def test_changing_the_password_signs_other_devices_out(minsus_client, minsu):
    other = Client()
    other.force_login(minsu)
    new = "another long password 42"
    form = {"oldpassword": PASSWORD, "password1": new, "password2": new}
    assert minsus_client.post("/accounts/password/change/", form).status_code == 302
    assert minsus_client.get("/settings/keys").status_code == 200
    assert other.get("/settings/keys").status_code == 302


def test_the_password_is_reset_by_a_link_that_works_once(client, minsu):
    client.post("/accounts/password/reset/", {"email": "minsu@example.com"})
    link = re.search(r"http://testserver(/accounts/password/reset/key/\S+)", mail.outbox[0].body)[1]
    form_page = client.get(link, follow=True)
    assert not find_english_words(form_page)
    new = "another long password 42"
    address = form_page.redirect_chain[-1][0]
    done = client.post(address, {"password1": new, "password2": new}, follow=True)
    assert not find_english_words(done)
    minsu.refresh_from_db()
    assert minsu.check_password(new)
    assert Client().get(link, follow=True).context["token_fail"]


def test_a_password_that_is_refused_is_told_its_faults_and_not_the_rules_again(minsus_client):
    def change(new):
        form = {"oldpassword": PASSWORD, "password1": new, "password2": new}
        return minsus_client.post("/accounts/password/change/", form).content.decode()

    rules = minsus_client.get("/accounts/password/change/").content.decode()
    assert "숫자로만 된 비밀번호는 쓸 수 없습니다." in rules
    refused = change("1234")
    assert "errorlist" in refused
    assert "숫자로만 된 비밀번호입니다." in refused
    assert "숫자로만 된 비밀번호는 쓸 수 없습니다." not in refused


def test_the_owner_is_told_of_a_new_password_and_where_it_came_from(minsus_client, minsu):
    new = "another long password 42"
    form = {"oldpassword": PASSWORD, "password1": new, "password2": new}
    minsus_client.post("/accounts/password/change/", form, HTTP_USER_AGENT="Firefox")
    (told,) = mail.outbox
    assert told.subject == "[Nura] 비밀번호를 변경했습니다"
    assert told.body.startswith("계정의 비밀번호를 변경했습니다.")
    assert "브라우저: Firefox" in told.body
    assert "귀하" not in told.body


def test_a_reset_answers_the_same_for_an_unknown_address(client, minsu):
    def answer(email):
        response = client.post("/accounts/password/reset/", {"email": email}, follow=True)
        return response.redirect_chain, strip_tags(response.content.decode())

    assert answer("minsu@example.com") == answer("nobody@example.com")


@pytest.mark.parametrize("address", ["minsu@example.com", "nobody@example.com"])
def test_how_long_a_reset_takes_tells_nothing_of_the_address(client, minsu, address):
    asked_at = time.monotonic()
    client.post("/accounts/password/reset/", {"email": address})
    assert time.monotonic() - asked_at >= MIN_RESET_SECONDS


def test_the_mail_is_in_the_language_of_the_page(english_client, client, minsu):
    for asking in (client, english_client):
        asking.post("/accounts/password/reset/", {"email": "minsu@example.com"})
    korean, english = (message.body for message in mail.outbox)
    assert re.search("[가-힣]", korean)
    assert not re.search("[가-힣]", english)


def test_the_mail_names_the_product(client, minsu):
    client.post("/accounts/password/reset/", {"email": "minsu@example.com"})
    assert mail.outbox[0].subject.startswith("[Nura]")
    assert mail.outbox[0].body.rstrip().endswith("Nura")


@pytest.mark.parametrize("email", ["minsu@example.com", "nobody@example.com"])
def test_a_mail_server_that_is_down_is_told_in_words(minsu, settings, email):
    settings.EMAIL_BACKEND = "django.core.mail.backends.smtp.EmailBackend"
    settings.EMAIL_HOST, settings.EMAIL_PORT = "127.0.0.1", 1
    client = Client(raise_request_exception=False)
    response = client.post("/accounts/password/reset/", {"email": email})
    assert response.status_code == 503
    assert "메일을 보내지 못했습니다" in response.content.decode()


def test_a_name_in_parts_and_the_same_name_composed_are_one_user(client):
    parted = unicodedata.normalize("NFD", "하나")
    form = {"email": "h@example.com", "password1": PASSWORD, "password2": PASSWORD}
    client.post("/accounts/signup/", form | {"username": parted})
    assert User.objects.filter(username="하나").exists()
    for name in (parted, "하나"):
        login = Client().post("/accounts/login/", {"login": name, "password": PASSWORD})
        assert login.status_code == 302


def test_a_post_without_its_csrf_token_is_refused_with_a_page():
    response = Client(enforce_csrf_checks=True).post("/accounts/login/", {"login": "x"})
    assert response.status_code == 403
    assert "text/html" in response.headers["Content-Type"]
    assert not find_english_words(response)
