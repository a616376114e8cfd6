"""Answers that the same question is given again: to whom, for how long, and when not."""

import threading
from dataclasses import replace
from datetime import timedelta

import pytest
from django.contrib.auth.models import User
from django.core.files.base import ContentFile
from django.db import connection, transaction
from django.utils import timezone

from chats.models import CachedAnswer, Chat, Message, Run
from chats.runs import answering, log
from chats.services import answer_cache, memory
from chats.services.branches import delete_message, rewrite_question
from chats.services.chats import delete_chats
from documents import ingest, services, versions
from documents.models import Document
from nura import retention
from nura.accounts.deletion import delete_account
from rag.config import Endpoint
from tests.chats.conftest import client
from tests.chats.talking import LEAVE, TRAVEL, Talk, add_document
from tests.servers import llm
from tests.servers.llm import Stream

pytestmark = pytest.mark.django_db(transaction=True)

ASKED = "출장 갈 때 숙박비 상한은 얼마인가요?"
SAID = "숙박비 상한은 1박에 90,000원입니다. [1]"


@pytest.fixture(autouse=True)
def own_files(settings, tmp_path):
    settings.MEDIA_ROOT = tmp_path / "files"
    settings.ANSWER_CACHE_HOURS = 24


@pytest.fixture
def model(settings, llm_server):
    settings.RAG = replace(settings.RAG, llm=Endpoint(llm_server.url, "main", api_key="key"))
    llm_server.default = Stream([SAID])
    return llm_server


@pytest.fixture
def document(owner):
    return add_document(owner, "출장 규정.md", TRAVEL)


@pytest.fixture
def ask(api, document, answers_worker, model):
    """Ask in a chat of its own."""
    return lambda text=ASKED, **fields: Talk(api).say(text, **fields)


def is_kept(message):
    return message["made_at"] is not None


def count_calls(model):
    return len(model.chats)


def test_the_same_question_is_given_the_same_answer_with_its_sources_and_its_time(ask, model):
    first = ask()
    again = ask(f"  {ASKED.rstrip('?')} ")
    assert not is_kept(first)
    assert is_kept(again)
    assert (again["content"], again["label"], again["mode"]) == (SAID, "documents", "documents")
    assert [one["chunk_id"] for one in again["sources"]] == [
        one["chunk_id"] for one in first["sources"]
    ]
    assert again["citations"] == first["citations"]
    assert again["grounding"] == first["grounding"]
    assert count_calls(model) == 1


def test_it_is_told_by_the_log_of_its_run_like_any_other(ask):
    ask()
    again = ask()
    run = Run.objects.get(message=again["id"])
    events = log.load_events(run.pk)
    kinds = [event.type for event in events]
    assert kinds == ["run.started", "status", "sources", "delta", "run.completed"]
    assert events[1].data["step"] == "cache"
    assert log.join_text(events) == again["content"]
    assert [event.seq for event in events] == [1, 2, 3, 4, 5]


def test_its_passages_trace_and_memory_are_those_of_an_answer(ask, api):
    first = ask()
    talk = Talk(api)
    again = talk.say(ASKED)
    trace = talk.trace(again)
    assert trace["cache"]["near"] is False
    assert (
        trace["cache"]["made_at"][:19]
        == Message.objects.get(pk=first["id"]).cached.made_at.isoformat()[:19]
    )
    assert "candidates" in trace
    (shown,) = [
        one for one in api.get(f"/api/v1/messages/{again['id']}/sources").json() if one["cited"]
    ]
    assert "90,000원" in shown["text"]
    assert talk.get("/memory")["document_ids"] == [first["sources"][0]["document_id"]]
    (turn,) = talk.get("/turns")["results"]
    assert turn["doc_refs"][0]["retrieval_method"]


def test_nothing_is_kept_where_nobody_asked_for_that(ask, settings):
    settings.ANSWER_CACHE_HOURS = 0
    ask()
    assert not is_kept(ask())
    assert not CachedAnswer.objects.exists()


def test_another_answer_is_a_new_one_and_the_one_that_is_kept_from_then_on(ask, api, model):
    first = ask()
    model.default = Stream(["1박에 90,000원, 서울은 110,000원입니다. [1]"])
    response = api.post(f"/api/v1/messages/{first['id']}/regenerate", {}, format="json")
    renewed = response.data["assistant_message"]
    assert not is_kept(renewed)
    assert ask()["content"] == renewed["content"]


def test_a_question_in_a_conversation_is_answered_by_itself(ask, api, model):
    ask()
    talk = Talk(api)
    talk.say("경조 휴가는 언제 신청해요?")
    assert not is_kept(talk.say(ASKED))
    assert not is_kept(talk.say(ASKED))


def test_other_documents_are_another_scope(ask, owner, document):
    ask()
    add_document(owner, "휴가 규정.md", LEAVE)
    assert not is_kept(ask())
    assert not is_kept(ask(document_ids=[str(document.pk)]))
    assert is_kept(ask(document_ids=[str(document.pk)]))


