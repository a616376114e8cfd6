"""Candidates, fusion, strategies, plan and gate."""

from uuid import uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rank_bm25 import BM25Okapi

from rag import indexing
from rag.errors import EmbedderFailed
from rag.retrieve import candidates, search
from rag.types import (
    Hit,
    IndexedChunk,
    Passage,
    QuestionType,
    Scope,
    ScopeReason,
    StrategyName,
)
from tests.rag.memory_store import MemoryStore
from tests.rag.worlds import (
    DEPLOYMENT,
    SECURITY_RULES,
    TRAVEL_RULES,
    LetterEmbedder,
    Library,
    ignore_progress,
    make_chunk,
    make_engine,
)


def make_hit(key, score=1.0, document=None, text="x", **scores):
    passage = Passage(key, document or uuid4(), f"d{key}", 0, text, None, None, "")
    return Hit(passage, score, scores)


def test_a_korean_question_finds_its_passage_and_embeds_nothing(library):
    library.engine.embedder.embedded.clear()
    found = library.search("숙박비 상한은 얼마인가요?")
    assert found.hits[0].passage.document_name == "여비 규정.md"
    assert library.engine.embedder.embedded == []


@pytest.mark.parametrize("name", list(StrategyName))
def test_a_failing_embedder_leaves_what_the_words_find(library, name):
    words = library.search("how often do backups run?", strategy=StrategyName.BM25)
    library.engine.embedder.failing = True
    found = library.search("how often do backups run?", strategy=name)
    assert (words.error_code, found.error_code) == ("", "embedder_failed")
    assert found.hits[0].passage.document_name == "backup.md"
    assert found.gate.relevant


def test_a_failing_embedder_is_asked_once_for_a_question():
    embedder = LetterEmbedder(frozenset({"*"}))
    made = Library(make_engine(embedder=embedder))
    for name in ("여비 규정.md", "보안 규정.md"):
        made.add(name, TRAVEL_RULES if "여비" in name else SECURITY_RULES)
    asked = []

    def fail(text):
        asked.append(text)
        raise EmbedderFailed

    embedder.embed_query = fail
    assert made.search("여비 규정의 비밀번호 변경 주기는?").error_code
    assert len(asked) == 1


def test_korean_chunks_are_not_embedded_by_an_english_model():
    embedder = LetterEmbedder()
    made = make_engine(embedder=embedder)
    korean, english = made.index_chunks(
        [make_chunk(0, TRAVEL_RULES), make_chunk(1, DEPLOYMENT)], "문서", ignore_progress, 2
    )
    assert korean.vector is None
    assert len(english.vector) == 64
    assert embedder.embedded == [f"문서\n{DEPLOYMENT}"]


def test_a_multilingual_embedder_takes_part_in_korean():
    embedder = LetterEmbedder(frozenset({"*"}))
    made = Library(make_engine(embedder=embedder))
    made.add("여비 규정.md", TRAVEL_RULES)
    found = made.search("숙박비 상한은?")
    assert {"closeness", "similarity", "share", "bm25", "coverage"} <= set(found.hits[0].scores)
    fused = made.search("숙박비 상한은?", rerank=False)
    assert {"rrf", "rank_bm25", "rank_similarity", "rank_mmr"} <= set(fused.hits[0].scores)


@pytest.mark.parametrize("name", list(StrategyName))
def test_every_strategy_answers_in_both_languages(library, name):
    for query, document in [
        ("숙박비 상한은?", "여비 규정.md"),
        ("which port does the service listen on?", "deploy.md"),
    ]:
        found = library.search(query, strategy=name)
        assert found.hits[0].passage.document_name == document
        assert found.hits[0].scores


def test_the_title_helps_to_find_a_passage():
    made = Library(make_engine())
    made.add("휴가 규정.md", "신청은 사흘 전에 한다.")
    made.add("구매 규정.md", "신청은 이레 전에 한다.")
    assert made.search("휴가 신청").hits[0].passage.document_name == "휴가 규정.md"


