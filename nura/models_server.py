"""The models process: the local embedder, reranker and verifier behind HTTP on a Unix socket.

`python -m nura.models_server --socket PATH`. A model is loaded when it is first asked for; the
answers workers do so at their start. The only process that loads torch. It knows neither Django nor
the database: whoever may open the socket may ask.

- `POST /v1/embeddings`: OpenAI's shape, `encoding_format` float or base64. Texts of `input_type`
  "query" wait for none of "passage", which is what texts are that say nothing: these have a thread
  of their own, and the processor when nobody else wants it. Those of "outsider", which programs
  have embedded for themselves, take turns with passages, and those of one `user` with those of
  another.
- `POST /v1/rerank`: `{model, query, documents, top_n?}` gives `{results: [{index,
  relevance_score}]}`, best first, as with Jina, Cohere and vLLM.
- `POST /v1/predict`: `{model, inputs: [[text, sentence]]}` gives `[[{label, score}]]`, as with
  Hugging Face's TEI.
- `GET /v1/models`, `GET /health`: the models that are loaded; whether it serves, on what device,
  and what waits.

Errors are OpenAI's `{"error": {"message", "type", "code"}}` with 400, 404 (no such model), 413,
500, or 503 with `Retry-After` where too much waits.
"""

import argparse
import asyncio
import base64
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
"""How long a batch takes that others wait for: batches grow and shrink towards it."""
SHUTDOWN_SECONDS = 6.0
"""For what is asked already; what takes longer is asked again by its client."""

Compute = Callable[[str, Sequence[Any]], Sequence[Any]]


class Urgency(IntEnum):
    """What goes first: somebody waits for a question."""

    QUESTION = 0
    ANSWER = 1
    PASSAGE = 2
    OUTSIDER = 3


Lane = tuple[Urgency, ...]
LANES: tuple[Lane, ...] = ((Urgency.QUESTION, Urgency.ANSWER), (Urgency.PASSAGE, Urgency.OUTSIDER))
"""What somebody waits for, and what nobody waits for: each has a thread of its own."""

URGENCIES = {
    "query": Urgency.QUESTION,
    "passage": Urgency.PASSAGE,
    "outsider": Urgency.OUTSIDER,
}
"""By `input_type`."""


@dataclass(frozen=True)
class Task:
    """Something that models do with texts; `load` loads a model of the kind, and says on what."""

    name: str
    compute: Compute
    load: Callable[[str], str]


EMBED = Task("embed", models.embed_texts, models.load_embedder)
SCORE = Task("score", models.score_pairs, models.load_cross_encoder)
CLASSIFY = Task("classify", models.classify_pairs, models.load_cross_encoder)


