"""Answering a run with an engine that a test plays."""

import asyncio
from dataclasses import asdict, replace
from datetime import timedelta
from functools import partial

import pytest
from django.utils import timezone

from chats.errors import RunLost
from chats.models import Message, Run, Trace, Turn
from chats.runs import answering, log
from chats.runs.answering import answer_run
from chats.runs.dispatch import dispatch_run
from chats.runs.writer import RunWriter
from chats.services.chats import create_chat
from chats.services.turns import open_turn
from jobs import connections
from jobs.connections import in_database
from jobs.lease import claim_job
from rag.errors import LLMInterrupted, LLMUnauthorized
from rag.types import AnswerLabel, AnswerMode, Box, Span, Speaker
from tests.chats.engines import (
    Delta,
    ScriptedEngine,
    SourcesFound,
    StepBegan,
    make_finished,
    make_source,
)

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def play(monkeypatch):
    def plug(*script):
        engine = ScriptedEngine(*script)
        monkeypatch.setattr(answering, "get_engine", lambda _: engine)
        return engine

    return plug


@pytest.fixture
def turn(owner):
    return open_turn(user=owner, content="질문")


def run_to_its_end(turn):
    asyncio.run(answer_run(turn.run.pk))
    return Message.objects.get(pk=turn.assistant_message.pk)


def test_an_answer_is_stored_and_its_deltas_are_its_text(play, turn):
    play(StepBegan("generate"), Delta("안녕"), Delta("하세요"), make_finished())
    message = run_to_its_end(turn)
    events = log.load_events(turn.run.pk)
    assert (message.status, message.mode, message.content) == ("COMPLETED", "general", "안녕하세요")
    assert log.join_text(events) == message.content
    assert events[0].type == "run.started"
    assert events[-1].type == "run.completed"
    assert events[-1].data["message"]["content"] == "안녕하세요"


def test_a_run_taken_before_its_log_has_begun_begins_it(play, turn):
    connections.get_client().delete(log.make_log_key(turn.run.pk))
    play(Delta("안녕"), make_finished())
    assert run_to_its_end(turn).status == "COMPLETED"
    kinds = [event.type for event in log.load_events(turn.run.pk)]
    assert (kinds[0], kinds.count("run.started"), kinds[-1]) == ("run.started", 1, "run.completed")


def test_a_log_that_is_begun_while_its_run_is_answered_stays_that_of_its_worker(play, turn):
    connections.get_client().delete(log.make_log_key(turn.run.pk))
    play(partial(asyncio.to_thread, dispatch_run, turn.run), Delta("안녕"), make_finished())
    assert run_to_its_end(turn).status == "COMPLETED"
    events = log.load_events(turn.run.pk)
    assert log.join_text(events) == "안녕"
    kinds = [event.type for event in events]
    assert (kinds[0], kinds.count("run.started"), kinds[-1]) == ("run.started", 1, "run.completed")


def test_a_general_answer_has_no_sources(play, turn):
    play(Delta("가"), make_finished())
    assert run_to_its_end(turn).sources is None


def test_sources_come_before_the_first_delta_and_are_stored(play, turn):
    found = (make_source(),)
    play(SourcesFound(found), Delta("답 [1]"), make_finished(AnswerMode.DOCUMENTS, found))
    message = run_to_its_end(turn)
    kinds = [event.type for event in log.load_events(turn.run.pk)]
    assert kinds.index("sources") < kinds.index("delta")
    assert message.sources[0]["chunk_id"] == found[0].chunk_id


def test_the_label_and_the_sentences_cited_are_stored_and_told(play, turn):
    span = Span(7, 12, "상한은 9", 3, (Box(3, 0.1, 0.2, 0.9, 0.22),))
    found = replace(make_source(), spans=(span,), text="본문 전체")
    play(
        SourcesFound((found,)),
        Delta("답 [1]"),
        replace(make_finished(AnswerMode.DOCUMENTS, (found,)), label=AnswerLabel.PARTIAL),
    )
    message = run_to_its_end(turn)
    told = log.load_events(turn.run.pk)[-1].data["message"]
    assert (message.label, told["label"]) == ("partial", "partial")
    assert told["sources"][0]["spans"] == [log.to_plain(asdict(span))]


def test_the_whole_passage_is_kept_once_beside_the_turn(play, turn, api):
    found = replace(make_source(), text="본문 전체")
    play(SourcesFound((found,)), Delta("답 [1]"), make_finished(AnswerMode.DOCUMENTS, (found,)))
    message = run_to_its_end(turn)
    assert "본문 전체" not in str(message.sources)
    (shown,) = api.get(f"/api/v1/messages/{message.pk}/sources").json()
    assert (shown["chunk_id"], shown["text"]) == (found.chunk_id, "본문 전체")


