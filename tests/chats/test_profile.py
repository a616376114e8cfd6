"""What is remembered of users across chats: kept, used, asked about and forgotten."""

import json
from dataclasses import replace

import pytest
from django.contrib.auth.models import User

from chats.models import Chat, ProfileSlot, Trace, Turn
from chats.services import erasure
from chats.services import memory as services
from rag.config import Endpoint, ProfileRules
from tests.chats.conftest import client
from tests.chats.talking import TRAVEL, Talk, add_document
from tests.servers.llm import Stream
from tests.support import wait_until

pytestmark = pytest.mark.django_db(transaction=True)

MAIN = "main"
ALLERGIES = """# 급식 안내

## 식단
땅콩 소스를 곁들인 샐러드가 월요일에 나온다. 수요일에는 된장찌개가 나온다.
"""


@pytest.fixture(autouse=True)
def own_files(settings, tmp_path):
    settings.MEDIA_ROOT = tmp_path / "files"
    settings.RAG = replace(settings.RAG, profile=ProfileRules(packs=("general", "medical")))


@pytest.fixture
def talk(api, owner, answers_worker):
    add_document(owner, "출장 규정.md", TRAVEL)
    return Talk(api)


@pytest.fixture
def model(settings, llm_server):
    """A language model; its prompts are kept."""
    settings.RAG = replace(settings.RAG, llm=Endpoint(llm_server.url, MAIN, api_key="key"))
    llm_server.default = Stream(["알겠습니다."])
    return llm_server


def list_slots(owner):
    rows = ProfileSlot.objects.filter(owner=owner).order_by("created_at")
    return [(row.kind, row.key, row.value, row.status) for row in rows]


def get_last_prompt(model):
    return "\n".join(one["content"] for one in model.chats[-1].json["messages"])


def test_a_pure_wish_is_kept_and_answered_at_once_without_a_model(talk, owner):
    answer = talk.say("나는 페니실린 알레르기가 있어. 기억해줘")
    assert answer["content"].startswith("기억해 두었습니다.")
    assert list_slots(owner) == [("allergy", "페니실린", "페니실린", "active")]
    (slot,) = ProfileSlot.objects.all()
    assert slot.sentence == "나는 페니실린 알레르기가 있어."
    assert str(slot.message_id) == talk.turn["user_message"]["id"]


def test_a_pure_wish_asks_no_model(model, talk, owner):
    assert talk.say("내 나이는 35살이야. 기억해줘")["content"].startswith("기억해 두었습니다.")
    assert model.chats == []
    assert list_slots(owner) == [("demographic", "age", "35", "active")]


def test_what_is_said_beside_a_question_is_kept_for_other_chats(model, talk, owner, api):
    talk.say("저는 부산에 살아요. 출장 숙박비 상한은 얼마인가요?")
    assert list_slots(owner) == [("demographic", "residence", "부산", "active")]
    Talk(api).say("부산에서 서울로 출장 가면 숙박비는 얼마인가요?")
    assert "[사용자에 대해 기억하는 것]" in get_last_prompt(model)
    assert "사는 곳: 부산" in get_last_prompt(model)


def test_the_trace_names_what_was_used_by_id_and_holds_no_word_of_it(model, talk, api, owner):
    talk.say("저는 부산에 살아요. 기억해줘")
    (slot,) = ProfileSlot.objects.all()
    second = Talk(api)
    trace = second.trace(second.say("숙박비 상한은 얼마인가요?"))
    assert trace["profile"]["slots"] == [str(slot.pk)]
    assert [one["value"] for one in trace["profile"].pop("known")] == ["부산"]
    assert trace["token_plan"]["layers"]["profile"]["used"] > 0
    assert "부산" not in str(
        Trace.objects.get(message=second.turn["assistant_message"]["id"]).steps
    )


def test_the_context_of_a_chat_shows_what_is_known(talk, owner):
    talk.say("저는 부산에 살아요. 기억해줘")
    assert [one["value"] for one in talk.get("/context")["profile"]] == ["부산"]


