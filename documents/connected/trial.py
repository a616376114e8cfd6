"""Tests of a model server from the administration, each with a plain sentence as its result.

The server may hang, send endless lists or redirect. Every step has limits, and a key is sent to no
other address than the one that was entered.
"""

import asyncio
import base64
import json
import math
import re
import time
from collections.abc import Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any
from uuid import UUID

import httpx2
from django.utils.translation import gettext as _

from documents.connected.models import ModelRole
from rag.adapters.encoders import EndpointEmbedder, EndpointReranker, EndpointVerifier
from rag.adapters.endpoint import to_llm_error
from rag.adapters.openai import OpenAILLM, OpenAIVision
from rag.adapters.wire import BoundedAsyncClient
from rag.config import Endpoint
from rag.context.budget import find_context_length
from rag.errors import (
    EmbedderFailed,
    EngineUnavailable,
    LLMEmptyAnswer,
    LLMError,
    LLMRateLimited,
    LLMRejected,
    LLMServerError,
    LLMTimeout,
    LLMUnauthorized,
    LLMUnavailable,
    LLMUnreachable,
)
from rag.ports import GenerationOptions, Tool
from rag.types import HistoryMessage, Hit, Passage, Speaker

LIST_SECONDS = 8.0
LIST_BYTES = 2 * 2**20
MAX_MODELS = 500
MAX_NAME_CHARACTERS = 200
FIRST_TOKEN_SECONDS = 20.0
CALL_SECONDS = 40.0
SAMPLE_TOKENS = 160
SAMPLE_CHARACTERS = 300
QUESTION = "사내 문서 검색이 왜 필요한지 한국어로 세 문장으로 설명해 주세요."
TOOL = Tool(
    "find_holidays",
    "Finds how many days of leave an employee has left.",
    {
        "type": "object",
        "properties": {"name": {"type": "string", "description": "name of the employee"}},
        "required": ["name"],
    },
)
TOOL_QUESTION = "김민수 님의 남은 휴가가 며칠인지 도구로 찾아 주세요."
HANGUL = re.compile(r"[가-힣]")
LETTERS = re.compile(r"[^\W\d_]")
SIMILAR_SENTENCES = ("연차 휴가는 며칠인가요?", "1년에 쓸 수 있는 휴가 일수는 15일이다.")
OTHER_SENTENCE = "서버실 출입문의 비밀번호는 분기마다 바꾼다."
MIN_MARGIN = 0.05
"""Cosine by which the similar sentence must be closer than the other one."""
RED_SQUARE = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAACAAAAAgCAIAAAD8GO2jAAAAJ0lEQVR42u3NsQkAAAjAsP7/tF7hIASyp6lTCQQC"
    "gUAgEAgEgi/BAjLD/C5w/SM9AAAAAElFTkSuQmCC"
)


class TrialVerdict(StrEnum):
    """The result of a step; a note is neither good nor bad."""

    GOOD = "good"
    NOTE = "note"
    BAD = "bad"


@dataclass(frozen=True, slots=True)
class TrialLine:
    """One step: what was tested, the result, and what it means."""

    title: str
    verdict: TrialVerdict
    text: str


@dataclass(frozen=True, slots=True)
class Trial:
    """The results of a test. `models` are those the server lists, as `{id, context_tokens}`."""

    lines: tuple[TrialLine, ...]
    models: tuple[Mapping[str, Any], ...] = ()

    @property
    def is_good(self) -> bool:
        """Whether no step is bad."""
        return not any(line.verdict is TrialVerdict.BAD for line in self.lines)


async def try_endpoint(endpoint: Endpoint, role: str = ModelRole.MAIN) -> Trial:
    """Test a server and its model in a role; without a model only its list of models."""
    bounded = replace(
        endpoint,
        first_token_timeout=FIRST_TOKEN_SECONDS,
        idle_timeout=FIRST_TOKEN_SECONDS,
        total_timeout=CALL_SECONDS,
    )
    list_line, models = await _try_list(bounded)
    if not endpoint.model:
        return Trial((list_line,), models)
    try_role = TRIALS.get(ModelRole(role), _try_chat)
    return Trial((list_line, *await try_role(bounded)), models)


# The list of models


