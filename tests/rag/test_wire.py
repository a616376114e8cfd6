"""Servers that administrators name: where a connection may end, and how much of an answer is read.

The servers are real ones of this machine; which addresses are never asked is widened where one of
these has to stand for 169.254.169.254.
"""

import asyncio
import json
import tracemalloc
import zlib
from ipaddress import ip_network

import httpx2
import pytest

from rag.adapters import wire
from rag.adapters.encoders import EndpointEmbedder, EndpointReranker
from rag.adapters.endpoint import reset_breakers
from rag.adapters.openai import OpenAILLM
from rag.adapters.wire import BoundedAsyncClient, BoundedClient, is_forbidden_host
from rag.config import Endpoint
from rag.context.budget import find_context_length, reset_context_lengths
from rag.errors import EmbedderFailed, EngineUnavailable, LLMError
from rag.ports import GenerationOptions
from rag.types import HistoryMessage, Speaker
from tests.servers.hostile import MEGABYTE, HostileServer

SPELLINGS = (
    *("169.254.169.254", "2852039166", "0xa9fea9fe", "0251.0376.0251.0376", "169.254.43518"),
    *("::ffff:169.254.169.254", "64:ff9b::a9fe:a9fe", "2002:a9fe:a9fe::", "fe80::1"),
    *("fd00:ec2::254", "100.100.100.200"),
)


@pytest.fixture
def hostile():
    with HostileServer() as server:
        yield server


@pytest.fixture(autouse=True)
def _fresh():
    reset_breakers()
    reset_context_lengths()


@pytest.fixture
def own_surroundings(monkeypatch):
    """This machine stands for what is never asked; a name leads there, as one that was rebound."""
    widened = (*wire.FORBIDDEN_NETWORKS, ip_network("127.0.0.0/8"), ip_network("::1/128"))
    monkeypatch.setattr(wire, "FORBIDDEN_NETWORKS", widened)


def ask(client, url):
    async def main():
        async with client as opened:
            return (await opened.get(url)).content

    if isinstance(client, httpx2.AsyncClient):
        return asyncio.run(main())
    with client as opened:
        return opened.get(url).content


def say_something(endpoint):
    async def main():
        said = [HistoryMessage(Speaker.USER, "안녕")]
        options = GenerationOptions(max_tokens=10)
        return [piece async for piece in OpenAILLM(endpoint).stream(said, options)]

    return asyncio.run(main())


@pytest.mark.parametrize("host", SPELLINGS)
def test_no_spelling_of_a_machines_own_surroundings_is_asked(host):
    assert is_forbidden_host(host)
    shown = f"[{host}]" if ":" in host else host
    for client in (BoundedClient(timeout=5), BoundedAsyncClient(timeout=5)):
        with pytest.raises((httpx2.ConnectError, httpx2.InvalidURL)):
            ask(client, f"http://{shown}/latest/meta-data/")


def test_no_proxy_is_told_to_ask_them(hostile, monkeypatch):
    monkeypatch.setenv("http_proxy", hostile.url)
    monkeypatch.delenv("no_proxy", raising=False)
    url = "http://169.254.169.254/v1"
    for client in (BoundedClient(timeout=5), BoundedAsyncClient(timeout=5)):
        with pytest.raises(httpx2.ConnectError):
            ask(client, url)
    with pytest.raises(LLMError):
        say_something(Endpoint(url, "m", api_key="sk-key"))
    assert hostile.requests == []


@pytest.mark.parametrize("host", ["127.0.0.1", "10.1.2.3", "192.168.0.9", "::1", "gpu.example"])
def test_the_own_network_may_be_asked(host):
    assert not is_forbidden_host(host)


def test_a_name_that_leads_there_is_sent_nothing(hostile, own_surroundings):
    url = f"http://localhost:{hostile.port}"
    for client in (BoundedClient(timeout=5), BoundedAsyncClient(timeout=5)):
        with pytest.raises(httpx2.ConnectError):
            ask(client, f"{url}/endless")
    endpoint = Endpoint(f"{url}/v1", "m", api_key="sk-key")
    with pytest.raises(LLMError):
        say_something(endpoint)
    with pytest.raises(EmbedderFailed):
        EndpointEmbedder(endpoint).embed_query("휴가")
    assert hostile.requests == []


@pytest.mark.parametrize("path", ["endless", "bomb"])
def test_an_answer_is_read_up_to_its_bound_packed_or_not(hostile, path):
    clients = (BoundedClient(timeout=5), BoundedAsyncClient(max_bytes=MEGABYTE, timeout=5))
    for client in clients:
        with pytest.raises(wire.AnswerTooLong):
            ask(client, f"{hostile.url}/{path}")


def test_an_answer_that_comes_through_a_proxy_is_read_up_to_its_bound(hostile, monkeypatch):
    monkeypatch.setenv("http_proxy", hostile.url)
    monkeypatch.delenv("no_proxy", raising=False)
    clients = (BoundedClient(timeout=5), BoundedAsyncClient(max_bytes=MEGABYTE, timeout=5))
    for client in clients:
        with pytest.raises(wire.AnswerTooLong):
            ask(client, "http://model.example/endless")


def test_a_packed_answer_costs_no_more_than_its_bound(hostile):
    hostile.bomb_megabytes = 400
    tracemalloc.start()
    try:
        with pytest.raises(wire.AnswerTooLong):
            ask(BoundedAsyncClient(max_bytes=MEGABYTE, timeout=10), f"{hostile.url}/bomb")
        most = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert most < 20 * MEGABYTE


def test_a_packed_answer_is_read(hostile):
    hostile.bomb_megabytes = 1
    assert ask(BoundedClient(timeout=5), f"{hostile.url}/bomb") == b" " * MEGABYTE


async def test_a_reply_that_comes_packed_is_read_as_it_comes():
    heard = asyncio.Event()

    async def answer(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nConnection: close\r\n\r\n")
        packer = zlib.compressobj(wbits=31)
        for word, reason in (("안녕", None), ("하세요", "stop")):
            choice = {"index": 0, "delta": {"content": word}, "finish_reason": reason}
            said = f"data: {json.dumps({'choices': [choice]})}\n\n".encode()
            writer.write(packer.compress(said) + packer.flush(zlib.Z_SYNC_FLUSH))
            if reason is None:
                await heard.wait()
        writer.close()

    said = []
    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        model = OpenAILLM(Endpoint(f"http://127.0.0.1:{port}/v1", "m"))
        asked = [HistoryMessage(Speaker.USER, "안녕")]
        async for piece in model.stream(asked, GenerationOptions(max_tokens=10)):
            said.append(piece.text)
            heard.set()
    assert said == ["안녕", "하세요", ""]


def test_an_embedder_and_a_reranker_that_send_bombs_fail(hostile):
    hostile.answers |= {"/v1/embeddings": "bomb", "/v1/rerank": "bomb"}
    endpoint = Endpoint(f"{hostile.url}/v1", "m")
    with pytest.raises(EmbedderFailed):
        EndpointEmbedder(endpoint).embed_passages(["휴가"])
    with pytest.raises(EngineUnavailable):
        EndpointReranker(endpoint).rerank("휴가", [], 1)


@pytest.mark.parametrize("way", ["endless", "bomb"])
def test_a_list_of_models_without_an_end_tells_no_context_length(hostile, way):
    hostile.answers["/v1/models"] = way
    assert asyncio.run(find_context_length(Endpoint(f"{hostile.url}/v1", "m"))) is None
