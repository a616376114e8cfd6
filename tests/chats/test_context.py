"""What is in play in a chat: its documents, last turns, running summary, and what was recalled."""

import asyncio

import pytest

from chats.models import Chat, Trace, Turn
from chats.runs.summaries import _load_turn, _store_summary, summarise_turn
from chats.services import memory
from jobs.lease import claim_job
from rag.factory import get_engine
from tests.chats.conftest import client, make_document
from tests.chats.turns import add_answer, add_turn, load_conversation_after

pytestmark = pytest.mark.django_db(transaction=True)


def to_url(chat_id):
    return f"/api/v1/chats/{chat_id}/context"


def read(api, chat_id, **query):
    response = api.get(to_url(chat_id), query)
    assert response.status_code == 200, response.data
    return response.json()


def make_talk(owner, turns, *documents):
    """A chat of so many turns, all of them summarised."""
    last = None
    for number in range(1, turns + 1):
        last = add_turn(
            owner, f"{number}번째 질문", *documents, parent=last, content=f"{number}번째 답"
        )
        asyncio.run(summarise_turn(last.pk))
    return Turn.objects.get(pk=last.pk)


@pytest.fixture
def long_talk(owner):
    return make_talk(owner, 16)


def test_a_new_chat_has_nothing_in_play(api, owner):
    chat_id = api.post("/api/v1/chats", {}, format="json").json()["id"]
    assert read(api, chat_id) == {
        "documents": [],
        "profile": [],
        "recent_turns": [],
        "running_summary": None,
        "recalled": [],
    }


def test_the_documents_and_the_last_turns_are_in_play(api, owner):
    document = make_document(owner, "규정.md")
    turn = make_talk(owner, 3, document)
    told = read(api, turn.chat_id)
    assert [one["document_id"] for one in told["documents"]] == [str(document.pk)]
    assert [one["number"] for one in told["recent_turns"]] == [1, 2, 3]
    assert told["recent_turns"][0]["user_text"] == "1번째 질문"


def test_turns_that_left_the_window_are_told_by_the_running_summary(api, long_talk):
    told = read(api, long_talk.chat_id)
    summary = told["running_summary"]
    assert "1번째 질문" in summary["text"]
    first = told["recent_turns"][0]["number"]
    assert first > summary["through"]
    assert told["recent_turns"][-1]["number"] == 16


def test_what_the_last_answer_recalled_is_named(api, owner):
    turn = make_talk(owner, 3)
    Trace.objects.filter(message=turn.message_id).update(steps={"history": {"selected": [1]}})
    (recalled,) = read(api, turn.chat_id)["recalled"]
    assert (recalled["number"], recalled["user_text"]) == (1, "1번째 질문")


def test_another_branch_has_a_context_of_its_own(api, owner):
    turn = make_talk(owner, 2)
    other = add_answer(turn, content="다른 답")
    told = read(api, turn.chat_id, message_id=turn.message_id)["recent_turns"]
    assert [one["message_id"] for one in told][-1] == str(turn.message_id)
    newest = read(api, turn.chat_id)["recent_turns"]
    assert [one["message_id"] for one in newest][-1] == str(other.message_id)


def test_a_person_puts_the_summary_into_his_own_words(api, long_talk):
    through = read(api, long_talk.chat_id)["running_summary"]["through"]
    body = {"running_summary": "페니실린 알레르기가 있다.", "through": through}
    told = api.patch(to_url(long_talk.chat_id), body, format="json").json()["running_summary"]
    assert told == {"text": "페니실린 알레르기가 있다.", "through": through, "model": "user"}
    assert load_conversation_after(long_talk).summary.text == "페니실린 알레르기가 있다."


def test_the_next_turns_are_folded_on_those_words(api, owner, long_talk):
    api.patch(to_url(long_talk.chat_id), {"running_summary": "페니실린 알레르기"}, format="json")
    last = long_talk
    for number in range(17, 23):
        last = add_turn(owner, f"{number}번째 질문", parent=last, content="답")
        asyncio.run(summarise_turn(last.pk))
    told = read(api, last.chat_id)["running_summary"]
    assert told["through"] > 10
    assert "페니실린 알레르기" in told["text"]


def test_words_of_a_person_are_not_folded_away_by_a_worker_that_read_the_old_ones(
    api, owner, long_talk
):
    last = long_talk
    while True:  # a turn that folds some more
        last = add_turn(owner, "또 다른 질문", parent=last, content="답")
        work = _load_turn(last.pk)
        if work.earlier_turns:
            break
        asyncio.run(summarise_turn(last.pk))
    lease = claim_job(Turn, last.pk)
    noted = asyncio.run(
        get_engine(work.config).note_turn(work.turn, work.earlier_turns, work.running_summary)
    )
    api.patch(to_url(long_talk.chat_id), {"running_summary": "내가 고친 요약"}, format="json")
    _store_summary(lease, noted, work)
    assert read(api, last.chat_id)["running_summary"]["text"] == "내가 고친 요약"


def test_a_summary_that_has_moved_on_is_not_overwritten(api, long_talk):
    through = read(api, long_talk.chat_id)["running_summary"]["through"]
    body = {"running_summary": "낡은 요약", "through": through - 1}
    response = api.patch(to_url(long_talk.chat_id), body, format="json")
    assert (response.status_code, response.json()["code"]) == (409, "summary_changed")
    assert "낡은" not in read(api, long_talk.chat_id)["running_summary"]["text"]


def test_there_is_no_summary_to_edit_in_a_short_chat(api, owner):
    turn = make_talk(owner, 2)
    response = api.patch(to_url(turn.chat_id), {"running_summary": "요약"}, format="json")
    assert (response.status_code, response.json()["code"]) == (409, "summary_changed")


def test_a_stranger_neither_reads_nor_changes_it(stranger, long_talk):
    theirs = client(stranger)
    assert theirs.get(to_url(long_talk.chat_id)).status_code == 404
    body = {"running_summary": "x"}
    assert theirs.patch(to_url(long_talk.chat_id), body, format="json").status_code == 404


def test_what_is_known_of_the_owner_is_in_play_where_the_chat_uses_it(api, owner):
    memory.add_slot(owner=owner, kind="preference", key="format", value="표로")
    turn = make_talk(owner, 1)
    (slot,) = read(api, turn.chat_id)["profile"]
    assert slot["value"] == "표로"
    assert slot["title"]
    Chat.objects.filter(pk=turn.chat_id).update(use_memory=False)
    assert read(api, turn.chat_id)["profile"] == []
