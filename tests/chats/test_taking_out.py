"""Messages deleted, questions reworded in their place, chats forked."""

import pytest

from chats.models import Chat, Message, Run, Turn
from chats.runs import log
from chats.services.turn_store import AnswerOutcome
from chats.services.turns import close_turn, open_turn
from jobs import connections
from jobs.lease import claim_job
from tests.chats.conftest import client, make_document
from tests.chats.turns import open_answered_turn

pytestmark = pytest.mark.django_db(transaction=True)


def make_three_turns(owner):
    first = open_answered_turn(owner, "하나")
    chat_id = first.user_message.chat_id
    return (
        first,
        open_answered_turn(owner, "둘", chat_id=chat_id),
        open_answered_turn(owner, "셋", chat_id=chat_id),
    )


def delete(api, message):
    return api.delete(f"/api/v1/messages/{message.pk}")


def list_texts(api, chat_id):
    return [
        one["content"] for one in api.get(f"/api/v1/chats/{chat_id}/messages").json()["results"]
    ]


def test_a_pair_leaves_its_branch_and_what_followed_moves_up(api, owner):
    first, second, third = make_three_turns(owner)
    assert delete(api, second.assistant_message).status_code == 204
    assert list_texts(api, first.user_message.chat_id) == ["하나", "하나의 답", "셋", "셋의 답"]
    moved = api.get(f"/api/v1/messages/{third.user_message.pk}").json()
    assert moved["parent_id"] == str(first.assistant_message.pk)
    assert list(Turn.objects.values_list("number", "user_text")) == [(1, "하나"), (2, "셋")]
    assert not Run.objects.filter(pk=second.run.pk).exists()


def test_the_first_pair_of_a_chat_goes_too(api, owner):
    first, second, _third = make_three_turns(owner)
    assert delete(api, first.user_message).status_code == 204
    assert api.get(f"/api/v1/messages/{second.user_message.pk}").json()["parent_id"] is None
    assert delete(api, first.user_message).status_code == 404


def test_an_answer_with_another_beside_it_leaves_the_question_to_that_one(api, owner):
    first = open_answered_turn(owner)
    api.post(f"/api/v1/messages/{first.assistant_message.pk}/regenerate?wait=false")
    other = Message.objects.exclude(pk=first.assistant_message.pk).get(role="assistant")
    assert delete(api, other).json()["code"] == "still_answering"
    close_turn(
        lease=claim_job(Run, other.run.pk),
        outcome=AnswerOutcome(Message.Status.COMPLETED, "다른 답"),
    )
    assert delete(api, first.assistant_message).status_code == 204
    assert list_texts(api, first.user_message.chat_id) == ["질문", "다른 답"]


def test_nothing_that_is_being_written_is_deleted(api, owner):
    turn = open_turn(user=owner, content="질문")
    assert delete(api, turn.user_message).status_code == 409
    assert Message.objects.count() == 2


def test_a_deleted_pair_is_in_no_summary_and_no_log(api, owner):
    first, _second, third = make_three_turns(owner)
    Turn.objects.filter(message=third.assistant_message).update(
        running_summary="하나를 물었다.", running_through=2, running_model="m"
    )
    assert log.load_events(first.run.pk)
    delete(api, first.assistant_message)
    assert not Turn.objects.exclude(running_summary="").exists()
    assert not connections.get_client().exists(log.make_log_key(first.run.pk))


def test_a_follow_up_forgets_the_documents_of_a_deleted_pair(api, owner):
    document = make_document(owner)
    first = open_turn(user=owner, content="휴가", document_ids=[document.pk])
    source = {
        "slot": 1,
        "document_id": str(document.pk),
        "document_name": document.name,
        "chunk_id": f"{document.pk}_0",
        "page": 1,
        "similarity": 0.9,
        "content_preview": "휴가 규정",
        "section": "",
        "cited": True,
        "boxes": [],
    }
    close_turn(
        lease=claim_job(Run, first.run.pk),
        outcome=AnswerOutcome(Message.Status.COMPLETED, "답", mode="documents", sources=[source]),
    )
    second = open_answered_turn(owner, "그럼?", chat_id=first.user_message.chat_id)
    follower = Turn.objects.get(message=second.assistant_message)
    assert follower.remembered
    delete(api, first.assistant_message)
    follower.refresh_from_db()
    assert (follower.remembered, follower.shown_id, follower.parent_id) == ([], None, None)


def save(api, message, content):
    return api.post(
        f"/api/v1/messages/{message.pk}/edit", {"content": content, "save_only": True}, "json"
    )


def test_saving_other_words_asks_nothing(api, owner):
    first, _second, _third = make_three_turns(owner)
    before = Message.objects.count()
    response = save(api, first.user_message, "  하나만  ")
    assert (response.status_code, response.json()["content"]) == (200, "하나만")
    assert Message.objects.count() == before
    turn = Turn.objects.get(message=first.assistant_message)
    assert (turn.user_text, turn.summarised_at) == ("하나만", None)


def test_only_questions_are_reworded(api, owner):
    turn = open_answered_turn(owner)
    assert save(api, turn.assistant_message, "x").json()["code"] == "wrong_role"
    assert save(api, turn.user_message, "  ").status_code == 400


def fork(api, chat_id, message):
    return api.post(f"/api/v1/chats/{chat_id}/fork", {"message_id": str(message.pk)}, "json")


def test_a_fork_holds_the_branch_up_to_the_message_and_shares_nothing(api, owner):
    document = make_document(owner)
    first, second, _third = make_three_turns(owner)
    chat_id = first.user_message.chat_id
    api.patch(f"/api/v1/chats/{chat_id}", {"document_ids": [str(document.pk)]}, "json")
    made = fork(api, chat_id, second.assistant_message)
    assert made.status_code == 201
    new = made.json()["id"]
    assert made.json()["document_ids"] == [str(document.pk)]
    assert list_texts(api, new) == ["하나", "하나의 답", "둘", "둘의 답"]
    assert [
        one["user_text"] for one in api.get(f"/api/v1/chats/{new}/turns").json()["results"]
    ] == [
        "하나",
        "둘",
    ]
    api.delete(f"/api/v1/messages/{first.assistant_message.pk}")
    assert len(list_texts(api, new)) == 4


def test_a_fork_at_a_question_ends_with_its_answer(api, owner):
    first, _second, _third = make_three_turns(owner)
    made = fork(api, first.user_message.chat_id, first.user_message)
    assert list_texts(api, made.json()["id"]) == ["하나", "하나의 답"]


def test_a_fork_waits_for_the_answer(api, owner):
    turn = open_turn(user=owner, content="질문")
    assert fork(api, turn.user_message.chat_id, turn.user_message).status_code == 409
    assert Chat.objects.count() == 1


def test_a_message_of_another_chat_is_not_found(api, owner):
    first, other = open_answered_turn(owner), open_answered_turn(owner)
    assert fork(api, first.user_message.chat_id, other.user_message).status_code == 404


def test_a_stranger_deletes_rewords_and_forks_nothing(owner, stranger):
    turn = open_answered_turn(owner)
    theirs = client(stranger)
    assert delete(theirs, turn.assistant_message).status_code == 404
    assert save(theirs, turn.user_message, "x").status_code == 404
    assert fork(theirs, turn.user_message.chat_id, turn.user_message).status_code == 404
    own = open_answered_turn(stranger)
    assert fork(theirs, own.user_message.chat_id, turn.user_message).status_code == 404
    assert Message.objects.filter(chat=turn.user_message.chat_id).count() == 2
