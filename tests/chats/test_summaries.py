"""What is noted of a turn after its answer."""

import asyncio
from datetime import timedelta
from uuid import uuid4

import pytest
from django.utils import timezone

from chats.models import Chat, Turn
from chats.runs import dispatch, summaries
from jobs import connections
from jobs.lease import claim_job
from rag.conversation import RunningSummary
from rag.memory.summary import TurnNote
from tests.chats.conftest import make_document
from tests.chats.turns import add_answer, add_turn, load_conversation_after
from tests.support import wait_until

pytestmark = pytest.mark.django_db(transaction=True)


class NotingEngine:
    """Notes what a test tells it to, and keeps what it was asked for."""

    light = None

    def __init__(self, running=None, fails=None, meanwhile=()):
        self.running = running
        self.fails = fails
        self.meanwhile = list(meanwhile)
        self.asked = []

    async def note_turn(self, turn, earlier, running):
        self.asked.append((turn, tuple(earlier), running))
        if self.fails:
            raise self.fails
        model = "light-model" if len(self.asked) == 1 else "another-model"
        while self.meanwhile:
            await self.meanwhile.pop()()
        folded = self.running or running
        vectors = {one.number: (0.5, 0.25) for one in [*earlier, turn]}
        return TurnNote(f"요약 {turn.number}", model, {"휴가": 2}, folded, vectors, "model-a")


@pytest.fixture
def plug_engine(monkeypatch):
    def use(**parts):
        engine = NotingEngine(**parts)
        monkeypatch.setattr(summaries, "get_engine", lambda _: engine)
        return engine

    return use


def make_turns(owner, count):
    turns = [add_turn(owner, "질문 1")]
    while len(turns) < count:
        turns.append(add_turn(owner, f"질문 {len(turns) + 1}", parent=turns[-1]))
    return turns


def note(turn):
    asyncio.run(summaries.summarise_turn(turn.pk))
    turn.refresh_from_db()
    return turn


def mark_overdue(*turns):
    old = timezone.now() - timedelta(minutes=5)
    Turn.objects.filter(pk__in=[turn.pk for turn in turns]).update(enqueued_at=old)


def test_a_note_is_stored_with_its_model_and_time(owner, plug_engine):
    plug_engine()
    turn = note(add_turn(owner, "휴가는?"))
    assert (turn.summary, turn.summary_model, turn.terms) == ("요약 1", "light-model", {"휴가": 2})
    assert (list(turn.vector), turn.embedding) == ([0.5, 0.25], "model-a")
    assert turn.summarised_at is not None
    assert turn.running_through is None


def test_a_turn_is_noted_once(owner, plug_engine):
    engine = plug_engine()
    turn = note(add_turn(owner, "휴가는?"))
    first = turn.summarised_at
    assert note(turn).summarised_at == first
    assert len(engine.asked) == 1


def test_a_turn_that_somebody_summarises_is_left_alone(owner, plug_engine):
    turn = add_turn(owner, "휴가는?")
    engine = plug_engine(meanwhile=[lambda: summaries.summarise_turn(turn.pk)])
    note(turn)
    assert (len(engine.asked), turn.summary_model, turn.claim) == (1, "light-model", None)


def test_a_turn_whose_worker_died_is_summarised_by_another(owner, plug_engine, monkeypatch):
    plug_engine()
    turn = add_turn(owner, "휴가는?")
    sent = []
    monkeypatch.setattr(summaries, "dispatch_summary", sent.append)
    assert claim_job(Turn, turn.pk) is not None
    assert summaries.reap_summaries() == 0
    Turn.objects.update(lease_until=timezone.now() - timedelta(seconds=1))
    assert (summaries.reap_summaries(), sent) == (1, [turn.pk])
    assert note(turn).summary == "요약 1"


PAIRS = 10
"""Turns that a window holds."""


def test_vectors_of_turns_that_left_the_window_are_stored_with_them(owner, plug_engine):
    turns = make_turns(owner, PAIRS + 5)
    plug_engine()
    note(turns[-1])
    kept = {one.number: list(one.vector) for one in Turn.objects.exclude(vector=None)}
    assert kept == {number: [0.5, 0.25] for number in [1, 2, 3, 4, 5, PAIRS + 5]}
    assert set(Turn.objects.exclude(vector=None).values_list("embedding", flat=True)) == {"model-a"}


def test_a_worker_that_lost_its_turn_stores_no_vectors(owner, plug_engine):
    turns = make_turns(owner, PAIRS + 5)
    taken = Turn.objects.filter(pk=turns[-1].pk)
    plug_engine(meanwhile=[lambda: connections.in_database(lambda: taken.update(claim=uuid4()))])
    note(turns[-1])
    assert not Turn.objects.exclude(vector=None).exists()


