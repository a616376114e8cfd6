"""The page of API keys."""

import re
from datetime import timedelta

import pytest
from django.test import Client
from django.utils import timezone
from knox.models import AuthToken

from chats.models.key import list_scopes, make_key_id
from nura.accounts import services
from tests.nura.accounts.conftest import PASSWORD

pytestmark = pytest.mark.django_db


FORM = {"name": "내 서버", "scopes": ["read", "ask"], "days": ""}


def make_key(client, **form):
    page = client.post("/settings/keys", FORM | form).content.decode()
    return re.search(r'<pre id="new-key">(\w+)</pre>', page)[1]


def get_me(key):
    return Client().get("/api/v1/me", headers={"Authorization": f"Token {key}"})


def test_a_new_key_works(trusted_client):
    assert get_me(make_key(trusted_client)).json()["username"] == "minsu"


def test_a_key_is_shown_once(trusted_client):
    key = make_key(trusted_client)
    page = trusted_client.get("/settings/keys").content.decode()
    assert key not in page
    assert key[: services.SHOWN_CHARACTERS] in page


def test_a_key_is_stored_as_its_hash(trusted_client):
    key = make_key(trusted_client)
    row = AuthToken.objects.values().get()
    assert key not in str(row)


def test_the_page_that_shows_a_key_is_not_kept_by_caches(trusted_client):
    assert "no-store" in trusted_client.post("/settings/keys", FORM).headers["Cache-Control"]


def test_a_key_may_expire(trusted_client):
    key = make_key(trusted_client, days="30")
    assert get_me(key).status_code == 200
    AuthToken.objects.update(expiry=timezone.now() - timedelta(seconds=1))
    assert get_me(key).status_code == 401


def test_a_made_up_lifetime_makes_no_key(trusted_client):
    trusted_client.post("/settings/keys", FORM | {"days": "-1"})
    assert not AuthToken.objects.exists()


def test_a_revoked_key_is_refused(trusted_client):
    key = make_key(trusted_client)
    key_id = make_key_id(AuthToken.objects.get())
    assert trusted_client.post(f"/settings/keys/{key_id}/revoke").status_code == 302
    assert get_me(key).status_code == 401


def test_a_stranger_can_neither_see_nor_revoke_a_key(trusted_client, stranger):
    key = make_key(trusted_client)
    key_id = make_key_id(AuthToken.objects.get())
    client = Client()
    client.force_login(stranger)
    assert str(key_id) not in client.get("/settings/keys").content.decode()
    assert client.post(f"/settings/keys/{key_id}/revoke").status_code == 404
    assert get_me(key).status_code == 200


def test_a_key_has_the_name_and_the_rights_that_were_chosen(trusted_client):
    key = make_key(trusted_client, name="백업", scopes=["read"])
    assert list_scopes(AuthToken.objects.select_related("details").get()) == {"read"}
    get_me(key)
    page = trusted_client.get("/settings/keys").content.decode()
    assert "백업" in page
    assert "대화와 문서 읽기, 검색" in page
    assert "최근 사용" in page


@pytest.mark.parametrize("wrong", [{"scopes": []}, {"scopes": ["root"]}, {"name": " "}])
def test_a_key_without_a_name_or_a_right_is_not_made(trusted_client, wrong):
    page = trusted_client.post("/settings/keys", FORM | wrong).content.decode()
    assert "errorlist" in page
    assert not AuthToken.objects.exists()


def test_whoever_makes_a_key_shows_the_password_first_and_goes_on_from_there(minsus_client):
    asked = minsus_client.post("/settings/keys", FORM)
    assert asked.url.startswith("/accounts/reauthenticate/")
    assert not AuthToken.objects.exists()
    proof = {"password": PASSWORD, "next": "/settings/keys"}
    page = minsus_client.post("/accounts/reauthenticate/", proof).content.decode()
    assert get_me(re.search(r'<pre id="new-key">(\w+)</pre>', page)[1]).status_code == 200


def test_a_browser_makes_no_key_by_the_interface_without_the_password(minsus_client):
    body = {"name": "p", "scopes": ["read"]}
    answer = minsus_client.post("/api/v1/me/keys", body, content_type="application/json")
    assert (answer.status_code, answer.json()["code"]) == (403, "reauthentication_required")
    minsus_client.post("/accounts/reauthenticate/", {"password": PASSWORD})
    answer = minsus_client.post("/api/v1/me/keys", body, content_type="application/json")
    assert answer.status_code == 201


def sign_in(name="minsu", *, seconds_ago=0):
    client = Client()
    client.post("/accounts/login/", {"login": name, "password": PASSWORD})
    session = client.session
    for record in session["account_authentication_methods"]:
        record["at"] -= seconds_ago
    session.save()
    return client


def request_key(client):
    body = {"name": "p", "scopes": ["read"]}
    return client.post("/api/v1/me/keys", body, content_type="application/json").status_code


def test_who_has_just_signed_in_is_not_asked_for_the_password_again(minsu):
    client = sign_in(seconds_ago=240)
    assert get_me(make_key(client)).status_code == 200
    assert request_key(client) == 201
    assert client.post("/settings/data").url == "/settings/data"
    assert client.get("/accounts/2fa/totp/activate/").status_code == 200


def test_who_has_just_signed_up_is_not_asked_for_the_password_again(settings):
    settings.SIGNUP = "open"
    client = Client()
    form = {"username": "hana", "email": "hana@example.com"}
    client.post("/accounts/signup/", form | {"password1": PASSWORD, "password2": PASSWORD})
    assert get_me(make_key(client)).status_code == 200
    assert request_key(client) == 201


def test_who_signed_in_a_while_ago_is_asked_for_the_password_again(minsu):
    client = sign_in(seconds_ago=301)
    for path in ("/settings/keys", "/settings/data", "/settings/delete"):
        assert client.post(path, FORM).url.startswith("/accounts/reauthenticate/"), path
    assert client.get("/accounts/2fa/totp/activate/").url.startswith("/accounts/reauthenticate/")
    assert request_key(client) == 403
    assert not AuthToken.objects.exists()


def test_the_sign_in_of_another_counts_for_nobody_else(minsu, stranger):
    client = sign_in("stranger")
    records = client.session["account_authentication_methods"]
    client.force_login(minsu)
    session = client.session
    session["account_authentication_methods"] = records
    session["account_authentication_methods_user"] = str(stranger.pk)
    session.save()
    assert client.post("/settings/keys", FORM).url.startswith("/accounts/reauthenticate/")
    assert request_key(client) == 403


def test_the_page_needs_a_signed_in_user(client):
    assert client.get("/settings/keys").url == "/accounts/login/?next=/settings/keys"


def test_the_key_of_a_deactivated_user_is_refused(trusted_client, minsu):
    key = make_key(trusted_client)
    minsu.is_active = False
    minsu.save()
    assert get_me(key).status_code == 401
