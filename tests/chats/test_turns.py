"""Opening and closing turns."""

import uuid
from dataclasses import replace

import pytest
from django.db import connection

from chats.errors import EmptyMessage, NotFound
from chats.models import Category, Chat, Message, MessageDocument, Run
from chats.services import chats as chat_services
from chats.services.turn_store import AnswerOutcome
from chats.services.turns import close_turn, edit_question, open_turn, regenerate_answer
from jobs.lease import claim_job
from tests.chats.conftest import make_document

pytestmark = pytest.mark.django_db(transaction=True)


def test_the_first_message_makes_a_chat_named_by_its_first_50_characters(owner):
    turn = open_turn(user=owner, content="가" * 70)
    assert turn.user_message.chat.title == "가" * 49 + "…"


def test_a_line_break_in_the_first_message_does_not_break_the_title(owner):
    turn = open_turn(user=owner, content="첫 줄\n둘째 줄")
    assert turn.user_message.chat.title == "첫 줄 둘째 줄"


def test_text_is_kept_in_nfc(owner):
    turn = open_turn(user=owner, content="\u1112\u1161\u11ab\u1100\u1173\u11af")
    assert turn.user_message.content == "한글"


@pytest.mark.parametrize("content", ["", "   \n\t ", "\u200b\ufeff \u2060"])
def test_an_empty_message_stores_nothing(owner, content):
    with pytest.raises(EmptyMessage):
        open_turn(user=owner, content=content)
    assert not Chat.objects.exists()


def test_named_documents_are_linked_to_a_new_chat_and_to_the_message(owner):
    document = make_document(owner)
    turn = open_turn(user=owner, content="질문", document_ids=[document.pk])
    assert list(turn.user_message.chat.documents.all()) == [document]
    assert MessageDocument.objects.get().message == turn.user_message
    assert turn.assistant_message.scope == {
        "document_ids": [str(document.pk)],
        "reason": "explicit",
    }


def test_named_documents_come_before_those_of_the_chat(owner):
    of_chat, named = make_document(owner), make_document(owner)
    chat = chat_services.create_chat(owner=owner, title="t", document_ids=[of_chat.pk])
    turn = open_turn(user=owner, chat_id=chat.pk, content="질문", document_ids=[named.pk])
    assert turn.assistant_message.scope["document_ids"] == [str(named.pk)]


def test_the_documents_of_the_chat_come_before_all_others(owner):
    make_document(owner)
    of_chat = make_document(owner)
    chat = chat_services.create_chat(owner=owner, title="t", document_ids=[of_chat.pk])
    turn = open_turn(user=owner, chat_id=chat.pk, content="질문")
    assert turn.assistant_message.scope == {
        "document_ids": [str(of_chat.pk)],
        "reason": "chat",
    }


def test_without_any_named_all_completed_documents_of_the_user_are_read(owner, stranger):
    mine = make_document(owner)
    make_document(owner, status="PROCESSING")
    make_document(stranger)
    turn = open_turn(user=owner, content="질문")
    assert turn.assistant_message.scope == {"document_ids": [str(mine.pk)], "reason": "all"}


def test_a_named_document_that_is_not_ready_never_widens_the_scope(owner):
    make_document(owner)
    waiting = make_document(owner, status="PROCESSING")
    turn = open_turn(user=owner, content="질문", document_ids=[waiting.pk])
    assert turn.assistant_message.scope == {"document_ids": [], "reason": "explicit"}


@pytest.mark.parametrize("what", ["document_ids", "chat_id", "category_id"])
def test_an_id_of_a_stranger_is_not_found_and_nothing_is_stored(owner, stranger, what):
    foreign = {
        "document_ids": [make_document(stranger).pk],
        "chat_id": chat_services.create_chat(owner=stranger, title="t").pk,
        "category_id": Category.objects.create(owner=stranger, name="c").pk,
    }
    with pytest.raises(NotFound):
        open_turn(user=owner, content="질문", **{what: foreign[what]})
    assert not Message.objects.exists()
    assert not Chat.objects.filter(owner=owner).exists()


