"""What the turn store keeps of every answer."""

import uuid
from dataclasses import replace
from datetime import timedelta

import pytest
from django.utils import timezone

from chats.history import to_past_turn
from chats.models import Message, Run, Turn
from chats.runs import answering, log
from chats.runs.worker import reap_runs
from chats.services.turns import edit_question, open_turn
from documents.models import Document, DocumentVersion
from jobs.lease import Lease, claim_job
from rag.conversation import DocRef, View
from rag.events import Finished
from rag.types import AnswerMode, QuestionType
from tests.chats.conftest import make_document
from tests.chats.engines import Delta, SourcesFound, make_finished
from tests.chats.engines import make_source as shown_source
from tests.chats.test_answering import play, run_to_its_end
from tests.chats.turns import (
    add_answer,
    add_turn,
    answer_turn,
    build_outcome,
    build_source,
    build_sources,
    make_missing_id,
)

__all__ = ["play"]
pytestmark = pytest.mark.django_db(transaction=True)


def test_turns_are_numbered_and_chained_in_their_branch(owner):
    first = add_turn(owner, "하나")
    second = add_turn(owner, "둘", chat_id=first.chat_id)
    assert [(turn.number, turn.parent) for turn in (first, second)] == [(1, None), (2, first)]
    assert (second.user_text, second.assistant_text) == ("둘", "답")


def test_another_answer_is_a_turn_of_its_own_with_the_same_number(owner):
    first = add_turn(owner, "하나")
    second = add_turn(owner, "둘", parent=first)
    other = add_answer(second)
    third = add_turn(owner, "셋", parent=other)
    assert (other.number, other.parent) == (2, first)
    assert (third.number, third.parent) == (3, other)
    assert Turn.objects.count() == 4


def test_an_edited_question_begins_a_branch_with_its_own_numbers(owner):
    first = add_turn(owner, "하나")
    add_turn(owner, "둘", parent=first)
    opened = edit_question(user=owner, message=first.message.parent, content="다시", language="ko")
    assert (answer_turn(opened).number, Turn.objects.count()) == (1, 3)


@pytest.mark.parametrize("status", ["STOPPED", "FAILED", "INTERRUPTED"])
def test_an_answer_that_broke_off_is_a_turn_with_the_text_there_is(owner, status):
    turn = add_turn(owner, "질문", status=Message.Status(status), content="반쯤", mode="")
    assert (turn.assistant_text, turn.number) == ("반쯤", 1)


def test_an_answer_that_ends_after_the_next_one_takes_its_place_before_it(owner):
    document, later = make_document(owner), make_document(owner)
    first = add_turn(owner, "하나")
    slow = open_turn(user=owner, content="둘", chat_id=first.chat_id)
    quick = add_turn(owner, "셋", chat_id=first.chat_id)
    last = add_turn(owner, "넷", later, parent=quick)
    assert (quick.number, quick.parent, quick.remembered) == (2, first, [])
    middle = answer_turn(slow, document)
    quick.refresh_from_db()
    last.refresh_from_db()
    assert (middle.number, middle.parent) == (2, first)
    assert (quick.number, quick.parent, quick.shown) == (3, middle, middle)
    assert quick.remembered == middle.remembered
    assert (last.number, last.shown) == (4, last)
    assert [one["document_id"] for one in last.remembered] == [str(later.pk)]


def test_a_document_is_kept_as_it_was_shown(owner):
    document = make_document(owner, name="여비규정.pdf")
    document.metadata = {"title": "공무원 여비 규정"}
    document.version = 3
    document.save()
    two = [
        build_source(document, similarity=0.5),
        build_source(document, index=4, similarity=0.8, cited=False, text="나" * 200),
    ]
    texts = {two[0]["chunk_id"]: "가" * 900, two[1]["chunk_id"]: "나" * 900}
    turn = add_turn(owner, "질문", sources=two, mode="documents", passages=texts, method="rrf")
    (ref,) = to_past_turn(turn).doc_refs
    assert ref == DocRef(
        slot=1,
        document_id=document.pk,
        title="공무원 여비 규정",
        source="여비규정.pdf",
        uri=f"/api/v1/documents/{document.pk}/file?version=3",
        version=3,
        checksum=document.sha256,
        chunk_ids=(f"{document.pk}_0", f"{document.pk}_4"),
        passages=("가" * 900, "나" * 900),
        snippet="나" * 200,
        retrieval_method="rrf",
        score=0.8,
    )
    assert turn.document_ids == [document.pk]