def test_an_answer_of_before_there_were_turns_has_the_beginning_of_its_passages(turn, api, play):
    play(Delta("답"), make_finished())
    message = run_to_its_end(turn)
    Turn.objects.all().delete()
    kept = log.to_plain(asdict(make_source()))
    Message.objects.filter(pk=message.pk).update(sources=[kept])
    (shown,) = api.get(f"/api/v1/messages/{message.pk}/sources").json()
    assert (shown["text"], shown["spans"]) == ("본문", [])


def test_the_trace_is_kept(play, turn):
    play(Delta("가"), make_finished())
    run_to_its_end(turn)
    assert Trace.objects.get().steps == {"timings_ms": {}}


def test_the_trace_of_an_answer_that_broke_off_holds_what_was_known(play, turn):
    known = {"question_type": "single", "gate": {"score": 0.9}}
    play(StepBegan("generate", trace=known), Delta("반쯤"), LLMInterrupted())
    assert run_to_its_end(turn).question_type == "single"
    assert Trace.objects.get().steps == known


def test_a_model_that_refuses_us_is_a_failed_message_with_a_code(play, turn):
    play(LLMUnauthorized())
    message = run_to_its_end(turn)
    last = log.load_events(turn.run.pk)[-1]
    assert (message.status, message.error_code) == ("FAILED", "llm_unauthorized")
    assert (last.type, last.data["code"]) == ("run.error", "llm_unauthorized")
    assert last.data["detail"]


def test_a_model_that_breaks_off_leaves_its_text_and_its_sources(play, turn):
    play(SourcesFound((make_source(),)), Delta("반쯤 "), LLMInterrupted())
    message = run_to_its_end(turn)
    assert (message.status, message.content) == ("FAILED", "반쯤 ")
    assert len(message.sources) == 1


def test_a_bug_in_the_engine_ends_the_run_failed(play, turn):
    play(Delta("가"), ZeroDivisionError())
    message = run_to_its_end(turn)
    assert (message.status, message.error_code) == ("FAILED", "internal")


def test_a_stop_while_the_model_talks_keeps_the_text_and_closes_the_engine(play, turn):
    async def scenario():
        talking, for_ever = asyncio.Event(), asyncio.Event()

        async def talk():
            talking.set()
            await for_ever.wait()

        engine = play(Delta("반쯤"), talk, Delta("nie"), make_finished())
        answer = asyncio.create_task(answer_run(turn.run.pk))
        await asyncio.wait_for(talking.wait(), 5)
        await asyncio.to_thread(log.request_stop, turn.run.pk)
        await asyncio.wait_for(engine.closed.wait(), 1)
        await asyncio.wait_for(answer, 5)

    asyncio.run(scenario())
    message = Message.objects.get(pk=turn.assistant_message.pk)
    assert (message.status, message.content, message.error_code) == ("STOPPED", "반쯤", "")
    assert log.load_events(turn.run.pk)[-1].type == "run.stopped"


def test_a_stop_before_the_work_began_ends_it_at_once(play, turn):
    async def for_ever():
        await asyncio.Event().wait()

    log.request_stop(turn.run.pk)
    play(for_ever, make_finished())
    assert run_to_its_end(turn).status == "STOPPED"


def test_a_stop_after_the_end_changes_nothing(play, turn):
    play(Delta("가"), make_finished())
    run_to_its_end(turn)
    log.request_stop(turn.run.pk)
    asyncio.run(answer_run(turn.run.pk))
    assert Message.objects.get(pk=turn.assistant_message.pk).status == "COMPLETED"


def test_two_deliveries_answer_once(play, turn):
    engine = play(Delta("가"), make_finished())

    async def both():
        await asyncio.gather(answer_run(turn.run.pk), answer_run(turn.run.pk))

    asyncio.run(both())
    assert len(engine.questions) == 1
    assert log.join_text(log.load_events(turn.run.pk)) == "가"


def test_who_lost_the_run_writes_nothing_more(play, turn, monkeypatch):
    monkeypatch.setattr(answering.HEARTBEAT, "seconds", 0.05)

    async def lose_it():
        def steal():
            Run.objects.filter(pk=turn.run.pk).update(claim=None, lease_until=None)
            claim_job(Run, turn.run.pk)

        await in_database(steal)
        await asyncio.Event().wait()

    play(Delta("가"), lose_it, make_finished())
    message = run_to_its_end(turn)
    assert message.status == "STREAMING"
    assert not log.load_events(turn.run.pk)[-1].terminal


def lose_lease(turn):
    """A worker took the run and was too late with its sign of life."""
    claim_job(Run, turn.run.pk)
    past = timezone.now() - timedelta(seconds=1)
    Run.objects.filter(pk=turn.run.pk).update(lease_until=past)


def test_who_takes_a_lost_run_before_the_reaper_does_not_answer_behind_its_text(play, turn):
    lose_lease(turn)
    log.append_events(turn.run.pk, [log.RunEvent(2, "delta", {"text": "반쯤"})])
    engine = play(Delta("가"), make_finished())
    message = run_to_its_end(turn)
    assert (message.status, message.content, engine.questions) == ("INTERRUPTED", "반쯤", [])
    assert log.load_events(turn.run.pk)[-1].type == "run.error"


