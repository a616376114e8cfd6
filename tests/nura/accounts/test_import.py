"""Chats from elsewhere: Nura's own export, ChatGPT's, Claude's, Open WebUI's, and other files."""

import io
import json
import time
import zipfile
from datetime import UTC, datetime, timedelta

import pytest
from django.core.files.base import ContentFile
from django.core.files.storage import default_storage
from django.core.files.uploadedfile import SimpleUploadedFile
from django.utils import timezone

from chats.models import Chat, Message, Turn
from chats.services.branches import delete_message
from chats.services.chats import delete_chats
from documents.parsers.base import MEGABYTE
from nura.accounts import exports, imports
from nura.models import DataExport, DataImport
from tests import strangers

pytestmark = pytest.mark.django_db

ASKED = datetime(2024, 3, 1, 9, 0, tzinfo=UTC)


@pytest.fixture(autouse=True)
def own_place(settings, tmp_path, monkeypatch):
    settings.MEDIA_ROOT, settings.DATA_DIR = tmp_path / "files", tmp_path
    monkeypatch.setattr(imports, "queue_import", lambda _import_id: None)


def make_node(key, parent, role, text, seconds=0, **more):
    told = {
        "author": {"role": role},
        "content": {"content_type": "text", "parts": [text]},
        "create_time": ASKED.timestamp() + seconds,
        "recipient": "all",
    }
    return key, {"id": key, "parent": parent, "message": told | more, "children": []}


def make_conversation(*nodes, key="c-1", title="휴가 규정"):
    root = {"root": {"id": "root", "parent": None, "message": None, "children": []}}
    return {
        "conversation_id": key,
        "title": title,
        "create_time": ASKED.timestamp(),
        "mapping": root | dict(nodes),
    }


def make_talk(**options):
    return make_conversation(
        make_node("s", "root", "system", ""),
        make_node("q1", "s", "user", "연차는 며칠인가요?", 1),
        make_node("a1", "q1", "assistant", "15일입니다.", 2),
        make_node("q2", "a1", "user", "그럼 반차는?", 3),
        make_node("a2", "q2", "assistant", "연차에서 0.5일을 씁니다.", 4),
        **options,
    )


def zip_files(files):
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return made.getvalue()


def export_from_chatgpt(*conversations):
    return zip_files({"conversations.json": json.dumps(conversations), "chat.html": "<script>"})


def import_data(user, data):
    kept = imports.request_import(user=user, name="export.zip", content=ContentFile(data))
    imports.make_import(kept.pk)
    kept.refresh_from_db()
    return kept


def list_messages(chat):
    return [
        (one.role, one.content, one.parent.content if one.parent else None)
        for one in Message.objects.filter(chat=chat).select_related("parent")
    ]


def test_a_conversation_of_chatgpt_comes_with_its_messages_and_times(minsu):
    kept = import_data(minsu, export_from_chatgpt(make_talk()))
    assert (kept.status, kept.done, kept.total, kept.messages) == ("DONE", 1, 1, 4)
    chat = Chat.objects.get(owner=minsu)
    assert (chat.title, chat.created_at) == ("휴가 규정", ASKED)
    assert chat.updated_at == ASKED + timedelta(seconds=4)
    assert list_messages(chat) == [
        ("user", "연차는 며칠인가요?", None),
        ("assistant", "15일입니다.", "연차는 며칠인가요?"),
        ("user", "그럼 반차는?", "15일입니다."),
        ("assistant", "연차에서 0.5일을 씁니다.", "그럼 반차는?"),
    ]
    turns = Turn.objects.filter(chat=chat)
    assert [(one.number, one.user_text) for one in turns] == [
        (1, "연차는 며칠인가요?"),
        (2, "그럼 반차는?"),
    ]
    assert not default_storage.exists(imports.name_file(kept.pk))


