"""What a question is told of its conversation, and what programs see of it."""

import asyncio
import uuid

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from chats.history import Branch, BranchHistory, load_conversation
from chats.models import Chat, Message, Turn
from chats.runs import answering
from chats.services.chats import clear_memory, delete_chat
from chats.services.turns import open_turn
from rag.types import QuestionType, Topic
from tests.chats.conftest import client, make_document
from tests.chats.engines import Delta, make_finished
from tests.chats.test_answering import play, run_to_its_end
from tests.chats.turns import (
    add_answer,
    add_turn,
    answer_turn,
    build_source,
    load_conversation_after,
    make_missing_id,
)

__all__ = ["play"]
pytestmark = pytest.mark.django_db(transaction=True)


def load_history(turn):
    message = Message.objects.select_related("chat__owner").get(pk=turn.message_id)
    return BranchHistory(Branch.to_message(message), embedding="model-a")


def load(opened):
    (claimed,) = answering.claim_run(opened.run.pk)
    return answering.load_question(claimed.run, claimed.space_in_use)


def reload_turn(turn):
    return Turn.objects.select_related("chat").get(pk=turn.pk)


def make_talk(owner, count, document):
    """So many turns, the first about the document; the last of them."""
    turn = add_turn(owner, "질문 1", document)
    for number in range(2, count + 1):
        turn = add_turn(owner, f"질문 {number}", parent=turn, content=f"답 {number}")
    return turn


def test_a_first_question_knows_nothing(owner):
    opened = open_turn(user=owner, content="질문")
    conversation = load(opened).question.conversation
    assert (conversation.total, conversation.last_turn, conversation.readable) == (0, None, {})


def test_a_question_knows_the_turns_of_its_branch_and_no_others(owner):
    document, other = make_document(owner), make_document(owner, name="다른.md")
    first = add_turn(owner, "하나", document)
    left = add_turn(owner, "왼쪽", other, parent=first, content="왼쪽 답")
    right = add_answer(left, content="오른쪽 답")
    add_turn(owner, "더 왼쪽", parent=left)
    known = load_conversation_after(right)
    assert [turn.assistant_text for turn in known.turns] == ["답", "오른쪽 답"]
    assert [turn.number for turn in known.turns] == [1, 2]
    assert known.memory.document_ids == (document.pk,)
    assert set(known.readable) == {document.pk}
    assert known.shown_turn.number == 1


def test_a_long_conversation_is_read_by_its_end_and_counted_whole(owner):
    document = make_document(owner)
    known = load_conversation_after(make_talk(owner, 15, document), pairs=2)
    assert (known.total, len(known.turns)) == (15, 12)
    assert known.last_turn.user_text == "질문 15"
    assert (known.shown_turn.number, known.memory.document_ids) == (1, (document.pk,))
    assert known.shown_turn.doc_refs[0].document_id == document.pk


def test_the_number_of_queries_does_not_grow_with_the_conversation(owner):
    turn = make_talk(owner, 14, make_document(owner))
    counts = []
    for one in (Turn.objects.get(number=1), turn):
        opened = open_turn(user=owner, content="?", chat_id=one.chat_id, parent_id=one.message_id)
        (claimed,) = answering.claim_run(opened.run.pk)
        with CaptureQueriesContext(connection) as queries:
            answering.load_question(claimed.run, claimed.space_in_use)
        counts.append(len(queries))
    assert counts[0] == counts[1] <= 3


def test_the_last_turn_stands_in_the_memory(owner):
    turn = add_turn(owner, "기한은?", question_type="followup", content="14일입니다.")
    memory = load_conversation_after(turn).memory
    assert (memory.last_question, memory.last_answer) == ("기한은?", "14일입니다.")
    assert memory.last_question_type is QuestionType.FOLLOWUP


def test_an_answer_without_a_kind_leaves_none(owner):
    turn = add_turn(owner, "질문", question_type="")
    assert load_conversation_after(turn).memory.last_question_type is None


def test_a_cleared_memory_names_no_documents_until_the_next_ones(owner):
    first = add_turn(owner, "하나", make_document(owner))
    clear_memory(chat=first.chat)
    known = load_conversation_after(reload_turn(first))
    assert (known.memory.documents, known.shown_turn, known.total) == ((), None, 1)
    second = add_turn(owner, "둘", parent=first)
    assert (load_conversation_after(second).memory.documents, second.remembered) == ((), [])
    document = make_document(owner, name="새.md")
    third = add_turn(owner, "셋", document, parent=second)
    assert load_conversation_after(third).memory.document_ids == (document.pk,)
    assert load_conversation_after(third).shown_turn.number == 3