def test_other_settings_are_another_answer(ask, settings):
    ask()
    settings.RAG = replace(settings.RAG, top_k=3)
    assert not is_kept(ask())
    settings.RAG = replace(settings.RAG, llm=replace(settings.RAG.llm, model="other"))
    assert not is_kept(ask())


def test_another_key_of_the_same_model_changes_nothing(ask, settings):
    ask()
    settings.RAG = replace(settings.RAG, llm=replace(settings.RAG.llm, api_key="another"))
    assert is_kept(ask())


def test_an_answer_is_given_for_as_long_as_is_set(ask):
    ask()
    CachedAnswer.objects.update(made_at=timezone.now() - timedelta(hours=25))
    assert not is_kept(ask())


def test_a_question_on_today_is_answered_anew_on_another_day(ask, monkeypatch):
    asked = "현재 숙박비 상한은 얼마인가요?"
    ask(asked)
    assert is_kept(ask(asked))
    tomorrow = answer_cache.date.today() + timedelta(days=1)

    class Tomorrow(answer_cache.date):
        @classmethod
        def today(cls):
            return tomorrow

    monkeypatch.setattr(answer_cache, "date", Tomorrow)
    assert not is_kept(ask(asked))


def test_a_temporary_chat_neither_gets_nor_leaves_an_answer(ask, api):
    temporary = api.post("/api/v1/chats", {}, format="json").data["id"]
    Chat.objects.filter(pk=temporary).update(temporary=True)
    assert not is_kept(Talk(api, temporary).say(ASKED))
    assert not CachedAnswer.objects.exists()
    ask()
    other = api.post("/api/v1/chats", {}, format="json").data["id"]
    Chat.objects.filter(pk=other).update(temporary=True)
    assert not is_kept(Talk(api, other).say(ASKED))


def test_who_is_remembered_gets_answers_of_his_own(ask, owner):
    ask()
    slot = memory.add_slot(owner=owner, kind="preference", key="format", value="표로")
    assert not is_kept(ask())
    memory.forget_slot(slot=slot)
    assert is_kept(ask())


def test_a_sentence_that_was_forgotten_takes_the_answers_to_it_along(ask, owner):
    ask()
    slot = memory.add_slot(owner=owner, kind="preference", key="format", value="표로")
    slot.sentence = ASKED
    slot.save()
    assert CachedAnswer.objects.exists()
    memory.forget_slot(slot=slot)
    assert not CachedAnswer.objects.exists()


def test_an_emergency_is_never_kept(ask, model):
    asked = "가슴이 너무 아파요. 그런데 숙박비 상한은 얼마죠?"
    ask(asked)
    assert not is_kept(ask(asked))


def test_an_answer_without_documents_is_not_kept(ask, model):
    model.default = Stream(["무슨 말씀인지 모르겠습니다."])
    ask()
    assert not is_kept(ask())


def test_an_answer_that_did_not_help_is_given_to_nobody_again(ask, api):
    ask()
    again = ask()
    assert is_kept(again)
    api.post(f"/api/v1/messages/{again['id']}/feedback", {"value": -1}, format="json")
    assert not is_kept(ask())


# Documents that change


def change_name(document):
    services.update_document(document=document, name="여비 규정.md")


def change_metadata(document):
    services.update_document(document=document, metadata={"issuer": "재무팀"})


def process_again(document):
    services.reprocess_document(document=document)
    ingest.ingest_next_document()


def bring_version(document):
    text = TRAVEL.replace("90,000", "95,000").encode()
    versions.receive_version(document=document, name=document.name, content=ContentFile(text))
    ingest.ingest_next_document()


def delete(document):
    services.delete_document(document=document)


CHANGES = [change_name, change_metadata, process_again, bring_version, delete]


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_of_a_document_takes_its_answers_in_the_same_transaction(ask, document, change):
    ask()
    document.refresh_from_db()
    change(document)
    assert not CachedAnswer.objects.exists()
    assert not is_kept(ask())


def test_a_change_that_is_taken_back_leaves_the_answers(ask, document):
    ask()
    with transaction.atomic():
        change_name(document)
        assert not CachedAnswer.objects.exists()
        transaction.set_rollback(True)
    assert is_kept(ask())


@pytest.mark.parametrize("change", CHANGES)
def test_an_answer_made_while_its_document_changes_is_not_kept(ask, document, change, model):
    document.refresh_from_db()
    begun, changed = threading.Event(), threading.Event()

    def reply(_request):
        begun.set()
        return Stream([SAID[:5], SAID[5:]], hold=changed)

    model.default = reply
    made = []
    asking = threading.Thread(target=lambda: made.append(ask()))
    asking.start()
    assert begun.wait(10)
    change(document)
    changed.set()
    asking.join()
    assert made[0]["status"] == "COMPLETED"
    assert not CachedAnswer.objects.exists()
    model.default = Stream([SAID])
    assert not is_kept(ask())


def test_an_entry_that_outlived_a_change_is_given_to_nobody(ask, document):
    ask()
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SET LOCAL session_replication_role = replica")  # no trigger
        change_name(document)
    assert CachedAnswer.objects.exists()
    assert not is_kept(ask())


