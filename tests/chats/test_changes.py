"""A chat that several change at once: each of them gets what he changed, and nobody an error."""

from concurrent.futures import ThreadPoolExecutor

import pytest
from django.db import transaction

from chats.errors import NotFound
from chats.models import Chat
from chats.services.chats import create_chat, delete_chat, update_chat
from jobs.connections import run_and_release
from tests.chats.conftest import make_document
from tests.locks import has_waiting
from tests.support import wait_until

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def chat(owner):
    return create_chat(owner=owner, title="t")


def test_a_change_leaves_alone_what_another_has_changed_meanwhile(chat):
    seen = Chat.objects.get(pk=chat.pk)
    update_chat(chat=chat, changes={"title": "새 이름"})
    update_chat(chat=seen, changes={"history_pairs": 3})
    now = Chat.objects.get(pk=chat.pk)
    assert (now.title, now.history_pairs) == ("새 이름", 3)


def test_two_changes_at_once_are_made_one_after_the_other(owner, chat):
    one, other = make_document(owner).pk, make_document(owner).pk
    with ThreadPoolExecutor(1) as pool:
        with transaction.atomic():
            update_chat(chat=chat, changes={"document_ids": [one]})
            second = pool.submit(
                run_and_release, update_chat, chat=chat, changes={"document_ids": [other, one]}
            )
            wait_until(has_waiting)
            update_chat(chat=chat, changes={"document_ids": [one, other]})
        second.result(20)
    assert set(chat.document_links.values_list("document_id", flat=True)) == {one, other}


def test_a_chat_that_was_deleted_meanwhile_is_not_changed(chat):
    delete_chat(chat=chat)
    with pytest.raises(NotFound):
        update_chat(chat=chat, changes={"title": "새 이름"})
    assert Chat.objects.get(pk=chat.pk).title == "t"
