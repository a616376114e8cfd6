"""The routes under `/v1`. Views hold no database connection while they wait."""

import asyncio
from functools import partial
from typing import Any

from django.contrib.auth.models import User
from django.http import HttpRequest, JsonResponse, StreamingHttpResponse
from django.http.response import HttpResponseBase
from knox.models import AuthToken
from ninja import Router
from rest_framework.exceptions import MethodNotAllowed

from chats.access import Credential
from chats.errors import RateLimited
from chats.gateway import catalogue, completions, vectors
from chats.gateway.completions import PendingAnswer
from chats.gateway.schemas import CompletionRequest, EmbeddingsRequest, ErrorReply, Reply
from chats.runs import dispatch, log
from jobs import limiter
from jobs.connections import in_database
from jobs.fairness import release_place

router = Router()
METHODS = ["GET", "HEAD", "OPTIONS", "POST", "PUT", "PATCH", "DELETE"]


@router.get("/models")
async def list_models(request: HttpRequest) -> HttpResponseBase:
    """The models that the key's owner may ask."""
    return _to_json_response(await in_database(catalogue.list_models, _get_asker(request)))


@router.get("/models/{path:model}")
async def show_model(request: HttpRequest, model: str) -> HttpResponseBase:
    """One model."""
    found = await in_database(catalogue.find_model, _get_asker(request), model)
    return _to_json_response(catalogue.describe_model(found))


@router.post("/chat/completions")
async def create_completion(request: HttpRequest, body: CompletionRequest) -> HttpResponseBase:
    """Answer the last user message, as one response or as a stream."""
    credential = _get_credential(request)
    begin = partial(completions.begin_answer, asked_with=credential.token)
    opening = asyncio.ensure_future(in_database(begin, _get_asker(request), request.headers, body))
    try:
        pending = await asyncio.shield(opening)
    except asyncio.CancelledError:  # hung up while the question is being stored
        opening.add_done_callback(_stop_when_opened)
        raise
    release_place()
    return await (
        _answer_as_stream(pending, credential, body)
        if body.stream
        else _answer_whole(pending, credential)
    )


@router.post("/embeddings")
async def create_embeddings(request: HttpRequest, body: EmbeddingsRequest) -> HttpResponseBase:
    """The vectors of texts."""
    texts = vectors.read_texts(body)
    owner = f"user:{_get_asker(request).pk}"
    name = await in_database(vectors.check_model, body.model)
    tokens = await asyncio.to_thread(vectors.count_tokens, name, texts)
    verdict = await limiter.consume_by_rule(
        "embedding-tokens", owner, key=_get_key(request).digest, cost=tokens
    )
    if verdict is not None and not verdict.allowed:
        raise RateLimited.from_verdict(verdict)
    run_id = await asyncio.to_thread(dispatch.send_request, "embed", {"texts": texts})
    event = await completions.wait_for_last_event(
        PendingAnswer(run_id, name), _get_credential(request)
    )
    if event.type == log.ERROR:
        return _to_error_response(ErrorReply.from_event_data(event.data))
    response = _to_json_response(vectors.to_reply(body, name, event.data))
    for header, value in (verdict.headers if verdict else {}).items():
        response[header] = value
    return response


async def refuse_method(request: HttpRequest) -> HttpResponseBase:
    """Refuse other methods."""
    raise MethodNotAllowed(request.method or "")


@router.api_operation(METHODS, "/models/{path:model}", include_in_schema=False)
async def refuse_model_method(request: HttpRequest, model: str) -> HttpResponseBase:  # noqa: ARG001
    """Refuse other methods on a single model."""
    return await refuse_method(request)


for address in ("/models", "/chat/completions", "/embeddings"):
    router.add_api_operation(address, METHODS, refuse_method, include_in_schema=False)


async def _answer_whole(pending: PendingAnswer, credential: Credential) -> HttpResponseBase:
    event = await completions.wait_for_last_event(pending, credential)
    if event.type == log.ERROR:
        return _to_error_response(ErrorReply.from_event_data(event.data))
    return _to_json_response(Reply(pending).to_completion(event.data.get("message", {})))


async def _answer_as_stream(
    pending: PendingAnswer, credential: Credential, body: CompletionRequest
) -> HttpResponseBase:
    stream = completions.Stream(pending, credential, usage=body.includes_usage)
    if error := await stream.wait_for_first_words():
        return _to_error_response(error)
    response = StreamingHttpResponse(
        stream.stream_frames(), content_type="text/event-stream; charset=utf-8"
    )
    response["Cache-Control"] = "no-cache, no-transform"
    response["X-Accel-Buffering"] = "no"
    return response


def _stop_when_opened(opening: "asyncio.Future[PendingAnswer]") -> None:
    if not opening.cancelled() and opening.exception() is None:
        completions.stop_soon(opening.result().run_id)


def _get_asker(request: HttpRequest) -> User:
    """The owner of the key."""
    user: User = _get_key(request).user
    return user


def _get_credential(request: HttpRequest) -> Credential:
    """The key, to be rechecked while an answer is being written."""
    return Credential(token=_get_key(request).digest)


def _get_key(request: HttpRequest) -> AuthToken:
    return request.auth  # type: ignore[attr-defined]


def _to_error_response(error: ErrorReply) -> HttpResponseBase:
    return _to_json_response(error.body, error.status)


def _to_json_response(data: Any, status: int = 200) -> HttpResponseBase:
    return JsonResponse(data, status=status, json_dumps_params={"ensure_ascii": False})
