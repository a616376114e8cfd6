"""`manage.py ask`: beside a worker and without one."""

import io
import json

import pytest
from django.contrib.auth.models import User
from django.core.management import CommandError, call_command

from chats.management.commands import ask
from chats.models import Chat, Message, Turn
from chats.runs import answering
from chats.services.chats import create_chat
from documents.errors import explain_code
from rag.errors import LLMUnauthorized
from rag.types import AnswerMode
from tests.chats.engines import Delta, ScriptedEngine, SourcesFound, make_finished, make_source

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def play(monkeypatch):
    """Nobody else is there, and the engine says what the test wants."""
    monkeypatch.setattr(ask, "PATIENCE_SECONDS", 0.0)

    def plug(*script):
        engine = ScriptedEngine(*script)
        monkeypatch.setattr(answering, "get_engine", lambda _: engine)
        return engine

    return plug


@pytest.fixture
def type_lines(monkeypatch):
    """What a person types, a line each."""

    def lines(*texts):
        monkeypatch.setattr("sys.stdin", io.StringIO("".join(f"{text}\n" for text in texts)))

    return lines


def run(*arguments):
    """What the command says: on stdout, on stderr, and its exit status."""
    out, err = io.StringIO(), io.StringIO()
    try:
        call_command("ask", *arguments, stdout=out, stderr=err)
    except SystemExit as end:
        return out.getvalue(), err.getvalue(), end.code
    return out.getvalue(), err.getvalue(), 0


def test_an_answer_is_told_with_its_sources(owner, play):
    found = (make_source(),)
    play(
        SourcesFound(found),
        Delta("15일"),
        Delta("입니다 [1]"),
        make_finished(AnswerMode.DOCUMENTS, found),
    )
    out, err, status = run("휴가는?")
    assert out.splitlines() == ["15일입니다 [1]", "  [1]* 규정.md, p. 3 · 제1장"]
    assert (status, str(Chat.objects.get().pk) in err) == (0, True)


def test_json_is_one_object_and_nothing_else(owner, play):
    found = (make_source(),)
    play(SourcesFound(found), Delta("15일"), make_finished(AnswerMode.DOCUMENTS, found))
    out, _, _ = run("휴가는?", "--json")
    told = json.loads(out)
    message = Message.objects.get(role="assistant")
    assert (told["chat_id"], told["answer"]) == (str(message.chat_id), "15일")
    assert told["message"]["id"] == str(message.pk)
    assert told["sources"] == told["message"]["sources"]
    assert told["sources"][0]["slot"] == 1


def test_a_session_is_one_chat(owner, play, type_lines):
    engine = play(Delta("답"), make_finished())
    type_lines("하나", "", "둘")
    out, _, _ = run("--json")
    chats = {json.loads(line)["chat_id"] for line in out.splitlines()}
    assert (len(out.splitlines()), len(chats), Chat.objects.count()) == (2, 1, 1)
    assert engine.questions[1].conversation.last_turn.user_text == "하나"


def test_a_chat_goes_on_as_its_owner(owner, stranger, play):
    play(Delta("답"), make_finished())
    chat = create_chat(owner=stranger, title="t")
    run("질문", "--chat", str(chat.pk))
    assert Turn.objects.get().chat == chat


def test_a_turn_that_is_answered_here_is_noted_here(owner, play):
    play(Delta("15일입니다."), make_finished())
    run("연차 휴가는 며칠인가요?")
    assert "휴가" in Turn.objects.get().summary


def test_a_failed_answer_is_told_and_is_an_exit_status(owner, play):
    play(LLMUnauthorized())
    out, err, status = run("질문")
    assert (status, explain_code("llm_unauthorized") in err) == (1, True)
    assert out.strip() == ""


def test_a_bad_question_does_not_end_a_session(owner, play, type_lines):
    play(Delta("답"), make_finished())
    type_lines("가" * 20_001, "\udcff\u0000", "질문")
    out, err, status = run("--json")
    assert (len(out.splitlines()), status) == (1, 0)
    assert err.strip()


@pytest.mark.parametrize("is_staff", [True, False])
def test_who_asks_is_the_first_administrator_where_there_are_several(owner, play, is_staff):
    admin = User.objects.create_user("admin", is_staff=is_staff)
    play(Delta("답"), make_finished())
    if is_staff:
        run("질문")
        assert Chat.objects.get().owner == admin
    else:
        with pytest.raises(CommandError, match="--user"):
            run("질문")


def test_users_and_chats_that_are_not_there_are_named(owner, stranger, play):
    chat = create_chat(owner=owner, title="t")
    with pytest.raises(CommandError, match="nobody"):
        run("질문", "--user", "nobody")
    for given in ("x", str(owner.pk), "00000000-0000-0000-0000-000000000000"):
        with pytest.raises(CommandError, match="no such chat"):
            run("질문", "--chat", given)
    with pytest.raises(CommandError, match="no such chat"):
        run("질문", "--user", "stranger", "--chat", str(chat.pk))
    assert not Message.objects.exists()


def test_a_worker_that_is_there_answers(owner, answers_worker, monkeypatch):
    async def not_here(_run_id):
        raise AssertionError("answered here")

    monkeypatch.setattr(ask, "answer_run", not_here)
    out, _, status = run("안녕하세요")
    assert (status, bool(out.strip())) == (0, True)
    assert Message.objects.get(role="assistant").status == "COMPLETED"


def test_espeak_speaks_where_there_is_no_endpoint(owner, play, program):
    folder = program("espeak-ng")
    play(Delta("15일**입니다** [1]"), make_finished())
    _, _, status = run("휴가는?", "--tts")
    assert (folder / "given").read_text().split() == ["15일입니다."]
    assert (status, (folder / "called").read_text().strip()) == (0, "-v ko --stdin")


def test_without_any_voice_the_answer_stands_and_the_reason_is_told(owner, play, program):
    program("something-else")
    play(Delta("답"), make_finished())
    out, err, status = run("질문", "--tts")
    assert ("답" in out, "espeak-ng" in err, status) == (True, True, 0)