def test_an_answer_that_was_asked_before_the_memory_was_cleared_does_not_fill_it(owner):
    opened = open_turn(user=owner, content="질문")
    clear_memory(chat=opened.user_message.chat)
    turn = answer_turn(opened, make_document(owner))
    assert load_conversation_after(turn).memory.documents == ()


def test_a_deleted_document_is_not_remembered_but_kept_in_its_turn(owner):
    kept, deleted = make_document(owner), make_document(owner)
    turn = add_turn(owner, "질문", deleted, kept)
    deleted.delete()
    known = load_conversation_after(turn)
    assert known.memory.document_ids == (kept.pk,)
    assert known.readable == {kept.pk: 1}
    assert len(known.last_turn.doc_refs) == 2
    assert known.last_turn.doc_refs[0].passages == ("본문",)


def test_documents_that_are_not_the_owners_or_not_ready_cannot_be_read(owner, stranger):
    theirs, waiting = make_document(stranger), make_document(owner, status="PROCESSING")
    turn = add_turn(owner, "질문", theirs, waiting)
    known = load_conversation_after(turn)
    assert (known.readable, known.memory.documents) == ({}, ())


def test_a_document_of_an_earlier_turn_can_be_read_beside_the_scope(owner):
    earlier, named = make_document(owner), make_document(owner)
    first = add_turn(owner, "하나", earlier)
    opened = open_turn(user=owner, content="둘", chat_id=first.chat_id, document_ids=[named.pk])
    loaded = load(opened)
    assert loaded.question.scope.document_ids == (named.pk,)
    assert set(loaded.question.conversation.readable) == {earlier.pk}
    assert set(loaded.store._scope.documents) == {earlier.pk, named.pk}


def test_all_documents_can_be_asked_in_a_chat_that_has_its_own(owner):
    own, other = make_document(owner, name="하나.md"), make_document(owner, name="둘.md")
    first = open_turn(user=owner, content="하나", document_ids=[own.pk])
    later = open_turn(
        user=owner, content="둘", chat_id=first.assistant_message.chat_id, topic="all"
    )
    scope = later.assistant_message.scope
    assert (set(scope["document_ids"]), scope["reason"]) == ({str(own.pk), str(other.pk)}, "all")


def test_a_deliberate_new_subject_is_asked_without_memory(owner):
    first = add_turn(owner, "하나", make_document(owner))
    opened = open_turn(user=owner, content="둘", chat_id=first.chat_id, topic="new")
    question = load(opened).question
    assert (question.topic, question.conversation.memory.documents) == (Topic.NEW, ())
    assert question.conversation.total == 1


def test_a_conversation_begins_where_it_was_last_begun_anew(owner):
    first = add_turn(owner, "하나")
    assert load_conversation_after(first).begins_at == 1
    bare = add_turn(owner, "새 주제로", parent=first, question_type="reset")
    assert (load_conversation_after(bare).begins_at, load_conversation_after(bare).last_turn) == (
        3,
        None,
    )
    asked = add_turn(owner, "셋", parent=bare)
    assert [turn.number for turn in load_conversation_after(asked).current_turns] == [3]


def test_a_question_that_begins_anew_belongs_to_what_it_begins(owner):
    first = add_turn(owner, "하나")
    anew = add_turn(owner, "둘", parent=first, topic="new")
    assert load_conversation_after(add_turn(owner, "셋", parent=anew)).begins_at == 2


def test_a_cleared_memory_is_a_new_start(owner):
    first = add_turn(owner, "하나")
    clear_memory(chat=first.chat)
    assert load_conversation_after(reload_turn(first)).begins_at == 2
    second = add_turn(owner, "둘", parent=first)
    assert [turn.number for turn in load_conversation_after(second).current_turns] == [2]


def test_another_branch_is_not_begun_anew(owner):
    first = add_turn(owner, "하나")
    add_turn(owner, "새 주제로", parent=first, question_type="reset")
    assert load_conversation_after(add_turn(owner, "다른 길", parent=first)).begins_at == 1


def test_the_newest_running_summary_of_the_branch_counts(owner):
    first = add_turn(owner, "하나")
    second = add_turn(owner, "둘", parent=first)
    other = add_answer(second)
    Turn.objects.filter(pk=first.pk).update(running_summary="요약", running_through=1)
    Turn.objects.filter(pk=other.pk).update(running_summary="다른 요약", running_through=1)
    assert load_conversation_after(add_turn(owner, "셋", parent=second)).summary.text == "요약"
    assert load_conversation_after(other).summary.text == "다른 요약"