def test_indexing_tells_its_progress_and_lets_a_stop_through():
    steps = []
    made = make_engine()
    chunks = [make_chunk(i, DEPLOYMENT) for i in range(70)]
    list(made.index_chunks(iter(chunks), "t", lambda *step: steps.append(step), 70))
    assert steps == [(32, 70), (64, 70), (70, 70)]

    def stop(done, total):
        raise InterruptedError

    with pytest.raises(InterruptedError):
        list(made.index_chunks([make_chunk(0, DEPLOYMENT)], "t", stop, 1))


def test_an_empty_scope_finds_nothing(library):
    found = library.engine.search("숙박비", Scope((), ScopeReason.EXPLICIT), library.store)
    assert found.hits == ()
    assert not found.gate.relevant


@pytest.mark.parametrize(
    ("query", "kind"),
    [
        ("숙박비 상한은?", QuestionType.SINGLE),
        ("두 규정의 차이는?", QuestionType.COMPARE),
        ("A vs B", QuestionType.COMPARE),
        ("각각의 예산은?", QuestionType.MULTI),
        ("안녕하세요!", QuestionType.SMALLTALK),
        ("thank you", QuestionType.SMALLTALK),
        ("안녕하세요, 숙박비 상한은 얼마인가요?", QuestionType.SINGLE),
    ],
)
def test_the_kind_of_a_question_decides_its_plan(library, query, kind):
    plan = library.search(query).plan
    assert plan.question_type is kind
    assert plan.needs_multi_doc == (kind in (QuestionType.MULTI, QuestionType.COMPARE))


def test_a_comparison_shows_several_documents():
    one, other = uuid4(), uuid4()
    hits = [make_hit(i, document=one) for i in range(6)] + [make_hit(9, document=other)]
    chosen = search.spread_documents(hits, 4)
    assert {h.passage.document_id for h in chosen} == {one, other}
    assert [h.passage.key for h in chosen] == [0, 1, 2, 9]


def test_documents_compared_take_turns_for_half_of_the_places():
    one, other = uuid4(), uuid4()
    hits = [make_hit(i, document=one) for i in range(9)] + [
        make_hit(i, document=other) for i in (10, 11, 12)
    ]
    chosen = search.spread_documents(hits, 8)
    assert [h.passage.key for h in chosen] == [0, 1, 2, 3, 4, 5, 10, 11]


def test_a_comparison_hears_a_document_that_the_candidates_left_out(library):
    names = {"숙박비.md", "휴가 규정.md"}
    library.add("숙박비.md", *["숙박비 상한과 숙박비 정산의 차이와 숙박비 비교"] * 40)
    library.add("휴가 규정.md", "연차는 15일이며 숙박비는 따로 정한다.")
    ids = tuple(library.ids[name] for name in sorted(names))
    store = library.store.within(ids)
    scope = Scope(ids, ScopeReason.EXPLICIT)
    found = library.engine.search("숙박비와 숙박비의 차이는?", scope, store)
    assert {h.passage.document_name for h in found.hits} == names


def test_a_named_top_k_is_exact(library):
    assert library.search("두 규정의 차이는?", top_k=1).plan.top_k == 1


def test_fusion_adds_weighted_ranks_and_keeps_the_scores_of_each_leg():
    fused = candidates.fuse_ranks(
        {
            "a": ([make_hit(1, bm25=3.0), make_hit(2)], 1.0),
            "b": ([make_hit(2, similarity=0.9)], 1.0),
        }
    )
    assert [h.passage.key for h in fused] == [2, 1]
    assert fused[0].scores["rank_b"] == 1
    assert fused[1].scores["bm25"] == 3.0


def test_a_leg_without_weight_changes_nothing():
    fused = candidates.fuse_ranks({"a": ([make_hit(1)], 1.0), "b": ([make_hit(2)], 0.0)})
    assert [h.passage.key for h in fused] == [1]


