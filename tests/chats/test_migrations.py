"""What migrations make of answers that earlier versions wrote."""

import importlib
from types import SimpleNamespace

import pytest
from django.apps import apps
from django.utils import timezone

from chats import records
from chats.models import Chat, Message, Turn
from rag.conversation import DocRef
from tests.chats.conftest import make_document
from tests.chats.turns import gone, known_after, source

fill_turns = importlib.import_module("chats.migrations.0003_fill_turns")
pytestmark = pytest.mark.django_db(transaction=True)


class Old:
    """A chat as the first version stored it."""

    def __init__(self, owner):
        self.chat = Chat.objects.create(owner=owner, title="옛 대화")

    def say(self, text, parent=None, *, sources=None, status="COMPLETED"):
        question = self._store(parent, "user", text)
        return self._store(
            question, "assistant", f"{text} 답", sources=sources, status=status, mode="general"
        )

    def _store(self, parent, role, content, **fields):
        return Message.objects.create(
            chat=self.chat,
            parent=parent,
            role=role,
            content=content,
            created_at=timezone.now(),
            **fields,
        )


def migrate():
    fill_turns.fill(apps, SimpleNamespace())
    return {turn.message_id: turn for turn in Turn.objects.all()}


def test_each_old_answer_becomes_a_turn_of_its_branch(owner):
    old = Old(owner)
    first = old.say("하나")
    second = old.say("둘", first)
    other = old.say("다시", first, status="STOPPED")
    third = old.say("셋", second)
    turns = migrate()
    assert [turns[one.pk].number for one in (first, second, other, third)] == [1, 2, 2, 3]
    assert turns[third.pk].parent == turns[second.pk]
    assert turns[other.pk].parent == turns[first.pk]
    assert (turns[second.pk].user_text, turns[second.pk].assistant_text) == ("둘", "둘 답")
    assert turns[second.pk].ts == second.created_at


def test_an_answer_that_is_being_written_is_no_turn_yet(owner):
    old = Old(owner)
    open_answer = old.say("하나", status="STREAMING")
    after = old.say("둘", open_answer)
    turns = migrate()
    assert (list(turns), turns[after.pk].number) == ([after.pk], 1)


def test_old_sources_become_documents_of_the_turn(owner):
    document = make_document(owner, name="규정.pdf")
    old = Old(owner)
    lost = gone()
    shown = [
        source(document, 1, similarity=0.4, text="가"),
        source(document, 1, index=2, similarity=0.7, text="나"),
        source(lost, 2),
    ]
    first = old.say("하나", sources=shown)
    second = old.say("둘", first)
    turns = migrate()
    known, unknown = records.turn(turns[first.pk]).doc_refs
    assert known == DocRef(
        1,
        document.pk,
        "규정",
        "규정.pdf",
        f"/api/v1/documents/{document.pk}/file",
        1,
        document.sha256,
        (f"{document.pk}_0", f"{document.pk}_2"),
        ("가", "나"),
        "나",
        "",
        0.7,
    )
    assert (str(unknown.document_id), unknown.title) == (lost, "없는 파일")
    assert turns[second.pk].shown == turns[first.pk]
    assert known_after(turns[second.pk]).memory.document_ids == (document.pk,)


def test_documents_that_an_old_answer_cites_are_remembered_first(owner):
    one, two = make_document(owner), make_document(owner)
    shown = [source(one, 1, cited=False), source(two, 2)]
    first = Old(owner).say("하나", sources=shown)
    turn = migrate()[first.pk]
    assert [item["document_id"] for item in turn.remembered] == [str(two.pk), str(one.pk)]
    assert turn.document_ids == [one.pk, two.pk]


def test_a_deleted_chat_keeps_its_turns_hidden(owner):
    old = Old(owner)
    old.say("하나")
    Chat.objects.update(deleted_at=timezone.now())
    assert len(migrate()) == 1
    assert not Turn.objects.visible_to(owner).exists()