def test_a_chat_of_open_webui_comes_with_its_messages_and_times(minsu):
    def message(key, parent, role, text, seconds):
        told = {"id": key, "parentId": parent, "childrenIds": [], "role": role, "content": text}
        return key, told | {"timestamp": int(ASKED.timestamp()) + seconds}

    thought = '<details type="reasoning" done="true">\n<summary>Thought</summary>\n음\n</details>\n'
    messages = [
        message("q1", None, "user", "연차는 며칠인가요?", 1),
        message("a1", "q1", "assistant", f"{thought}15일입니다.", 2),
        message("a2", "q1", "assistant", "16일입니다.", 3),
    ]
    inner = {"title": "휴가", "history": {"messages": dict(messages), "currentId": "a2"}}
    told = {"id": "o-1", "title": "휴가", "chat": inner, "created_at": int(ASKED.timestamp())}
    for count in (3, 0):
        assert import_data(minsu, json.dumps([told]).encode()).messages == count
    chat = Chat.objects.get(owner=minsu)
    assert (chat.title, chat.created_at) == ("휴가", ASKED)
    assert chat.updated_at == ASKED + timedelta(seconds=3)
    assert list_messages(chat) == [
        ("user", "연차는 며칠인가요?", None),
        ("assistant", "15일입니다.", "연차는 며칠인가요?"),
        ("assistant", "16일입니다.", "연차는 며칠인가요?"),
    ]


def make_claude_conversation(*messages, key="c-1", **more):
    told = {"uuid": key, "name": "휴가 규정", "created_at": ASKED.isoformat()}
    return json.dumps([told | {"chat_messages": list(messages)} | more]).encode()


def make_claude_message(key, sender, text, seconds=0, **more):
    told = {
        "uuid": key,
        "sender": sender,
        "text": text,
        "content": [{"type": "text", "text": text}],
    }
    moment = ASKED + timedelta(seconds=seconds)
    return told | {"created_at": moment.isoformat(), "attachments": [], "files": []} | more


def test_a_conversation_of_claude_comes_with_its_messages_and_times(minsu):
    thought = [
        {"type": "thinking", "thinking": "음"},
        {"type": "text", "text": "15일입니다."},
        {"type": "tool_use", "name": "search", "input": {}},
        {"type": "text", "text": "첫해는 11일입니다."},
    ]
    file = {"file_name": "규정.pdf", "extracted_content": "제1조"}
    data = make_claude_conversation(
        make_claude_message(
            "q1", "human", "연차는 며칠인가요?", 1, attachments=[file], files=[file]
        ),
        make_claude_message("a1", "assistant", "음 15일입니다.", 2, content=thought),
        make_claude_message("q2", "human", "그럼 반차는?", 3, content=[]),
        make_claude_message("a2", "assistant", "0.5일입니다.", 4),
    )
    for packed, count in (
        (zip_files({"conversations.json": data, "users.json": "[]"}), 4),
        (data, 0),
    ):
        assert import_data(minsu, packed).messages == count
    chat = Chat.objects.get(owner=minsu)
    assert (chat.title, chat.created_at) == ("휴가 규정", ASKED)
    assert chat.updated_at == ASKED + timedelta(seconds=4)
    assert list_messages(chat) == [
        ("user", "연차는 며칠인가요?\n\n[규정.pdf]", None),
        ("assistant", "15일입니다.\n\n첫해는 11일입니다.", "연차는 며칠인가요?\n\n[규정.pdf]"),
        ("user", "그럼 반차는?", "15일입니다.\n\n첫해는 11일입니다."),
        ("assistant", "0.5일입니다.", "그럼 반차는?"),
    ]


def test_branches_of_claude_stay_branches(minsu):
    root = "00000000-0000-4000-8000-000000000000"
    import_data(
        minsu,
        make_claude_conversation(
            make_claude_message("q1", "human", "연차는?", 1, parent_message_uuid=root),
            make_claude_message("a1", "assistant", "15일", 2, parent_message_uuid="q1"),
            make_claude_message("b1", "human", "연차는 며칠?", 3, parent_message_uuid=root),
            make_claude_message("b2", "assistant", "11일", 4, parent_message_uuid="b1"),
        ),
    )
    assert [(content, parent) for _, content, parent in list_messages(Chat.objects.get())] == [
        ("연차는?", None),
        ("15일", "연차는?"),
        ("연차는 며칠?", None),
        ("11일", "연차는 며칠?"),
    ]


def make_branched_conversation(shown):
    told = make_talk()
    told["mapping"] |= dict(
        [
            make_node("b1", "q1", "assistant", "입사 첫해는 11일입니다.", 5),
            make_node("b2", "b1", "user", "둘째 해는?", 6),
            make_node("b3", "b2", "assistant", "15일입니다.", 7),
        ]
    )
    return told | {"current_node": shown}