def diversify(hits, balance=0.7, vectors=None):
    ordered = candidates.diversify_hits(hits, balance=balance, vectors=vectors or {})
    return [h.passage.key for h in ordered]


REPEATED = {1: [1.0, 0.0], 2: [1.0, 0.0], 3: [0.0, 1.0]}


def test_mmr_puts_a_repeated_passage_back():
    hits = [make_hit(1, 1.0), make_hit(2, 0.99), make_hit(3, 0.9)]
    assert diversify(hits, vectors=REPEATED) == [1, 3, 2]


def test_mmr_leaves_the_order_where_a_passage_has_no_vector():
    hits = [make_hit(1, 1.0), make_hit(2, 0.99), make_hit(3, 0.9)]
    assert diversify(hits, vectors={1: [1.0, 0.0]}) == [1, 2, 3]


def test_the_balance_of_mmr_is_a_setting():
    hits = [make_hit(1, 1.0), make_hit(2, 0.99), make_hit(3, 0.9)]
    assert diversify(hits, balance=1.0, vectors=REPEATED) == [1, 2, 3]


KEYS = st.lists(st.integers(0, 12), unique=True, max_size=12)


@given(KEYS, KEYS, st.integers(1, 12))
def test_of_passages_by_other_words_no_more_count_than_are_wanted(own, other, wanted):
    hits, reworded = [make_hit(key) for key in own], [make_hit(key) for key in other]
    all_of_them = search._insert_reworded(hits, reworded)[:wanted]
    assert search._insert_reworded(hits, reworded[:wanted])[:wanted] == all_of_them


def test_no_more_passages_by_other_words_are_asked_for_than_are_shown(library, monkeypatch):
    asked, find = [], MemoryStore.find_by_terms

    def find_by_terms(store, terms, limit):
        asked.append((set(terms), limit))
        return find(store, terms, limit)

    monkeypatch.setattr(MemoryStore, "find_by_terms", find_by_terms)
    found = library.search("비밀번호는 며칠마다 바꿔?", top_k=3)
    (own, most), (other, limit) = asked
    assert own < other
    assert most > limit == found.plan.top_k == 3


def test_a_stuffed_passage_wins_at_most_its_own_place(library):
    words = "숙박비 정산 여비 규정 출장 한도 예산 휴가 보안 계약 구매 인사 " * 300
    library.add("자주 묻는 질문.md", words)
    found = library.search("숙박비 상한은?")
    assert found.hits[0].passage.document_name == "여비 규정.md"


WORDS = st.lists(st.sampled_from("abcdefgh"), min_size=1, max_size=12)


@given(st.lists(WORDS, min_size=2, max_size=12), WORDS)
def test_the_memory_store_ranks_as_rank_bm25_does(documents, query):
    store = MemoryStore()
    for index, words in enumerate(documents):
        counts = {word: words.count(word) for word in words}
        store.add(uuid4(), str(index), [IndexedChunk(make_chunk(0, " ".join(words)), counts, None)])
    oracle = BM25Okapi(documents, k1=indexing.K1, b=indexing.B)
    total = len(documents)
    oracle.idf = {
        word: indexing.compute_idf(sum(word in d for d in documents), total) for word in "abcdefgh"
    }
    expected = oracle.get_scores(query)
    counts = {word: query.count(word) for word in query}
    found = {h.passage.key: h.score for h in store.find_by_terms(counts, 100)}
    assert all(found.get(i, 0.0) == pytest.approx(score) for i, score in enumerate(expected))


def test_coverage_in_a_tiny_scope_is_near_the_share_of_terms():
    store = MemoryStore()
    store.add(uuid4(), "d", [IndexedChunk(make_chunk(0, "x"), {"a": 1, "b": 1}, None)])
    (found,) = store.find_by_terms({"a": 1, "b": 1, "c": 1}, 5)
    assert found.scores["coverage"] == pytest.approx(2 / 3, abs=0.05)
