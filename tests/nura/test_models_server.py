"""The models process: its shapes, its order, its bounds, its end."""

import asyncio
import base64
import contextlib
import os
import signal
import subprocess
import sys
import threading
from array import array

import httpx2
import pytest
from aiohttp.test_utils import TestClient, TestServer

from nura import models_server
from nura.models_server import Task, make_application
from rag.adapters.encoders import EMBEDDED_NAME
from rag.errors import EngineUnavailable
from tests.support import ROOT, wait_until


class Model:
    """In place of a model: remembers its batches, and holds each until `free` is set."""

    def __init__(self):
        self.batches, self.threads = [], []
        self.free = threading.Event()
        self.free.set()
        self.begun = threading.Event()
        self.may_load = threading.Event()
        self.may_load.set()
        self.broken = False

    def compute(self, _model, texts):
        self.batches.append(list(texts))
        self.threads.append(os.getpriority(os.PRIO_PROCESS, threading.get_native_id()))
        self.begun.set()
        assert self.free.wait(20)
        if self.broken:
            raise EngineUnavailable("it broke")
        return [array("f", [len(text), 0.5]).tobytes() for text in texts]

    def load(self, _model):
        assert self.may_load.wait(20)
        return "a device"

    def hold(self):
        self.begun.clear()
        self.free.clear()

    async def wait_for_batch(self):
        await asyncio.to_thread(self.begun.wait, 20)


@pytest.fixture
def model(monkeypatch):
    made = Model()
    monkeypatch.setattr(models_server, "EMBED", Task("embed", made.compute, made.load))
    yield made
    made.free.set()


@contextlib.asynccontextmanager
async def serving():
    server = TestServer(make_application())
    await server.start_server()
    async with TestClient(server) as client:
        yield client


async def wait_for(client, texts):
    """Until so many texts wait."""
    async with asyncio.timeout(20):
        while (await (await client.get("/health")).json())["waiting"] != texts:
            pass


async def embed(client, *texts, **more):
    body = {"model": "m", "input": list(texts), **more}
    async with client.post("/v1/embeddings", json=body) as answer:
        return answer.status, await answer.json(), answer.headers


async def test_vectors_come_in_order_as_numbers_or_in_base64(model):
    async with serving() as client:
        _, plain, _ = await embed(client, "a", "abc")
        _, packed, _ = await embed(client, "a", "abc", encoding_format="base64")
        _, single, _ = await embed(client, input="abcd")
    assert [row["embedding"] for row in plain["data"]] == [[1.0, 0.5], [3.0, 0.5]]
    unpacked = [array("f", base64.b64decode(row["embedding"])) for row in packed["data"]]
    assert [one.tolist() for one in unpacked] == [[1.0, 0.5], [3.0, 0.5]]
    assert single["data"][0]["embedding"] == [4.0, 0.5]
    assert [row["index"] for row in plain["data"]] == [0, 1]


async def test_a_model_that_is_being_loaded_is_said_to_be(model):
    async def ask():
        return await (await client.get("/health")).json()

    async with serving() as client:
        model.may_load.clear()
        asking = asyncio.create_task(embed(client, "a"))
        async with asyncio.timeout(20):
            while not (health := await ask())["models"]:
                pass
        assert (health["models"], health["device"]) == ({"m": "loading"}, "")
        model.may_load.set()
        await asking
        health = await ask()
        assert (health["models"], health["device"]) == ({"m": "ready"}, "a device")


async def test_a_question_waits_for_no_passages(model):
    async with serving() as client:
        model.hold()
        passages = [asyncio.create_task(embed(client, *["p"] * 40)) for _ in range(3)]
        await model.wait_for_batch()
        model.hold()
        asking = asyncio.create_task(embed(client, "question", input_type="query"))
        await model.wait_for_batch()
        assert model.batches[1] == ["question"]
        assert model.threads[0] > model.threads[1]
        model.free.set()
        await asking
        for _status, reply, _ in await asyncio.gather(*passages):
            assert [row["embedding"] for row in reply["data"]] == [[1.0, 0.5]] * 40


async def test_questions_that_wait_are_embedded_together(model):
    async with serving() as client:
        model.hold()
        asked = [asyncio.create_task(embed(client, "first", input_type="query"))]
        await model.wait_for_batch()
        asked += [
            asyncio.create_task(embed(client, f"{n}" * n, input_type="query")) for n in range(1, 6)
        ]
        await wait_for(client, 5)
        model.free.set()
        replies = await asyncio.gather(*asked)
    assert len(model.batches) == 2
    lengths = [reply["data"][0]["embedding"][0] for _, reply, _ in replies]
    assert lengths == [5, 1, 2, 3, 4, 5]


async def test_more_than_can_be_done_in_good_time_is_told_to_come_again(model, monkeypatch):
    monkeypatch.setattr(models_server, "MAX_TEXTS_WAITING", 10)
    async with serving() as client:
        model.hold()
        first = asyncio.create_task(embed(client, *["p"] * 20))
        await model.wait_for_batch()
        status, reply, headers = await embed(client, "one more")
        assert (status, headers["Retry-After"]) == (503, "1")
        assert reply["error"]["code"] == "overloaded"
        model.free.set()
        assert (await first)[0] == 200


async def test_whoever_hangs_up_is_not_worked_for(model):
    async with serving() as client:
        model.hold()
        first = asyncio.create_task(embed(client, "first"))
        await model.wait_for_batch()
        gone = asyncio.create_task(embed(client, "gone"))
        await wait_for(client, 1)
        gone.cancel()
        await wait_for(client, 0)
        model.free.set()
        await first
        await embed(client, "last")
    assert model.batches == [["first"], ["last"]]


