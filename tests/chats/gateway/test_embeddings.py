"""Embeddings with the model that embeds the documents."""

import openai
import pytest

from chats.gateway import vectors
from chats.gateway.schemas import EmbeddingsRequest
from chats.runs import stateless
from documents.errors import find_status
from rag.config import RagConfig
from rag.errors import EmbedderFailed, NuraError
from rag.factory import Engine
from tests.documents.conftest import TinyEmbedder

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def embedder(monkeypatch):
    one = TinyEmbedder()
    engine = Engine(RagConfig(), embedder=one)
    monkeypatch.setattr(vectors, "get_engine", lambda _config: engine)
    return one


def embed(client, texts, **fields):
    return client.embeddings.create(model="nura", input=texts, **fields)


def test_each_text_has_its_vector_in_order(client, embedder, answers_worker):
    reply = embed(client, ["출장 규정", "휴가 규정"], encoding_format="float")
    assert [one.index for one in reply.data] == [0, 1]
    assert [one.embedding for one in reply.data] == [
        pytest.approx(embedder.embed_query(text)) for text in ("출장 규정", "휴가 규정")
    ]
    assert reply.usage.total_tokens == reply.usage.prompt_tokens > 0


def test_one_text_needs_no_list_and_base64_is_the_same_vector(client, embedder, answers_worker):
    (one,) = embed(client, "출장 규정").data  # the client asks for base64 by itself
    assert one.embedding == pytest.approx(embedder.embed_query("출장 규정"), abs=1e-6)


def test_the_embedding_model_may_be_called_by_its_name(client, embedder, answers_worker):
    name = embed(client, "x").model
    assert client.embeddings.create(model=name, input="x").model == name


def test_the_models_own_width_may_be_asked_for_and_no_other(client, embedder, answers_worker):
    assert len(embed(client, "x", dimensions=16).data[0].embedding) == 16
    with pytest.raises(openai.BadRequestError) as caught:
        embed(client, "x", dimensions=8)
    assert caught.value.body["param"] == "dimensions"


@pytest.mark.parametrize(
    "texts",
    [
        *([], "", " ", ["x", ""], {"x": 1}, None),
        *([1, 2, 3], [[1, 2], [3]], ["x", 1]),
        *(["x"] * 257, "가" * 20_001),
    ],
    ids=lambda texts: str(texts)[:20],
)
def test_what_is_no_text_of_a_fitting_length_is_refused(texts):
    with pytest.raises(NuraError) as caught:
        vectors.read_texts(EmbeddingsRequest(model="nura", input=texts))
    assert find_status(caught.value.code) == 400
    assert caught.value.params["param"] == "input"


def test_token_ids_are_refused_by_the_name_of_their_field(client):
    with pytest.raises(openai.BadRequestError) as caught:
        embed(client, [[1, 2], [3]])
    assert caught.value.body["param"] == "input"


def test_another_format_is_refused(client):
    with pytest.raises(openai.BadRequestError) as caught:
        embed(client, "x", encoding_format="int8")
    assert caught.value.body["param"] == "encoding_format"


def test_a_model_that_fails_is_an_error(client, embedder, answers_worker, monkeypatch):
    def fail(_texts, **_told):
        raise EmbedderFailed

    monkeypatch.setattr(embedder, "embed_passages", fail)
    with pytest.raises(openai.InternalServerError) as caught:
        embed(client, "x")
    assert (caught.value.status_code, caught.value.body["code"]) == (503, "embedder_failed")


def test_a_fault_of_ours_ends_the_request_and_tells_nothing(
    client, embedder, answers_worker, monkeypatch
):
    def fail(*_):
        raise RuntimeError("/etc/geheim")

    monkeypatch.setitem(stateless.WORK, "embed", fail)
    with pytest.raises(openai.InternalServerError) as caught:
        embed(client, "x")
    assert caught.value.status_code == 500
    assert "geheim" not in str(caught.value.body)


def test_texts_are_limited_by_their_tokens_not_by_their_requests(
    client, embedder, answers_worker, settings
):
    settings.LIMITS = settings.LIMITS | {"embedding-tokens": 400}  # a key has 300 of them
    raw = client.embeddings.with_raw_response.create(model="nura", input="긴 글입니다. " * 200)
    assert raw.headers["RateLimit-Policy"] == '"embedding-tokens-key";q=300;w=60'
    with pytest.raises(openai.RateLimitError) as caught:
        embed(client, "짧다")
    assert int(caught.value.response.headers["Retry-After"]) > 60  # what was too much is paid off
    assert caught.value.body["code"] == "rate_limited"


def test_what_a_program_embeds_is_its_owners_and_no_passage(
    client, owner, embedder, answers_worker, monkeypatch
):
    told = []
    original = embedder.embed_passages
    monkeypatch.setattr(
        embedder,
        "embed_passages",
        lambda texts, outsider="": told.append(outsider) or original(texts),
    )
    embed(client, "x")
    assert told == [f"user:{owner.pk}"]
