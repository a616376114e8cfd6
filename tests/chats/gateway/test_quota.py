"""The gateway's questions count with all others."""

import pytest

from chats.models import Chat
from chats.services.chats import count_question, count_questions_today
from tests.chats.gateway.wire import connect_program, make_body

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.mark.parametrize("headers", [{}, {"X-Chat-Id": "c-1"}], ids=["stateless", "in a chat"])
def test_a_question_too_many_is_429_in_the_shape_of_openai(web, key, owner, settings, headers):
    settings.QUOTA_MESSAGES_PER_DAY = 1
    count_question(owner.pk)
    with connect_program(web, key, **headers) as http:
        response = http.post("/chat/completions", json=make_body())
    error = response.json()["error"]
    assert (response.status_code, error["code"]) == (429, "quota_messages")
    assert error["type"] == "rate_limit_error"
    assert 0 < int(response.headers["Retry-After"]) <= 24 * 3600
    assert not Chat.objects.exists()


def test_a_question_that_is_stored_nowhere_is_counted(client, answers_worker, owner):
    client.chat.completions.create(model="nura", messages=[{"role": "user", "content": "안녕"}])
    assert count_questions_today(owner.pk) == 1
