"""Embedders: checked vectors, cheap facts, honest failures."""

import json
import logging
import socket
import time
from array import array

import pytest

from rag.adapters.encoders import EMBEDDED_NAME, EndpointEmbedder, to_unit_vectors
from rag.adapters.sentence_transformers import embed_texts
from rag.config import Endpoint, RagConfig
from rag.errors import EmbedderFailed
from tests.servers.llm import Failure, Hang


def make_local_embedder(config, model=EMBEDDED_NAME, languages=frozenset()):
    """A model of the models process."""
    return EndpointEmbedder(config.local_model(model), languages)


@pytest.fixture
def embedded(local_models):
    """The model that comes with the product."""
    return make_local_embedder(local_models)


def compute_cosine(one, other):
    return sum(a * b for a, b in zip(one, other, strict=True))


def test_the_embedded_model_places_like_near_like(embedded):
    port, other = embedded.embed_passages(["The server uses port 8080.", "Bears eat honey."])
    query = embedded.embed_query("Which port does the server use?")
    assert compute_cosine(query, port) > 0.5 > compute_cosine(query, other)
    assert compute_cosine(query, query) == pytest.approx(1)


def test_no_texts_give_no_vectors(embedded):
    assert embedded.embed_passages([]) == []


@pytest.mark.parametrize(
    ("model", "dimensions", "languages"),
    [
        (EMBEDDED_NAME, 384, {"en"}),
        ("BAAI/bge-m3", 1024, {"*"}),
        ("nlpai-lab/KURE-v1", 1024, {"*"}),
        ("intfloat/multilingual-e5-small", 384, {"*"}),
        ("/models/paraphrase-multilingual-MiniLM-L12-v2/", 384, {"*"}),
        ("bge-m3:latest", 1024, {"*"}),
        ("bge-m3:567m", 1024, {"*"}),
        ("Qwen/Qwen3-Embedding-0.6B", 1024, {"*"}),
        ("dengcao/Qwen3-Embedding-8B:Q8_0", 4096, {"*"}),
    ],
)
def test_known_models_declare_their_width_and_languages(model, dimensions, languages):
    embedder = make_local_embedder(RagConfig(), model)
    assert (embedder.dimensions, embedder.languages) == (dimensions, languages)


def test_an_unknown_model_counts_as_english_unless_told_otherwise():
    assert make_local_embedder(RagConfig(), "my/model").languages == {"en"}
    told = make_local_embedder(RagConfig(), "my/model", frozenset({"ko"}))
    assert told.languages == {"ko"}


def test_that_an_unknown_model_counts_as_english_is_logged_once(llm_server, caplog):
    with caplog.at_level(logging.WARNING):
        make_remote_embedder(llm_server, "korean-model")
        make_remote_embedder(llm_server, "korean-model")
        make_remote_embedder(llm_server, "bge-m3:latest")
        EndpointEmbedder(Endpoint(llm_server.url, "other-model"), frozenset({"ko"}))
    (line,) = (one.msg for one in caplog.records if isinstance(one.msg, dict))
    assert (line["event"], line["model"]) == ("embedder_counts_as_english", "korean-model")


def test_a_model_that_is_not_there_fails_as_an_embedder(local_models, tmp_path):
    with pytest.raises(EmbedderFailed):
        make_local_embedder(local_models, str(tmp_path / "none")).embed_query("x")


def test_where_no_models_process_runs_it_fails_at_once_as_an_embedder(tmp_path):
    nobody = make_local_embedder(RagConfig(models_socket=str(tmp_path / "models.sock")))
    started = time.monotonic()
    with pytest.raises(EmbedderFailed):
        nobody.embed_query("x")
    assert time.monotonic() - started < 3


def test_the_vectors_are_those_of_the_model_itself_to_the_last_bit(embedded):
    """Stored vectors keep their worth: the way over the socket rounds nothing."""
    texts = ["Which port?", "여비 규정 제3조. Lodging is paid up to 90,000 won a night."]
    alone = [array("f", embed_texts(EMBEDDED_NAME, [text])[0]).tolist() for text in texts]
    assert [embedded.embed_query(text) for text in texts] == to_unit_vectors(
        alone, count=2, dimensions=384
    )
    together = embedded.embed_passages(texts)  # in half precision a batch rounds as it is cut
    for found, one in zip(together, alone, strict=True):
        assert compute_cosine(found, to_unit_vectors([one], count=1, dimensions=384)[0]) > 0.9999