async def _try_list(endpoint: Endpoint) -> tuple[TrialLine, tuple[Mapping[str, Any], ...]]:
    title = _("Models")
    try:
        async with asyncio.timeout(LIST_SECONDS):
            models = parse_models(await _fetch_list(endpoint))
    except _ListUnreadableError as error:
        return TrialLine(title, TrialVerdict.BAD, str(error)), ()
    except TimeoutError:
        text = _("The list of models did not come within %(seconds)s seconds.")
        return TrialLine(title, TrialVerdict.BAD, text % {"seconds": f"{LIST_SECONDS:g}"}), ()
    except (OSError, httpx2.HTTPError, httpx2.InvalidURL):
        return TrialLine(title, TrialVerdict.BAD, _("Nothing answers at this address.")), ()
    names = {str(model["id"]) for model in models}
    if not names:
        return TrialLine(title, TrialVerdict.NOTE, _("The server lists no models.")), models
    if endpoint.model and not {endpoint.model, f"{endpoint.model}:latest"} & names:
        text = _("The server lists %(count)s models, but not this one.")
        return TrialLine(title, TrialVerdict.BAD, text % {"count": len(models)}), models
    text = _("The server lists %(count)s models.") % {"count": len(models)}
    return TrialLine(title, TrialVerdict.GOOD, text), models


class _ListUnreadableError(Exception):
    """The list is unusable; the message says why."""


async def _fetch_list(endpoint: Endpoint) -> bytes:
    """The body of `/models`, at most `LIST_BYTES`; redirects are not followed."""
    headers = dict(endpoint.headers)
    if endpoint.api_key:
        headers["Authorization"] = f"Bearer {endpoint.api_key}"
    address = f"{endpoint.base_url.rstrip('/')}/models"
    client = BoundedAsyncClient(follow_redirects=False, timeout=endpoint.connect_timeout)
    async with client, client.stream("GET", address, headers=headers) as response:
        status = response.status_code
        if 300 <= status < 400:
            raise _ListUnreadableError(_explain_redirect())
        if status in {401, 403}:
            raise _ListUnreadableError(_("The server refuses the key."))
        if status != 200:
            text = _("The server answered the request for its models with error %(status)s.")
            raise _ListUnreadableError(text % {"status": status})
        body = b""
        async for part in response.aiter_bytes():
            body += part
            if len(body) > LIST_BYTES:
                raise _ListUnreadableError(_("The list of models never ends."))
        return body


def _explain_redirect() -> str:
    return _(
        "The address redirects elsewhere. Enter the final address; the key was not sent there."
    )


def parse_models(body: bytes) -> tuple[Mapping[str, Any], ...]:
    """The models in a response of `/models`. Raises `_ListUnreadableError`."""
    try:
        data = json.loads(body)["data"]
        rows = [row for row in data if isinstance(row["id"], str)][:MAX_MODELS]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise _ListUnreadableError(
            _("The server there does not speak OpenAI's protocol. Is /v1 missing?")
        ) from None
    names = ("max_model_len", "context_length", "max_context_length", "context_window")
    return tuple(
        {
            "id": row["id"][:MAX_NAME_CHARACTERS],
            "context_tokens": next(
                (
                    int(row[name])
                    for name in names
                    if isinstance(row.get(name), int) and row[name] > 0
                ),
                None,
            ),
        }
        for row in rows
    )


# A language model


async def _try_chat(endpoint: Endpoint) -> list[TrialLine]:
    lines = await _try_stream(endpoint)
    if lines[0].verdict is TrialVerdict.BAD:
        return lines
    return [
        await _try_context(endpoint),
        *lines,
        await _try_thinking(endpoint),
        await _try_tools(endpoint),
    ]


async def _try_context(endpoint: Endpoint) -> TrialLine:
    length = await find_context_length(endpoint)
    if length is None:
        text = _("The server doesn't report it. Nura keeps prompts short unless you enter it.")
        return TrialLine(_("Context length"), TrialVerdict.NOTE, text)
    text = _("%(count)s tokens") % {"count": f"{length:,}"}
    return TrialLine(_("Context length"), TrialVerdict.GOOD, text)