def to_open_webui(told):
    """The same tree in the shape of Open WebUI's export."""
    messages = {
        key: {
            "parentId": one["parent"],
            "role": one["message"]["author"]["role"],
            "content": one["message"]["content"]["parts"][0],
            "timestamp": one["message"]["create_time"],
        }
        for key, one in told["mapping"].items()
        if one["message"]
    }
    history = {"messages": messages, "currentId": told["current_node"]}
    return {"id": "o-1", "title": told["title"], "chat": {"history": history}}


@pytest.mark.parametrize("to_export", [lambda told: told, to_open_webui], ids=["chatgpt", "webui"])
@pytest.mark.parametrize(
    ("shown", "expected"),
    [
        ("a2", "연차에서 0.5일을 씁니다."),
        ("b3", "15일입니다."),
        ("q1", "15일입니다."),  # the newest message below it
        ("gone", "15일입니다."),
        (["a2"], "15일입니다."),
    ],
    ids=["older branch", "newer branch", "middle", "unknown", "no name"],
)
def test_a_chat_opens_at_the_branch_that_was_on_view(minsu, to_export, shown, expected):
    kept = import_data(minsu, json.dumps([to_export(make_branched_conversation(shown))]).encode())
    assert (kept.status, kept.messages) == ("DONE", 7)
    messages = Message.objects.filter(chat=Chat.objects.get())
    newest = messages.latest("created_at")
    assert newest.content == expected
    assert newest.created_at == Chat.objects.get().updated_at
    moved = messages.exclude(pk=newest.pk).filter(created_at__gt=ASKED + timedelta(seconds=7))
    assert not moved.exists()
    [turn] = Turn.objects.filter(message=newest)
    assert turn.ts == newest.created_at


@pytest.mark.parametrize(
    "make",
    [
        pytest.param(
            lambda text: {"id": "o", "chat": {"history": {"messages": {"q": {"content": text}}}}},
            id="Open WebUI",
        ),
        pytest.param(
            lambda text: {"id": "c", "mapping": dict([make_node("q", None, "user", text)])},
            id="ChatGPT",
        ),
        pytest.param(
            lambda text: {"uuid": "c", "chat_messages": [make_claude_message("q", "human", text)]},
            id="Claude",
        ),
    ],
)
def test_marks_that_never_end_take_no_longer_than_other_text(make):
    """With a search for an end behind each mark, this took over 20 s."""
    text = '<details type="reasoning">' * 60_000 + "\ue200" * 300_000
    begun = time.process_time()
    imports.from_conversation(make(text))
    assert time.process_time() - begun < 2


def test_what_is_imported_again_is_there_once(minsu):
    import_data(minsu, export_from_chatgpt(make_talk()))
    again = import_data(minsu, export_from_chatgpt(make_talk()))
    assert (again.status, again.messages) == ("DONE", 0)
    assert (Chat.objects.count(), Message.objects.count(), Turn.objects.count()) == (1, 4, 2)


def test_what_was_said_since_is_added(minsu):
    import_data(minsu, export_from_chatgpt(make_talk()))
    longer = make_talk()
    longer["mapping"] |= dict([make_node("q3", "a2", "user", "병가는?", 9)])
    assert import_data(minsu, export_from_chatgpt(longer)).messages == 1
    assert list_messages(Chat.objects.get())[-1] == ("user", "병가는?", "연차에서 0.5일을 씁니다.")


def test_a_deleted_message_stays_deleted(minsu):
    import_data(minsu, export_from_chatgpt(make_talk()))
    delete_message(message=Message.objects.get(content="15일입니다."))
    assert import_data(minsu, export_from_chatgpt(make_talk())).messages == 0
    assert list_messages(Chat.objects.get())[0] == ("user", "그럼 반차는?", None)


def test_a_deleted_chat_comes_back_when_it_is_imported_again(minsu):
    import_data(minsu, export_from_chatgpt(make_talk()))
    delete_chats(owner=minsu, chat_ids=[Chat.objects.get().pk])
    assert import_data(minsu, export_from_chatgpt(make_talk())).messages == 4
    assert Chat.objects.visible_to(minsu).count() == 1


def test_both_answers_to_a_question_are_kept(minsu):
    told = make_talk()
    told["mapping"] |= dict([make_node("b1", "q1", "assistant", "입사 첫해는 11일입니다.", 5)])
    import_data(minsu, export_from_chatgpt(told))
    answers = Message.objects.filter(parent__content="연차는 며칠인가요?")
    assert {one.content for one in answers} == {"15일입니다.", "입사 첫해는 11일입니다."}


