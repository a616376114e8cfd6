"""`manage.py evaluate`: sets of questions through the product, with and without a model."""

import io
import json
import re
from dataclasses import replace

import pytest
from django.conf import settings
from django.core.management import CommandError, call_command
from django.utils.translation import override

from chats.evaluation import list_feedback_lines, make_changed_configuration
from chats.models import Chat, DailyMessages, Feedback, Message, Turn
from rag.config import Endpoint
from tests.chats.talking import LEAVE, TRAVEL, add_document
from tests.chats.turns import add_turn
from tests.servers.llm import Failure, Stream

pytestmark = pytest.mark.django_db(transaction=True)

QUESTION = {"user": "숙박비 상한은 얼마인가요?", "gold": [["1박에 90,000원", "90,000원"]]}
LINE = {"id": "여비", "kind": "fact", "turns": [QUESTION | {"answerable": True}]}


@pytest.fixture
def library(owner):
    return [add_document(owner, "여비.md", TRAVEL), add_document(owner, "휴가.md", LEAVE)]


@pytest.fixture
def model(llm_server, settings):
    """A language model that answers from the first passage."""
    endpoint = Endpoint(llm_server.url, "stand-in")
    settings.RAG = replace(settings.RAG, llm=endpoint)
    settings.BUILD_RAG = build_with(endpoint)
    llm_server.default = Stream(["숙박비 상한은 1박에 ", "90,000원입니다 [1]."])
    return llm_server


def build_with(endpoint):
    """What the environment says, with this model."""
    build = settings.BUILD_RAG
    return lambda: replace(build(), llm=endpoint)


@pytest.fixture
def evaluate(tmp_path):
    """Run the command on some lines; its figures and its output."""

    def run(*lines, options=()):
        file, out = tmp_path / "set.jsonl", tmp_path / "out.json"
        file.write_text("\n".join(json.dumps(line) for line in lines))
        said = io.StringIO()
        call_command("evaluate", file, "--json", out, *options, stdout=said, stderr=io.StringIO())
        return json.loads(out.read_text()), said.getvalue()

    return run


NO_DIFFERENCE = {"value": 0, "low": 0, "high": 0, "certain": False}


def get_overall_figures(figures, place=0):
    return figures["configurations"][place]["all"]


def test_an_answer_is_measured_from_the_prompt_to_its_citations(library, model, evaluate):
    figures, said = evaluate(LINE | {"documents": ["여비.md"]})
    found = get_overall_figures(figures)
    expected = {"evidence_all": 1, "facts": 1, "citations": 1, "false_abstention": 0, "failed": 0}
    assert {name: found[name] for name in expected} == expected
    assert found["strangers"] == 0
    assert found["prompt_tokens"] > 10
    assert 0 < found["first_word_ms"] <= found["total_ms"]
    assert found["calls"] == len(model.chats)
    assert re.search(r"^facts\s+1\.000$", said, re.MULTILINE)


def test_what_is_missing_is_told_of_each_turn(library, model, evaluate):
    line = {"id": "a", "turns": [QUESTION | {"gold": ["달에는 토끼가 산다"], "answerable": True}]}
    (turn,) = evaluate(line)[0]["turns"][0]
    assert turn["missing_in_prompt"] == turn["missing_in_answer"] == ["달에는 토끼가 산다"]


def test_nothing_is_stored(library, model, evaluate):
    evaluate(LINE)
    stored = (Chat, Message, Turn, DailyMessages)
    assert [model_class.objects.count() for model_class in stored] == [0, 0, 0, 0]


def test_without_a_model_the_passages_are_measured(library, evaluate):
    found = get_overall_figures(evaluate(LINE)[0])
    assert (found["facts"], found["calls"]) == (1, 0)
    assert "evidence" not in found


def test_what_a_light_model_understands_from_is_no_evidence(
    library, llm_server, settings, evaluate
):
    settings.RAG = replace(settings.RAG, light_llm=Endpoint(llm_server.url, "light"))
    follow_up = QUESTION | {"user": "그럼 서울은?"}
    _, second = evaluate(LINE | {"turns": [QUESTION, follow_up]})[0]["turns"][0]
    assert second["measures"]["calls"] > 0
    assert not {"evidence", "evidence_share"} & set(second["measures"])