async def _try_stream(endpoint: Endpoint) -> list[TrialLine]:
    """Test whether the answer comes in parts and in Korean, and how fast."""
    started_at, parts = time.monotonic(), list[str]()
    first_at = last_at = math.nan
    tokens = 0
    options = GenerationOptions(max_tokens=SAMPLE_TOKENS)
    try:
        async with aclosing(OpenAILLM(endpoint).stream(_to_messages(QUESTION), options)) as pieces:
            async for piece in pieces:
                if piece.text:
                    last_at = time.monotonic()
                    first_at = last_at if math.isnan(first_at) else first_at
                    parts.append(piece.text)
                tokens = piece.usage.completion_tokens if piece.usage else tokens
    except LLMError as error:
        return [TrialLine(_("Streaming"), TrialVerdict.BAD, explain_failure(error))]
    answer = "".join(parts)
    wait = _("First word after %(seconds)s s.") % {"seconds": f"{first_at - started_at:.1f}"}
    if len(parts) > 1:
        streaming = TrialLine(_("Streaming"), TrialVerdict.GOOD, wait)
    else:
        whole = _("The answer comes in one piece: readers wait until it is complete.")
        streaming = TrialLine(_("Streaming"), TrialVerdict.NOTE, f"{whole} {wait}")
    count, duration = tokens or len(parts), last_at - first_at
    speed = []
    if len(parts) > 1 and duration > 0:
        text = _("%(count)s tokens a second") % {"count": f"{count / duration:.0f}"}
        speed.append(TrialLine(_("Speed"), TrialVerdict.GOOD, text))
    return [streaming, *speed, _judge_korean(answer)]


def _judge_korean(answer: str) -> TrialLine:
    letters = LETTERS.findall(answer)
    share = len(HANGUL.findall(answer)) / len(letters) if letters else 0.0
    sample = answer.strip()[:SAMPLE_CHARACTERS]
    if share >= 0.5:
        return TrialLine(_("Korean"), TrialVerdict.GOOD, sample)
    text = _("A Korean question was not answered in Korean: %(sample)s") % {"sample": sample}
    return TrialLine(_("Korean"), TrialVerdict.BAD, text)


async def _try_thinking(endpoint: Endpoint) -> TrialLine:
    options = GenerationOptions(max_tokens=SAMPLE_TOKENS, thinking=True)
    question = _to_messages("17 × 23 - 19는 얼마인가요? 숫자만 답하세요.")
    title = _("Thinks first")
    try:
        async with aclosing(OpenAILLM(endpoint).stream(question, options)) as pieces:
            async for piece in pieces:
                if piece.reasoning:
                    text = _("It can think before it answers if that is switched on.")
                    return TrialLine(title, TrialVerdict.GOOD, text)
    except LLMError as error:
        return TrialLine(title, TrialVerdict.NOTE, explain_failure(error))
    return TrialLine(title, TrialVerdict.NOTE, _("It shows no reasoning. Answers don't need it."))


async def _try_tools(endpoint: Endpoint) -> TrialLine:
    title = _("Tools")
    refusal = _(
        "It cannot call tools. Answers don't need them, but assistants with tools cannot use "
        "this model."
    )
    try:
        choice = await OpenAILLM(endpoint).choose(_to_messages(TOOL_QUESTION), [TOOL])
    except LLMRejected:
        return TrialLine(title, TrialVerdict.NOTE, refusal)
    except LLMError as error:
        return TrialLine(title, TrialVerdict.NOTE, explain_failure(error))
    for call in choice.calls:
        if call.name == TOOL.name and not call.error and call.arguments.get("name"):
            return TrialLine(title, TrialVerdict.GOOD, _("It calls tools."))
    return TrialLine(title, TrialVerdict.NOTE, refusal)


def _to_messages(question: str) -> list[HistoryMessage]:
    return [HistoryMessage(Speaker.USER, question)]


# The others


async def _try_vision(endpoint: Endpoint) -> list[TrialLine]:
    title = _("Pictures")
    try:
        description = await OpenAIVision(endpoint, SAMPLE_TOKENS).describe(
            RED_SQUARE, "image/png", "ko"
        )
    except LLMError as error:
        return [TrialLine(title, TrialVerdict.BAD, explain_failure(error))]
    text = description[:SAMPLE_CHARACTERS] or _("It could not describe a red square.")
    return [TrialLine(title, TrialVerdict.GOOD, text)]


