"""The page of API keys."""

import re
from datetime import timedelta

import pytest
from django.test import Client
from django.utils import timezone
from knox.models import AuthToken

from chats.models.key import make_key_id
from nura.accounts import services

pytestmark = pytest.mark.django_db


def new_key(client, **form):
    page = client.post("/settings/keys", form).content.decode()
    return re.search(r'<pre id="new-key">(\w+)</pre>', page)[1]


def me(key):
    return Client().get("/api/v1/me", headers={"Authorization": f"Token {key}"})


def test_a_new_key_works(minsus_client):
    assert me(new_key(minsus_client)).json()["username"] == "minsu"


def test_a_key_is_shown_once(minsus_client):
    key = new_key(minsus_client)
    page = minsus_client.get("/settings/keys").content.decode()
    assert key not in page
    assert key[: services.SHOWN_CHARACTERS] in page


def test_a_key_is_stored_as_its_hash(minsus_client):
    key = new_key(minsus_client)
    row = AuthToken.objects.values().get()
    assert key not in str(row)


def test_the_page_that_shows_a_key_is_not_kept_by_caches(minsus_client):
    assert "no-store" in minsus_client.post("/settings/keys").headers["Cache-Control"]


def test_a_key_may_expire(minsus_client):
    key = new_key(minsus_client, days="30")
    assert me(key).status_code == 200
    AuthToken.objects.update(expiry=timezone.now() - timedelta(seconds=1))
    assert me(key).status_code == 401


def test_a_made_up_lifetime_makes_no_key(minsus_client):
    minsus_client.post("/settings/keys", {"days": "-1"})
    assert not AuthToken.objects.exists()


def test_a_revoked_key_is_refused(minsus_client):
    key = new_key(minsus_client)
    key_id = make_key_id(AuthToken.objects.get())
    assert minsus_client.post(f"/settings/keys/{key_id}/revoke").status_code == 302
    assert me(key).status_code == 401


def test_a_stranger_can_neither_see_nor_revoke_a_key(minsus_client, stranger):
    key = new_key(minsus_client)
    key_id = make_key_id(AuthToken.objects.get())
    client = Client()
    client.force_login(stranger)
    assert str(key_id) not in client.get("/settings/keys").content.decode()
    assert client.post(f"/settings/keys/{key_id}/revoke").status_code == 404
    assert me(key).status_code == 200


def test_the_page_needs_a_signed_in_user(client):
    assert client.get("/settings/keys").url == "/accounts/login/?next=/settings/keys"


def test_the_key_of_a_deactivated_user_is_refused(minsus_client, minsu):
    key = new_key(minsus_client)
    minsu.is_active = False
    minsu.save()
    assert me(key).status_code == 401
