"""Memory behind a stateless client: which chat a request belongs to, and which branch of it."""

import uuid
from concurrent.futures import ThreadPoolExecutor

import pytest
from django.utils import timezone

from chats.models import Chat, Message, ProfileSlot, Run, Turn
from chats.runs import answering
from chats.services.chats import create_chat, delete_chat
from tests.chats.engines import Delta, make_finished
from tests.chats.gateway.wire import connect_program, make_body

pytestmark = pytest.mark.django_db(transaction=True)

OPENWEBUI = {"X-OpenWebUI-Chat-Id": "owui-1"}
NAMES = {
    "own header": ({"X-Chat-Id": "c-1"}, {}),
    "open webui": ({"X-OpenWebUI-Chat-Id": "c-1"}, {}),
    "librechat": ({"X-LibreChat-Conversation-Id": "c-1"}, {}),
    "metadata": ({}, {"metadata": {"chat_id": "c-1"}}),
}


class Numbering:
    """Answers with a number of its own each time: 답 1, 답 2, ..."""

    def __init__(self):
        self.asked = []

    async def answer(self, question, store, history=None):
        self.asked.append(question)
        yield Delta(f"답 {len(self.asked)}\n")
        yield make_finished()


@pytest.fixture
def numbering(monkeypatch):
    engine = Numbering()
    monkeypatch.setattr(answering, "get_engine", lambda _config: engine)
    return engine


@pytest.fixture
def http(web, key, answers_worker):
    with connect_program(web, key) as one:
        yield one


def say(http, text, *before, headers=OPENWEBUI, **fields):
    response = http.post(
        "/chat/completions", json=make_body(text, *before, **fields), headers=headers
    )
    assert response.status_code == 200, response.text
    return response.json()


def questions():
    rows = Message.objects.filter(role="user").order_by("created_at")
    return [(row.content, row.parent and row.parent.content.strip()) for row in rows]


U1, A1 = ("user", "하나"), ("assistant", "답 1")


@pytest.mark.parametrize(("headers", "fields"), NAMES.values(), ids=NAMES)
def test_each_way_to_name_a_chat_leads_to_one_chat_of_ours(http, numbering, headers, fields):
    first = say(http, "하나", headers=headers, **fields)
    second = say(http, "둘", U1, A1, headers=headers, **fields)
    chat = Chat.objects.get()
    assert chat.external_id == "c-1"
    assert first["chat_id"] == second["chat_id"] == str(chat.pk)
    assert questions() == [("하나", None), ("둘", "답 1")]


def test_a_program_that_sends_only_its_newest_question_goes_on_where_it_was(http, numbering):
    for text in ("하나", "둘"):
        say(http, text, headers={"X-Chat-Id": "c-1"})
    assert questions() == [("하나", None), ("둘", "답 1")]
    assert [turn.user_text for turn in numbering.asked[1].conversation.turns] == ["하나"]


def test_a_follow_up_is_understood_from_what_the_chat_remembers(
    http, travel, leave, answers_worker
):
    headers = {"X-Chat-Id": "c-1"}
    say(http, "출장 갈 때 숙박비 상한은 얼마인가요?", headers=headers)
    second = say(http, "그럼 정산은 언제까지 해야 해?", headers=headers)
    assert "14일" in second["choices"][0]["message"]["content"]
    message = Message.objects.filter(role="assistant").order_by("-created_at").first()
    assert message.scope["reason"] == "followup"


def test_the_messages_sent_are_the_history_where_no_chat_is_named(http, travel, leave):
    first = say(http, "출장 갈 때 숙박비 상한은 얼마인가요?", headers={})
    told = first["choices"][0]["message"]["content"]
    before = (("user", "출장 갈 때 숙박비 상한은 얼마인가요?"), ("assistant", told))
    second = say(http, "예외는?", *before, headers={})
    assert "재무팀장" in second["choices"][0]["message"]["content"]
    assert "chat_id" not in second
    for stored in (Chat, Message, Run, Turn):
        assert not stored.objects.exists()


def test_a_chat_of_nuras_own_is_named_by_its_id(http, numbering, owner):
    chat = create_chat(owner=owner, title="eigener")
    assert say(http, "하나", headers={"X-Chat-Id": str(chat.pk)})["chat_id"] == str(chat.pk)
    assert Chat.objects.get().messages.count() == 2


def test_the_first_named_header_counts(http, numbering):
    headers = {"X-Chat-Id": "c-1", **OPENWEBUI}
    say(http, "하나", headers=headers, metadata={"chat_id": "c-3"})
    assert Chat.objects.get().external_id == "c-1"


@pytest.mark.parametrize("value", ["", "new", "null", "local:3f2", "{{LIBRECHAT_BODY}}"])
def test_a_conversation_without_a_name_is_stored_nowhere(http, value, travel):
    reply = say(http, "숙박비 상한은 얼마인가요?", headers={"X-OpenWebUI-Chat-Id": value})
    assert "90,000원" in reply["choices"][0]["message"]["content"]
    assert not Chat.objects.exists()