def test_a_deleted_chat_takes_no_message(owner):
    chat = chat_services.create_chat(owner=owner, title="t")
    chat_services.delete_chat(chat=chat)
    with pytest.raises(NotFound):
        open_turn(user=owner, content="질문", chat_id=chat.pk)


def test_the_same_client_id_gives_the_same_run(owner):
    first = open_turn(user=owner, content="질문", client_id="c-1")
    second = open_turn(user=owner, content="질문", client_id="c-1")
    assert (second.run.pk, second.created) == (first.run.pk, False)
    assert Message.objects.count() == 2


def test_equal_client_ids_of_two_users_are_two_runs(owner, stranger):
    first = open_turn(user=owner, content="질문", client_id="c-1")
    second = open_turn(user=stranger, content="질문", client_id="c-1")
    assert first.run.pk != second.run.pk


def test_a_failure_while_storing_leaves_nothing(owner):
    with connection.cursor() as cursor:
        cursor.execute("ALTER TABLE chats_run ADD CONSTRAINT broken CHECK (language = 'xx')")
    try:
        with pytest.raises(Exception, match="broken"):
            open_turn(user=owner, content="질문")
    finally:
        with connection.cursor() as cursor:
            cursor.execute("ALTER TABLE chats_run DROP CONSTRAINT broken")
    assert not Chat.objects.exists()
    assert not Message.objects.exists()


def test_an_answer_follows_its_question_and_the_branch_before_it(owner):
    first = open_turn(user=owner, content="하나")
    second = open_turn(user=owner, content="둘", chat_id=first.user_message.chat_id)
    assert first.assistant_message.parent == first.user_message
    assert second.user_message.parent == first.assistant_message


def test_closing_needs_the_claim_that_holds_the_run(owner):
    turn = open_turn(user=owner, content="질문")
    lease = claim_job(Run, turn.run.pk)
    done = AnswerOutcome(status=Message.Status.COMPLETED, content="답", mode="general")
    assert not close_turn(lease=replace(lease, token=uuid.uuid4()), outcome=done)
    assert close_turn(lease=lease, outcome=done)
    assert not close_turn(lease=lease, outcome=done)
    message = Message.objects.get(pk=turn.assistant_message.pk)
    assert (message.status, message.content) == ("COMPLETED", "답")
    assert Run.objects.get().claim is None


def test_a_chat_whose_documents_are_gone_does_not_turn_to_all_others(owner):
    make_document(owner)
    gone = make_document(owner)
    first = open_turn(user=owner, content="질문", document_ids=[gone.pk])
    gone.delete()
    again = open_turn(user=owner, content="질문", chat_id=first.user_message.chat_id)
    assert again.assistant_message.scope == {"document_ids": [], "reason": "chat"}


def test_an_answer_made_anew_reads_no_more_than_its_question_named(owner):
    make_document(owner)
    gone = make_document(owner)
    turn = open_turn(user=owner, content="질문", document_ids=[gone.pk])
    lease = claim_job(Run, turn.run.pk)
    done = AnswerOutcome(status=Message.Status.COMPLETED, content="답", mode="general")
    close_turn(lease=lease, outcome=done)
    gone.delete()
    question = Message.objects.get(pk=turn.user_message.pk)
    anew = regenerate_answer(
        message=Message.objects.get(pk=turn.assistant_message.pk), language="ko"
    )
    edited = edit_question(user=owner, message=question, content="다른 말", language="ko")
    for one in (anew, edited):
        assert one.assistant_message.scope == {"document_ids": [], "reason": "explicit"}


def test_opening_a_turn_asks_the_database_little(owner, django_assert_max_num_queries):
    """BEGIN and COMMIT, the chat, its last message, limits, count, scope, and what is stored."""
    chat_id = open_turn(user=owner, content="하나").user_message.chat_id
    with django_assert_max_num_queries(9):
        open_turn(user=owner, content="둘", chat_id=chat_id, client_id="c-2")