def test_the_engine_is_given_the_history_of_the_branch(owner, play):
    first = add_turn(owner, "하나", make_document(owner))
    engine = play(Delta("답"), make_finished())
    run_to_its_end(open_turn(user=owner, content="둘", chat_id=first.chat_id))
    (history,) = engine.histories
    assert [line.question for line in history.list_turns(10)] == ["하나"]


def test_a_history_lists_newest_first_and_up_to_a_number(owner):
    history = load_history(make_talk(owner, 5, make_document(owner)))
    assert [line.number for line in history.list_turns(2)] == [5, 4]
    assert [line.number for line in history.list_turns(2, before=4)] == [3, 2]
    assert history.list_turns(0) == []
    assert len(history.list_turns(10)[-1].document_ids) == 1


def test_a_line_has_the_vector_of_the_model_in_use_only(owner):
    turn = make_talk(owner, 2, make_document(owner))
    Turn.objects.filter(number=1).update(vector=[0.5, 0.5], embedding="model-a", terms={"말": 2})
    Turn.objects.filter(number=2).update(vector=[0.5, 0.5], embedding="model-b")
    second, first = load_history(turn).list_turns(10)
    assert (first.vector, dict(first.terms)) == ((0.5, 0.5), {"말": 2})
    assert (second.vector, dict(second.terms)) == (None, {})


def test_a_history_opens_turns_by_number_and_knows_no_others(owner):
    document = make_document(owner)
    add_turn(owner, "다른 대화", make_document(owner))
    history = load_history(make_talk(owner, 3, document))
    assert [turn.number for turn in history.get_turns([3, 1, 99, 1])] == [1, 3]
    assert [ref.document_id for ref in history.list_documents()] == [document.pk]


def test_documents_of_the_session_are_numbered_by_their_first_appearance(owner):
    one, two, three = (make_document(owner, name=f"{n}.md") for n in range(3))
    first = add_turn(owner, "하나", two, one)
    second = add_turn(owner, "둘", three, two, parent=first)
    found = [(ref.slot, ref.document_id) for ref in load_history(second).list_documents()]
    assert found == [(1, two.pk), (2, one.pk), (3, three.pk)]


def test_a_history_gives_its_connection_back(owner):
    history = load_history(add_turn(owner, "하나"))

    async def look():
        return await asyncio.to_thread(lambda: (history.list_turns(1), connection.connection))

    lines, held = asyncio.run(look())
    assert (len(lines), held) == (1, None)


def get(api, chat_id, path, **query):
    return api.get(f"/api/v1/chats/{chat_id}/{path}", query)


def test_the_memory_of_a_chat_is_shown(api, owner):
    first, second = make_document(owner, name="하나.md"), make_document(owner, name="둘.md")
    shown = [build_source(first, 1, cited=False), build_source(second, 2, similarity=0.8)]
    turn = add_turn(owner, "질문", sources=shown)
    memory = get(api, turn.chat_id, "memory").json()
    assert memory["document_ids"] == [str(second.pk)]
    assert memory["documents"][0] == {
        "document_id": str(second.pk),
        "title": "둘",
        "name": "둘.md",
        "score": 0.8,
    }
    told = [memory[f"last_{name}"] for name in ("question", "answer", "question_type")]
    assert told == ["질문", "답", "single"]
    assert memory["updated_at"]


def test_a_chat_in_which_nothing_was_said_remembers_nothing(api, owner):
    chat = Chat.objects.create(owner=owner, title="t")
    memory = get(api, chat.pk, "memory").json()
    assert (memory["document_ids"], memory["last_question"], memory["updated_at"]) == (
        [],
        None,
        None,
    )


def test_clearing_the_memory_keeps_the_turns(api, owner):
    turn = add_turn(owner, "질문", make_document(owner))
    before = get(api, turn.chat_id, "memory").json()["updated_at"]
    assert api.delete(f"/api/v1/chats/{turn.chat_id}/memory").status_code == 204
    memory = get(api, turn.chat_id, "memory").json()
    assert (memory["document_ids"], memory["last_question"]) == ([], "질문")
    assert memory["updated_at"] > before
    assert get(api, turn.chat_id, "turns").json()["count"] == 1


