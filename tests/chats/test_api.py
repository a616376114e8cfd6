"""REST of conversations, with a real worker where an answer is awaited."""

import uuid

import pytest
from knox.models import AuthToken
from rest_framework.test import APIClient

from chats.models import Category, Chat, Message
from chats.runs import dispatch, log
from chats.services.chats import create_chat
from chats.services.turns import open_turn
from documents.models import Document
from tests.chats.conftest import client, make_document

pytestmark = pytest.mark.django_db(transaction=True)


def test_a_question_is_answered_in_one_call(api, answers_worker):
    answer = api.post("/api/v1/messages", {"content": "안녕하세요"}, format="json")
    assert answer.status_code == 201
    message = answer.data["assistant_message"]
    assert (message["status"], message["mode"], message["sources"]) == (
        "COMPLETED",
        "general",
        None,
    )
    assert message["content"]


def test_without_waiting_the_answer_is_streaming(api):
    answer = api.post("/api/v1/messages?wait=false", {"content": "안녕"}, format="json")
    assert answer.status_code == 202
    assert answer.data["assistant_message"]["status"] == "STREAMING"
    assert answer.data["assistant_message"]["run_id"] == answer.data["run_id"]


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"content": ""},
        {"content": "   "},
        {"content": "가" * 20_001},
        {"content": "a\u0000b"},
        {"content": ["list"]},
        {"content": "질문", "chat_id": "not-an-id"},
        {"content": "질문", "document_ids": "abc"},
        {"content": "질문", "document_ids": ["x"]},
        {"content": "질문", "document_ids": [str(uuid.uuid4()) for _ in range(1001)]},
    ],
)
def test_a_bad_message_is_a_problem_and_stores_nothing(api, body):
    answer = api.post("/api/v1/messages", body, format="json")
    assert answer.status_code == 400
    assert answer["Content-Type"].startswith("application/problem+json")
    assert answer.json()["code"]
    assert not Message.objects.exists()


def test_a_message_of_a_megabyte_is_refused(api):
    answer = api.post("/api/v1/messages", {"content": "a" * 1_000_000}, format="json")
    assert answer.status_code == 400


@pytest.mark.parametrize("field", ["chat_id", "category_id"])
def test_unknown_ids_are_404(api, field):
    body = {"content": "질문", field: str(uuid.uuid4())}
    assert api.post("/api/v1/messages", body, format="json").status_code == 404


def test_an_unknown_document_is_404(api):
    body = {"content": "질문", "document_ids": [str(uuid.uuid4())]}
    assert api.post("/api/v1/messages", body, format="json").status_code == 404


def test_chats_are_made_changed_and_deleted_softly(api, owner):
    document = make_document(owner)
    made = api.post("/api/v1/chats", {"title": "하나"}, format="json")
    assert made.status_code == 201
    path = f"/api/v1/chats/{made.data['id']}"
    body = {"title": "둘", "history_pairs": 3, "document_ids": [str(document.pk)]}
    changed = api.patch(path, body, format="json").data
    assert (changed["title"], changed["history_pairs"]) == ("둘", 3)
    assert changed["document_ids"] == [str(document.pk)]
    assert api.delete(path).status_code == 204
    assert api.get(path).status_code == 404
    assert Chat.objects.get().deleted_at is not None


def test_a_search_finds_chats_by_title_and_by_message(api, owner):
    create_chat(owner=owner, title="입찰 공고")
    open_turn(user=owner, content="연차 휴가는 며칠인가요?")
    create_chat(owner=owner, title="기타")
    titles = [row["title"] for row in api.get("/api/v1/chats?q=공고").data["results"]]
    assert titles == ["입찰 공고"]
    assert api.get("/api/v1/chats?q=연차").data["count"] == 1
    assert api.get("/api/v1/chats", {"q": "%"}).data["count"] == 0