def test_steps_of_one_answer_are_one_message_and_tools_are_left_out(minsu):
    told = make_conversation(
        make_node("q", "root", "user", "오늘 날씨는?"),
        make_node("a1", "q", "assistant", "찾아보겠습니다."),
        make_node("call", "a1", "assistant", "search(weather)", recipient="web"),
        make_node("tool", "call", "tool", "{...}"),
        make_node("a2", "tool", "assistant", "맑습니다. \ue200cite\ue202turn0\ue201"),
    )
    import_data(minsu, export_from_chatgpt(told))
    assert list_messages(Chat.objects.get()) == [
        ("user", "오늘 날씨는?", None),
        ("assistant", "찾아보겠습니다.\n\n맑습니다.", "오늘 날씨는?"),
    ]


def test_a_picture_leaves_a_word(minsu):
    content = {
        "content_type": "multimodal_text",
        "parts": [{"content_type": "image_asset_pointer"}, "무엇인가요?"],
    }
    import_data(
        minsu,
        export_from_chatgpt(make_conversation(make_node("q", "root", "user", "", content=content))),
    )
    assert Message.objects.get().content == "[이미지]\n\n무엇인가요?"


def test_conversations_without_a_zip_and_in_several_files_are_read(minsu):
    assert import_data(minsu, json.dumps([make_talk()]).encode()).messages == 4
    parts = {f"conversations-00{n}.json": json.dumps([make_talk(key=f"k-{n}")]) for n in range(3)}
    assert import_data(minsu, zip_files(parts)).messages == 12


@pytest.mark.django_db(transaction=True)
def test_an_own_export_comes_to_another_account(minsu, stranger):
    strangers.make_world(minsu)
    DataExport.objects.all().delete()
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        list(exports.write_archive(archive, minsu))
    chats, messages = Chat.objects.count(), Message.objects.filter(chat__owner=minsu).count()
    assert import_data(minsu, made.getvalue()).messages == 0
    assert Chat.objects.count() == chats
    kept = import_data(stranger, made.getvalue())
    assert (kept.status, kept.done) == ("DONE", 1)
    copies = Message.objects.filter(chat__owner=stranger)
    assert copies.count() <= messages
    assert copies.filter(content__contains=strangers.SECRET).exists()


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"PK\x03\x04 broken",
        b"hello",
        b"[{",
        b'{"mapping": {}}',
        b"[" * 200_000,
        b'[{"conversation_id": "x", "mapping": ' + b"[" * 200_000,
        b'[{"conversation_id": "x", "mapping": []}]',
        b'[{"mapping": {}}]',
        b'[{"chat": {}}]',
        b'[{"chat_messages": []}]',
        b'[{"uuid": "x", "chat_messages": ["m"]}]',
        b'[{"uuid": "x", "chat_messages": [{"uuid": 1}]}]',
        b'[{"id": "x", "chat": {"history": {"messages": {"m": []}}}}]',
        b"\xff\xfe[",
        zip_files({"other.txt": "x"}),
        zip_files({"export.json": json.dumps({"format": "other"})}),
        zip_files({"export.json": json.dumps({"format": "nura-export", "chats": ["../x"]})}),
        zip_files({"export.json": json.dumps({"format": "nura-export", "chats": [{}]})}),
    ],
    ids=range(19),
)
def test_what_is_no_export_is_refused_in_words_and_writes_nothing(minsus_client, minsu, data):
    kept = import_data(minsu, data)
    assert kept.status == "FAILED"
    assert kept.error_code
    assert not Chat.objects.exists()
    page = minsus_client.get("/settings/data").content.decode()
    assert "실패" in page
    assert "%(" not in page


def test_a_chat_without_messages_is_not_counted(minsu, minsus_client):
    import_data(minsu, export_from_chatgpt(make_talk(), make_conversation(key="c-2")))
    assert Chat.objects.count() == 1
    assert "대화 1개" in minsus_client.get("/settings/data").content.decode()


def test_a_file_that_breaks_at_its_end_writes_nothing(minsu):
    whole = json.dumps([make_talk(key="one"), make_talk(key="two")]).encode()
    assert import_data(minsu, whole[:-10]).status == "FAILED"
    assert not Chat.objects.exists()


def test_a_bomb_is_refused(minsu):
    bomb = zip_files({"conversations.json": b"[" + b" " * 80 * MEGABYTE + b"]"})
    assert import_data(minsu, bomb).error_code == "archive_bomb"