def test_five_turns_that_left_the_window_are_handed_over_to_be_folded(owner, plug_engine):
    turns = make_turns(owner, PAIRS + 5)
    add_answer(turns[2], content="anders")
    engine = plug_engine(running=RunningSummary("접은 것", 5, "light-model"))
    last = note(turns[-1])
    _, folding, before = engine.asked[0]
    assert ([turn.number for turn in folding], before) == ([1, 2, 3, 4, 5], None)
    assert folding[2].assistant_text == "답"
    assert (last.running_summary, last.running_through) == ("접은 것", 5)
    assert load_conversation_after(last).summary == RunningSummary("접은 것", 5, "light-model")


@pytest.mark.parametrize("count", [5, PAIRS - 1, PAIRS])
def test_turns_that_the_window_holds_are_not_folded(owner, plug_engine, count):
    engine = plug_engine()
    note(make_turns(owner, count)[-1])
    assert engine.asked[0][1] == ()


def test_a_chat_with_a_window_of_its_own_is_folded_by_that(owner, plug_engine):
    turns = make_turns(owner, 8)
    Chat.objects.filter(pk=turns[0].chat_id).update(history_pairs=3)
    engine = plug_engine()
    note(turns[-1])
    assert [turn.number for turn in engine.asked[0][1]] == [1, 2, 3, 4, 5]


def test_a_summary_goes_on_from_the_one_before(owner, plug_engine):
    turns = make_turns(owner, PAIRS + 10)
    before = RunningSummary("접은 것", 5, "light-model")
    plug_engine(running=before)
    note(turns[-6])
    engine = plug_engine()
    note(turns[-1])
    _, folding, running = engine.asked[0]
    assert (running, [turn.number for turn in folding]) == (before, [6, 7, 8, 9, 10])


def test_a_summary_begins_anew_with_the_conversation(owner, plug_engine):
    turns = make_turns(owner, PAIRS + 5)
    plug_engine(running=RunningSummary("옛 주제", 5, "light-model"))
    note(turns[-1])
    turn = add_turn(owner, "새 주제로", parent=turns[-1], question_type="reset")
    for number in range(PAIRS + 5):
        turn = add_turn(owner, f"새 질문 {number}", parent=turn)
    engine = plug_engine()
    note(turn)
    _, folding, running = engine.asked[0]
    assert running is None
    assert [one.number for one in folding] == [17, 18, 19, 20, 21]
    assert load_conversation_after(turn).summary is None


def test_a_note_that_fails_is_tried_again_but_not_for_ever(owner, plug_engine):
    engine = plug_engine(fails=ZeroDivisionError())
    turn = add_turn(owner, "휴가는?")
    for _ in range(Turn.MAX_ATTEMPTS):
        with pytest.raises(ZeroDivisionError):
            note(turn)
    note(turn)
    mark_overdue(turn)
    assert (len(engine.asked), summaries.reap_summaries()) == (Turn.MAX_ATTEMPTS, 0)


def test_the_sweeper_enqueues_what_is_late_and_nothing_else(owner, plug_engine, monkeypatch):
    plug_engine()
    noted, fresh, lost = (add_turn(owner, f"질문 {number}") for number in range(3))
    note(noted)
    mark_overdue(noted, lost)
    sent = []
    monkeypatch.setattr(summaries, "dispatch_summary", sent.append)
    assert fresh.summarised_at is None
    assert (summaries.reap_summaries(), sent) == (1, [lost.pk])


def test_workers_are_told_of_a_turn_when_it_is_closed(owner):
    turn = add_turn(owner, "휴가는?")
    told = [fields for _, fields in connections.get_client().xrange(dispatch.STREAM.key)]
    assert {"kind": "summary", "id": str(turn.pk)} in told


def test_a_redis_that_is_away_does_not_matter(owner, monkeypatch):
    monkeypatch.setattr(dispatch.STREAM, "send", lambda _fields: False)
    turn = add_turn(owner, "휴가는?")
    assert Turn.objects.get(pk=turn.pk).summarised_at is None


def test_a_worker_notes_turns_by_itself(owner, request):
    turn = add_turn(owner, "연차 휴가는 며칠인가요?", make_document(owner), content="15일입니다.")
    request.getfixturevalue("answers_worker")
    wait_until(lambda: not Turn.objects.filter(summarised_at=None).exists())
    turn.refresh_from_db()
    assert "휴가" in turn.summary
    assert (turn.summary_model, bool(turn.terms)) == ("extractive", True)
