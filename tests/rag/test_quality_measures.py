"""The measures of the quality benchmark on cases worked out by hand, and its plain systems."""

import math

import pytest

from tests.quality import baselines, measures, sets
from tests.quality.baselines import Bm25, bigrams, fused, whitespace
from tests.support import NO_DATA

pytest.importorskip("scipy")

HALF = 1 / math.log2(3)
"""What a second place gains."""


@pytest.mark.parametrize(
    ("found", "relevant", "expected"),
    [
        ([7], {7}, 1.0),
        ([1, 7], {7}, HALF),
        ([1, 2, 7], {7}, 0.5),
        ([1, 2, 3, 4, 7], {7}, 1 / math.log2(6)),
        ([1, 2, 3, 4, 5, 7], {7}, 0.0),
        ([], {7}, 0.0),
        ([7, 8], {7, 8}, 1.0),
        ([7, 1, 8], {7, 8}, 1.5 / (1 + HALF)),
        ([1, 2, 3, 4, 5], set(range(1, 9)), 1.0),
        ([1, 2], set(), 0.0),
    ],
)
def test_ndcg_is_the_gain_over_that_of_the_ideal_order(found, relevant, expected):
    assert measures.ndcg(found, relevant) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("found", "relevant", "expected"),
    [
        ([7, 1], {7, 8}, 0.5),
        ([1, 2, 3, 4, 5, 7], {7}, 0.0),
        ([5, 4, 3, 2, 1], {1, 2}, 1.0),
        ([1, 2, 3, 4, 5], set(range(1, 11)), 0.5),
        ([1], set(), 0.0),
    ],
)
def test_recall_is_the_share_of_the_relevant_among_the_first_five(found, relevant, expected):
    assert measures.recall(found, relevant) == pytest.approx(expected)


def test_a_mean_of_equal_values_is_certain():
    found = measures.mean([0.5] * 20)
    assert (found.value, found.low, found.high) == (0.5, 0.5, 0.5)


def test_the_interval_is_that_of_the_normal_approximation_and_always_the_same():
    values = [0.0, 1.0] * 200
    found = measures.mean(values)
    assert found == measures.mean(values)
    assert found.value == 0.5
    assert found.low == pytest.approx(0.5 - 1.96 * 0.025, abs=0.006)
    assert found.high == pytest.approx(0.5 + 1.96 * 0.025, abs=0.006)


def test_the_plain_bm25_scores_as_the_formula_says():
    found = Bm25(["가 나", "가 가 다", "라"], whitespace)
    assert found.rank(["가", "다 라", "없음"], 5) == [[1, 0], [2, 1], []]


def test_whitespace_finds_no_noun_with_a_particle_and_bigrams_do():
    texts = ["정부는 발표했다", "학교에서 배운다"]
    assert Bm25(texts, whitespace).rank(["정부"], 5) == [[]]
    assert Bm25(texts, bigrams).rank(["정부"], 5) == [[0]]


def test_bigrams_are_of_hangul_words_without_their_particles():
    assert bigrams("Server 재시작을 법은") == ["server", "재시", "시작", "법"]


def test_fusion_prefers_what_both_rankings_hold():
    places = list(range(baselines.DEPTH))
    assert fused([[1, 2]], [[2, 3]])[0][0] == 2
    assert len(fused([places], [places[::-1]])[0]) == baselines.DEPTH


@pytest.mark.skipif(not sets.available(), reason=NO_DATA)
@pytest.mark.parametrize("name", [*sets.NAMES, *sets.FOR_INFORMATION])
def test_every_question_of_a_set_names_units_that_are_there(name):
    made = sets.load(name)
    assert made.questions
    for asked in made.questions:
        assert asked.relevant
        assert all(0 <= place < len(made.units) for place in asked.relevant)


@pytest.mark.skipif(not sets.available(), reason=NO_DATA)
def test_the_plain_systems_find_what_the_notes_of_the_data_say():
    made = sets.load("ko_strategyqa")
    texts = [unit.text for unit in made.units]
    questions = [asked.text for asked in made.questions]
    rankings = Bm25(texts, whitespace).rank(questions, 5)
    pairs = zip(rankings, made.questions, strict=True)
    found = measures.mean([measures.ndcg(ranking, asked.relevant) for ranking, asked in pairs])
    assert found.value == pytest.approx(0.535, abs=0.01)
