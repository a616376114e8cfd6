"""Testing a connection: what servers can do, and what becomes of those that do something else."""

import asyncio
import json
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from documents.connected.models import ModelRole
from documents.connected.trial import TrialVerdict, try_endpoint
from rag.adapters.endpoint import reset_breakers
from rag.adapters.openai import reset_dialects
from rag.config import Endpoint
from rag.context.budget import reset_context_lengths
from tests.servers.llm import Failure, Hang, Raw, Stream, ToolCalls, build_completion, encode_chunk
from tests.servers.wire import POLL_SECONDS

KEY = "key-that-must-stay-here"
KOREAN = ["문서 검색은 ", "필요한 내용을 ", "빨리 찾게 합니다. ", "근거도 남습니다."]


@pytest.fixture(autouse=True)
def _fresh():
    for forget in (reset_breakers, reset_dialects, reset_context_lengths):
        forget()


@pytest.fixture
def shorten_limits(monkeypatch):
    """Limits of a test, as nobody waits that long here."""
    monkeypatch.setattr("documents.connected.trial.LIST_SECONDS", 0.5)
    monkeypatch.setattr("documents.connected.trial.FIRST_TOKEN_SECONDS", 0.5)
    monkeypatch.setattr("documents.connected.trial.CALL_SECONDS", 2.0)


def try_and_list_lines(server, model="stand-in", role=ModelRole.MAIN):
    url = server if isinstance(server, str) else server.url
    trial = asyncio.run(try_endpoint(Endpoint(url, model, api_key=KEY), role))
    told = " ".join(line.text for line in trial.lines)
    assert KEY not in told
    return {line.title: line for line in trial.lines}, trial


def speak(request):
    """A good server: streams Korean, thinks when asked to, calls tools."""
    if request.get("tools"):
        return ToolCalls([("find_holidays", {"name": "김민수"})])
    if request.get("chat_template_kwargs", {}).get("enable_thinking"):
        thought = json.dumps({"choices": [{"index": 0, "delta": {"reasoning_content": "음"}}]})
        return Raw(f"data: {thought}\n\n".encode() + encode_chunk("372") + b"data: [DONE]\n\n")
    return Stream(KOREAN, delay=0.02)


def test_a_good_server_is_good_in_every_line(llm_server):
    llm_server.default = speak
    llm_server.replies_by_path["/v1/models"] = Failure(
        200, {"data": [{"id": "stand-in", "max_model_len": 32768}]}
    )
    lines, trial = try_and_list_lines(llm_server)
    assert trial.is_good
    assert {line.verdict for line in trial.lines} == {TrialVerdict.GOOD}
    assert "32,768" in " ".join(line.text for line in trial.lines)
    assert any("근거도 남습니다" in line.text for line in trial.lines)
    assert trial.models == ({"id": "stand-in", "context_tokens": 32768},)
    assert len(lines) == 7


def test_what_a_server_cannot_is_a_note_where_answers_do_without(llm_server):
    llm_server.default = lambda request: (
        Failure(400, {"error": {"message": "tools are not supported"}})
        if request.get("tools")
        else Stream(["한 조각으로 온 답입니다."])
    )
    _lines, trial = try_and_list_lines(llm_server)
    assert trial.is_good
    assert [line.verdict for line in trial.lines].count(TrialVerdict.NOTE) >= 3


def test_an_english_answer_to_a_korean_question_is_bad(llm_server):
    llm_server.default = Stream(["Documents ", "are searched ", "for reasons."])
    _lines, trial = try_and_list_lines(llm_server)
    assert not trial.is_good


def test_a_model_that_the_server_does_not_list_is_bad(llm_server):
    llm_server.default = speak
    _lines, trial = try_and_list_lines(llm_server, "another")
    assert trial.lines[0].verdict is TrialVerdict.BAD


@pytest.mark.parametrize(
    "reply",
    [
        Failure(500, "<html>oops</html>"),
        Failure(401, {"error": {"message": f"Incorrect API key: {KEY}"}}),
        Failure(400, {"error": {"message": f"the key {KEY} has no access"}}),
        Raw(b"not json at all"),
        Raw(b'data: {"choices": 7}\n\n'),
        Hang(),
    ],
    ids=["500", "refused key", "key in words", "no json", "wrong shape", "hangs"],
)
def test_a_server_that_fails_is_told_in_a_sentence_without_the_key(
    llm_server, shorten_limits, reply
):
    llm_server.default = reply
    _lines, trial = try_and_list_lines(llm_server)
    assert not trial.is_good
    bad = [line for line in trial.lines if line.verdict is TrialVerdict.BAD]
    assert all(line.text.strip() for line in bad)
    assert len(trial.lines) == 2  # nothing more is tried