async def _try_embedding(endpoint: Endpoint) -> list[TrialLine]:
    title = _("Vectors")
    try:
        vectors = await asyncio.to_thread(
            EndpointEmbedder(endpoint).embed_passages, [*SIMILAR_SENTENCES, OTHER_SENTENCE]
        )
    except EmbedderFailed as error:
        return [TrialLine(title, TrialVerdict.BAD, _explain_reader(error, endpoint))]
    size = _("%(count)s dimensions") % {"count": len(vectors[0])}
    question, near, far = vectors
    margin = sum(q * (a - b) for q, a, b in zip(question, near, far, strict=True))
    if margin >= MIN_MARGIN:
        korean = TrialLine(
            _("Korean"),
            TrialVerdict.GOOD,
            _("Korean sentences with the same meaning are close to each other."),
        )
    else:
        text = _(
            "It cannot tell Korean sentences apart, so Korean search would rely on words alone."
        )
        korean = TrialLine(_("Korean"), TrialVerdict.BAD, text)
    return [TrialLine(title, TrialVerdict.GOOD, size), korean]


async def _try_reranker(endpoint: Endpoint) -> list[TrialLine]:
    title = _("Ranking")
    hits = [
        _to_hit(place, text) for place, text in enumerate((OTHER_SENTENCE, SIMILAR_SENTENCES[1]))
    ]
    try:
        ranked = await asyncio.to_thread(
            EndpointReranker(endpoint).rerank, SIMILAR_SENTENCES[0], hits, 2
        )
    except EngineUnavailable as error:
        return [TrialLine(title, TrialVerdict.BAD, _explain_reader(error, endpoint))]
    if ranked and ranked[0].passage.text == SIMILAR_SENTENCES[1]:
        return [
            TrialLine(title, TrialVerdict.GOOD, _("It puts the Korean passage that answers first."))
        ]
    text = _("It puts a Korean passage that does not answer first.")
    return [TrialLine(title, TrialVerdict.BAD, text)]


async def _try_verifier(endpoint: Endpoint) -> list[TrialLine]:
    title = _("Checking")
    pairs = [
        (SIMILAR_SENTENCES[1], "휴가는 1년에 15일이다."),
        (SIMILAR_SENTENCES[1], "휴가는 1년에 40일이다."),
    ]
    try:
        supported, unsupported = await asyncio.to_thread(EndpointVerifier(endpoint).infer, pairs)
    except (EngineUnavailable, ValueError) as error:
        return [TrialLine(title, TrialVerdict.BAD, _explain_reader(error, endpoint))]
    if supported.entailment > unsupported.entailment:
        text = _("It can tell a supported Korean sentence from an unsupported one.")
        return [TrialLine(title, TrialVerdict.GOOD, text)]
    text = _("It cannot tell a supported Korean sentence from an unsupported one.")
    return [TrialLine(title, TrialVerdict.BAD, text)]


TRIALS = {
    ModelRole.VISION: _try_vision,
    ModelRole.EMBEDDING: _try_embedding,
    ModelRole.RERANKER: _try_reranker,
    ModelRole.VERIFIER: _try_verifier,
}
"""By role; the others are language models."""


# Why not


def explain_failure(error: LLMError) -> str:
    """The failure in words for an administrator, with the server's own words if it refused."""
    status = error.params.get("status")
    if isinstance(status, int) and 300 <= status < 400:
        return _explain_redirect()
    for kind, text in _list_reasons():
        if isinstance(error, kind):
            return text % {"detail": str(error), "seconds": f"{FIRST_TOKEN_SECONDS:g}"}
    return _("The connection broke off: %(detail)s") % {"detail": str(error)}


def _list_reasons() -> Sequence[tuple[type[LLMError], str]]:
    return (
        (LLMUnreachable, _("Nothing answers at this address.")),
        (LLMUnavailable, _("The server failed several times just now. Try again in a moment.")),
        (LLMTimeout, _("No answer came within %(seconds)s seconds.")),
        (LLMUnauthorized, _("The server refuses the key.")),
        (LLMRateLimited, _("The server is busy, or the quota of the key is used up.")),
        (LLMEmptyAnswer, _("The model's answer was empty.")),
        (LLMRejected, _("The server refuses the request: %(detail)s")),
        (LLMServerError, _("The server reports an error: %(detail)s")),
    )


def _explain_reader(error: Exception, endpoint: Endpoint) -> str:
    """The cause of a failure of an embedder, a reranker or a verifier, in words."""
    cause = error.__cause__
    if cause is None:
        return _("The server's reply has an unexpected format: %(detail)s") % {"detail": str(error)}
    if not isinstance(cause, Exception):
        raise error
    return explain_failure(to_llm_error(cause, started=False, secrets=endpoint.secrets))


def _to_hit(place: int, text: str) -> Hit:
    passage = Passage(place, UUID(int=place), "", place, text, page=None, page_end=None, section="")
    return Hit(passage, 0.0)