@dataclass(slots=True, eq=False)
class WaitingRequest:
    """The texts of one request and what is known of them so far."""

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
    """Gives texts to the models, one batch of a lane at a time: urgent ones first, of one kind.

    A request may be cut into several batches, and a batch may hold texts of several requests.
    """

    def __init__(self) -> None:
        self.loaded: dict[tuple[str, str], str] = {}
        """"loading", "ready" or the reason why not, by task and model."""
        self.device = ""
        """What they compute on: the GPU's name, or "cpu"; empty before one is loaded."""
        self._waiting: dict[Urgency, deque[WaitingRequest]] = {
            urgency: deque() for urgency in Urgency
        }
        self._sizes: dict[tuple[str, str], int] = {}
        self._last = Urgency.PASSAGE
        """Which of the two lanes that take turns had the last batch."""
        self._something = {lane: asyncio.Event() for lane in LANES}
        self._threads = {
            lane: ThreadPoolExecutor(1, thread_name_prefix=name, initializer=prepare)
            for lane, name, prepare in zip(
                LANES, ("asked", "kept"), (models.overtake, _lower_priority), strict=True
            )
        }

    @property
    def waiting(self) -> int:
        """Texts that no batch has taken yet, as far as somebody still waits for them."""
        return sum(
            len(asked.texts) - asked.taken
            for queue in self._waiting.values()
            for asked in queue
            if not asked.done.done()
        )

    async def compute_results(
        self, task: Task, model: str, texts: Sequence[Any], urgency: Urgency, owner: str = ""
    ) -> list[Any]:
        """One result a text, in order.

        Raises `Overloaded`, `ModelNotLoaded`, `EngineUnavailable`. Whoever stops waiting takes
        back what was not begun.
        """
        limit = MAX_TEXTS_WAITING if urgency < Urgency.OUTSIDER else MAX_TEXTS_WAITING // 2
        if self.waiting and self.waiting + len(texts) > limit:
            raise Overloaded
        done = asyncio.get_running_loop().create_future()
        asked = WaitingRequest(task, model, texts, owner, done)
        self._waiting[urgency].append(asked)
        next(self._something[lane] for lane in LANES if urgency in lane).set()
        return await asked.done

    async def run(self) -> None:
        """Work until cancelled."""
        await asyncio.gather(*map(self._run_lane, LANES))

    async def _run_lane(self, lane: Lane) -> None:
        loop = asyncio.get_running_loop()
        while True:
            batch = self._take_next_batch(lane)
            if not batch:
                self._something[lane].clear()
                await self._something[lane].wait()
                continue
            compute = loop.run_in_executor(self._threads[lane], self._compute_batch, batch)
            try:
                results = await compute
            except EngineUnavailable as error:
                for asked, _texts in batch:
                    _set_outcome(asked, error)
            except Exception:
                logger.exception("A batch of %d requests failed", len(batch))
                for asked, _texts in batch:
                    _set_outcome(asked, EngineUnavailable("the model failed"))
            else:
                for (asked, _texts), found in zip(batch, results, strict=True):
                    asked.results += found
                    if len(asked.results) == len(asked.texts):
                        _set_outcome(asked, asked.results)

    def close(self) -> None:
        """Begin nothing more."""
        for thread in self._threads.values():
            thread.shutdown(wait=False, cancel_futures=True)

    def _take_next_batch(self, lane: Lane) -> list[tuple[WaitingRequest, Sequence[Any]]]:
        """Requests with those of their texts that are next: of the first in line and its kind."""
        for urgency in self._order_lane(lane):
            queue = self._waiting[urgency]
            for asked in [one for one in queue if one.done.done()]:  # nobody waits any more
                queue.remove(asked)
            if not queue:
                continue
            if urgency >= Urgency.PASSAGE:
                self._last = urgency
            kind = queue[0].kind
            is_question = queue is self._waiting[Urgency.QUESTION]
            room = MAX_QUESTIONS_A_BATCH if is_question else self._get_batch_size(kind)
            batch = []
            for asked in [one for one in queue if one.kind == kind]:
                texts = asked.texts[asked.taken : asked.taken + room]
                batch.append((asked, texts))
                asked.taken += len(texts)
                room -= len(texts)
                if asked.taken == len(asked.texts):
                    queue.remove(asked)
                if not room:
                    break
            if urgency is Urgency.OUTSIDER:
                _move_owner_last(queue, batch[-1][0].owner)
            return batch
        return []

    def _order_lane(self, lane: Lane) -> Lane:
        """The order of urgencies in a lane; passages and outsiders' texts take turns."""
        is_turned = Urgency.PASSAGE in lane and self._last is Urgency.PASSAGE
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
        begun = time.perf_counter()
        results = iter(first.task.compute(first.model, texts))
        self._adapt_batch_size(first.kind, len(texts), time.perf_counter() - begun)
        return [[next(results) for _text in texts] for _asked, texts in batch]

    def _adapt_batch_size(self, kind: tuple[str, str], count: int, seconds: float) -> None:
        """Halve the batch size where batches take too long; double it where there is time."""
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
        spawn.release_memory()


def _lower_priority() -> None:
    """Lower the priority of this thread and of those that torch starts for it."""
    own = threading.get_native_id()
    os.setpriority(os.PRIO_PROCESS, own, os.getpriority(os.PRIO_PROCESS, own) + spawn.NICENESS)


def _move_owner_last(queue: deque[WaitingRequest], owner: str) -> None:
    """Move the requests of this owner behind those of the others."""
    served = [asked for asked in queue if asked.owner == owner]
    others = [asked for asked in queue if asked.owner != owner]
    queue.clear()
    queue.extend(others + served)


def _set_outcome(asked: WaitingRequest, outcome: list[Any] | Exception) -> None:
    if asked.done.done():
        return
    if isinstance(outcome, Exception):
        asked.done.set_exception(outcome)
    else:
        asked.done.set_result(outcome)


class BadRequest(Exception):
    """A request body with the wrong shape; the message says what is wrong."""