async def test_a_model_that_fails_is_said_and_the_next_request_is_served(model):
    async with serving() as client:
        model.broken = True
        status, reply, _ = await embed(client, "a")
        assert (status, reply["error"]["code"]) == (500, "model_failed")
        model.broken = False
        assert (await embed(client, "a"))[0] == 200


@pytest.mark.parametrize(
    "body",
    [
        "no json",
        [],
        {},
        {"model": "m"},
        {"model": "", "input": "x"},
        {"model": "m", "input": []},
        {"model": "m", "input": [1, 2]},
        {"model": "m", "input": "x", "encoding_format": "hex"},
        {"model": "m", "input": "x", "input_type": "other"},
        {"model": "m", "input": ["x"] * 2049},
    ],
)
async def test_a_wrong_body_is_refused_in_openais_shape(model, body):
    async with serving() as client:
        sent = {"data": body} if isinstance(body, str) else {"json": body}
        async with client.post("/v1/embeddings", **sent) as answer:
            assert answer.status == 400
            assert (await answer.json())["error"]["type"] == "invalid_request_error"


async def test_a_body_without_end_is_not_taken(model, monkeypatch):
    monkeypatch.setattr(models_server, "MAX_BODY_BYTES", 1000)
    async with serving() as client:
        status, reply, _ = await embed(client, "x" * 2000)
    assert status == 413
    assert reply["error"]["type"] == "invalid_request_error"


async def test_an_unknown_path_is_404_in_the_same_shape(model):
    async with serving() as client, client.get("/v2") as answer:
        assert answer.status == 404
        assert "error" in await answer.json()


@pytest.fixture
def http(local_models):
    """The running process."""
    with reach(local_models.models_socket) as client:
        yield client


def reach(path):
    """A client of the process behind this socket."""
    transport = httpx2.HTTPTransport(uds=str(path))
    return httpx2.Client(
        transport=transport, base_url="http://localhost", trust_env=False, timeout=120
    )


def test_a_model_that_is_not_there_is_404(http, tmp_path):
    for path, more in (
        ("/v1/embeddings", {"input": "x"}),
        ("/v1/rerank", {"query": "x", "documents": ["y"]}),
        ("/v1/predict", {"inputs": [["x", "y"]]}),
    ):
        answer = http.post(path, json={"model": str(tmp_path / "none"), **more})
        assert (answer.status_code, answer.json()["error"]["code"]) == (404, "model_not_found")


def test_what_is_loaded_is_listed(http):
    http.post("/v1/embeddings", json={"model": EMBEDDED_NAME, "input": "x"}).raise_for_status()
    listed = [one["id"] for one in http.get("/v1/models").json()["data"]]
    assert EMBEDDED_NAME in listed
    health = http.get("/health").json()
    assert (health["models"][EMBEDDED_NAME], bool(health["device"])) == ("ready", True)


def test_nobody_else_may_open_the_socket_and_the_end_is_orderly(tmp_path):
    path = tmp_path / "models.sock"
    path.write_text("left by a crash")
    command = [sys.executable, "-m", "nura.models_server", "--socket", str(path)]
    process = subprocess.Popen(command, cwd=ROOT)
    try:
        wait_until(lambda: process.poll() is not None or path.is_socket(), 60)
        assert path.stat().st_mode & 0o777 == 0o600
        with reach(path) as client:  # once it answers it hears signals, too
            assert client.get("/health").status_code == 200
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0
        assert not path.exists()
    finally:
        process.kill()
        process.wait()


async def test_texts_of_outsiders_take_turns_with_passages(model):
    async with serving() as client:
        model.hold()
        asked = [asyncio.create_task(embed(client, *["p"] * 24))]
        await model.wait_for_batch()
        asked.append(asyncio.create_task(embed(client, *["o"] * 16, input_type="outsider")))
        await wait_for(client, 24 - 8 + 16)
        model.free.set()
        await asyncio.gather(*asked)
    assert [batch[0] for batch in model.batches[:3]] == ["p", "o", "p"]
    assert all(len(set(batch)) == 1 for batch in model.batches)


async def test_outsiders_take_turns_however_many_texts_one_of_them_sends(model):
    async with serving() as client:
        model.hold()
        more = {"input_type": "outsider"}
        asked = [
            asyncio.create_task(embed(client, *["a"] * 60, user="first", **more)) for _ in range(3)
        ]
        await model.wait_for_batch()
        asked.append(asyncio.create_task(embed(client, "b", user="second", **more)))
        await wait_for(client, 180 - 8 + 1)
        model.free.set()
        await asyncio.gather(*asked)
    assert model.batches[2][0] == "b"


async def test_outsiders_fill_half_of_the_room_at_most(model, monkeypatch):
    monkeypatch.setattr(models_server, "MAX_TEXTS_WAITING", 20)
    async with serving() as client:
        model.hold()
        first = asyncio.create_task(embed(client, *["a"] * 16, input_type="outsider"))
        await model.wait_for_batch()
        status, _, headers = await embed(client, *["b"] * 4, input_type="outsider")
        assert (status, headers["Retry-After"]) == (503, "1")
        passages = asyncio.create_task(embed(client, *["p"] * 4))
        await wait_for(client, 8 + 4)
        model.free.set()
        assert {(await one)[0] for one in (first, passages)} == {200}
