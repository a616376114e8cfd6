"""Answers written anew and questions asked in other words."""

import pytest

from chats.models import Message
from chats.services.chats import create_chat
from chats.services.turns import open_turn
from tests.chats.conftest import client, make_document
from tests.chats.turns import open_answered_turn

pytestmark = pytest.mark.django_db(transaction=True)


def post(api, message, what, body=None):
    return api.post(f"/api/v1/messages/{message.pk}/{what}?wait=false", body, format="json")


def test_a_new_answer_stands_beside_the_old_one(api, owner):
    turn = open_answered_turn(owner)
    made = post(api, turn.assistant_message, "regenerate")
    assert made.status_code == 202
    assert made.data["assistant_message"]["parent_id"] == str(turn.user_message.pk)
    assert Message.objects.filter(parent=turn.user_message).count() == 2


def test_an_edited_question_stands_beside_the_old_one_with_its_documents(api, owner):
    document = make_document(owner)
    first = open_answered_turn(owner)
    chat_id = first.user_message.chat_id
    second = open_answered_turn(owner, "둘째", chat_id=chat_id, document_ids=[document.pk])
    made = post(api, second.user_message, "edit", {"content": "다르게 물어요"})
    question = made.data["user_message"]
    assert question["parent_id"] == str(first.assistant_message.pk)
    assert question["document_ids"] == [str(document.pk)]
    assert question["content"] == "다르게 물어요"


def test_an_answer_that_is_being_written_is_not_written_anew(api, owner):
    turn = open_turn(user=owner, content="질문")
    answer = post(api, turn.assistant_message, "regenerate")
    assert (answer.status_code, answer.json()["code"]) == (409, "still_answering")


def test_questions_are_edited_and_answers_written_anew_not_the_other_way_round(api, owner):
    turn = open_answered_turn(owner)
    assert post(api, turn.user_message, "regenerate").json()["code"] == "wrong_role"
    edit = post(api, turn.assistant_message, "edit", {"content": "x"})
    assert edit.json()["code"] == "wrong_role"


def test_an_empty_edit_stores_nothing(api, owner):
    turn = open_answered_turn(owner)
    assert post(api, turn.user_message, "edit", {"content": " "}).status_code == 400
    assert Message.objects.count() == 2


def test_a_stranger_cannot_branch(api, owner, stranger):
    turn = open_answered_turn(owner)
    create_chat(owner=stranger, title="t")
    theirs = client(stranger)
    assert post(theirs, turn.assistant_message, "regenerate").status_code == 404
    assert post(theirs, turn.user_message, "edit", {"content": "x"}).status_code == 404
    assert Message.objects.count() == 2


def ask(api, **body):
    return api.post("/api/v1/messages?wait=false", {"content": "이어서"} | body, format="json")


def test_a_question_may_follow_an_older_branch(api, owner):
    first = open_answered_turn(owner)
    chat_id = first.user_message.chat_id
    open_answered_turn(owner, "둘째", chat_id=chat_id)
    made = ask(api, chat_id=chat_id, parent_id=first.assistant_message.pk)
    assert made.data["user_message"]["parent_id"] == str(first.assistant_message.pk)


def test_a_question_follows_messages_of_its_own_chat_only(api, owner, stranger):
    mine, other, theirs = (
        open_answered_turn(owner),
        open_answered_turn(owner, "다른 대화"),
        open_answered_turn(stranger),
    )
    chat_id = mine.user_message.chat_id
    for parent in (other.assistant_message, theirs.assistant_message):
        assert ask(api, chat_id=chat_id, parent_id=parent.pk).status_code == 404
    assert ask(api, parent_id=mine.assistant_message.pk).status_code == 404
    assert Message.objects.count() == 6