def make_application() -> web.Application:
    """The server."""
    application = web.Application(client_max_size=MAX_BODY_BYTES, middlewares=[_handle_errors])
    application[BATCHER] = Batcher()

    async def run_batcher(app: web.Application) -> AsyncIterator[None]:
        working = asyncio.create_task(app[BATCHER].run())
        yield
        working.cancel()
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
    given = body.get("input")
    texts = _read_texts([given] if isinstance(given, str) else given, "input")
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
    best = body.get("top_n") or len(documents)
    if not isinstance(best, int) or best < 1:
        raise BadRequest("top_n is no count")
    pairs = [(query, document) for document in documents]
    scores = await request.app[BATCHER].compute_results(SCORE, model, pairs, Urgency.ANSWER)
    results = [
        {"index": index, "relevance_score": score}
        for index, score in sorted(enumerate(scores), key=lambda one: -one[1])[:best]
    ]
    return _make_response({"model": model, "results": results})


async def predict(request: web.Request) -> web.Response:
    """Shares of the labels of pairs."""
    body = await _read_body(request)
    inputs, model = body.get("inputs"), _read_model(body)
    if not isinstance(inputs, list) or not 0 < len(inputs) <= MAX_TEXTS_A_REQUEST:
        raise BadRequest(f"inputs are 1 to {MAX_TEXTS_A_REQUEST} pairs")
    pairs = [tuple(_read_texts(pair, "inputs")) for pair in inputs]
    if any(len(pair) != 2 for pair in pairs):
        raise BadRequest("inputs are pairs")
    found = await request.app[BATCHER].compute_results(CLASSIFY, model, pairs, Urgency.ANSWER)
    return _make_response(
        [[{"label": label, "score": share} for label, share in one.items()] for one in found]
    )


async def list_models(request: web.Request) -> web.Response:
    """The models that are loaded."""
    ready = {model for (_, model), state in request.app[BATCHER].loaded.items() if state == "ready"}
    data = [{"id": model, "object": "model", "owned_by": "local"} for model in sorted(ready)]
    return _make_response({"object": "list", "data": data})


async def show_health(request: web.Request) -> web.Response:
    """200 as long as it serves; what it has loaded, on what, and how many texts wait."""
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
        answer: web.StreamResponse = await handler(request)
    except BadRequest as error:
        return _make_error_response(400, str(error), "invalid_request")
    except Overloaded:
        more = {"Retry-After": str(RETRY_AFTER_SECONDS)}
        return _make_error_response(503, "too many texts wait", "overloaded", more)
    except models.ModelNotLoaded as error:
        return _make_error_response(404, str(error), "model_not_found")
    except EngineUnavailable as error:
        return _make_error_response(500, str(error), "model_failed")
    except web.HTTPException as error:  # no such route, wrong method, too large a body
        return _make_error_response(error.status, error.reason, "invalid_request")
    else:
        return answer


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


def _read_texts(given: object, name: str) -> list[str]:
    if not isinstance(given, list) or not 0 < len(given) <= MAX_TEXTS_A_REQUEST:
        raise BadRequest(f"{name}: expected 1 to {MAX_TEXTS_A_REQUEST} texts")
    if not all(isinstance(text, str) for text in given):
        raise BadRequest(f"{name}: expected texts")
    return given


def bind_socket(path: Path) -> socket.socket:
    """The socket that only this user may open, in place of one that a crash left there."""
    path.unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    before = os.umask(0o177)
    try:
        listener.bind(str(path))
    finally:
        os.umask(before)
    listener.listen(256)
    return listener


def main(arguments: Sequence[str] | None = None) -> None:
    """Serve until told to stop."""
    parser = argparse.ArgumentParser(prog="python -m nura.models_server")
    parser.add_argument("--socket", type=Path, required=True)
    given = parser.parse_args(arguments)
    wire = os.environ.get("NURA_LOG_FORMAT", "text")
    logging.config.dictConfig(
        logs.build_logging_config(wire, os.environ.get("NURA_LOG_LEVEL", "INFO"))
    )
    logs.configure_structlog()
    # Read when torch is first imported. Its threads otherwise spin while they wait for each other,
    # and take the processor from whom they wait for when others want it, too.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    web.run_app(
        make_application(),
        sock=bind_socket(given.socket),
        shutdown_timeout=SHUTDOWN_SECONDS,
        handler_cancellation=True,
        access_log=None,
        print=None,
    )
    given.socket.unlink(missing_ok=True)
    sys.stdout.flush()
    os._exit(0)  # a batch that still computes is nobody's any more


if __name__ == "__main__":
    main()
