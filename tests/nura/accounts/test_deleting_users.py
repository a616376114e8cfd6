"""A user who is deleted while something of his is under way: that ends first, and nothing fails."""

from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest
from django.contrib.auth.models import User
from django.db import transaction
from django.db.models.signals import pre_delete

from chats.models import Chat, Run
from chats.services.chats import create_chat
from chats.services.turns import close_turn, open_turn
from documents.models import Document
from jobs.connections import run_and_release
from jobs.lease import claim_job
from nura.accounts.deletion import delete_account
from tests.chats.conftest import make_document
from tests.chats.turns import build_outcome
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
            deleted = pool.submit(run_and_release, delete_account, user=user)
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


def test_a_chat_that_begins_while_the_rest_is_being_deleted_goes_with_it(minsu):
    """The rows to delete are known by then, and its owner is still there."""
    create_chat(owner=minsu, title="t")
    with ThreadPoolExecutor(1) as pool:
        begin = partial(pool.submit, run_and_release, open_turn, user=minsu, content="질문")
        begun = []

        def begin_once(**_):
            if not begun:
                begun.append(begin().result(20))

        pre_delete.connect(begin_once, sender=User)
        try:
            delete_account(user=minsu)
        finally:
            pre_delete.disconnect(begin_once, sender=User)
    assert begun
    assert not User.objects.exists()
    assert not Chat.objects.exists()


def test_an_answer_that_is_being_stored_is_stored_first(minsu, chat):
    turn = open_turn(user=minsu, content="질문", chat_id=chat.pk)
    lease = claim_job(Run, turn.run.pk)

    def answer():
        Run.objects.select_for_update().get(pk=turn.run.pk)
        return lambda: close_turn(lease=lease, outcome=build_outcome())

    delete_during(minsu, answer)
    assert not User.objects.exists()
    assert not Run.objects.exists()