def test_a_version_that_was_replaced_while_its_answer_was_written_stays_the_source(owner, api):
    document = make_document(owner)
    found = build_source(document)
    DocumentVersion.objects.create(
        document=document,
        number=1,
        state="old",
        size=10,
        sha256="1" * 64,
        text="옛 글",
        created_at=timezone.now(),
    )
    Document.objects.filter(pk=document.pk).update(version=2)
    turn = add_turn(owner, "질문", sources=[found], mode="documents")
    (ref,) = to_past_turn(turn).doc_refs
    assert (ref.version, ref.checksum) == (1, "1" * 64)
    (shown,) = api.get(f"/api/v1/messages/{turn.message_id}").json()["sources"]
    assert shown["version"] == 1
    where = f"/api/v1/documents/{document.pk}/text?version={shown['version']}"
    assert api.get(where).content.decode() == "옛 글"


def test_a_document_without_a_title_is_called_by_its_file_without_the_ending(owner):
    turn = add_turn(owner, "질문", make_document(owner, name="제1.2조 해설.hwp"))
    assert turn.doc_refs[0]["title"] == "제1.2조 해설"


def test_a_document_that_was_deleted_meanwhile_is_kept_with_its_snapshot(owner):
    turn = add_turn(owner, "질문", make_missing_id())
    assert turn.doc_refs[0]["title"] == "없는 파일"
    assert turn.doc_refs[0]["passages"] == ["본문"]


def test_cited_documents_are_remembered_and_no_others(owner):
    first, second, third = (make_document(owner, name=f"{n}.md") for n in range(3))
    shown = build_sources(first, second, third)
    shown[0]["cited"] = False
    turn = add_turn(owner, "질문", sources=shown)
    assert [one["title"] for one in turn.remembered] == ["1", "2"]
    assert [ref["slot"] for ref in turn.doc_refs] == [1, 2, 3]


def test_an_answer_that_cites_nothing_leaves_what_bore_on_its_question(owner):
    relevant, other = make_document(owner, name="여비.md"), make_document(owner, name="둘.md")
    add_turn(owner, "처음", sources=build_sources(other))
    turn = add_turn(owner, "질문", sources=None, relevant_document_ids=(relevant.pk,))
    assert [one["title"] for one in turn.remembered] == ["여비"]
    assert turn.document_ids == []


def test_small_talk_leaves_the_memory_as_it_was(owner):
    document = make_document(owner, name="여비.md")
    first = add_turn(owner, "처음", sources=build_sources(document))
    turn = add_turn(owner, "고마워", sources=None, parent=first)
    assert turn.remembered == first.remembered


def test_memory_outlasts_answers_without_documents(owner):
    document = make_document(owner)
    first = add_turn(owner, "휴가는?", document)
    thanks = add_turn(owner, "고마워", parent=first, question_type="smalltalk")
    assert thanks.remembered == first.remembered
    assert (thanks.shown, first.shown) == (first, first)


@pytest.mark.parametrize(
    "how",
    [
        {"question_type": "reset"},
        {"trace": {"scope": {"forgets": True}}},
        {"topic": "new"},
    ],
)
def test_a_reset_empties_the_memory(owner, how):
    first = add_turn(owner, "휴가는?", make_document(owner))
    turn = add_turn(owner, "새 주제", parent=first, **how)
    assert (turn.remembered, turn.shown, turn.forgets) == ([], None, True)


def test_a_new_subject_remembers_its_own_documents(owner):
    other = make_document(owner)
    first = add_turn(owner, "휴가는?", make_document(owner))
    turn = add_turn(owner, "새 주제로, 여비는?", other, parent=first, topic="new")
    assert ([one["document_id"] for one in turn.remembered], turn.shown) == ([str(other.pk)], turn)


def test_the_scope_in_the_end_stands_in_the_message(owner):
    told = {
        "document_ids": [make_missing_id()],
        "reason": "followup",
        "follows": True,
        "widened": False,
        "standalone_query": "여비의 기한은?",
        "forgets": False,
    }
    message = add_turn(owner, "기한은?", trace={"scope": told}, topic="same").message
    assert message.scope == {k: v for k, v in told.items() if k != "forgets"} | {"topic": "same"}