def test_one_endless_conversation_is_refused(minsu, monkeypatch):
    monkeypatch.setattr(imports, "MAX_CHARACTERS", 10_000)
    told = make_conversation(make_node("q", "root", "user", "가" * 40_000))
    assert import_data(minsu, json.dumps([told]).encode()).error_code == "import_too_large"


def test_circles_nul_and_broken_pairs_harm_nothing(minsu):
    told = make_conversation(
        make_node("q", "root", "user", "한\0글\ud800"),
        make_node("x", "y", "user", "x"),
        make_node("y", "x", "assistant", "y"),
        make_node("a", "q", "assistant", "답", create_time=float("inf")),
        title="제\0목",
    )
    kept = import_data(minsu, json.dumps([told]).encode())
    assert (kept.status, kept.messages) == ("DONE", 2)
    assert (Chat.objects.get().title, Message.objects.earliest("created_at").content) == (
        "제목",
        "한글",
    )


def test_a_long_chain_is_taken(minsu):
    steps = [make_node(f"m{n}", f"m{n - 1}", "assistant", str(n)) for n in range(1, 3000)]
    told = make_conversation(make_node("m0", "root", "user", "0"), *steps)
    kept = import_data(minsu, json.dumps([told]).encode())
    assert (kept.status, kept.messages) == ("DONE", 2)


def test_odd_messages_of_claude_harm_nothing(minsu):
    data = make_claude_conversation(
        make_claude_message(
            "q", "human", "한\0글", attachments=["x", {"file_name": 3}], files={"a": 1}
        ),
        make_claude_message("x", "system", "숨은 말"),
        make_claude_message("a", "assistant", "답", created_at=[], content="답"),
        make_claude_message("l", "human", "돌기", parent_message_uuid="l"),
        name=["제목"],
    )
    kept = import_data(minsu, data)
    assert (kept.status, kept.messages) == ("DONE", 2)
    assert [content for _, content, _ in list_messages(Chat.objects.get())] == ["한글", "답"]


def test_a_long_conversation_of_claude_takes_linear_time(minsu):
    def read(count):
        senders = ("human", "assistant")
        messages = [make_claude_message(f"m{n}", senders[n // 100 % 2], "글") for n in range(count)]
        told = {"uuid": "c", "chat_messages": messages}
        begun = time.process_time()
        imports.from_conversation(told)
        return time.process_time() - begun

    read(1_000)
    assert read(40_000) < 12 * read(10_000)


def test_a_worker_that_begins_anew_ends_what_another_began(minsu):
    data = export_from_chatgpt(make_talk(key="one"), make_talk(key="two"))
    kept = imports.request_import(user=minsu, name="x", content=ContentFile(data))
    for foreign in list(imports.read_chats(io.BytesIO(data)))[:1]:
        imports.import_chat(owner=minsu, imported=foreign)
    imports.make_import(kept.pk)
    assert (Chat.objects.count(), Message.objects.count()) == (2, 8)


def test_files_that_nothing_names_are_removed(minsu, monkeypatch):
    kept = imports.request_import(user=minsu, name="x", content=ContentFile(b"x"))
    default_storage.save("imports/left-over", ContentFile(b"x"))
    monkeypatch.setattr(imports, "LEFTOVER_AGE", timedelta(0))
    imports.sweep_imports()
    assert default_storage.exists(imports.name_file(kept.pk))
    assert not default_storage.exists("imports/left-over")


def test_a_file_is_sent_and_followed_over_rest(minsus_client, stranger, client):
    file = SimpleUploadedFile("내보내기.zip", export_from_chatgpt(make_talk()))
    sent = minsus_client.post("/api/v1/me/imports", {"file": file})
    assert sent.status_code == 202
    told = sent.json()
    assert (told["name"], told["status"], told["total"]) == ("내보내기.zip", "WAITING", None)
    second = SimpleUploadedFile("2.zip", export_from_chatgpt(make_talk()))
    refused = minsus_client.post("/api/v1/me/imports", {"file": second})
    assert (refused.status_code, refused.json()["code"]) == (409, "import_under_way")
    assert len(default_storage.listdir("imports")[1]) == 1
    address = f"/api/v1/me/imports/{told['id']}"
    client.force_login(stranger)
    assert client.get(address).status_code == 404
    imports.make_import(DataImport.objects.get().pk)
    assert minsus_client.get(address).json()["messages"] == 4
    assert timezone.now() - DataImport.objects.get().ended_at < timedelta(minutes=1)