@pytest.mark.parametrize(
    ("headers", "fields", "param"),
    [
        ({"X-Chat-Id": "x" * 201}, {}, "X-Chat-Id"),
        ({}, {"metadata": {"chat_id": "a\nb"}}, "metadata.chat_id"),
        ({}, {"metadata": {"chat_id": 7}}, "metadata.chat_id"),
        ({}, {"metadata": {"chat_id": "a\0b"}}, "metadata.chat_id"),
    ],
)
def test_what_cannot_name_a_chat_is_refused(http, headers, fields, param):
    response = http.post("/chat/completions", json=make_body("하나", **fields), headers=headers)
    assert response.status_code == 400
    assert response.json()["error"]["param"] == param
    assert response.json()["error"]["code"] == "wrong_chat_id"


def test_the_id_of_a_strangers_chat_names_a_new_chat_of_ones_own(http, numbering, stranger, owner):
    theirs = create_chat(owner=stranger, title="geheim")
    named = Chat.objects.create(owner=stranger, title="geheim", external_id="c-1")
    for value in (str(theirs.pk), "c-1"):
        reply = say(http, "하나", headers={"X-Chat-Id": value})
        assert Chat.objects.get(pk=reply["chat_id"]).owner == owner
    assert not Message.objects.filter(chat__in=[theirs, named]).exists()
    assert not any(question.conversation.turns for question in numbering.asked)


def test_a_deleted_chat_gives_its_name_to_a_new_one(http, numbering):
    first = say(http, "하나")
    delete_chat(chat=Chat.objects.get())
    second = say(http, "둘", U1, A1)
    assert first["chat_id"] != second["chat_id"]
    assert Chat.objects.get(pk=first["chat_id"]).messages.count() == 2
    assert questions()[-1] == ("둘", None)


def test_two_first_questions_at_once_make_one_chat(http, numbering):
    with ThreadPoolExecutor(4) as pool:
        replies = list(pool.map(lambda text: say(http, text), "가나다라"))
    assert {reply["chat_id"] for reply in replies} == {str(Chat.objects.get().pk)}


def test_an_edited_question_opens_a_branch_where_it_stands(http, numbering):
    say(http, "하나")
    say(http, "둘", U1, A1)
    say(http, "zwei", U1, A1)
    assert questions()[1:] == [("둘", "답 1"), ("zwei", "답 1")]
    assert [turn.user_text for turn in numbering.asked[2].conversation.turns] == ["하나"]


def test_a_question_asked_again_at_its_place_gets_another_answer(http, numbering):
    say(http, "하나")
    say(http, "둘", U1, A1)
    say(http, "둘", U1, A1)
    assert questions() == [("하나", None), ("둘", "답 1")]
    again = Message.objects.get(content="둘")
    assert {answer.content.strip() for answer in again.children.all()} == {"답 2", "답 3"}


def test_an_edited_first_question_begins_the_chat_anew(http, numbering):
    say(http, "하나")
    say(http, "eins")
    assert questions() == [("하나", None), ("eins", None)]
    assert numbering.asked[1].conversation.turns == ()


def test_a_branch_is_told_by_the_question_where_two_answers_are_the_same(http, numbering):
    say(http, "하나")
    say(http, "둘")
    Message.objects.filter(role="assistant").update(content="모름")
    Turn.objects.update(assistant_text="모름")
    say(http, "셋", ("user", "하나"), ("assistant", "모름"))
    assert Message.objects.get(content="셋").parent.parent.content == "하나"


def test_an_answer_that_is_not_known_leads_to_the_newest(http, numbering):
    say(http, "하나")
    say(http, "둘", U1, ("assistant", "ganz anders"))
    assert questions()[-1] == ("둘", "답 1")


def test_a_greeting_that_its_program_wrote_itself_is_no_answer_of_ours(http, numbering):
    say(http, "하나", ("assistant", "무엇을 도와드릴까요?"))
    say(http, "둘", ("assistant", "무엇을 도와드릴까요?"), U1, A1)
    assert questions() == [("하나", None), ("둘", "답 1")]


def test_a_document_as_model_is_what_its_question_reads_and_no_other(
    http, numbering, travel, leave
):
    say(http, "하나", model=f"nura/{travel.pk}")
    say(http, "둘", U1, A1)
    scopes = [question.scope for question in numbering.asked]
    assert scopes[0].document_ids == (travel.pk,)
    assert set(scopes[1].document_ids) == {travel.pk, leave.pk}
    assert [scope.reason for scope in scopes] == ["explicit", "all"]


def test_a_made_up_id_is_as_good_as_any(http, numbering):
    key = str(uuid.uuid4())
    say(http, "하나", headers={"X-Chat-Id": key})
    assert Chat.objects.get().external_id == key


@pytest.mark.parametrize(("fields", "known"), [({"use_memory": True}, 1), ({}, None)])
def test_what_is_remembered_of_a_user_takes_part_only_where_a_request_says_so(
    http, numbering, owner, fields, known
):
    ProfileSlot.objects.create(
        owner=owner, kind="fact", key="서버", value="A동", noted_at=timezone.now()
    )
    say(http, "내 나이는 35살이야. 하나", headers={"X-Chat-Id": "c-1"}, **fields)
    (asked_for,) = numbering.asked
    assert (None if asked_for.profile is None else len(asked_for.profile)) == known
    assert ProfileSlot.objects.count() == (2 if known else 1)
