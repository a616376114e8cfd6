"""The models process: the local embedder, reranker and verifier behind HTTP on a Unix socket.

`python -m nura.models_server --socket PATH`. A model is loaded on its first use; answers workers
trigger that when they start. This is the only process that loads torch. It uses neither Django nor
the database: whoever can open the socket may use it.

- `POST /v1/embeddings`: OpenAI's shape, `encoding_format` float or base64. `input_type` is "query",
  "passage" (the default) or "outsider". Queries never wait for passages, which have a thread of
  their own at low priority. Outsiders' texts, embedded for other programs, take turns with
  passages, and the texts of one `user` with those of another.
- `POST /v1/rerank`: `{model, query, documents, top_n?}` gives `{results: [{index,
  relevance_score}]}`, best first, as with Jina, Cohere and vLLM.
- `POST /v1/predict`: `{model, inputs: [[text, sentence]]}` gives `[[{label, score}]]`, as with
  Hugging Face's TEI.
- `GET /v1/models`, `GET /health`: the loaded models; whether it serves, the device, and how many
  texts wait.

Errors are OpenAI's `{"error": {"message", "type", "code"}}` with 400, 404 (no such model), 413,
500, or 503 with `Retry-After` if too many texts wait.
"""

import argparse
import asyncio
import base64
import gc
import json
import logging.config
import os
import socket
import sys
import threading
import time
from array import array
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from enum import IntEnum
from pathlib import Path
from typing import Any

from aiohttp import web

from nura import logs
from nura.embedded import spawn
from rag.adapters import sentence_transformers as models
from rag.errors import EngineUnavailable

logger = logging.getLogger(__name__)

MAX_BODY_BYTES = 32 * 2**20
MAX_TEXTS_A_REQUEST = 2048
MAX_TEXTS_WAITING = 8192
RETRY_AFTER_SECONDS = 1
MAX_TEXTS_A_BATCH = 256
FIRST_TEXTS_A_BATCH = 8
MAX_QUESTIONS_A_BATCH = 32
BATCH_SECONDS = 0.15
"""Target duration of a batch that others wait for: batch sizes adapt to it."""
SHUTDOWN_SECONDS = 6.0
"""For requests in progress; clients repeat those that take longer."""

Compute = Callable[[str, Sequence[Any]], Sequence[Any]]


class Urgency(IntEnum):
    """Priority of a request: somebody waits for a question."""

    QUESTION = 0
    ANSWER = 1
    PASSAGE = 2
    OUTSIDER = 3


Lane = tuple[Urgency, ...]
LANES: tuple[Lane, ...] = ((Urgency.QUESTION, Urgency.ANSWER), (Urgency.PASSAGE, Urgency.OUTSIDER))
"""What somebody waits for, and background work: each lane has a thread of its own."""

URGENCIES = {
    "query": Urgency.QUESTION,
    "passage": Urgency.PASSAGE,
    "outsider": Urgency.OUTSIDER,
}
"""By `input_type`."""


@dataclass(frozen=True)
class Task:
    """Something models do with texts; `load` loads such a model and returns its device."""

    name: str
    compute: Compute
    load: Callable[[str], str]


EMBED = Task("embed", models.embed_texts, models.load_embedder)
SCORE = Task("score", models.score_pairs, models.load_cross_encoder)
CLASSIFY = Task("classify", models.classify_pairs, models.load_cross_encoder)


@dataclass(slots=True, eq=False)
class WaitingRequest:
    """The texts of one request and their results so far."""

    task: Task
    model: str
    texts: Sequence[Any]
    owner: str
    done: "asyncio.Future[list[Any]]"
    results: list[Any] = field(default_factory=list)
    taken: int = 0

    @property
    def kind(self) -> tuple[str, str]:
        """Texts of one kind may be computed together."""
        return self.task.name, self.model


class Overloaded(Exception):
    """More texts are waiting than can be computed in reasonable time."""


