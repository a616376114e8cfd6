"""A user who is deleted while something of his is under way: that ends first, and nothing fails."""

from concurrent.futures import ThreadPoolExecutor

import pytest
from django.contrib.auth.models import User
from django.db import transaction

from chats.calls import released
from chats.models import Chat, Run
from chats.services.chats import create_chat
from chats.services.turns import open_turn
from documents.models import Document
from nura.accounts.services import delete_user
from tests.chats.conftest import make_document
from tests.chats.turns import end
from tests.locks import has_waiting
from tests.support import wait_until

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def chat(minsu):
    return create_chat(owner=minsu, title="t")


def delete_during(user, change):
    """Begin to delete the user before what `change` does is committed."""
    with ThreadPoolExecutor(1) as pool:
        with transaction.atomic():
            finish = change()
            deleted = pool.submit(released, delete_user, user=user)
            wait_until(has_waiting)
            finish()
        deleted.result(20)


def test_a_question_that_is_being_stored_is_stored_first(minsu, stranger, chat):
    document = make_document(minsu)
    other = make_document(stranger)

    def ask():
        open_turn(user=minsu, content="질문", chat_id=chat.pk, document_ids=[document.pk])
        return lambda: None

    delete_during(minsu, ask)
    assert not Chat.objects.exists()
    assert list(Document.objects.all()) == [other]
    assert list(User.objects.all()) == [stranger]


def test_an_answer_that_is_being_stored_is_stored_first(minsu, chat):
    turn = open_turn(user=minsu, content="질문", chat_id=chat.pk)

    def answer():
        Run.objects.select_for_update().get(pk=turn.run.pk)
        return lambda: end(turn)

    delete_during(minsu, answer)
    assert not User.objects.exists()
    assert not Run.objects.exists()