def test_the_memory_is_that_of_the_branch_in_which_something_was_said_last(api, owner):
    one, two = make_document(owner), make_document(owner)
    first = add_turn(owner, "하나", one)
    add_answer(first, two)
    assert get(api, first.chat_id, "memory").json()["document_ids"] == [str(two.pk)]


def test_turns_come_in_pages_oldest_first(api, owner):
    turn = make_talk(owner, 3, make_document(owner))
    page = get(api, turn.chat_id, "turns", page_size=2).json()
    assert (page["count"], [row["number"] for row in page["results"]]) == (3, [1, 2])
    assert page["next"]
    row = page["results"][0]
    assert row["turn_id"] == str(Turn.objects.get(number=1).pk)
    assert "passages" not in row["doc_refs"][0]


@pytest.mark.parametrize("q", ["숙박", "상한은", "구십"])
def test_turns_are_searched_by_question_answer_and_summary(api, owner, q):
    first = add_turn(owner, "숙박비는?", content="상한은 구만 원")
    Turn.objects.filter(pk=first.pk).update(summary="구십 퍼센트")
    add_turn(owner, "고마워", parent=first)
    found = get(api, first.chat_id, "turns", q=q).json()
    assert [row["number"] for row in found["results"]] == [1]
    assert get(api, first.chat_id, "turns", q="%").json()["count"] == 0


def test_a_turn_and_its_documents_are_found_by_number(api, owner):
    document = make_document(owner)
    turn = add_turn(owner, "질문", document)
    assert get(api, turn.chat_id, "turns/1").json()["user_text"] == "질문"
    (ref,) = get(api, turn.chat_id, "turns/1/documents").json()
    assert (ref["document_id"], ref["passages"]) == (str(document.pk), ["본문"])
    for path in ("turns/0", "turns/2", "turns/99999999999999999999", "turns/2/documents"):
        assert get(api, turn.chat_id, path).status_code == 404


def test_another_branch_is_shown_when_one_of_its_messages_is_named(api, owner):
    first = add_turn(owner, "하나", content="옛 답")
    add_answer(first, content="새 답")
    newest = get(api, first.chat_id, "turns/1").json()
    named = get(api, first.chat_id, "turns/1", message_id=first.message_id).json()
    assert (newest["assistant_text"], named["assistant_text"]) == ("새 답", "옛 답")


def test_a_message_of_another_chat_names_no_branch(api, owner, stranger):
    mine, other, theirs = add_turn(owner, "하나"), add_turn(owner, "둘"), add_turn(stranger, "셋")
    for message_id in (other.message_id, theirs.message_id, uuid.uuid4()):
        assert get(api, mine.chat_id, "turns", message_id=message_id).status_code == 404
    assert get(api, mine.chat_id, "turns", message_id="x").status_code == 400


def test_a_stranger_sees_neither_memory_nor_turns(owner, stranger):
    turn = add_turn(owner, "질문", make_document(owner))
    theirs = client(stranger)
    for path in ("memory", "turns", "turns/1", "turns/1/documents"):
        foreign = get(theirs, turn.chat_id, path)
        assert (foreign.status_code, foreign.json()) == (
            404,
            get(theirs, make_missing_id(), path).json(),
        )
    assert theirs.delete(f"/api/v1/chats/{turn.chat_id}/memory").status_code == 404
    assert Chat.objects.get().memory_cleared_at is None


def test_a_deleted_chat_shows_neither_memory_nor_turns(api, owner):
    turn = add_turn(owner, "질문")
    delete_chat(chat=turn.chat)
    for path in ("memory", "turns", "turns/1"):
        assert get(api, turn.chat_id, path).status_code == 404
    assert not Turn.objects.visible_to(owner).exists()


def test_the_user_says_how_a_question_is_bound(api, owner):
    body = {"content": "질문", "topic": "wider"}
    made = api.post("/api/v1/messages?wait=false", body, format="json").json()
    assert made["assistant_message"]["scope"]["topic"] == "wider"
    wrong = api.post("/api/v1/messages?wait=false", body | {"topic": "x"}, format="json")
    assert wrong.status_code == 400


def test_an_answer_is_written_anew_with_another_bond(api, owner):
    turn = add_turn(owner, "질문")
    path = f"/api/v1/messages/{turn.message_id}/regenerate?wait=false"
    made = api.post(path, {"topic": "new"}, format="json").json()
    assert made["assistant_message"]["scope"]["topic"] == "new"
    assert load_conversation(Branch.find_newest(turn.chat), pairs=10).total == 0