def test_nobody_at_an_address_is_told():
    _lines, trial = try_and_list_lines("http://127.0.0.1:1/v1")
    assert not trial.is_good


@pytest.mark.parametrize(
    "body",
    [
        b"[]",
        b'{"data": 7}',
        b'{"data": [{"name": "x"}]}',
        b"[" * 100_000,
        b"<html>",
    ],
)
def test_a_list_that_is_none_is_told(llm_server, body):
    llm_server.replies_by_path["/v1/models"] = Raw(
        body, headers={"Content-Type": "application/json"}
    )
    trial = asyncio.run(try_endpoint(Endpoint(llm_server.url, "", api_key=KEY)))
    (line,) = trial.lines
    assert line.verdict is TrialVerdict.BAD
    assert trial.models == ()


class Elsewhere(BaseHTTPRequestHandler):
    """Leads to another port, or sends a list without an end."""

    other = ""
    seen: list[str] = []

    def do_GET(self):
        type(self).seen.append(self.headers.get("Authorization", ""))
        if self.other == "endless":
            self.send_response(200)
            self.end_headers()
            with_room = b'{"id": "model-with-a-long-name"},' * 2000
            try:
                self.wfile.write(b'{"data": [')
                while True:
                    self.wfile.write(with_room)
            except OSError:
                return
        self.send_response(307)
        self.send_header("Location", f"{self.other}{self.path}")
        self.end_headers()

    do_POST = do_GET  # noqa: N815

    def log_message(self, *_arguments):
        pass


@pytest.fixture
def elsewhere():
    server = HTTPServer(("127.0.0.1", 0), Elsewhere)
    thread = threading.Thread(target=server.serve_forever, args=(POLL_SECONDS,), daemon=True)
    thread.start()
    Elsewhere.seen.clear()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def test_no_key_follows_a_server_that_leads_elsewhere(llm_server, elsewhere):
    llm_server.default = speak
    Elsewhere.other = llm_server.url.removesuffix("/v1")
    _lines, trial = try_and_list_lines(f"{elsewhere}/v1")
    assert not trial.is_good
    assert Elsewhere.seen
    assert not llm_server.calls


def test_a_list_without_an_end_is_cut(elsewhere):
    Elsewhere.other = "endless"
    trial = asyncio.run(try_endpoint(Endpoint(f"{elsewhere}/v1", "", api_key=KEY)))
    assert not trial.is_good
    assert trial.models == ()


def test_an_embedder_that_knows_no_korean_is_told(llm_server):
    llm_server.replies_by_path["/v1/models"] = Failure(200, {"data": [{"id": "embedder"}]})
    near, far = [1.0, 0.0, 0.1], [0.0, 1.0, 0.1]

    def vectors(*rows):
        data = [{"index": place, "embedding": row} for place, row in enumerate(rows)]
        return Failure(200, {"object": "list", "data": data, "model": "embedder"})

    llm_server.script_embeddings(vectors(near, near, far))
    assert try_and_list_lines(llm_server, "embedder", ModelRole.EMBEDDING)[1].is_good
    llm_server.script_embeddings(vectors(near, far, far))
    _lines, trial = try_and_list_lines(llm_server, "embedder", ModelRole.EMBEDDING)
    assert not trial.is_good


def test_a_reranker_and_a_verifier_are_tried_by_their_own_protocols(llm_server):
    llm_server.replies_by_path["/v1/models"] = Failure(200, {"data": [{"id": "reader"}]})
    ranked = {
        "results": [{"index": 0, "relevance_score": 0.1}, {"index": 1, "relevance_score": 0.9}]
    }
    llm_server.replies_by_path["/v1/rerank"] = Failure(200, ranked)
    assert try_and_list_lines(llm_server, "reader", ModelRole.RERANKER)[1].is_good
    shares = [
        [{"label": "entailment", "score": one}, {"label": "contradiction", "score": 1 - one}]
        for one in (0.9, 0.1)
    ]
    llm_server.replies_by_path["/v1/predict"] = Failure(200, shares)
    assert try_and_list_lines(llm_server, "reader", ModelRole.VERIFIER)[1].is_good
    llm_server.replies_by_path["/v1/predict"] = Failure(200, [["no"], ["labels"]])
    assert not try_and_list_lines(llm_server, "reader", ModelRole.VERIFIER)[1].is_good


def test_a_vision_model_says_what_is_in_a_picture(llm_server):
    llm_server.default = Failure(200, build_completion("빨간 사각형입니다."))
    _lines, trial = try_and_list_lines(llm_server, "stand-in", ModelRole.VISION)
    assert trial.is_good
    assert "빨간" in trial.lines[-1].text
