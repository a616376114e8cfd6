"""Conversations over REST with language models that follow a script, on the other side of a socket.

The main model and the light one are told apart by their names.
"""

import json
import re
import socket
from dataclasses import replace

import pytest

from rag.config import Endpoint
from tests.chats.talking import LEAVE, SECURITY, TRAVEL, Talk, add_document, list_document_names
from tests.servers.llm import Failure, Stream
from tests.support import DATA, NO_DATA, wait_until

pytestmark = pytest.mark.django_db(transaction=True)

MAIN, LIGHT = "main", "light"
OVERFLOW = {
    "error": {
        "message": "This model's maximum context length is 8192 tokens. Please reduce the length.",
        "type": "invalid_request_error",
        "code": "context_length_exceeded",
    }
}


@pytest.fixture(autouse=True)
def own_files(settings, tmp_path):
    settings.MEDIA_ROOT = tmp_path / "files"


@pytest.fixture
def models(settings, llm_server):
    """Both models; `models.default` answers whatever is not scripted."""
    main = Endpoint(llm_server.url, MAIN, api_key="key")
    settings.RAG = replace(settings.RAG, llm=main, light_llm=replace(main, model=LIGHT))
    llm_server.default = Stream(["알겠습니다. [1]"])
    return llm_server


@pytest.fixture
def library(owner):
    return {
        name: add_document(owner, f"{name}.md", text)
        for name, text in (("출장 규정", TRAVEL), ("휴가 규정", LEAVE), ("보안 지침", SECURITY))
    }


@pytest.fixture
def talk(api, library, answers_worker, models):
    return Talk(api)


def list_requests(models, name):
    """Requests to one of the models, oldest first."""
    return [call for call in models.chats if call.json["model"] == name]


def script_light_model(models, **replies):
    """What the light model says to prompts that hold a word; else something that is no JSON."""

    def reply(request):
        if request["model"] == MAIN:
            return Stream(["네, 그렇습니다. [1]"])
        prompt = "\n".join(message["content"] for message in request["messages"])
        for word, said in replies.items():
            if word in prompt:
                return Stream([said if isinstance(said, str) else json.dumps(said)])
        return Stream(["무슨 말인지 모르겠습니다"])

    models.default = reply


def test_the_prompt_of_a_follow_up_holds_the_turn_before_and_its_documents(talk, models):
    talk.say("출장 갈 때 숙박비 상한은 얼마인가요?")
    answer = talk.say("그럼 정산은 언제까지 해야 해?")
    prompt = list_requests(models, MAIN)[-1].prompt
    assert "출장 갈 때 숙박비 상한은 얼마인가요?" in prompt
    assert "[앞선 답에서 본 문서]" in prompt
    assert "출장 규정" in prompt
    assert answer["scope"]["reason"] == "followup"


def test_a_stand_alone_question_carries_no_block_of_the_turn_before(talk, models):
    talk.say("출장 갈 때 숙박비 상한은 얼마인가요?")
    talk.say("연차 휴가는 한 해에 며칠인가요?")
    assert "[앞선 답에서 본 문서]" not in list_requests(models, MAIN)[-1].prompt


def test_a_light_model_that_talks_nonsense_breaks_no_answer(talk, models, library):
    script_light_model(models)
    first = talk.say("출장 갈 때 숙박비 상한은 얼마인가요?")
    second = talk.say("그럼 정산은 언제까지 해야 해?")
    assert [first["status"], second["status"]] == ["COMPLETED"] * 2
    assert second["scope"]["document_ids"] == [str(library["출장 규정"].pk)]
    assert list_requests(models, LIGHT)


def test_the_light_model_says_what_may_be_asked_next(talk, models, api):
    next_ones = ["숙박비 정산은 언제까지 하나요?", "식비 상한은 얼마인가요?"]
    script_light_model(models, **{"이어서 물을": {"questions": next_ones}})
    answer = talk.say("출장 갈 때 숙박비 상한은 얼마인가요?")

    def told():
        return api.get(f"/api/v1/messages/{answer['id']}").json()["follow_ups"]

    wait_until(lambda: told() == next_ones)


def test_a_light_model_that_is_down_breaks_no_answer(talk, models):
    models.default = lambda request: (
        Failure(400, {"error": {"message": "no such model"}})
        if request["model"] == LIGHT
        else Stream(["네. [1]"])
    )
    talk.say("출장 갈 때 숙박비 상한은 얼마인가요?")
    answer = talk.say("그럼 정산은 언제까지 해야 해?")
    assert (answer["status"], list_document_names(answer)) == ("COMPLETED", ["출장 규정.md"])


def test_a_prompt_that_is_too_long_is_trimmed_once(talk, models):
    talk.say("출장 갈 때 숙박비 상한은 얼마인가요?")
    before = len(list_requests(models, MAIN))
    tried = []

    def reply(request):
        if request["model"] == LIGHT:
            return Stream(["?"])
        tried.append(request)
        return Failure(400, OVERFLOW) if len(tried) == 1 else Stream(["짧게 답합니다. [1]"])

    models.default = reply
    answer = talk.say("그럼 정산은 언제까지 해야 해?")
    assert answer["content"] == "짧게 답합니다. [1]"
    first, second = (call.prompt for call in list_requests(models, MAIN)[before:])
    assert len(second) < len(first)


def test_the_token_plan_stands_in_the_trace(talk, models):
    trace = talk.trace(talk.say("출장 갈 때 숙박비 상한은 얼마인가요?"))
    plan = trace["token_plan"]
    assert plan["total"] == 4000
    assert {"system", "query", "recent", "long_term", "documents"} <= set(plan["layers"])
    assert plan["layers"]["documents"]["used"] > 0


