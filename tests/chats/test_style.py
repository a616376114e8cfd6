"""The draft of an answer and its rewriting, from the models to the reader."""

from dataclasses import replace

import pytest

from chats.runs import log
from rag.config import Endpoint, StyleRules
from tests.chats.talking import TRAVEL, Talk, add_document
from tests.servers.llm import Failure, Hang, Stream

pytestmark = pytest.mark.django_db(transaction=True)

MAIN, LIGHT = "main", "light"
DRAFT = "숙박비 상한은 90,000원임 [1]."
BETTER = "숙박비 상한은 90,000원입니다 [1]."


@pytest.fixture
def models(settings, llm_server, tmp_path):
    settings.MEDIA_ROOT = tmp_path / "files"
    main = Endpoint(llm_server.url, MAIN, api_key="key")
    settings.RAG = replace(
        settings.RAG,
        llm=main,
        light_llm=replace(main, model=LIGHT),
        style=StyleRules(seconds=2.0),
    )
    return llm_server


@pytest.fixture
def talk(api, owner, answers_worker, models):
    add_document(owner, "출장 규정.md", TRAVEL)
    return Talk(api)


def answer_with(models, rewriting):
    """The main model drafts; the light one rewrites, and understands nothing else."""

    def reply(request):
        if request["model"] == MAIN:
            return Stream([DRAFT[:6], DRAFT[6:]])
        system = request["messages"][0]["content"]
        return rewriting if "문체 규칙" in system else Stream(["?"])

    models.default = reply


def test_the_draft_streams_and_gives_way_to_its_rewriting(talk, models):
    answer_with(models, Stream([BETTER]))
    message = talk.say("숙박비 상한은 얼마인가요?")
    assert message["content"] == BETTER
    assert message["sources"][0]["cited"]
    events = log.load_events(talk.turn["run_id"])
    drafted = "".join(event.data["text"] for event in events if event.type == log.DELTA)
    assert drafted == DRAFT
    assert [event.data["text"] for event in events if event.type == log.REPLACE] == [BETTER]
    assert talk.trace(message)["style"] == {"model": LIGHT, "draft_kept": ""}
    assert talk.get("/turns")["results"][0]["assistant_text"] == BETTER


@pytest.mark.parametrize(
    ("rewriting", "why"),
    [
        (Stream(["숙박비 상한은 90,000원입니다."]), "markers"),
        (Failure(400, {"error": {"message": "no"}}), "llm_rejected"),
        (Hang(), "llm_timeout"),
    ],
    ids=["a source is lost", "the light model refuses", "the light model hangs"],
)
def test_the_draft_stays_whole_where_the_rewriting_fails(talk, models, rewriting, why):
    answer_with(models, rewriting)
    message = talk.say("숙박비 상한은 얼마인가요?")
    assert message["status"] == "COMPLETED"
    assert message["content"] == DRAFT
    assert talk.trace(message)["style"]["draft_kept"] == why


def test_nothing_is_rewritten_unless_it_is_asked_for(talk, models, settings):
    settings.RAG = replace(settings.RAG, style=None)
    answer_with(models, Stream([BETTER]))
    message = talk.say("숙박비 상한은 얼마인가요?")
    assert message["content"] == DRAFT
    assert "style" not in talk.trace(message)