def test_allergies_that_the_passages_name_are_said_first(talk, owner, api):
    add_document(owner, "급식 안내.md", ALLERGIES)
    talk.say("저는 땅콩 알레르기가 있어요. 기억해줘")
    second = Talk(api)
    answer = second.say("월요일 식단에는 무엇이 나오나요?")
    assert answer["content"].startswith("**알레르기: 땅콩**")
    assert not second.say("출장 숙박비 상한은 얼마인가요?")["content"].startswith("**알레르기")


def test_the_marks_of_sources_stay_where_they_are_behind_a_caution(talk, owner, api, model):
    add_document(owner, "급식 안내.md", ALLERGIES)
    talk.say("저는 땅콩 알레르기가 있어요. 기억해줘")
    model.default = Stream(["땅콩 소스를 곁들인 샐러드가 나옵니다. [1]"])
    answer = Talk(api).say("월요일 식단에는 무엇이 나오나요?")
    assert answer["content"].startswith("**알레르기: 땅콩**")
    for citation in answer["citations"]:
        assert answer["content"][citation["offset"] :].startswith("[1]")


def test_rules_of_medicine_stand_in_the_prompt_of_medical_questions_only(model, talk):
    talk.say("두통약을 먹어도 되는 용량은 얼마인가요?")
    assert "[건강에 관한 질문]" in get_last_prompt(model)
    talk.say("출장 숙박비 상한은 얼마인가요?")
    assert "[건강에 관한 질문]" not in get_last_prompt(model)


def test_a_turn_that_was_read_is_not_read_again(talk, owner):
    talk.say("내 나이는 35살이야. 기억해줘")
    talk.say("내 나이는 36살이야. 기억해줘")
    for turn in Turn.objects.order_by("number"):
        services.learn_from_turn(turn.pk)
    assert list_slots(owner) == [("demographic", "age", "36", "active")]


def test_a_turn_that_tells_nothing_is_known_as_read_with_its_summary(talk, owner):
    talk.say("출장 숙박비 상한은 얼마인가요?")
    summarised = Turn.objects.exclude(summarised_at=None)
    wait_until(summarised.exists)
    assert not summarised.filter(profile_read_at=None).exists()
    assert list_slots(owner) == []


def test_a_contradicted_allergy_stays_until_its_owner_confirms(talk, owner, api):
    talk.say("저는 페니실린 알레르기가 있어요. 기억해줘")
    answer = talk.say("페니실린 알레르기는 없어. 기억해줘")
    assert "확인해 주세요" in answer["content"]
    assert [row[3] for row in list_slots(owner)] == ["active", "proposed"]


def test_a_wish_to_forget_takes_the_slot_and_the_sentence_out_of_the_turn_store(talk, owner):
    talk.say("내 나이는 35살이야. 기억해줘")
    assert talk.say("내 나이는 잊어줘")["content"].startswith("잊었습니다.")
    assert list_slots(owner) == []
    for turn in Turn.objects.all():
        told = (turn.user_text, turn.summary, turn.running_summary, turn.assistant_text)
        assert "35살" not in "".join(told)


def test_a_wish_to_forget_an_allergy_is_asked_about(talk, owner):
    talk.say("저는 땅콩 알레르기가 있어요. 기억해줘")
    assert "확인해 주세요" in talk.say("땅콩 알레르기는 잊어줘")["content"]
    assert [row[3] for row in list_slots(owner)] == ["active", "proposed"]


def test_all_is_forgotten_at_a_wish(talk, owner):
    talk.say("저는 부산에 살아요. 기억해줘")
    talk.say("나에 대해 기억하는 거 전부 잊어줘")
    assert list_slots(owner) == []


@pytest.mark.parametrize("field", ["use_memory", "temporary"])
def test_a_chat_without_memory_knows_of_nobody_and_adds_nothing(model, talk, owner, api, field):
    talk.say("저는 부산에 살아요. 기억해줘")
    other = Talk(api)
    other.say("출장 규정을 알려줘")
    Chat.objects.filter(pk=other.chat_id).update(**{field: field == "temporary"})
    answer = other.say("나는 35살이야. 기억해줘")
    assert "꺼져" in answer["content"]
    other.say("부산 숙박비 상한은 얼마인가요?")
    assert "[사용자에 대해 기억하는 것]" not in get_last_prompt(model)
    assert len(list_slots(owner)) == 1


