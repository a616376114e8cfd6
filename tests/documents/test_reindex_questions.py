"""What both spaces are asked, and how the answers are judged."""

import json

import pytest

from documents import reindex
from documents.models import Chunk
from documents.reindex import QuestionsError
from tests.documents.changing import TOPICS, add

pytestmark = pytest.mark.django_db

FAR = reindex.TOP_MANY


@pytest.fixture
def document(owner, sent, tiny_engine):
    return add(owner, "규정.md", TOPICS[:2])


def write(folder, name, content):
    path = folder / name
    path.write_text(content, encoding="utf-8")
    return path


def test_headings_become_questions_and_their_chunks_the_answers(document):
    asked = {question.text: question for question in reindex.make_questions_from_headings()}
    assert asked.keys() == {f"{topic} {part}조" for topic in TOPICS[:2] for part in (1, 2, 3)}
    for text, question in asked.items():
        chunks = Chunk.objects.filter(pk__in=question.answers)
        assert all(text in chunk.section for chunk in chunks)
        assert question.owner_id == document.owner_id


def test_the_same_headings_are_asked_each_time(document, monkeypatch):
    monkeypatch.setattr(reindex, "MAX_QUESTIONS", 3)
    first = reindex.make_questions_from_headings()
    assert len(first) == 3
    assert reindex.make_questions_from_headings() == first


def test_a_heading_over_everything_asks_for_nothing(document, monkeypatch):
    monkeypatch.setattr(reindex, "MAX_ANSWERS", 0)
    assert reindex.make_questions_from_headings() == []


ROWS = [
    {"question": "연차는?", "text": "연차 휴가 2조에 따른"},
    {"question": "출장은?", "document": "규정.md", "text": ""},
]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("q.json", json.dumps(ROWS)),
        ("q.jsonl", "\n".join(json.dumps(row) for row in ROWS) + "\n"),
        ("q.csv", "question,document,text\n연차는?,,연차 휴가 2조에 따른\n출장은?,규정.md,\n"),
    ],
)
def test_questions_are_read_from_json_json_lines_and_csv(document, tmp_path, name, content):
    first, second = reindex.read_questions(write(tmp_path, name, content))
    (key,) = first.answers
    assert "연차 휴가 2조" in Chunk.objects.get(pk=key).text
    assert second.answers == set(document.chunks.values_list("pk", flat=True))


def test_a_document_can_be_named_by_its_id(document, tmp_path):
    row = {"question": "무엇인가?", "document": str(document.pk)}
    (question,) = reindex.read_questions(write(tmp_path, "q.json", json.dumps([row])))
    assert len(question.answers) == document.chunks.count()


def test_each_owner_is_asked_about_own_documents(document, stranger, tmp_path):
    add(stranger, "규정.md", TOPICS[:2])
    row = {"question": "무엇인가?", "document": "규정.md"}
    asked = reindex.read_questions(write(tmp_path, "q.json", json.dumps([row])))
    assert [question.owner_id for question in asked] == [document.owner_id, stranger.pk]
    for question in asked:
        owners = Chunk.objects.filter(pk__in=question.answers).values_list("owner_id", flat=True)
        assert set(owners) == {question.owner_id}


@pytest.mark.parametrize(
    "content",
    [
        "no json",
        "[]",
        '[{"question": "x"}]',
        '[{"text": "연차"}]',
        '[{"question": "x", "text": "없다"}]',
    ],
)
def test_a_file_that_asks_nothing_is_refused(document, tmp_path, content):
    with pytest.raises(QuestionsError, match=r"q\.json"):
        reindex.read_questions(write(tmp_path, "q.json", content))


def test_a_file_that_is_not_there_is_refused(document, tmp_path):
    with pytest.raises(QuestionsError):
        reindex.read_questions(tmp_path / "absent.json")


@pytest.mark.parametrize(
    ("places", "falls"),
    [
        ([(0, 0)] * 100, False),
        ([(FAR, 0)] * 10 + [(0, 0)] * 90, False),
        ([(0, FAR)] + [(0, 0)] * 199, False),  # chance may have made that
        ([(0, FAR)] * 6 + [(0, 0)] * 94, True),
        ([(0, FAR)] * 15 + [(0, 0)] * 985, True),  # little, but no chance
        ([(0, 7)] * 10 + [(0, 0)] * 90, True),  # from among the first 5 to among the first 10
        ([], False),
    ],
)
def test_a_loss_beyond_chance_or_tolerance_is_a_fall(places, falls):
    assert reindex.judge_ranks(places).finds_less is falls


def test_recall_counts_the_questions_with_an_answer_among_the_first():
    judged = reindex.judge_ranks([(0, 4), (7, 5), (FAR, 9), (FAR, FAR)])
    assert (judged.old.at_5, judged.old.at_10) == (0.25, 0.5)
    assert (judged.new.at_5, judged.new.at_10) == (0.25, 0.75)
