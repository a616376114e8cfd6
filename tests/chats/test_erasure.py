"""What answers keep of documents that are deleted, and chats that are."""

import json
from datetime import timedelta

import pytest
from django.utils import timezone

from chats.models import Chat, Message, Run, Trace, Turn
from chats.runs import log
from chats.services.chats import delete_chat, restore_chats
from chats.services.turn_store import AnswerOutcome
from chats.services.turns import close_turn, open_turn
from documents import deletions
from documents.models import Deletion, Document
from documents.services import delete_document
from jobs.lease import claim_job
from nura import retention
from nura.accounts.deletion import delete_account, is_genuine
from nura.backup.integrity import inspect_installation
from nura.backup.service import delete_again
from tests.chats.conftest import make_document

pytestmark = pytest.mark.django_db(transaction=True)

PASSAGE = "연차 휴가는 해마다 스물다섯 날을 준다고 정한다."
OTHER = "출장비는 다음 달 첫째 월요일에 지급한다고 정한다."


@pytest.fixture(autouse=True)
def _own_files(settings, tmp_path):
    """No files of other tests: what nothing names is damage."""
    settings.MEDIA_ROOT = tmp_path / "files"


def make_source(document, slot=1, text=PASSAGE):
    return {
        "slot": slot,
        "document_id": str(document.pk),
        "document_name": document.name,
        "chunk_id": f"{document.pk}_0",
        "page": 1,
        "similarity": 0.9,
        "content_preview": text,
        "section": "제1조",
        "cited": True,
        "boxes": [],
        "spans": [{"start": 0, "end": len(text), "page": 1, "text": text, "boxes": []}],
    }


def make_outcome(*documents, content="스물다섯 날. [1]", label="documents", texts=(PASSAGE, OTHER)):
    found = [
        make_source(one, slot, text)
        for slot, (one, text) in enumerate(zip(documents, texts, strict=False), 1)
    ]
    return AnswerOutcome(
        Message.Status.COMPLETED,
        content,
        mode="documents",
        label=label,
        sources=found,
        passages={one["chunk_id"]: one["content_preview"] for one in found},
        reasoning=f"문서에 따르면 {PASSAGE}",
        trace={"candidates": [{"chunk_id": f"{documents[0].pk}_0", "section": "제1조 비밀"}]},
    )


def answer(owner, *documents, **fields):
    turn = open_turn(user=owner, content="휴가는 며칠인가요?")
    close_turn(lease=claim_job(Run, turn.run.pk), outcome=make_outcome(*documents, **fields))
    return turn


def dump_tables():
    """All that stands in the tables of conversations."""
    rows = [*Message.objects.values(), *Turn.objects.values(), *Trace.objects.values()]
    return json.dumps(rows, ensure_ascii=False, default=str)


def test_an_erased_document_leaves_its_answer_with_a_marked_citation(api, owner):
    document = make_document(owner)
    turn = answer(owner, document)
    Turn.objects.update(summary=f"휴가를 물었다. {PASSAGE}", running_summary=PASSAGE)
    assert PASSAGE in dump_tables()
    assert api.delete(f"/api/v1/documents/{document.pk}?erase=true").status_code == 204
    assert PASSAGE not in dump_tables()
    assert "비밀" not in dump_tables()
    told = api.get(f"/api/v1/messages/{turn.assistant_message.pk}").json()
    assert told["content"] == "스물다섯 날. [1]"
    assert (told["sources"][0]["deleted"], told["sources"][0]["content_preview"]) == (True, "")
    assert Turn.objects.get().summary == "휴가를 물었다."
    assert not log.load_events(turn.run.pk)
    assert Deletion.objects.get().erased_at


def test_only_the_erased_document_loses_its_passages(owner):
    gone, stays = make_document(owner, "가.md"), make_document(owner, "나.md")
    answer(owner, gone, stays)
    delete_document(document=gone, erase=True)
    assert PASSAGE not in dump_tables()
    assert OTHER in dump_tables()
    assert [one.get("deleted", False) for one in Message.objects.get(role="assistant").sources] == [
        True,
        False,
    ]


def test_an_answer_that_is_the_document_gives_way(owner):
    document = make_document(owner)
    answer(owner, document, content=f"**{PASSAGE}** [1]", label="passages")
    delete_document(document=document, erase=True)
    assert PASSAGE not in dump_tables()
    assert Message.objects.get(role="assistant").content.endswith("[1]")


def test_passages_stay_until_their_retention_is_over(owner):
    document = make_document(owner)
    answer(owner, document)
    delete_document(document=document)
    assert PASSAGE in dump_tables()
    assert Message.objects.get(role="assistant").sources[0]["deleted"] is True
    assert retention.purge(dry_run=True)["evidence"] == 0
    Deletion.objects.update(due_at=timezone.now())
    assert retention.purge(dry_run=True)["evidence"] == 1
    assert PASSAGE in dump_tables()
    assert retention.purge()["evidence"] == 1
    assert PASSAGE not in dump_tables()
    assert inspect_installation().damage == []


def test_an_answer_that_ends_after_its_document_was_erased_is_stored_without_it(owner):
    document = make_document(owner)
    turn = open_turn(user=owner, content="휴가는 며칠인가요?", document_ids=[document.pk])
    lease = claim_job(Run, turn.run.pk)
    told = make_outcome(document)
    delete_document(document=document, erase=True)
    assert Deletion.objects.get().erased_at is None  # an answer is still being written
    close_turn(lease=lease, outcome=told)
    assert PASSAGE not in dump_tables()
    assert Message.objects.get(role="assistant").sources[0]["deleted"] is True
    assert deletions.apply_deletions() == 1
    assert inspect_installation().damage == []