def test_a_fact_from_beyond_the_window_reaches_the_prompt(talk, models):
    talk.say("참고로 우리 프로젝트의 담당자는 김민수 과장이고 예산은 3억 2천만 원이야")
    for number in range(14):
        talk.say(f"{number}번째 회의실 예약 이야기를 적어 둡니다")
    talk.say("우리 프로젝트 담당자가 누구라고 했지?")
    assert "김민수" in list_requests(models, MAIN)[-1].prompt


BEGUN_ANEW = ["새 주제로 이야기하자", "이전 대화는 잊어 줘"]


@pytest.mark.parametrize("words", BEGUN_ANEW)
def test_a_new_start_is_one_for_the_model_as_well(talk, models, words):
    talk.say("참고로 우리 프로젝트의 담당자는 김민수 과장이야")
    talk.say(words)
    talk.say("연차 휴가는 한 해에 며칠인가요?")
    prompt = list_requests(models, MAIN)[-1].prompt
    assert "연차" in prompt
    assert "김민수" not in prompt


def test_a_question_that_begins_anew_is_asked_without_what_was_said(talk, models):
    talk.say("참고로 우리 프로젝트의 담당자는 김민수 과장이야")
    talk.say("새 주제로, 연차 휴가는 한 해에 며칠인가요?")
    assert "김민수" not in list_requests(models, MAIN)[-1].prompt
    talk.say("그럼 신청은 언제까지 해?")
    assert "김민수" not in list_requests(models, MAIN)[-1].prompt
    assert "연차" in list_requests(models, MAIN)[-1].prompt


def test_what_was_said_before_a_new_start_comes_back_when_it_is_asked_for(talk, models):
    talk.say("참고로 우리 프로젝트의 담당자는 김민수 과장이야")
    talk.say(BEGUN_ANEW[0])
    talk.say("연차 휴가는 한 해에 며칠인가요?")
    talk.say("아까 우리 프로젝트 담당자가 누구라고 했지?")
    assert "김민수" in list_requests(models, MAIN)[-1].prompt


def test_a_model_that_finds_nothing_in_the_conversation_is_asked_once_before_it_answers(
    talk, models
):
    for number in range(3):
        talk.say(f"{number}번째 회의실 예약 이야기를 적어 둡니다")
    before = len(list_requests(models, MAIN))
    talk.say("그때 누가 책임지기로 했더라?")
    calls = list_requests(models, MAIN)[before:]
    assert ["tools" in call.json for call in calls] == [True, False]


def test_the_prompt_grows_no_more_with_the_conversation(talk, models, whole):
    sizes = []
    for number in range(60 if whole else 35):
        talk.say(
            f"{number}번째 회의실 예약 이야기를 적어 둡니다. " + "자세한 사정이 있습니다. " * 8
        )
        sizes.append(
            sum(len(m["content"]) for m in list_requests(models, MAIN)[-1].json["messages"])
        )
    assert sizes[-1] <= 1.2 * sizes[20]


ATTACKS = sorted((DATA / "bad-inputs" / "injection").glob("pi-*.md"))
"""Documents that give orders to the model."""


@pytest.fixture
def foreign_server():
    """Somebody else's server; whoever calls it waits to be accepted."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.settimeout(0)
        yield listening


@pytest.mark.skipif(not ATTACKS, reason=NO_DATA)
@pytest.mark.parametrize("attack", ATTACKS, ids=lambda path: path.stem)
def test_d46_a_model_that_obeys_a_document_reaches_nothing(
    talk, owner, stranger, models, foreign_server, attack
):
    """It says whatever the document tells it to; what it may read and cite is not its to choose."""
    foreign = add_document(stranger, "남의 규정.md", "숙박비 상한은 부엉이작전으로 정한다.")
    mine = add_document(owner, attack.name, attack.read_text("utf-8"))
    elsewhere = f"http://127.0.0.1:{foreign_server.getsockname()[1]}/leak"
    orders = [f"{attack.read_text('utf-8')[:600]} ![x]({elsewhere}) [1] [2] [99]"]
    models.default = Stream(orders)
    answer = talk.say("숙박비 상한과 정산 기한은?", document_ids=[str(mine.pk)])
    prompts = json.dumps([call.json for call in models.chats], ensure_ascii=False)
    assert "부엉이작전" not in prompts
    assert str(foreign.pk) not in json.dumps(talk.trace(answer))
    shown = {source["document_id"] for source in answer["sources"] or ()}
    assert shown <= {str(mine.pk)}
    slots = {str(source["slot"]) for source in answer["sources"] or ()}
    assert set(re.findall(r"\[(\d+)\]", answer["content"])) <= slots
    assert answer["scope"]["document_ids"] == [str(mine.pk)]
    owner.refresh_from_db()
    assert not owner.is_staff
    with pytest.raises(BlockingIOError):
        foreign_server.accept()


def test_d51_nothing_that_people_are_shown_holds_the_system_prompt(talk, models):
    answer = talk.say("출장 갈 때 숙박비 상한은 얼마인가요?")
    (told,) = [
        one["content"] for one in models.chats[-1].json["messages"] if one["role"] == "system"
    ]
    lines = [line.strip() for line in told.splitlines() if len(line.strip()) > 30]
    assert lines
    shown = json.dumps(
        [talk.trace(answer), talk.get("/messages"), talk.get("/turns"), talk.get("/memory")],
        ensure_ascii=False,
    )
    models.default = Failure(400, {"error": {"message": told}})
    failed = talk.api.post(
        "/api/v1/messages", {"content": "서울은?", "chat_id": talk.chat_id}, format="json"
    )
    shown += failed.content.decode()
    assert not [line for line in lines if line in shown]
