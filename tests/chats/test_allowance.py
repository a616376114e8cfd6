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
from chats.models import Chat, DailyMessages, Message, Run
from chats.services.chats import (
    count_question,
    count_questions_today,
    count_tokens_this_month,
    delete_chat,
)
from chats.services.turn_store import AnswerOutcome
from chats.services.turns import close_turn, edit_question, open_turn, regenerate_answer
from documents import quotas
from documents.models import QuotaRule
from jobs.lease import claim_job

pytestmark = pytest.mark.django_db


@pytest.fixture
def limit_to_two_a_day(settings):
    settings.QUOTA_MESSAGES_PER_DAY = 2


def test_a_question_too_many_is_429_until_midnight(owner, limit_to_two_a_day):
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


def test_a_question_of_a_socket_counts_too(owner, limit_to_two_a_day):
    for _ in range(2):
        socket.open_turn(owner, {"content": "질문"}, "ko", "")
    with pytest.raises(QuotaMessages):
        socket.open_turn(owner, {"content": "질문"}, "ko", "")
    assert Chat.objects.count() == 2


def test_other_answers_and_other_words_count_too(owner, limit_to_two_a_day):
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


def test_deleting_a_chat_gives_nothing_back(owner, limit_to_two_a_day):
    for _ in range(2):
        delete_chat(chat=open_turn(user=owner, content="질문").user_message.chat)
    with pytest.raises(QuotaMessages):
        open_turn(user=owner, content="질문")


def test_every_user_has_his_own_day(owner, stranger, limit_to_two_a_day):
    for _ in range(2):
        count_question(owner.pk)
    count_question(stranger.pk)
    assert count_questions_today(stranger.pk) == 1


def test_a_new_day_begins_anew(owner, limit_to_two_a_day):
    yesterday = timezone.localdate() - timedelta(days=1)
    DailyMessages.objects.create(owner=owner, day=yesterday, count=2)
    count_question(owner.pk)
    assert count_questions_today(owner.pk) == 1


def test_without_a_limit_questions_are_only_counted(owner, settings):
    settings.QUOTA_MESSAGES_PER_DAY = 0
    for _ in range(3):
        count_question(owner.pk)
    assert count_questions_today(owner.pk) == 3


@pytest.fixture
def answered_turn(owner, tokens_used):
    """A question whose answer took 900 tokens."""
    turn = open_turn(user=owner, content="질문")
    lease = claim_job(Run, turn.run.pk)
    usage = {"prompt_tokens": 800, "completion_tokens": 100, "estimated": False}
    close_turn(
        lease=lease,
        outcome=AnswerOutcome(status=Message.Status.COMPLETED, content="답", usage=usage),
    )
    return turn


@pytest.fixture
def tokens_used(settings):
    settings.QUOTA_TOKENS_PER_MONTH = 900


def test_when_the_tokens_of_the_month_are_used_the_next_question_is_429(owner, answered_turn):
    api = APIClient()
    api.force_authenticate(owner)
    response = api.post("/api/v1/messages?wait=false", {"content": "질문"}, format="json")
    assert (response.status_code, response.json()["code"]) == (429, "quota_tokens")
    again = quotas.get_next_month()
    assert f"{again:%Y-%m-%d}" in response.json()["detail"]
    left = (again - timezone.now()).total_seconds()
    assert int(response["Retry-After"]) == pytest.approx(left, abs=5)


def test_an_answer_under_way_may_pass_the_limit(owner, settings):
    settings.QUOTA_TOKENS_PER_MONTH = 10
    turn = open_turn(user=owner, content="질문")
    usage = {"prompt_tokens": 800, "completion_tokens": 100}
    outcome = AnswerOutcome(status=Message.Status.COMPLETED, content="답", usage=usage)
    assert close_turn(lease=claim_job(Run, turn.run.pk), outcome=outcome) is not None
    assert count_tokens_this_month(owner.pk) == 900


def test_tokens_of_last_month_are_not_counted(owner, tokens_used):
    before = quotas.get_today().replace(day=1) - timedelta(days=1)
    DailyMessages.objects.create(owner=owner, day=before, count=1, tokens=900)
    open_turn(user=owner, content="질문")


def test_a_stopped_answer_counts_what_its_prompt_and_text_took(owner):
    turn = open_turn(user=owner, content="질문")
    outcome = AnswerOutcome(
        status=Message.Status.STOPPED,
        content="대답의 첫머리",
        trace={"token_plan": {"used": 700}, "prompt": {"model": "small"}},
    )
    close_turn(lease=claim_job(Run, turn.run.pk), outcome=outcome)
    assert count_tokens_this_month(owner.pk) > 700


def test_a_kept_answer_takes_no_tokens(owner):
    turn = open_turn(user=owner, content="질문")
    usage = {"prompt_tokens": 800, "completion_tokens": 100}
    outcome = AnswerOutcome(
        status=Message.Status.COMPLETED, content="답", usage=usage, made_at=timezone.now()
    )
    close_turn(lease=claim_job(Run, turn.run.pk), outcome=outcome)
    assert count_tokens_this_month(owner.pk) == 0


def test_a_rule_of_no_questions_refuses_the_first_one(owner):
    QuotaRule.objects.create(user=owner, measure="messages_today", hard=0)
    with pytest.raises(QuotaMessages):
        count_question(owner.pk)


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