def test_a_line_is_one_conversation(library, model, evaluate):
    turns = [QUESTION, {"user": "그럼 서울은?"}]
    evaluate({"id": "a", "turns": turns}, {"id": "b", "turns": [QUESTION]})
    second, third = (call.prompt for call in model.chats[-2:])
    assert QUESTION["user"] in second
    assert "그럼 서울은?" not in third


def test_named_documents_are_all_that_is_read(library, model, evaluate):
    evaluate(LINE | {"documents": [str(library[1].pk)]})
    assert "90,000원" not in model.chats[-1].prompt
    evaluate({**LINE, "documents": ["휴가.md"], "turns": [QUESTION | {"choose": False}]})
    assert "90,000원" in model.chats[-1].prompt


def test_documents_are_ticked_turn_by_turn(library, model, evaluate):
    turns = [QUESTION, QUESTION | {"choose": False}]
    figures, _ = evaluate({"id": "a", "documents": ["휴가.md"], "turns": turns})
    missing = [turn["missing_in_prompt"] for turn in figures["turns"][0]]
    assert missing == [["1박에 90,000원"], []]


def test_an_answer_that_fails_is_counted_and_the_next_one_asked(library, model, evaluate):
    model.script(Failure(401))
    figures, _ = evaluate(LINE, LINE | {"id": "b"})
    assert get_overall_figures(figures)["failed"] == 0.5
    assert [turn["error"] for turn in figures["turns"][0]] == ["llm_unauthorized", ""]


def test_two_configurations_are_compared_question_by_question(library, model, evaluate):
    options = ("--compare", "NURA_LLM_MAX_TOKENS=77", "--compare", "NURA_TOP_K=1")
    figures, said = evaluate(LINE, LINE | {"id": "b"}, options=options)
    asked = [call.json["max_tokens"] for call in model.chats]
    assert asked == [1000, 77, 77, 1000]  # by turns, so that neither is always the first
    assert figures["configurations"][1]["name"] == "NURA_LLM_MAX_TOKENS=77, NURA_TOP_K=1"
    assert figures["differences"]["facts"] == NO_DIFFERENCE | {"lines": 2}
    assert "B - A, 신뢰구간" in said


def test_what_a_user_told_before_is_remembered_or_told_again(library, model, evaluate):
    line = LINE | {"known": ["나는 페니실린 알레르기가 있어", "앞으로 표로 답해줘"]}
    figures, _ = evaluate(line, options=["--compare", "NURA_MEMORY_PACKS=none"])
    remembered, again = [call.json["messages"][-1]["content"] for call in model.chats]
    assert "페니실린" in remembered
    assert line["known"][1] not in remembered
    assert again.count("나는 페니실린 알레르기가 있어 앞으로 표로 답해줘 숙박비") == 1
    assert [get_overall_figures(figures, place)["failed"] for place in (0, 1)] == [0, 0]


def test_the_table_speaks_english_too_and_stands_in_columns(library, evaluate):
    with override("en"):
        _, said = evaluate(LINE | {"kind": "여비 규정"}, LINE | {"id": "b", "kind": "fact"})
    assert "2 conversations, 2 questions\nA: Present settings (no language model)\n" in said
    rows = [row for row in said.splitlines() if row.startswith(("여비 규정", "fact "))]
    assert [row.index("1.000") for row in rows] == [7, 11]  # a syllable is two columns wide


@pytest.mark.parametrize(
    ("change", "shown"),
    [
        ("NURA_LLM_API_KEY=hush-1", "NURA_LLM_API_KEY=…"),
        ("NURA_LLM_BASE_URL=http://me:hush-1@models.test/v1", "NURA_LLM_BASE_URL=…"),
        ("NURA_LLM_BASE_URL=http://models.test/v1", "NURA_LLM_BASE_URL=http://models.test/v1"),
        ("NURA_LLM_MODEL=a", "NURA_LLM_MODEL=a"),
        ("NURA_LLM_MAX_TOKENS=77", "NURA_LLM_MAX_TOKENS=77"),
    ],
)
def test_a_secret_that_is_compared_is_not_shown(change, shown):
    assert make_changed_configuration([change]).name == shown


def test_what_lacks_its_name_is_refused_without_a_word_of_it(library, evaluate):
    with pytest.raises(CommandError) as refused:
        evaluate(LINE, options=("--compare", "hush-1"))
    assert "hush-1" not in str(refused.value)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ("NURA_TOP_K", "NAME=VALUE"),
        ("NURA_TOP_K=many", "whole number"),
        ("NURA_TOPK=2", "changes nothing"),
        ("NURA_CHUNK_SIZE=500", "index them anew"),
    ],
)
def test_a_setting_that_cannot_be_compared_is_refused(library, evaluate, change, why):
    with pytest.raises(CommandError, match=why):
        evaluate(LINE, options=("--compare", change))