def test_a_question_back_and_a_stretch_of_a_document_are_kept(owner):
    ref = {
        "slot": 2,
        "document_id": make_missing_id(),
        "title": "규정",
        "source": "규정.md",
        "passages": ["x"],
    }
    view = {"document_id": make_missing_id(), "part": 2, "parts": 7}
    turn = add_turn(owner, "그 문서", mode="clarify", candidates=[ref], view=view)
    kept = to_past_turn(turn)
    assert kept.candidates[0] == DocRef(
        2, uuid.UUID(ref["document_id"]), "규정", "규정.md", passages=("x",)
    )
    assert kept.view == View(uuid.UUID(view["document_id"]), 2, 7)
    fields = ("slot", "document_id", "title")
    assert turn.message.candidates == [{name: ref[name] for name in fields}]
    assert turn.message.view == view


def test_whole_passages_reach_the_store_from_the_engine(owner, play):
    document = make_document(owner)
    text = "가" * 700
    shown = replace(shown_source(document_id=document.pk), text=text)
    found = SourcesFound((shown,), "bm25")
    play(found, Delta("답 [1]"), make_finished(AnswerMode.DOCUMENTS, (shown,)))
    run_to_its_end(open_turn(user=owner, content="질문"))
    ref = Turn.objects.get().doc_refs[0]
    assert (ref["passages"], ref["retrieval_method"]) == ([text], "bm25")


@pytest.mark.parametrize("lacking", [{}, {"chunk_ids": ["x"]}, {"passages": ["x"]}])
def test_what_a_row_of_another_version_lacks_is_shown_as_far_as_the_message_has_it(
    api, owner, lacking
):
    turn = add_turn(owner, "질문", make_document(owner))
    (ref,) = turn.doc_refs
    bare = {name: ref[name] for name in ref if name not in {"chunk_ids", "passages"}}
    Turn.objects.update(doc_refs=[bare | lacking])
    (shown,) = api.get(f"/api/v1/messages/{turn.message_id}/sources").json()
    assert shown["text"] == "본문"


def test_an_answer_that_fails_keeps_the_passages_it_had_shown(owner, play):
    document = make_document(owner)
    shown = replace(shown_source(document_id=document.pk), text="전문")
    found = SourcesFound((shown,), "rrf")
    play(found, Delta("반쯤"), ZeroDivisionError())
    run_to_its_end(open_turn(user=owner, content="질문"))
    assert Turn.objects.get().doc_refs[0]["passages"] == ["전문"]


def test_candidates_and_view_reach_the_store_from_the_engine(owner, play):
    ref = DocRef(1, uuid.uuid4(), "규정", "규정.md")
    view = View(uuid.uuid4(), 1, 3)
    play(
        Delta("어느 문서요?"),
        Finished(
            AnswerMode.CLARIFY, QuestionType.SINGLE, None, None, {}, candidates=(ref,), view=view
        ),
    )
    message = run_to_its_end(open_turn(user=owner, content="그 문서"))
    assert to_past_turn(Turn.objects.get()).candidates == (ref,)
    assert message.view == {"document_id": str(view.document_id), "part": 1, "parts": 3}
    assert message.mode == "clarify"


def test_a_run_that_is_not_ours_any_more_leaves_no_turn(owner):
    opened = open_turn(user=owner, content="질문")
    lease = Lease(Run, opened.run.pk, uuid.uuid4())
    closed = answering.close_turn(lease=lease, outcome=build_outcome())
    assert (closed, Turn.objects.count()) == (None, 0)


def test_an_answer_whose_worker_is_gone_keeps_what_the_log_had_shown(owner):
    document = make_document(owner)
    opened = open_turn(user=owner, content="질문")
    claim_job(Run, opened.run.pk)
    shown = [build_source(document, text="앞부분")]
    log.append_events(opened.run.pk, [log.RunEvent(2, log.SOURCES, shown)])
    log.append_events(opened.run.pk, [log.RunEvent(3, log.DELTA, {"text": "반쯤"})])
    Run.objects.update(lease_until=timezone.now() - timedelta(seconds=1))
    reap_runs()
    turn = Turn.objects.get()
    assert (turn.assistant_text, turn.doc_refs[0]["passages"]) == ("반쯤", ["앞부분"])
    assert turn.message.status == "INTERRUPTED"


def test_turns_go_with_their_chat(owner):
    first = add_turn(owner, "하나", make_document(owner))
    add_turn(owner, "둘", parent=first)
    other = add_turn(owner, "다른 대화")
    first.chat.delete()
    assert list(Turn.objects.all()) == [other]