class Batcher:
    """Feeds texts to the models, one batch per lane at a time: urgent ones first, of one kind.

    A request may be split into several batches, and a batch may combine several requests.
    """

    def __init__(self) -> None:
        self.loaded: dict[tuple[str, str], str] = {}
        """"loading", "ready" or the reason why not, by task and model."""
        self.device = ""
        """The device: the GPU's name, or "cpu"; empty before a model is loaded."""
        self._waiting: dict[Urgency, deque[WaitingRequest]] = {
            urgency: deque() for urgency in Urgency
        }
        self._sizes: dict[tuple[str, str], int] = {}
        self._last_urgency = Urgency.PASSAGE
        """Which of the two lanes that take turns had the last batch."""
        self._has_work = {lane: asyncio.Event() for lane in LANES}
        self._threads = {
            lane: ThreadPoolExecutor(1, thread_name_prefix=name, initializer=prepare)
            for lane, name, prepare in zip(
                LANES, ("asked", "kept"), (models.prioritise_thread, _lower_priority), strict=True
            )
        }

    @property
    def waiting(self) -> int:
        """Texts not in a batch yet whose clients still wait."""
        return sum(
            len(request.texts) - request.taken
            for queue in self._waiting.values()
            for request in queue
            if not request.done.done()
        )

    async def compute_results(
        self, task: Task, model: str, texts: Sequence[Any], urgency: Urgency, owner: str = ""
    ) -> list[Any]:
        """One result per text, in order.

        Raises `Overloaded`, `ModelNotLoaded`, `EngineUnavailable`. Cancelling withdraws the texts
        that are not in a batch yet.
        """
        limit = MAX_TEXTS_WAITING if urgency < Urgency.OUTSIDER else MAX_TEXTS_WAITING // 2
        if self.waiting and self.waiting + len(texts) > limit:
            raise Overloaded
        done = asyncio.get_running_loop().create_future()
        request = WaitingRequest(task, model, texts, owner, done)
        self._waiting[urgency].append(request)
        next(self._has_work[lane] for lane in LANES if urgency in lane).set()
        return await request.done

    async def run(self) -> None:
        """Work until cancelled."""
        await asyncio.gather(*map(self._run_lane, LANES))

    async def _run_lane(self, lane: Lane) -> None:
        loop = asyncio.get_running_loop()
        while True:
            batch = self._take_next_batch(lane)
            if not batch:
                self._has_work[lane].clear()
                await self._has_work[lane].wait()
                continue
            compute = loop.run_in_executor(self._threads[lane], self._compute_batch, batch)
            try:
                results = await compute
            except EngineUnavailable as error:
                for request, _texts in batch:
                    _set_outcome(request, error)
            except Exception:
                logger.exception("A batch of %d requests failed", len(batch))
                for request, _texts in batch:
                    _set_outcome(request, EngineUnavailable("the model failed"))
            else:
                for (request, _texts), part in zip(batch, results, strict=True):
                    request.results += part
                    if len(request.results) == len(request.texts):
                        _set_outcome(request, request.results)

    def close(self) -> None:
        """Start no further batches."""
        for thread in self._threads.values():
            thread.shutdown(wait=False, cancel_futures=True)

    def _take_next_batch(self, lane: Lane) -> list[tuple[WaitingRequest, Sequence[Any]]]:
        """The next batch: requests of the kind of the first in line, each with its next texts."""
        for urgency in self._order_lane(lane):
            queue = self._waiting[urgency]
            for request in [
                waiting for waiting in queue if waiting.done.done()
            ]:  # nobody waits any more
                queue.remove(request)
            if not queue:
                continue
            if urgency >= Urgency.PASSAGE:
                self._last_urgency = urgency
            kind = queue[0].kind
            is_question = queue is self._waiting[Urgency.QUESTION]
            room = MAX_QUESTIONS_A_BATCH if is_question else self._get_batch_size(kind)
            batch = []
            for request in [waiting for waiting in queue if waiting.kind == kind]:
                texts = request.texts[request.taken : request.taken + room]
                batch.append((request, texts))
                request.taken += len(texts)
                room -= len(texts)
                if request.taken == len(request.texts):
                    queue.remove(request)
                if not room:
                    break
            if urgency is Urgency.OUTSIDER:
                _move_owner_last(queue, batch[-1][0].owner)
            return batch
        return []

    def _order_lane(self, lane: Lane) -> Lane:
        """The order of urgencies in a lane; passages and outsiders' texts take turns."""
        is_turned = Urgency.PASSAGE in lane and self._last_urgency is Urgency.PASSAGE
        return lane[::-1] if is_turned else lane

    def _get_batch_size(self, kind: tuple[str, str]) -> int:
        return self._sizes.setdefault(kind, FIRST_TEXTS_A_BATCH)

    def _compute_batch(
        self, batch: Sequence[tuple[WaitingRequest, Sequence[Any]]]
    ) -> list[Sequence[Any]]:
        """In the models' thread: the results of each request's texts."""
        first = batch[0][0]
        self._load_model(first.task, first.model)
        texts = [text for _asked, texts in batch for text in texts]
        started = time.perf_counter()
        results = iter(first.task.compute(first.model, texts))
        self._adapt_batch_size(first.kind, len(texts), time.perf_counter() - started)
        return [[next(results) for _text in texts] for _asked, texts in batch]

    def _adapt_batch_size(self, kind: tuple[str, str], count: int, seconds: float) -> None:
        """Halve the batch size if batches take too long; double it if there is time."""
        size = self._get_batch_size(kind)
        if seconds > BATCH_SECONDS:
            self._sizes[kind] = max(1, min(size, count) // 2)
        elif count >= size and seconds < BATCH_SECONDS / 3:
            self._sizes[kind] = min(MAX_TEXTS_A_BATCH, size * 2)

    def _load_model(self, task: Task, model: str) -> None:
        if self.loaded.get((task.name, model)) == "ready":
            return
        self.loaded[task.name, model] = "loading"
        try:
            self.device = task.load(model)
        except EngineUnavailable as error:
            self.loaded[task.name, model] = str(error)
            logger.warning("%s", error, exc_info=error.__cause__)
            raise
        self.loaded[task.name, model] = "ready"
        logger.info("%s is loaded on %s", model, self.device)
        gc.collect()
        spawn.release_memory()


def _lower_priority() -> None:
    """Lower the priority of this thread and of those that torch starts for it."""
    own = threading.get_native_id()
    os.setpriority(os.PRIO_PROCESS, own, os.getpriority(os.PRIO_PROCESS, own) + spawn.NICENESS)


def _move_owner_last(queue: deque[WaitingRequest], owner: str) -> None:
    """Move the owner's requests behind all others."""
    own = [request for request in queue if request.owner == owner]
    others = [request for request in queue if request.owner != owner]
    queue.clear()
    queue.extend(others + own)


def _set_outcome(request: WaitingRequest, outcome: list[Any] | Exception) -> None:
    if request.done.done():
        return
    if isinstance(outcome, Exception):
        request.done.set_exception(outcome)
    else:
        request.done.set_result(outcome)


class BadRequest(Exception):
    """A request body with the wrong shape; the message says what is wrong."""


def make_application() -> web.Application:
    """The server."""
    application = web.Application(client_max_size=MAX_BODY_BYTES, middlewares=[_handle_errors])
    application[BATCHER] = Batcher()

    async def run_batcher(app: web.Application) -> AsyncIterator[None]:
        task = asyncio.create_task(app[BATCHER].run())
        yield
        task.cancel()
        app[BATCHER].close()

    application.cleanup_ctx.append(run_batcher)
    application.add_routes(
        [
            web.post("/v1/embeddings", embed),
            web.post("/v1/rerank", rerank),
            web.post("/v1/predict", predict),
            web.get("/v1/models", list_models),
            web.get("/health", show_health),
        ]
    )
    return application


BATCHER = web.AppKey("batcher", Batcher)


async def embed(request: web.Request) -> web.Response:
    """Vectors of texts."""
    body = await _read_body(request)
    sent = body.get("input")
    texts = _read_texts([sent] if isinstance(sent, str) else sent, "input")
    model, encoding = _read_model(body), body.get("encoding_format", "float")
    kind = body.get("input_type", "passage")
    if encoding not in {"float", "base64"} or kind not in URGENCIES:
        raise BadRequest(
            "encoding_format is float or base64, input_type query, passage or outsider"
        )
    owner = str(body.get("user", ""))
    vectors = await request.app[BATCHER].compute_results(
        EMBED, model, texts, URGENCIES[kind], owner
    )
    data = [
        {
            "object": "embedding",
            "index": index,
            "embedding": base64.b64encode(vector).decode()
            if encoding == "base64"
            else array("f", vector).tolist(),
        }
        for index, vector in enumerate(vectors)
    ]
    usage = {"prompt_tokens": 0, "total_tokens": 0}  # nobody pays for them
    return _make_response({"object": "list", "model": model, "data": data, "usage": usage})


async def rerank(request: web.Request) -> web.Response:
    """Scores of documents for a query, best first."""
    body = await _read_body(request)
    query, documents, model = (
        body.get("query"),
        _read_texts(body.get("documents"), "documents"),
        _read_model(body),
    )
    if not isinstance(query, str):
        raise BadRequest("query is no text")
    limit = body.get("top_n") or len(documents)
    if not isinstance(limit, int) or limit < 1:
        raise BadRequest("top_n is no count")
    pairs = [(query, document) for document in documents]
    scores = await request.app[BATCHER].compute_results(SCORE, model, pairs, Urgency.ANSWER)
    results = [
        {"index": index, "relevance_score": score}
        for index, score in sorted(enumerate(scores), key=lambda item: -item[1])[:limit]
    ]
    return _make_response({"model": model, "results": results})


async def predict(request: web.Request) -> web.Response:
    """Label probabilities of pairs."""
    body = await _read_body(request)
    inputs, model = body.get("inputs"), _read_model(body)
    if not isinstance(inputs, list) or not 0 < len(inputs) <= MAX_TEXTS_A_REQUEST:
        raise BadRequest(f"inputs are 1 to {MAX_TEXTS_A_REQUEST} pairs")
    pairs = [tuple(_read_texts(pair, "inputs")) for pair in inputs]
    if any(len(pair) != 2 for pair in pairs):
        raise BadRequest("inputs are pairs")
    results = await request.app[BATCHER].compute_results(CLASSIFY, model, pairs, Urgency.ANSWER)
    return _make_response(
        [
            [{"label": label, "score": share} for label, share in shares.items()]
            for shares in results
        ]
    )


async def list_models(request: web.Request) -> web.Response:
    """The models that are loaded."""
    ready = {model for (_, model), state in request.app[BATCHER].loaded.items() if state == "ready"}
    data = [{"id": model, "object": "model", "owned_by": "local"} for model in sorted(ready)]
    return _make_response({"object": "list", "data": data})


async def show_health(request: web.Request) -> web.Response:
    """200 while it serves; the loaded models, the device, and how many texts wait."""
    batcher = request.app[BATCHER]
    states = {model: state for (_, model), state in batcher.loaded.items()}
    return _make_response(
        {
            "status": "ok",
            "models": states,
            "device": batcher.device,
            "waiting": batcher.waiting,
        }
    )


@web.middleware
async def _handle_errors(
    request: web.Request, handler: Callable[[web.Request], Any]
) -> web.StreamResponse:
    try:
        response: web.StreamResponse = await handler(request)
    except BadRequest as error:
        return _make_error_response(400, str(error), "invalid_request")
    except Overloaded:
        headers = {"Retry-After": str(RETRY_AFTER_SECONDS)}
        return _make_error_response(503, "too many texts wait", "overloaded", headers)
    except models.ModelNotLoaded as error:
        return _make_error_response(404, str(error), "model_not_found")
    except EngineUnavailable as error:
        return _make_error_response(500, str(error), "model_failed")
    except web.HTTPException as error:  # no such route, wrong method, too large a body
        return _make_error_response(error.status, error.reason, "invalid_request")
    else:
        return response


def _make_error_response(
    status: int, message: str, code: str, headers: Mapping[str, str] | None = None
) -> web.Response:
    kind = "invalid_request_error" if status < 500 else "server_error"
    body = {"error": {"message": message, "type": kind, "code": code}}
    return web.json_response(body, status=status, headers=headers)


def _make_response(body: object) -> web.Response:
    return web.json_response(body)


async def _read_body(request: web.Request) -> Mapping[str, Any]:
    try:
        body = json.loads(await request.read())
    except (ValueError, RecursionError) as error:
        raise BadRequest("the body is no JSON") from error
    if not isinstance(body, dict):
        raise BadRequest("the body is no object")
    return body


def _read_model(body: Mapping[str, Any]) -> str:
    model = body.get("model")
    if not isinstance(model, str) or not model:
        raise BadRequest("model is no name")
    return model


def _read_texts(value: object, name: str) -> list[str]:
    if not isinstance(value, list) or not 0 < len(value) <= MAX_TEXTS_A_REQUEST:
        raise BadRequest(f"{name}: expected 1 to {MAX_TEXTS_A_REQUEST} texts")
    if not all(isinstance(text, str) for text in value):
        raise BadRequest(f"{name}: expected texts")
    return value


def bind_socket(path: Path) -> socket.socket:
    """Bind a socket that only this user can open, replacing one left by a crash."""
    path.unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    old_umask = os.umask(0o177)
    try:
        listener.bind(str(path))
    finally:
        os.umask(old_umask)
    listener.listen(256)
    return listener


def main(arguments: Sequence[str] | None = None) -> None:
    """Serve until told to stop."""
    parser = argparse.ArgumentParser(prog="python -m nura.models_server")
    parser.add_argument("--socket", type=Path, required=True)
    options = parser.parse_args(arguments)
    log_format = os.environ.get("NURA_LOG_FORMAT", "text")
    logging.config.dictConfig(
        logs.build_logging_config(log_format, os.environ.get("NURA_LOG_LEVEL", "INFO"))
    )
    logs.configure_structlog()
    # Read when torch is first imported. Otherwise its threads spin while waiting for each other,
    # and on a busy machine take the processor from the very threads they wait for.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    web.run_app(
        make_application(),
        sock=bind_socket(options.socket),
        shutdown_timeout=SHUTDOWN_SECONDS,
        handler_cancellation=True,
        access_log=None,
        print=None,
    )
    options.socket.unlink(missing_ok=True)
    sys.stdout.flush()
    os._exit(0)  # nobody waits for a batch that is still computing


if __name__ == "__main__":
    main()
