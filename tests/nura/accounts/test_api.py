"""`POST /auth/token` and `GET /me`."""

import pytest
from django.test import Client
from knox.models import AuthToken

from chats.models import DailyMessages
from chats.services.chats import delete_chat
from chats.services.turns import open_turn
from documents.models import Document, QuotaRule
from documents.quotas import get_today
from tests.nura.accounts.conftest import PASSWORD

pytestmark = pytest.mark.django_db


def ask_for_token(**credentials):
    return Client().post("/api/v1/auth/token", credentials, content_type="application/json")


def test_a_password_buys_a_key(minsu):
    token = ask_for_token(username="minsu", password=PASSWORD).json()["token"]
    answer = Client().get("/api/v1/me", headers={"Authorization": f"Token {token}"})
    assert answer.json()["id"] == minsu.pk


@pytest.mark.parametrize("name", ["minsu", "nobody", "off"])
def test_a_wrong_password_an_unknown_name_and_a_deactivated_user_are_one_answer(
    minsu, stranger, name
):
    stranger.username, stranger.is_active = "off", False
    stranger.save()
    password = PASSWORD if name == "off" else "wrong"
    answer = ask_for_token(username=name, password=password)
    assert answer.status_code == 401
    assert answer.headers["WWW-Authenticate"] == "Token"
    assert answer.json() == {
        "type": "about:blank",
        "title": "로그인 필요",
        "status": 401,
        "code": "invalid_credentials",
        "detail": "아이디 또는 비밀번호가 올바르지 않습니다.",
    }
    assert not AuthToken.objects.exists()


def test_missing_fields_are_named():
    answer = ask_for_token(username="minsu")
    assert answer.status_code == 400
    assert set(answer.json()["errors"]) == {"password"}


@pytest.mark.parametrize("key", ["", "nonsense", "ÿÿ", "a b", "0" * 64])
def test_a_wrong_key_is_401(db, key):
    answer = Client().get("/api/v1/me", headers={"Authorization": f"Token {key}"})
    assert answer.status_code == 401
    assert answer.json()["code"] == "authentication_failed"


def test_me_counts_what_is_ones_own(minsus_client, minsu, stranger):
    for owner, size in ((minsu, 10), (minsu, 5), (stranger, 100)):
        Document.objects.create(owner=owner, name="a.txt", file="a.txt", size=size, sha256="0")
    turn = open_turn(user=minsu, content="질문")
    delete_chat(chat=turn.user_message.chat)
    open_turn(user=stranger, content="질문")
    answer = minsus_client.get("/api/v1/me").json()
    assert answer["username"] == "minsu"
    assert answer["is_staff"] is False
    assert answer["usage"] == {
        "documents": 2,
        "bytes": 15,
        "pages": 0,
        "messages_today": 1,
        "tokens_this_month": 0,
    }


def test_me_says_where_there_is_no_limit(minsus_client):
    limits = minsus_client.get("/api/v1/me").json()["limits"]
    assert limits["documents"] is None
    assert limits["upload_bytes"] > 0


def test_me_tells_the_limits(minsus_client, settings):
    settings.QUOTA_DOCUMENTS, settings.QUOTA_MB = 10, 5
    settings.QUOTA_PAGES, settings.QUOTA_MESSAGES_PER_DAY = 1000, 50
    limits = minsus_client.get("/api/v1/me").json()["limits"]
    assert limits == limits | {
        "documents": 10,
        "bytes": 5 * 1024 * 1024,
        "pages": 1000,
        "messages_today": 50,
    }


def test_me_tells_what_is_left_and_from_when_on_one_is_told(minsus_client, minsu, settings):
    settings.QUOTA_DOCUMENTS, settings.QUOTA_MB = 10, 0
    QuotaRule.objects.create(user=minsu, measure="tokens_this_month", soft=500, hard=1000)
    DailyMessages.objects.create(owner=minsu, day=get_today(), count=1, tokens=700)
    answer = minsus_client.get("/api/v1/me").json()
    assert answer["left"]["documents"] == 10
    assert answer["left"]["bytes"] is None
    assert answer["left"]["tokens_this_month"] == 300
    assert answer["soft"]["documents"] == 8
    assert answer["soft"]["tokens_this_month"] == 500
    assert set(answer["resets_at"]) == {"messages_today", "tokens_this_month"}


def test_me_needs_someone(client):
    answer = client.get("/api/v1/me")
    assert answer.status_code == 401
    assert answer.json()["code"] == "not_authenticated"
