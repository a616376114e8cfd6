"""Sentences read by a model of natural language inference, on a real one that is made here."""

import logging

import pytest

from rag.adapters.encoders import EndpointVerifier
from rag.errors import EngineUnavailable
from rag.ports import Inference
from rag.types import Citation, Verdict
from rag.verify import Grounds, verify_answer
from tests.rag.passages import make_evidence

LABELS = {
    "three": {0: "contradiction", 1: "entailment", 2: "neutral"},
    "two": {0: "entailment", 1: "not_entailment"},
    "none": {0: "LABEL_0", 1: "LABEL_1", 2: "LABEL_2"},
}


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """Makes a folder with an untrained model whose outputs are named so."""
    import torch
    from transformers import BertConfig, BertForSequenceClassification, BertTokenizerFast

    def make(labels):
        folder = tmp_path_factory.mktemp("inference")
        words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefghijklmnopqrstuvwxyz"]
        (folder / "vocab.txt").write_text("\n".join(words), encoding="utf-8")
        torch.manual_seed(7)
        sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
        config = BertConfig(
            vocab_size=len(words),
            intermediate_size=32,
            id2label=labels,
            label2id={name: place for place, name in labels.items()},
            **sizes,
        )
        BertForSequenceClassification(config).save_pretrained(folder)
        BertTokenizerFast(vocab_file=str(folder / "vocab.txt")).save_pretrained(folder)
        return str(folder)

    return {name: make(labels) for name, labels in LABELS.items()}


@pytest.mark.parametrize("name", ["three", "two"])
def test_the_outputs_of_a_model_are_read_by_its_own_labels(local_models, model, name):
    found = EndpointVerifier(local_models.local_model(model[name])).infer(
        [("a b c", "a"), ("x", "y z")]
    )
    assert len(found) == 2
    for one in found:
        assert one.entailment + one.neutral + one.contradiction == pytest.approx(1.0)
        assert one.entailment > 0
    assert (found[0].contradiction == 0) is (name == "two")


def test_a_model_that_names_no_entailment_or_is_not_there_is_said(local_models, model, tmp_path):
    for folder in (model["none"], str(tmp_path / "none")):
        with pytest.raises(EngineUnavailable):
            EndpointVerifier(local_models.local_model(folder)).infer([("a", "b")])


class Scripted:
    """Says one inference for every pair, by the words of its text."""

    def __init__(self, **shares):
        self.shares = shares
        self.asked = []

    def infer(self, pairs):
        self.asked += pairs
        return [self.shares.get(text.split()[0], Inference(0.1, 0.8, 0.1)) for text, _ in pairs]


def judge(answer, verifier, *texts):
    passages = [make_evidence(text, slot=slot) for slot, text in enumerate(texts, 1)]
    citations = [
        Citation(answer.index(f"[{item.number}]"), item.number)
        for item in passages
        if f"[{item.number}]" in answer
    ]
    return verify_answer(answer, citations, passages, grounds=Grounds(), verifier=verifier).checks


@pytest.mark.parametrize(
    ("inference", "verdict", "reasons"),
    [
        (Inference(0.9, 0.1, 0.0), Verdict.SUPPORTED, ()),
        (Inference(0.1, 0.8, 0.1), Verdict.UNSUPPORTED, ("overlap",)),
        (Inference(0.0, 0.1, 0.9), Verdict.UNSUPPORTED, ("negation",)),
    ],
)
def test_a_sentence_stands_as_the_model_reads_it(inference, verdict, reasons):
    verifier = Scripted(먼저=inference)
    (found,) = judge("연차는 해마다 보름입니다 [1].", verifier, "먼저 15일을 준다.")
    assert (found.verdict, found.reasons) == (verdict, reasons)
    assert verifier.asked == [("먼저 15일을 준다.", "연차는 해마다 보름입니다.")]


def test_a_sentence_is_read_against_what_it_cites_and_nothing_else():
    verifier = Scripted(둘째=Inference(0.9, 0.1, 0.0))
    (found,) = judge("연차는 보름입니다 [1].", verifier, "첫째 글이다.", "둘째 글이다.")
    assert found.verdict is Verdict.UNSUPPORTED
    assert {text for text, _ in verifier.asked} == {"첫째 글이다."}


def test_where_the_model_fails_the_rules_check(caplog):
    class Broken:
        def infer(self, pairs):
            raise EngineUnavailable("no model")

    with caplog.at_level(logging.WARNING):
        (found,) = judge("연차는 15일을 준다 [1].", Broken(), "연차는 15일을 준다.")
    assert found.verdict is Verdict.SUPPORTED
    assert caplog.records
