import threading
from concurrent.futures import ThreadPoolExecutor
from uuid import uuid4

import pytest

from rag.retrieve.candidates import (
    MAX_SENTENCE_PASSAGES,
    Candidates,
    QuestionEmbedder,
    rescore_candidates,
    score_sentences,
)
from rag.types import (
    Hit,
    IndexedChunk,
    Passage,
    Plan,
    QuestionType,
    Scope,
    ScopeReason,
    StrategyName,
    TextChunk,
)
from tests.rag.memory_store import MemoryStore


class NumberEmbedder:
    """Knows English; a text of "x,y" has that vector."""

    name, dimensions = "numbers", 2

    def __init__(self, *languages):
        self.languages = frozenset(languages)

    def embed_query(self, text):
        return [1.0, 0.0]


def make_hit(text, name="d", section=""):
    return Hit(Passage(1, uuid4(), name, 0, text, None, None, section), 1.0)


def make_library(*chunks):
    """A store of one document a chunk: (text, vector)."""
    store = MemoryStore()
    for text, vector in chunks:
        chunk = TextChunk(0, text, 0, len(text), None, None, "")
        terms = {word: text.split().count(word) for word in text.split()}
        store.add(uuid4(), "d", [IndexedChunk(chunk, terms, vector)])
    return store


def make_plan(query):
    scope = Scope((), ScopeReason.ALL)
    return Plan(
        QuestionType.SINGLE,
        StrategyName.RRF,
        5,
        needs_multi_doc=False,
        standalone_query=query,
        scope=scope,
    )


def list_texts(hits):
    return [found.passage.text for found in hits]


def test_a_sentence_that_holds_all_words_counts_more_than_words_all_over():
    together = make_hit("연차 휴가 일수는 정해져 있다. 다른 말.")
    apart = make_hit("연차 이야기. 휴가 이야기. 일수 이야기.")
    shares = score_sentences({"연차": 1, "휴가": 1, "일수": 1}, [together, apart], 5)
    assert shares[0] == pytest.approx(1.0)
    assert shares[1] < 0.5


def test_words_of_the_headings_count_for_every_sentence():
    terms = {"여비": 1, "정산": 1}
    (share,) = score_sentences(terms, [make_hit("정산은 5일 안에 한다.", "여비 규정", "제1장")], 5)
    assert share == pytest.approx(1.0)


def test_a_question_without_terms_has_no_sentence():
    assert score_sentences({}, [make_hit("가"), make_hit("나")], 1) == [0.0]


def test_closeness_lifts_a_passage_that_says_the_same_in_other_words():
    same = ("holiday entitlement", (1.0, 0.0))
    store = make_library(("vacation days vacation", (0.0, 1.0)), same, ("vacation", (0.0, 1.0)))
    candidates = Candidates(
        make_plan("vacation days"), store, QuestionEmbedder(NumberEmbedder("en"))
    )
    found = rescore_candidates(candidates, bm25_weight=1.0)
    assert list_texts(found)[0] == "holiday entitlement"
    assert found[0].scores["closeness"] == pytest.approx(1.0)


def test_closeness_of_lexical_hits_is_read_from_their_vectors():
    store = make_library(("vacation days", (0.6, 0.8)), ("days", (0.0, 1.0)))
    candidates = Candidates(
        make_plan("vacation days"), store, QuestionEmbedder(NumberEmbedder("en")), unrelated=0.2
    )
    found = rescore_candidates(candidates, bm25_weight=1.0)
    assert found[0].scores["closeness"] == pytest.approx((0.6 - 0.2) / 0.8)


def test_where_the_embedder_does_not_know_the_language_sentences_decide():
    apart = "연차 이야기가 길다. " * 2 + "휴가 이야기도 길다."
    store = make_library(("연차 휴가 이야기.", None), (apart, None))
    candidates = Candidates(make_plan("연차 휴가"), store, QuestionEmbedder(NumberEmbedder("en")))
    found = rescore_candidates(candidates, bm25_weight=1.0)
    assert all("sentence" in one.scores and "closeness" not in one.scores for one in found)
    assert list_texts(found)[0] == "연차 휴가 이야기."


def test_passages_behind_the_first_keep_their_order():
    store = make_library(*((f"연차 {'말 ' * n}", None) for n in range(1, 20)))
    candidates = Candidates(make_plan("연차"), store, QuestionEmbedder(NumberEmbedder("en")))
    found = rescore_candidates(candidates, bm25_weight=1.0)
    assert (
        list_texts(found)[MAX_SENTENCE_PASSAGES:]
        == list_texts(candidates.lexical_hits)[MAX_SENTENCE_PASSAGES:]
    )


class MeetingStore(MemoryStore):
    """Its searches by words wait until as many others are under way as `meeting` has parties."""

    def __init__(self, meeting, threads):
        super().__init__()
        self.meeting, self.threads = meeting, threads

    def find_by_terms(self, terms, limit):
        self.meeting.wait(timeout=20)
        return super().find_by_terms(terms, limit)

    def run_concurrently(self, work):
        return self.threads.submit(work).result


class Nearby(MeetingStore):
    """Its searches by vector wait for those by words."""

    def find_similar(self, vector, limit):
        self.meeting.wait(timeout=20)
        return super().find_similar(vector, limit)


def test_words_and_vectors_are_searched_at_once():
    with ThreadPoolExecutor(1) as threads:
        candidates = Candidates(
            make_plan("vacation days"),
            Nearby(threading.Barrier(2), threads),
            QuestionEmbedder(NumberEmbedder("en")),
        )
        assert list(candidates.lexical_hits) == list(candidates.dense_hits) == []


def test_no_question_waits_for_the_search_of_another():
    meeting = threading.Barrier(2)
    with ThreadPoolExecutor(2) as threads:
        searches = [
            Candidates(
                make_plan(text), MeetingStore(meeting, threads), QuestionEmbedder(NumberEmbedder())
            )
            for text in ("연차 휴가", "출장 여비")
        ]
        assert list(threads.map(lambda candidates: list(candidates.lexical_hits), searches)) == [
            [],
            [],
        ]
