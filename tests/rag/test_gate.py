"""The gate: whether the documents hold something on the question."""

from dataclasses import replace
from uuid import uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rag.config import RagConfig
from rag.retrieve import search as gate
from rag.types import Hit, Passage, Scope, ScopeReason
from tests.rag.worlds import TRAVEL_RULES, Library, make_engine

SHARE = st.floats(0, 1)


def make_prior(
    text="숙박비 상한은 얼마인가요?", *, terms=4, documents=100, reason=ScopeReason.ALL, dense=0.0
):
    scope = Scope(tuple(uuid4() for _ in range(documents)), reason)
    return gate.Prior.from_text(text, terms=terms, dense_weight=dense, scope=scope)


def make_hit(**scores):
    return Hit(Passage(1, uuid4(), "d", 0, "x", None, None, ""), 1.0, scores)


@pytest.mark.parametrize(
    ("query", "relevant"),
    [
        ("숙박비 상한은?", True),
        ("숙박비", True),
        ("숙박비는 얼마까지 되나요", True),
        ("정산은 며칠 안에 해야 하나요?", True),
        ("비밀번호 변경 주기 알려줘", True),
        ("비밀번호가 기억이 안나", True),
        ("제3조", True),
        ("which port does the service listen on?", True),
        ("how often should I restore backups", True),
        ("민법 제1조는?", False),
        ("후쿠오카 여행 일정 짜줘", False),
        ("오늘 기분이 너무 우울해", False),
        ("안녕하세요", False),
        ("what is the capital of France?", False),
    ],
)
def test_the_gate_tells_the_documents_questions_from_others(library, query, relevant):
    found = library.search(query).gate
    assert 0 <= found.score <= 1
    assert found.relevant == relevant


def test_the_gate_threshold_is_a_setting():
    made = Library(make_engine(config=RagConfig(gate_threshold=0.999)))
    made.add("여비 규정.md", TRAVEL_RULES)
    assert not made.search("정산 기한은?").gate.relevant


@given(SHARE, SHARE, SHARE, SHARE, st.sampled_from([0.0, 0.5, 1.0]), st.integers(1, 300))
def test_more_evidence_never_lowers_the_score(share, coverage, closeness, more, dense, documents):
    question = make_prior(dense=dense, documents=documents)
    less = gate.Signals(share, coverage, closeness)
    score = gate.estimate_probability(question, less)
    for name in ("share", "coverage", "closeness"):
        richer = replace(less, **{name: max(more, getattr(less, name))})
        assert gate.estimate_probability(question, richer) >= score - 1e-12


def test_no_evidence_is_no_relevance():
    assert gate.score_gate(make_prior(), []) == 0.0
    assert gate.score_relevance(make_prior(), make_hit(share=0.0, coverage=0.0)) == 0.0


def test_a_statement_needs_more_evidence_than_a_question():
    found = [make_hit(share=0.45, coverage=0.7)]
    question, statement = make_prior("휴가는 며칠인가요?"), make_prior("휴가를 갔다 왔어")
    assert gate.score_gate(question, found) > 0.5 > gate.score_gate(statement, found)


def test_the_documents_that_a_user_chose_need_less_evidence():
    found = [make_hit(share=0.3, coverage=0.6)]
    chosen = make_prior(reason=ScopeReason.EXPLICIT)
    assert gate.score_gate(chosen, found) > gate.score_gate(make_prior(), found)


def test_closeness_speaks_for_the_documents_only_where_the_embedder_knows_the_language():
    found = [make_hit(share=0.05, coverage=0.1, closeness=0.8)]
    assert gate.score_gate(make_prior(dense=1.0), found) > 0.5
    assert gate.score_gate(make_prior(dense=0.0), found) < 0.1


def test_words_speak_for_the_documents_where_nothing_is_close():
    found = [make_hit(share=0.7, coverage=0.9, closeness=0.0)]
    assert (
        gate.score_gate(make_prior(dense=1.0), found)
        == gate.score_gate(make_prior(dense=0.0), found)
        > 0.9
    )


def test_cosines_of_a_narrow_band_are_read_by_their_closeness():
    narrow = make_hit(share=0.05, coverage=0.1, similarity=0.78, closeness=0.1)
    assert gate.score_gate(make_prior(dense=1.0), [narrow]) < 0.1


def test_the_gate_reads_the_best_passages_and_relevance_each_one():
    question = make_prior()
    best, other = make_hit(share=0.6, coverage=0.9), make_hit(share=0.1, coverage=0.2)
    assert gate.score_gate(question, [other, best]) == gate.score_relevance(question, best)
    assert gate.score_relevance(question, other) < 0.2 * gate.score_relevance(question, best)


@pytest.mark.parametrize(
    "query",
    [
        "이 문서 요약해줘",
        "무슨 내용이야?",
        "핵심만 정리해줘",
        "summarize this document",
        "what's this about?",
    ],
)
def test_questions_on_the_chats_documents_as_a_whole_go_to_them(library, query):
    scope = library.scope(ScopeReason.CHAT)
    found = library.engine.search(query, scope, library.store)
    assert found.gate.relevant
    assert [h.passage.index for h in found.hits] == [0, 0, 0, 0]


def test_a_word_for_documents_alone_is_a_word_to_look_for(library):
    library.add("안내.md", "문의는 총무과로 하고 자료에서는 별표를 본다.")
    assert library.search("자료").hits[0].passage.document_name == "안내.md"


def test_with_all_documents_in_scope_only_a_question_that_mentions_documents_goes_to_them(library):
    assert not library.search("무슨 내용이야?").gate.relevant
    assert library.search("올린 문서 요약해줘").gate.relevant