def test_lists_come_in_pages(api, owner):
    for number in range(3):
        create_chat(owner=owner, title=str(number))
    page = api.get("/api/v1/chats?page_size=2").data
    assert (page["count"], len(page["results"]), page["previous"]) == (3, 2, None)
    assert page["next"]


def test_messages_come_oldest_first(api, owner):
    first = open_turn(user=owner, content="하나")
    open_turn(user=owner, content="둘", chat_id=first.user_message.chat_id)
    rows = api.get(f"/api/v1/chats/{first.user_message.chat_id}/messages").data["results"]
    assert [row["role"] for row in rows] == ["user", "assistant"] * 2
    assert rows[0]["content"] == "하나"
    assert rows[2]["parent_id"] == rows[1]["id"]


def test_a_category_has_one_name_for_its_owner(api, stranger):
    assert api.post("/api/v1/categories", {"name": "법령"}, format="json").status_code == 201
    assert api.post("/api/v1/categories", {"name": "법령"}, format="json").status_code == 400
    theirs = client(stranger).post("/api/v1/categories", {"name": "법령"}, format="json")
    assert theirs.status_code == 201


def test_a_chat_outlives_its_category(api, owner):
    category = Category.objects.create(owner=owner, name="법령")
    chat = create_chat(owner=owner, title="t", category_id=category.pk)
    api.delete(f"/api/v1/categories/{category.pk}")
    assert api.get(f"/api/v1/chats/{chat.pk}").data["category_id"] is None


def test_feedback_is_kept_once_and_may_change(api, owner):
    turn = open_turn(user=owner, content="질문")
    path = f"/api/v1/messages/{turn.assistant_message.pk}/feedback"
    assert api.post(path, {"value": 1}, format="json").status_code == 204
    assert api.post(path, {"value": -1, "reason": "틀림"}, format="json").status_code == 204
    message = api.get(f"/api/v1/messages/{turn.assistant_message.pk}").data
    assert message["feedback"] == {"value": -1, "reason": "틀림"}
    assert api.post(path, {"value": 5}, format="json").status_code == 400


def test_events_of_a_run_can_be_read_from_any_seq(api, owner, answers_worker):
    made = api.post("/api/v1/messages", {"content": "안녕하세요"}, format="json").data
    whole = stream_events(owner, made["run_id"])
    rest = stream_events(owner, made["run_id"], after=whole[0][0])
    assert [seq for seq, _ in whole] == list(range(1, len(whole) + 1))
    assert whole[0][1] == "run.started"
    assert whole[-1][1] == "run.completed"
    assert rest == whole[1:]


def stream_events(user, run_id, after=0):
    """(seq, type) of every event of a finished run, read with a key: a stream ends without one."""
    headers = {
        "Authorization": f"Token {AuthToken.objects.create(user)[1]}",
        "Last-Event-ID": str(after),
        "Accept": "text/event-stream",
    }
    answer = APIClient().get(f"/api/v1/runs/{run_id}/events", headers=headers)
    assert answer.status_code == 200
    from asgiref.sync import async_to_sync

    async def collect():
        return b"".join([part async for part in answer.streaming_content]).decode()

    blocks = async_to_sync(collect)().split("\n\n")
    fields = [dict(x.split(": ", 1) for x in b.split("\n")) for b in blocks if b.startswith("id")]
    return [(int(f["id"]), f["event"]) for f in fields]


def test_a_wrong_last_event_id_is_a_problem(api, owner):
    turn = open_turn(user=owner, content="질문")
    answer = api.get(f"/api/v1/runs/{turn.run.pk}/events?after_seq=-1")
    assert answer.status_code == 400


def test_stop_is_accepted_and_raises_the_flag(api, owner):
    turn = open_turn(user=owner, content="질문")
    assert api.post(f"/api/v1/runs/{turn.run.pk}/stop").status_code == 202
    assert log.is_stop_requested(turn.run.pk)


def test_search_reads_only(api, owner, answers_worker):
    make_document(owner)
    answer = api.post("/api/v1/search", {"query": "휴가"}, format="json")
    assert answer.status_code == 200
    assert set(answer.data) == {"plan", "relevant", "gate", "hits", "timings_ms"}
    assert not Message.objects.exists()