GRADES = {"relevance": 1, "faithfulness": 1, "support": 0.5, "coherence": 1}


def test_a_judge_grades_and_its_failures_are_counted(library, model, evaluate):
    graded = Stream([json.dumps(GRADES)])
    model.script(Stream(["90,000원 [1]"]), graded, Stream(["90,000원 [1]"]), Stream(["글쎄요"]))
    figures, said = evaluate(LINE, LINE | {"id": "b"}, options=("--judge",))
    assert get_overall_figures(figures)["support"] == 0.5
    assert figures["configurations"][0]["judge_failures"] == 1
    assert "A: 답변 1개는 채점하지 못함" in said


def test_a_judge_needs_a_model(library, evaluate):
    with pytest.raises(CommandError, match="NURA_LLM_MODEL"):
        evaluate(LINE, options=("--judge",))


def test_the_page_stands_alone_and_obeys_nothing(library, model, evaluate, tmp_path):
    page = tmp_path / "page.html"
    evil = "<script>alert(1)</script> 숙박비는?"
    line = {"id": "<b>", "turns": [{"user": evil, "gold": ["<i>x"], "answerable": True}]}
    evaluate(LINE, line, options=("--html", page, "--compare", "NURA_TOP_K=1"))
    text = page.read_text()
    assert "<svg" in text
    assert "<script" not in text
    assert not re.search(r"(?:src|href)=|url\(|@import", text)


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (LINE | {"documents": ["없음.md"]}, "여비: 없음.md: there is no such document"),
        (LINE | {"turns": []}, "line 1: `turns`"),
    ],
)
def test_a_set_that_does_not_fit_is_refused_before_anything_is_asked(
    library, model, evaluate, line, why
):
    with pytest.raises(CommandError, match=why):
        evaluate(line)
    assert not model.chats


def test_a_name_that_two_documents_bear_has_to_be_an_id(owner, library, evaluate):
    add_document(owner, "여비.md", TRAVEL + "\n부칙")
    with pytest.raises(CommandError, match="give its id"):
        evaluate(LINE | {"documents": ["여비.md"]})


def test_documents_of_others_are_not_there(stranger, library, evaluate):
    with pytest.raises(CommandError, match="no documents"):
        evaluate(LINE, options=("--user", "stranger"))


def test_an_answer_whose_named_documents_were_gone_is_left_out_of_a_set(owner, library):
    asked = add_turn(owner, "숙박비는?", library[0])
    Feedback.objects.create(message=asked.message, user=owner, value=-1)
    for ids, lines in (([str(library[0].pk)], 1), ([], 0)):
        asked.message.scope = {"reason": "explicit", "document_ids": ids}
        asked.message.save()
        assert len(list(list_feedback_lines(owner))) == lines


def test_thumbs_down_become_a_set_that_can_be_read(owner, stranger, library, tmp_path):
    first = add_turn(owner, "숙박비는?", library[0])
    second = add_turn(owner, "그럼 서울은?", library[0], chat_id=first.chat_id)
    liked = add_turn(owner, "연차는?", library[1])
    Feedback.objects.create(message=second.message, user=owner, value=-1, reason="틀렸어요")
    Feedback.objects.create(message=liked.message, user=owner, value=1)
    others = add_turn(stranger, "남의 질문")
    Feedback.objects.create(message=others.message, user=stranger, value=-1)
    file = tmp_path / "set.jsonl"
    call_command("evaluate", file, "--from-feedback", "--user", "owner", stderr=io.StringIO())
    (line,) = map(json.loads, file.read_text().splitlines())
    assert [turn["user"] for turn in line["turns"]] == ["숙박비는?", "그럼 서울은?"]
    assert line["turns"][1]["reason"] == "틀렸어요"
    assert line["turns"][1]["gold"] == []
    with pytest.raises(CommandError, match="there already"):
        call_command("evaluate", file, "--from-feedback", "--user", "owner")
    out = io.StringIO()
    call_command("evaluate", file, "--user", "owner", stdout=out, stderr=io.StringIO())
    assert "대화 1개, 질문 2개" in out.getvalue()