def test_nothing_is_remembered_of_a_user_who_has_switched_it_off(model, talk, owner):
    services.switch_memory(owner=owner, enabled=False)
    assert "꺼져" in talk.say("저는 부산에 살아요. 기억해줘")["content"]
    assert list_slots(owner) == []


def test_nobody_is_told_what_is_known_of_somebody_else(model, talk, owner):
    talk.say("저는 부산에 살아요. 기억해줘")
    other = User.objects.create_user("other", "other@example.com", "pw")
    add_document(other, "출장 규정.md", TRAVEL)
    Talk(client(other)).say("부산 숙박비 상한은 얼마인가요?")
    assert "사는 곳" not in get_last_prompt(model)
    assert list_slots(other) == []


def test_a_chat_that_goes_for_good_leaves_what_is_known_without_its_words(talk, owner, api):
    talk.say("저는 부산에 살아요. 기억해줘")
    api.delete(f"/api/v1/chats/{talk.chat_id}")
    assert erasure.purge_chat(talk.chat_id)
    (slot,) = ProfileSlot.objects.all()
    assert (slot.value, slot.sentence, slot.message_id) == ("부산", "", None)


def test_what_is_known_goes_with_its_user(talk, owner):
    talk.say("저는 부산에 살아요. 기억해줘")
    owner.delete()
    assert ProfileSlot.objects.count() == 0


# What the light model notes of messages in which the rules hear nothing


SAID = "저희 집 강아지 이름은 누렁이고 저는 주말마다 등산을 갑니다."
NOTED = {"kind": "preference", "key": "주말", "value": "등산", "sentence": SAID}


@pytest.fixture
def light(settings, llm_server):
    """A light model that notes `light.facts`, and says nothing else that is of use."""
    main = Endpoint(llm_server.url, MAIN, api_key="key")
    settings.RAG = replace(settings.RAG, llm=main, light_llm=replace(main, model="light"))
    llm_server.facts = []

    def reply(request):
        if request["model"] == MAIN:
            return Stream(["네, 그렇습니다."])
        is_note = "사용자 자신에 관한" in request["messages"][0]["content"]
        said = json.dumps({"facts": llm_server.facts}, ensure_ascii=False) if is_note else "?"
        return Stream([said])

    llm_server.default = reply
    return llm_server


def wait_for_summary(talk):
    """Wait until the last turn has its summary, and was read."""
    rows = Turn.objects.filter(chat=talk.chat_id).exclude(summarised_at=None)
    wait_until(rows.exists, 20)


def list_note_requests(light):
    return [call for call in light.chats if "사용자 자신에 관한" in call.prompt]


def test_the_light_model_notes_what_rules_do_not_hear(light, talk, owner):
    light.facts = [NOTED]
    talk.say(SAID)
    wait_for_summary(talk)
    assert ("preference", "주말", "등산", "active") in list_slots(owner)


@pytest.mark.parametrize(
    "fact",
    [
        NOTED | {"sentence": "저는 왼손잡이입니다."},
        NOTED | {"kind": "secret"},
        NOTED | {"value": ""},
        "등산",
    ],
    ids=["another sentence", "unknown kind", "no value", "no object"],
)
def test_nothing_is_kept_that_the_user_did_not_say(light, talk, owner, fact):
    light.facts = [fact]
    talk.say(SAID)
    wait_for_summary(talk)
    assert list_note_requests(light)
    assert list_slots(owner) == []


def test_a_protected_thing_that_a_model_noted_is_asked_first(light, talk, owner):
    said = "저는 예전에 복숭아 때문에 크게 고생한 적이 있습니다."
    light.facts = [{"kind": "allergy", "key": "복숭아", "value": "복숭아", "sentence": said}]
    talk.say(said)
    wait_for_summary(talk)
    assert list_slots(owner) == [("allergy", "복숭아", "복숭아", "proposed")]


def test_nobody_is_asked_about_messages_without_the_user_in_them(light, talk, owner):
    talk.say("숙박비 상한은 얼마인가요?")
    wait_for_summary(talk)
    assert list_note_requests(light) == []


def test_nobody_is_asked_where_memory_is_off(light, talk, owner):
    services.switch_memory(owner=owner, enabled=False)
    light.facts = [NOTED]
    talk.say(SAID)
    wait_for_summary(talk)
    assert list_note_requests(light) == []
    assert list_slots(owner) == []
