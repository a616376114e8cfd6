"""The models process on a GPU: vectors and scores as a processor gives them."""

import shutil
import subprocess
from uuid import UUID

import numpy as np
import pytest

from nura.embedded import models
from rag.adapters.encoders import EMBEDDED_NAME, EndpointEmbedder, EndpointReranker
from rag.types import Hit, Passage
from tests.servers.models import run_models

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(300),
    pytest.mark.skipif(not shutil.which("nvidia-smi"), reason="no GPU is here"),
]
TEXTS = [f"The deposit of lot {number} is {number * 3} percent. " * 20 for number in range(150)]
QUESTION = "How large is the deposit of lot 7?"


def make_cross_encoder(folder):
    """One that nobody has trained, with the words of the model that comes along."""
    from transformers import AutoTokenizer, BertConfig, BertForSequenceClassification

    from rag.adapters.sentence_transformers import find_embedded_model

    tokenizer = AutoTokenizer.from_pretrained(find_embedded_model())
    tokenizer.save_pretrained(folder)
    sizes = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
    config = BertConfig(
        vocab_size=len(tokenizer),
        intermediate_size=128,
        num_labels=1,
        initializer_range=0.2,  # scores that differ
        **sizes,
    )
    BertForSequenceClassification(config).save_pretrained(folder)
    return str(folder)


def compute(reranker):
    """Device, vectors of passages and of a question, scores of passages in their order."""
    hits = [
        Hit(Passage(place, UUID(int=place), "lots.txt", place, text, None, None, ""), 0.0)
        for place, text in enumerate(TEXTS[:20])
    ]
    with run_models() as config:
        embedder = EndpointEmbedder(config.local_model(EMBEDDED_NAME))
        vectors = [*embedder.embed_passages(TEXTS), embedder.embed_query(QUESTION)]
        model = EndpointReranker(config.local_model(reranker))
        scored = model.rerank(QUESTION, hits, len(hits))
        device = models.read_health(config.models_socket)["device"]
    return device, vectors, [hit.score for hit in sorted(scored, key=lambda hit: hit.passage.key)]


@pytest.fixture(scope="module")
def computed(tmp_path_factory):
    """What a GPU and what the processor computes."""
    reranker = make_cross_encoder(tmp_path_factory.mktemp("reranker"))
    on_gpu = compute(reranker)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CUDA_VISIBLE_DEVICES", "")
        return on_gpu, compute(reranker)


def test_models_compute_on_the_gpu_where_there_is_one(computed):
    (gpu, *_), (cpu, *_) = computed
    command = ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader", "--id=0"]
    name = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    assert (gpu, cpu) == (name, "cpu")


def test_vectors_of_a_gpu_are_those_of_a_processor(computed):
    (_, of_gpu, _), (_, of_cpu, _) = computed
    assert len(of_gpu) == len(TEXTS) + 1
    assert (np.sum(np.array(of_gpu) * np.array(of_cpu), axis=1) > 0.999).all()


def test_scores_of_a_gpu_are_those_of_a_processor(computed):
    (_, _, of_gpu), (_, _, of_cpu) = computed
    assert of_gpu == pytest.approx(of_cpu, abs=0.05)
    assert len(set(of_gpu)) > 10