def test_filters_leave_out_documents_whose_metadata_says_otherwise(api, owner, answers_worker):
    theirs, ours = make_document(owner), make_document(owner)
    Document.objects.filter(pk=ours.pk).update(metadata={"issuer": "누라", "year": "2026"})
    body = {"query": "휴가", "filters": {"issuer": "누라"}}
    plan = api.post("/api/v1/search", body, format="json").data["plan"]
    assert (plan["document_ids"], plan["filters"]) == ([str(ours.pk)], {"issuer": "누라"})
    plan = api.post("/api/v1/search", body | {"filters": {}}, format="json").data["plan"]
    assert set(plan["document_ids"]) == {str(theirs.pk), str(ours.pk)}


def test_documents_of_a_chat_keep_the_order_in_which_they_were_named(api, owner):
    ids = [str(make_document(owner).pk) for _ in range(5)][::-1]
    body = {"title": "t", "document_ids": ids}
    assert api.post("/api/v1/chats", body, format="json").data["document_ids"] == ids


def test_a_stranger_gets_the_same_404_as_for_a_made_up_id(api, owner, stranger):
    turn = open_turn(user=owner, content="질문")
    theirs = client(stranger)
    calls = [
        ("get", "/api/v1/chats/{}", turn.user_message.chat_id, None),
        ("patch", "/api/v1/chats/{}", turn.user_message.chat_id, {"title": "x"}),
        ("delete", "/api/v1/chats/{}", turn.user_message.chat_id, None),
        ("get", "/api/v1/chats/{}/messages", turn.user_message.chat_id, None),
        ("get", "/api/v1/messages/{}", turn.assistant_message.pk, None),
        ("get", "/api/v1/messages/{}/trace", turn.assistant_message.pk, None),
        ("get", "/api/v1/messages/{}/sources", turn.assistant_message.pk, None),
        ("post", "/api/v1/messages/{}/feedback", turn.assistant_message.pk, {"value": 1}),
        ("get", "/api/v1/runs/{}/events", turn.run.pk, None),
        ("post", "/api/v1/runs/{}/stop", turn.run.pk, None),
    ]
    for method, path, pk, body in calls:
        foreign = getattr(theirs, method)(path.format(pk), body, format="json")
        made_up = getattr(theirs, method)(path.format(uuid.uuid4()), body, format="json")
        assert (foreign.status_code, foreign.json()) == (404, made_up.json()), path
    assert not log.is_stop_requested(turn.run.pk)
    assert Chat.objects.get(pk=turn.user_message.chat_id).deleted_at is None


def test_a_client_that_has_heard_the_end_is_told_nothing_more(api, owner, answers_worker):
    made = api.post("/api/v1/messages", {"content": "안녕하세요"}, format="json").data
    last = stream_events(owner, made["run_id"])[-1][0]
    assert stream_events(owner, made["run_id"], after=last) == []


def test_a_chat_tells_how_many_of_its_documents_are_gone(api, owner):
    kept, gone = make_document(owner), make_document(owner)
    chat = create_chat(owner=owner, title="t", document_ids=[kept.pk, gone.pk])
    gone.delete()
    shown = api.get(f"/api/v1/chats/{chat.pk}").data
    assert (shown["document_ids"], shown["documents_gone"]) == ([str(kept.pk)], 1)
    cleared = api.patch(f"/api/v1/chats/{chat.pk}", {"document_ids": []}, format="json").data
    assert (cleared["document_ids"], cleared["documents_gone"]) == ([], 0)


def test_a_search_that_no_worker_takes_up_says_so(api, owner, monkeypatch):
    monkeypatch.setattr(dispatch, "QUEUE_SECONDS", 0.2)
    answer = api.post("/api/v1/search", {"query": "휴가"}, format="json")
    assert (answer.status_code, answer.json()["code"]) == (503, "unavailable")
