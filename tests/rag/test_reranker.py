"""The reranker behind the models process, on a real model that is made here."""

from dataclasses import replace

import pytest

from rag.adapters.encoders import EndpointReranker
from rag.errors import EngineUnavailable
from rag.types import Hit
from tests.rag.worlds import Library, make_engine

RULES = "숙박비 상한은 1박 90,000원이다. 정산은 출장 뒤 5일 안에 한다."


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """A folder with an untrained cross-encoder of the usual kind."""
    import torch
    from transformers import BertConfig, BertForSequenceClassification, BertTokenizerFast

    folder = tmp_path_factory.mktemp("cross-encoder")
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefghijklmnopqrstuvwxyz", "숙박비"]
    (folder / "vocab.txt").write_text("\n".join(words), encoding="utf-8")
    torch.manual_seed(7)
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    config = BertConfig(vocab_size=len(words), intermediate_size=32, num_labels=1, **sizes)
    BertForSequenceClassification(config).save_pretrained(folder)
    BertTokenizerFast(vocab_file=str(folder / "vocab.txt")).save_pretrained(folder)
    return str(folder)


@pytest.fixture
def hits():
    library = Library(make_engine())
    library.add("여비 규정.md", RULES)
    library.add("다른 규정.md", "숙박비 a b c")
    found = library.search("숙박비 상한은?").hits
    assert len(found) > 1
    return found


def test_passages_are_ordered_by_the_models_own_scores(local_models, model, hits):
    ordered = EndpointReranker(local_models.local_model(model)).rerank(
        "숙박비 상한은?", hits, len(hits)
    )
    scores = [hit.scores["rerank"] for hit in ordered]
    assert scores == sorted(scores, reverse=True)
    assert len(set(scores)) == len(hits)
    assert {hit.passage.key for hit in ordered} == {hit.passage.key for hit in hits}
    assert ordered[0].score == scores[0]
    assert all(hit.scores["bm25"] > 0 for hit in ordered)


def test_it_gives_as_many_as_wanted(local_models, model, hits):
    assert len(EndpointReranker(local_models.local_model(model)).rerank("q", hits, 1)) == 1


def test_a_model_that_is_not_there_is_said(local_models, hits, tmp_path):
    missing = local_models.local_model(str(tmp_path / "none"))
    with pytest.raises(EngineUnavailable):
        EndpointReranker(missing).rerank("q", hits, 1)


def test_a_configured_model_orders_the_search(local_models, model):
    library = Library(make_engine(config=replace(local_models, reranker_model=model)))
    library.add("여비 규정.md", RULES)
    found = library.search("숙박비 상한은?")
    assert all("rerank" in hit.scores for hit in found.hits)
    assert all(
        "rerank" not in hit.scores for hit in library.search("숙박비 상한은?", rerank=False).hits
    )


def test_without_its_model_the_search_goes_on(local_models, tmp_path):
    library = Library(
        make_engine(config=replace(local_models, reranker_model=str(tmp_path / "none")))
    )
    library.add("여비 규정.md", RULES)
    found = library.search("숙박비 상한은?")
    assert isinstance(found.hits[0], Hit)
    assert found.gate.relevant