def test_a_deleted_chat_is_purged_with_everything_when_its_time_is_over(api, owner, settings):
    turn = answer(owner, make_document(owner))
    chat_id = turn.user_message.chat_id
    api.delete(f"/api/v1/chats/{chat_id}")
    assert retention.purge()["chats"] == 0
    Chat.objects.update(deleted_at=timezone.now() - timedelta(days=31))
    assert retention.purge()["chats"] == 1
    assert not Chat.objects.exists()
    assert not Run.objects.exists()
    assert not log.load_events(turn.run.pk)


def test_a_chat_with_an_answer_under_way_is_purged_when_that_has_ended(api, owner, settings):
    settings.RETENTION_DELETED_DAYS = 0
    turn = open_turn(user=owner, content="질문")
    api.delete(f"/api/v1/chats/{turn.user_message.chat_id}")
    assert retention.purge()["chats"] == 0
    assert log.is_stop_requested(turn.run.pk)
    stopped = AnswerOutcome(Message.Status.STOPPED, "")
    close_turn(lease=claim_job(Run, turn.run.pk), outcome=stopped)
    assert retention.purge()["chats"] == 1


def test_a_deleted_account_gives_a_receipt_that_cannot_be_changed(owner, stranger):
    answer(owner, make_document(owner))
    open_turn(user=owner, content="질문")
    receipt = delete_account(user=owner)
    counts = receipt["deleted"]
    assert (counts["documents"], counts["chats"], counts["messages"]) == (1, 2, 4)
    assert is_genuine(receipt)
    assert not is_genuine(receipt | {"deleted": counts | {"chats": 1}})
    assert "owner" not in json.dumps(receipt)
    assert not Message.objects.exists()
    assert [row.kind for row in Deletion.objects.all()] == ["user"]


def test_what_was_deleted_since_a_backup_is_deleted_again(api, owner, stranger):
    document, other = make_document(owner, "가.md"), make_document(owner, "나.md")
    first, second = answer(owner, document), answer(owner, other)
    noted = [
        deletions.ListedDeletion("document", str(document.pk), timezone.now(), erased=True),
        deletions.ListedDeletion(
            "chat", str(second.user_message.chat_id), timezone.now(), erased=False
        ),
        deletions.ListedDeletion("user", str(stranger.pk), timezone.now(), erased=True),
        deletions.ListedDeletion("user", str(owner.pk), owner.date_joined, erased=True),
    ]
    assert delete_again(noted) == 3
    assert list(Document.objects.all()) == [other]
    assert Chat.objects.get(deleted_at=None).pk == first.user_message.chat_id
    assert type(owner).objects.get() == owner
    assert PASSAGE not in json.dumps(Turn.objects.get(message=first.assistant_message).doc_refs)


@pytest.fixture
def read_list_after(settings, tmp_path):
    """Do something; what the list beside the data says then, and its bytes."""
    settings.DATA_DIR = tmp_path

    def do(act):
        act()
        text = (tmp_path / "deleted.json").read_bytes()
        return {(one.kind, one.key): one.erased for one in deletions.load_list(text)}, text

    return do


def test_the_list_beside_the_data_gets_a_line_for_each_deletion(owner, read_list_after):
    first, second = make_document(owner, "가.md"), make_document(owner, "나.md")
    _, before = read_list_after(lambda: delete_document(document=first, erase=True))
    found, after = read_list_after(lambda: delete_document(document=second))
    assert found == {("document", str(first.pk)): True, ("document", str(second.pk)): False}
    assert after.startswith(before)


def test_what_is_brought_back_is_not_in_the_list(owner, read_list_after):
    chat = open_turn(user=owner, content="질문").user_message.chat
    found, before = read_list_after(lambda: delete_chat(chat=chat))
    assert found == {("chat", str(chat.pk)): False}
    found, after = read_list_after(lambda: restore_chats(chat_ids=[chat.pk]))
    assert found == {}
    assert after.startswith(before)


def test_the_night_writes_the_list_anew_with_a_line_for_each_thing(owner, read_list_after):
    document = make_document(owner)
    answer(owner, document)
    read_list_after(lambda: delete_document(document=document))
    Deletion.objects.update(due_at=timezone.now())
    found, longer = read_list_after(deletions.apply_deletions)
    assert found == {("document", str(document.pk)): True}
    same, shorter = read_list_after(retention.purge)
    assert same == found
    assert len(shorter.splitlines()) == 2 < len(longer.splitlines())


@pytest.mark.parametrize("left", ["", '{"format": 1, "deleted": []}', '{"format": 2}\n["docum'])
def test_a_list_of_before_or_one_that_was_cut_off_is_made_whole(
    owner, read_list_after, settings, left
):
    first, second = make_document(owner, "가.md"), make_document(owner, "나.md")
    read_list_after(lambda: delete_document(document=first))
    (settings.DATA_DIR / "deleted.json").write_text(left)
    found, _ = read_list_after(lambda: delete_document(document=second))
    assert {key for _, key in found} == {str(first.pk), str(second.pk)}


def test_a_list_is_read_up_to_its_last_whole_line():
    told = '["chat", "1", "2026-01-02T03:04:05+00:00", false]'
    (one,) = deletions.load_list(f'{{"format": 2}}\n{told}\n["chat", "2", "20'.encode())
    (former,) = deletions.load_list(f'{{"format": 1, "deleted": [{told}]}}'.encode())
    assert one == former
    for text in (b"{}", b"", b'{"format": 3}\n', b'{"format": 2}\nx\n'):
        with pytest.raises(ValueError):  # noqa: PT011 - also that of a line which is no JSON
            deletions.load_list(text)