def make_remote_embedder(server, model="unknown-model"):
    return EndpointEmbedder(Endpoint(server.url, model, api_key="k"))


def test_an_endpoint_embeds_in_batches_and_its_width_is_probed(llm_server):
    embedder = make_remote_embedder(llm_server)
    assert embedder.dimensions == 8
    vectors = embedder.embed_passages([f"text {n}" for n in range(150)])
    assert len(vectors) == 150
    assert len(llm_server.embeddings) == 4
    assert vectors[7] == embedder.embed_passages(["text 7"])[0]


@pytest.mark.parametrize("model", ["multilingual-e5-small", "yxchia/multilingual-e5-small:latest"])
def test_prefixes_of_the_e5_family_are_added(llm_server, model):
    llm_server.dimensions = 384
    make_remote_embedder(llm_server, model).embed_query("질문")
    assert llm_server.embeddings[0].json["input"] == ["query: 질문"]


def test_a_question_to_qwen_comes_with_its_task(llm_server):
    make_remote_embedder(llm_server, "qwen3-embedding:0.6b").embed_query("질문")
    [asked] = llm_server.embeddings[0].json["input"]
    assert asked.startswith("Instruct: ")
    assert asked.endswith("\nQuery:질문")


def test_another_width_than_declared_fails(llm_server, shared_data):
    wrong = json.loads((shared_data / "bad-inputs/llm/embeddings-wrong-dimension.json").read_text())
    llm_server.script_embeddings(Failure(wrong["status"], wrong["body"]))
    with pytest.raises(EmbedderFailed):
        make_remote_embedder(llm_server, "text-embedding-3-small").embed_query("x")


@pytest.mark.parametrize(
    "body",
    [
        "<html>",
        {"data": []},
        {"data": None},
        {"error": {"message": "boom"}},
        {"data": [{"embedding": None}]},
        {"data": [{"index": "b", "embedding": [1]}, {"embedding": [1]}]},
        {"data": [{"embedding": [10**400]}]},
        [],
        "[" * 100_000,
    ],
    ids=range(9),
)
def test_an_unusable_reply_fails_as_an_embedder(llm_server, body):
    llm_server.script_embeddings(Failure(200, body))
    with pytest.raises(EmbedderFailed):
        make_remote_embedder(llm_server).embed_query("x")


def test_a_question_does_not_wait_long_for_a_server_that_hangs(llm_server, monkeypatch):
    monkeypatch.setattr("rag.adapters.encoders.QUERY_SECONDS", 0.2)
    llm_server.script_embeddings(Hang(), Hang(), Hang())
    embedder = EndpointEmbedder(Endpoint(base_url=llm_server.url, model="hanging"))
    started = time.monotonic()
    with pytest.raises(EmbedderFailed):
        embedder.embed_query("질문")
    assert time.monotonic() - started < 5
    assert len(llm_server.embeddings) == 2


def test_d59_an_embedder_does_not_follow_a_redirect(llm_server):
    with socket.create_server(("127.0.0.1", 0)) as elsewhere:
        elsewhere.settimeout(0)
        address = f"http://127.0.0.1:{elsewhere.getsockname()[1]}/v1/embeddings"
        llm_server.script_embeddings(*[Failure(307, headers={"Location": address})] * 3)
        with pytest.raises(EmbedderFailed):
            make_remote_embedder(llm_server).embed_query("x")
        with pytest.raises(BlockingIOError):
            elsewhere.accept()


def test_a_server_that_is_down_fails_as_an_embedder(llm_server):
    llm_server.script_embeddings(*[Failure(500, {"error": {"message": "boom"}})] * 3)
    with pytest.raises(EmbedderFailed):
        make_remote_embedder(llm_server).embed_query("x")


@pytest.mark.parametrize(
    "vectors",
    [
        [[0.0, 0.0]],
        [[float("nan"), 1.0]],
        [[float("inf"), 1.0]],
        [[1.0]],
        [[]],
        [[1.0, 0.0], [1.0, 0.0]],
        [],
    ],
)
def test_unusable_vectors_are_refused(vectors):
    with pytest.raises(EmbedderFailed):
        to_unit_vectors(vectors, count=1, dimensions=2)


def test_vectors_come_out_at_length_one():
    assert to_unit_vectors([[3.0, 4.0]], count=1, dimensions=0) == [[0.6, 0.8]]
