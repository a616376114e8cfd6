"""With an embedder that knows Korean both legs count in full: together they find more than each.

The embedder is made in the test, from texts that say the same in two ways. It knows what words mean
and nothing of numbers; BM25 knows numbers and nothing of what words mean.
"""

import numpy as np
import pytest

from rag import tokenize
from rag.types import StrategyName
from tests.quality import measures
from tests.rag.worlds import Library, make_engine

TOPICS = {
    "연차 휴가": "쉬는 날",
    "출장 여비": "다녀온 비용",
    "주차 구역": "자동차 세울 자리",
    "구내 식당": "점심 먹는 곳",
    "보안 서약": "비밀 지킬 다짐",
    "퇴직 급여": "떠날 때 받는 돈",
    "회의실 예약": "모일 방 잡기",
    "노트북 지급": "컴퓨터 나눠 주기",
}
PASSAGES = 4
"""On each topic, each with a number of its own."""


class Synonyms:
    """Latent semantics of texts that say the same in two ways."""

    name = "synonyms"

    def __init__(self, languages=frozenset({"*"})):
        self.languages = languages
        self.embedded = 0
        texts = [f"{formal} {plain}" for formal, plain in TOPICS.items()]
        counts = [tokenize.count_terms(text) for text in texts]
        self._places = {
            term: at for at, term in enumerate(dict.fromkeys(t for c in counts for t in c))
        }
        rows = np.array([self._row(count) for count in counts])
        self._projection = np.linalg.svd(rows, full_matrices=False)[2].T
        self.dimensions = self._projection.shape[1]

    def _row(self, terms):
        row = np.zeros(len(self._places))
        for term in terms:
            if term in self._places:
                row[self._places[term]] = 1.0
        return row

    def embed_passages(self, texts):
        return [self.embed_query(text) for text in texts]

    def embed_query(self, text):
        self.embedded += 1
        vector = self._row(tokenize.count_terms(text)) @ self._projection
        length = np.linalg.norm(vector)
        return (
            vector / length if length > 1e-9 else np.full(len(vector), len(vector) ** -0.5)
        ).tolist()


def make_library(embedder):
    made = Library(make_engine(embedder=embedder))
    for at, formal in enumerate(TOPICS):
        texts = [f"{formal} 세칙이다. 관리 번호 {100 + at * 10 + n}." for n in range(PASSAGES)]
        made.add(f"{at:04d}.md", *texts)
    return made


def list_questions():
    """Question -> texts that answer it: half in other words, half by a number alone."""
    for at, (formal, plain) in enumerate(TOPICS.items()):
        texts = {f"{formal} 세칙이다. 관리 번호 {100 + at * 10 + n}." for n in range(PASSAGES)}
        yield f"{plain} 알려줘", texts
        number = 100 + at * 10 + 2
        yield f"{number} 내용", {text for text in texts if str(number) in text}


def measure_ndcg(library, strategy):
    """The mean nDCG@5."""
    gains = []
    for question, right in list_questions():
        hits = library.search(question, strategy=strategy, top_k=5).hits
        gains.append(measures.ndcg([hit.passage.text for hit in hits], right))
    return sum(gains) / len(gains)


@pytest.mark.parametrize("strategy", [StrategyName.AUTO, StrategyName.RRF])
def test_both_legs_together_find_more_than_each_alone(strategy):
    library = make_library(Synonyms())
    lexical = measure_ndcg(library, StrategyName.BM25)
    dense = measure_ndcg(library, StrategyName.SIMILARITY)
    both = measure_ndcg(library, strategy)
    assert 0.4 < lexical < 0.9
    assert 0.4 < dense < 0.9
    assert both > max(lexical, dense) + 0.05


def test_a_question_in_other_words_finds_its_passage_by_closeness_alone():
    library = make_library(Synonyms())
    (best, *_) = library.search("쉬는 날 알려줘").hits
    assert "연차 휴가" in best.passage.text
    assert "similarity" in best.scores


def test_the_same_embedder_declared_english_takes_no_part():
    embedder = Synonyms(frozenset({"en"}))
    library = make_library(embedder)
    embedder.embedded = 0
    assert measure_ndcg(library, StrategyName.AUTO) == measure_ndcg(library, StrategyName.BM25)
    assert embedder.embedded == 0