# People


@pytest.fixture
def reader(transactional_db):
    return User.objects.create_user("reader", "reader@example.com", "pw")


def test_a_stranger_with_the_same_file_and_question_gets_an_answer_of_his_own(ask, stranger, model):
    ask()
    add_document(stranger, "출장 규정.md", TRAVEL)
    theirs = Talk(client(stranger)).say(ASKED)
    assert not is_kept(theirs)
    assert count_calls(model) == 2
    own = {str(pk) for pk in Document.objects.visible_to(stranger).values_list("pk", flat=True)}
    assert {one["document_id"] for one in theirs["sources"]} <= own


def test_a_key_needs_the_right_to_read_all_of_its_documents(ask, stranger, document):
    first = ask()
    run = Run.objects.select_related("message__parent", "message__chat__owner").get(
        message=first["id"]
    )
    loaded = answering.load_question(run, answering.spaces.get_space_in_use())
    kept = answer_cache.make_key(loaded.question, loaded.config, owner=run.message.chat.owner)
    assert answer_cache.find_answer(kept, owner=run.message.chat.owner)
    assert answer_cache.make_key(loaded.question, loaded.config, owner=stranger) is None


def test_a_deleted_chat_keeps_no_answer_for_others(ask, owner):
    first = ask()
    delete_chats(owner=owner, chat_ids=[first["chat_id"]])
    assert not CachedAnswer.objects.exists()
    assert not is_kept(ask())


def test_a_deleted_message_and_a_reworded_question_keep_none_either(ask):
    first = Message.objects.select_related("parent").get(pk=ask()["id"])
    rewrite_question(message=first.parent, content="다른 질문")
    assert not CachedAnswer.objects.exists()
    second = Message.objects.get(pk=ask()["id"])
    delete_message(message=second)
    assert not CachedAnswer.objects.exists()


def test_a_deleted_account_leaves_none(ask, owner):
    ask()
    delete_account(user=owner)
    assert not CachedAnswer.objects.exists()


# Other words


def test_other_words_need_an_embedder_that_knows_their_language(ask, settings, model):
    ask("숙박비 상한은 얼마인가요?")
    assert not is_kept(ask("숙박비의 상한이 얼마예요?"))


@pytest.fixture
def make_questions_alike(settings, monkeypatch, model):
    """An embedder to which all questions look alike: the words alone decide."""
    monkeypatch.setattr(llm, "_make_vector", lambda _text, dimensions: [1.0] * dimensions)
    endpoint = Endpoint(model.url, "alike", api_key="key")
    settings.RAG = replace(
        settings.RAG, embedding_endpoint=endpoint, embedding_languages=frozenset({"*"})
    )


def test_the_same_in_other_words_is_given_the_answer_and_says_so(make_questions_alike, ask, api):
    ask("숙박비 상한은 얼마인가요?")
    talk = Talk(api)
    again = talk.say("숙박비의 상한이 얼마예요?")
    assert is_kept(again)
    told = talk.trace(again)["cache"]
    assert (told["near"], told["question"]) == (True, "숙박비 상한은 얼마인가요?")


@pytest.mark.parametrize(
    "asked",
    [
        "서울 숙박비 상한은 얼마인가요?",
        "숙박비 하한은 얼마인가요?",
        "숙박비 상한이 없나요?",
        "숙박비 상한은 언제 정했나요?",
    ],
)
def test_what_only_looks_alike_is_not(make_questions_alike, ask, asked):
    ask("숙박비 상한은 얼마인가요?")
    assert not is_kept(ask(asked))


# Housekeeping


def test_the_nightly_purge_takes_what_is_too_old_and_the_oldest_of_too_many(ask, monkeypatch):
    ask("숙박비 상한은 얼마인가요?")
    ask("출장비 정산은 언제까지 하나요?")
    CachedAnswer.objects.filter(question__startswith="숙박비").update(
        made_at=timezone.now() - timedelta(hours=1)
    )
    monkeypatch.setattr(answer_cache, "MAX_ANSWERS", 1)
    retention.purge()
    assert [one.question for one in CachedAnswer.objects.all()] == [
        "출장비 정산은 언제까지 하나요?"
    ]
    CachedAnswer.objects.update(made_at=timezone.now() - timedelta(hours=25))
    retention.purge()
    assert not CachedAnswer.objects.exists()


def test_switched_off_the_purge_takes_all(ask, settings):
    ask()
    settings.ANSWER_CACHE_HOURS = 0
    retention.purge()
    assert not CachedAnswer.objects.exists()


def test_lookups_are_counted_by_their_result(ask, owner):
    ask()
    ask()
    assert answer_cache.read_counts() == {"same": 1, "near": 0, "miss": 1}
    owner.is_staff = True
    owner.save()
    told = client(owner)
    told.force_login(owner)
    text = told.get("/metrics").content.decode()
    assert 'nura_answer_cache_lookups_total{result="same"} 1.0' in text
    assert "nura_answer_cache_answers 1.0" in text