def test_who_had_a_run_before_writes_nothing_into_its_next_attempt(play, turn):
    lose_lease(turn)

    async def scenario():
        late = RunWriter(turn.run.pk)
        await late.open()
        talking, heard = asyncio.Event(), asyncio.Event()

        async def think():
            talking.set()
            await heard.wait()

        play(think, Delta("가"), make_finished())
        answer = asyncio.create_task(answer_run(turn.run.pk))
        await asyncio.wait_for(talking.wait(), 5)
        late.add("delta", {"text": "늦은 말"})
        with pytest.raises(RunLost):
            await late.close()
        heard.set()
        await asyncio.wait_for(answer, 5)

    asyncio.run(scenario())
    message = Message.objects.get(pk=turn.assistant_message.pk)
    assert (message.status, message.content) == ("COMPLETED", "가")
    assert log.join_text(log.load_events(turn.run.pk)) == "가"


def test_a_run_that_is_cut_off_ends_at_once_with_its_text(play, turn):
    async def scenario():
        talking = asyncio.Event()

        async def talk():
            talking.set()
            await asyncio.Event().wait()

        play(Delta("반쯤"), talk, make_finished())
        answer = asyncio.create_task(answer_run(turn.run.pk))
        await asyncio.wait_for(talking.wait(), 5)
        answer.cancel()
        await asyncio.wait([answer])

    asyncio.run(scenario())
    message = Message.objects.get(pk=turn.assistant_message.pk)
    assert (message.status, message.content) == ("INTERRUPTED", "반쯤")
    events = log.load_events(turn.run.pk)
    assert (events[-1].type, log.join_text(events)) == ("run.error", "반쯤")


def test_a_run_that_is_cut_off_before_it_spoke_is_left_to_another_worker(play, turn):
    async def scenario():
        begun = asyncio.Event()

        async def think():
            begun.set()
            await asyncio.Event().wait()

        play(think, make_finished())
        answer = asyncio.create_task(answer_run(turn.run.pk))
        await asyncio.wait_for(begun.wait(), 5)
        answer.cancel()
        await asyncio.wait([answer])

    asyncio.run(scenario())
    play(Delta("가"), make_finished())
    assert run_to_its_end(turn).content == "가"


def test_the_text_so_far_reaches_the_database_while_the_model_talks(play, turn, monkeypatch):
    monkeypatch.setattr(answering.HEARTBEAT, "seconds", 0.05)
    seen = []

    async def until_kept():
        def kept():
            return Message.objects.get(pk=turn.assistant_message.pk).content

        async with asyncio.timeout(5):
            while not seen or not seen[-1]:
                seen.append(await in_database(kept))
                await asyncio.sleep(0.02)

    play(Delta("벌써"), until_kept, make_finished())
    run_to_its_end(turn)
    assert seen[-1] == "벌써"


def test_the_engine_sees_the_last_pairs_of_this_chat_only(play, owner):
    other = open_turn(user=owner, content="다른 대화")
    play(Delta("다른 답"), make_finished())
    asyncio.run(answer_run(other.run.pk))
    chat = create_chat(owner=owner, title="t", history_pairs=2)
    for number in range(4):
        turn = open_turn(user=owner, content=f"질문 {number}", chat_id=chat.pk)
        engine = play(Delta(f"답 {number} " + "가" * 600), make_finished())
        asyncio.run(answer_run(turn.run.pk))
    question = engine.questions[0]
    assert question.history_pairs == 2
    assert [item.role for item in question.conversation.current_messages] == [
        Speaker.USER,
        Speaker.ASSISTANT,
    ] * 3
    last = [item.content[:4] for item in question.conversation.current_messages[-4:]]
    assert last == ["질문 1", "답 1 ", "질문 2", "답 2 "]
    assert not any("다른" in item.content for item in question.conversation.current_messages)


def list_log_lines(caplog, event):
    return [
        one.msg for one in caplog.records if isinstance(one.msg, dict) and one.msg["event"] == event
    ]


def test_a_run_is_one_line_in_the_log_and_says_nothing_of_its_texts(play, turn, caplog):
    play(Delta("비밀 답"), make_finished())
    with caplog.at_level("INFO"):
        run_to_its_end(turn)
    (line,) = list_log_lines(caplog, "run_ended")
    assert (line["run_id"], line["user_id"]) == (str(turn.run.pk), turn.run.owner_id)
    assert (line["status"], line["mode"], line["code"]) == ("COMPLETED", "general", "")
    assert {"label", "prompt_tokens", "completion_tokens", "timings_ms"} <= set(line)
    assert "비밀" not in str(line)
    assert "질문" not in str(line)


def test_a_failed_run_is_one_line_too_and_names_its_code(play, turn, caplog):
    play(Delta("답"), LLMUnauthorized())
    with caplog.at_level("INFO"):
        run_to_its_end(turn)
    (line,) = list_log_lines(caplog, "run_ended")
    assert (line["status"], line["code"]) == ("FAILED", "llm_unauthorized")
