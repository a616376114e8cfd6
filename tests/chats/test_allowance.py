"""Questions of a day are counted in one place, whichever way they come in."""

import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest
from django.db import connection
from django.utils import timezone
from rest_framework.test import APIClient

from chats import socket
from chats.errors import EmptyMessage, QuotaMessages
from chats.models import Chat, DailyMessages, Message
from chats.services.chats import count_question, count_questions_today, delete_chat
from chats.services.turns import edit_question, open_turn, regenerate_answer

pytestmark = pytest.mark.django_db


@pytest.fixture
def two_a_day(settings):
    settings.QUOTA_MESSAGES_PER_DAY = 2


def test_a_question_too_many_is_429_until_midnight(owner, two_a_day):
    api = APIClient()
    api.force_authenticate(owner)
    for _ in range(2):
        open_turn(user=owner, content="질문")
    response = api.post("/api/v1/messages?wait=false", {"content": "질문"}, format="json")
    assert (response.status_code, response.json()["code"]) == (429, "quota_messages")
    assert "2" in response.json()["detail"]
    midnight = timezone.localtime().replace(hour=0, minute=0, second=0) + timedelta(days=1)
    left = (midnight - timezone.localtime()).total_seconds()
    assert int(response["Retry-After"]) == pytest.approx(left, abs=5)
    assert Chat.objects.count() == 2


def test_a_question_of_a_socket_counts_too(owner, two_a_day):
    for _ in range(2):
        socket.open_turn(owner, {"content": "질문"}, "ko", "")
    with pytest.raises(QuotaMessages):
        socket.open_turn(owner, {"content": "질문"}, "ko", "")
    assert Chat.objects.count() == 2


def test_other_answers_and_other_words_count_too(owner, two_a_day):
    turn = open_turn(user=owner, content="질문")
    Message.objects.filter(pk=turn.assistant_message.pk).update(status="COMPLETED")
    turn.assistant_message.refresh_from_db()
    regenerate_answer(message=turn.assistant_message, language="ko")
    with pytest.raises(QuotaMessages):
        edit_question(user=owner, message=turn.user_message, content="다시", language="ko")


def test_what_is_refused_is_not_counted(owner):
    with pytest.raises(EmptyMessage):
        open_turn(user=owner, content=" ")
    assert count_questions_today(owner.pk) == 0


def test_the_same_question_sent_twice_counts_once(owner):
    for _ in range(2):
        open_turn(user=owner, content="질문", client_id="c-1")
    assert count_questions_today(owner.pk) == 1


def test_deleting_a_chat_gives_nothing_back(owner, two_a_day):
    for _ in range(2):
        delete_chat(chat=open_turn(user=owner, content="질문").user_message.chat)
    with pytest.raises(QuotaMessages):
        open_turn(user=owner, content="질문")


def test_every_user_has_his_own_day(owner, stranger, two_a_day):
    for _ in range(2):
        count_question(owner.pk)
    count_question(stranger.pk)
    assert count_questions_today(stranger.pk) == 1


def test_a_new_day_begins_anew(owner, two_a_day):
    yesterday = timezone.localdate() - timedelta(days=1)
    DailyMessages.objects.create(owner=owner, day=yesterday, count=2)
    count_question(owner.pk)
    assert count_questions_today(owner.pk) == 1


def test_without_a_limit_questions_are_only_counted(owner, settings):
    settings.QUOTA_MESSAGES_PER_DAY = 0
    for _ in range(3):
        count_question(owner.pk)
    assert count_questions_today(owner.pk) == 3


@pytest.mark.django_db(transaction=True)
def test_two_questions_at_once_cannot_both_be_the_last_one(owner, settings):
    settings.QUOTA_MESSAGES_PER_DAY = 1
    together = threading.Barrier(2)

    def ask(_number):
        try:
            together.wait()
            count_question(owner.pk)
        except QuotaMessages:
            return False
        finally:
            connection.close()
        return True

    with ThreadPoolExecutor(2) as pool:
        assert sorted(pool.map(ask, range(2))) == [False, True]
