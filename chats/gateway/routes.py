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
from chats.gateway.completions import Opened
from chats.gateway.schemas import CompletionRequest, EmbeddingsRequest, Failed, Reply
from chats.runs import dispatch, log
from jobs import limiter
from jobs.connections import in_database
from jobs.fairness import release_place

router = Router()
METHODS = ["GET", "HEAD", "OPTIONS", "POST", "PUT", "PATCH", "DELETE"]


@router.get("/models")
async def models(request: HttpRequest) -> HttpResponseBase:
    """What the key's owner may ask."""
    return _json(await in_database(catalogue.list_models, _asker(request)))


@router.get("/models/{path:model}")
async def model(request: HttpRequest, model: str) -> HttpResponseBase:
    """One model."""
    found = await in_database(catalogue.find_model, _asker(request), model)
    return _json(catalogue.describe_model(found))


@router.post("/chat/completions")
async def chat_completions(request: HttpRequest, body: CompletionRequest) -> HttpResponseBase:
    """Answer the last message of the user, whole or as a stream."""
    credential = _credential(request)
    begin = partial(completions.begin, asked_with=credential.token)
    opening = asyncio.ensure_future(in_database(begin, _asker(request), request.headers, body))
    try:
        opened = await asyncio.shield(opening)
    except asyncio.CancelledError:  # hung up while the question is being stored
        opening.add_done_callback(_stop_opened)
        raise
    release_place()
    return await (
        _streamed(opened, credential, body) if body.stream else _whole(opened, credential)
    )


@router.post("/embeddings")
async def embeddings(request: HttpRequest, body: EmbeddingsRequest) -> HttpResponseBase:
    """The vectors of texts."""
    texts = vectors.texts_of(body)
    owner = f"user:{_asker(request).pk}"
    name = await in_database(vectors.checked_model, body.model)
    tokens = await asyncio.to_thread(vectors.count_tokens, name, texts)
    verdict = await limiter.consume_by_rule(
        "embedding-tokens", owner, key=_key(request).digest, cost=tokens
    )
    if verdict is not None and not verdict.allowed:
        raise RateLimited.from_verdict(verdict)
    run_id = await asyncio.to_thread(dispatch.send_request, "embed", {"texts": texts})
    event = await completions.last_event(Opened(run_id, name), _credential(request))
    if event.type == log.ERROR:
        return _failed(Failed.of(event.data))
    response = _json(vectors.shown(body, name, event.data))
    for header, value in (verdict.headers if verdict else {}).items():
        response[header] = value
    return response


async def refused(request: HttpRequest) -> HttpResponseBase:
    """Another method than the address takes."""
    raise MethodNotAllowed(request.method or "")


@router.api_operation(METHODS, "/models/{path:model}", include_in_schema=False)
async def refused_for_one(request: HttpRequest, model: str) -> HttpResponseBase:  # noqa: ARG001
    """Another method than a model takes."""
    return await refused(request)


for address in ("/models", "/chat/completions", "/embeddings"):
    router.add_api_operation(address, METHODS, refused, include_in_schema=False)


async def _whole(opened: Opened, credential: Credential) -> HttpResponseBase:
    event = await completions.last_event(opened, credential)
    if event.type == log.ERROR:
        return _failed(Failed.of(event.data))
    return _json(Reply(opened).whole(event.data.get("message", {})))


async def _streamed(
    opened: Opened, credential: Credential, body: CompletionRequest
) -> HttpResponseBase:
    stream = completions.Stream(opened, credential, usage=body.told_usage)
    if failed := await stream.begun():
        return _failed(failed)
    response = StreamingHttpResponse(
        stream.frames(), content_type="text/event-stream; charset=utf-8"
    )
    response["Cache-Control"] = "no-cache, no-transform"
    response["X-Accel-Buffering"] = "no"
    return response


def _stop_opened(opening: "asyncio.Future[Opened]") -> None:
    if not opening.cancelled() and opening.exception() is None:
        completions.stop_soon(opening.result().run_id)


def _asker(request: HttpRequest) -> User:
    """Whom the key belongs to."""
    user: User = _key(request).user
    return user


def _credential(request: HttpRequest) -> Credential:
    """That key, to be asked again while an answer is under way."""
    return Credential(token=_key(request).digest)


def _key(request: HttpRequest) -> AuthToken:
    return request.auth  # type: ignore[attr-defined]


def _failed(failed: Failed) -> HttpResponseBase:
    return _json(failed.body, failed.status)


def _json(data: Any, status: int = 200) -> HttpResponseBase:
    return JsonResponse(data, status=status, json_dumps_params={"ensure_ascii": False})
