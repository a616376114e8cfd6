"""Requests that leave no row: a worker's side of `chats.runs.dispatch.send_request`.

A question without a chat, a side job of a client, texts to embed, a search. The result goes to a
log that a web process reads while it is written, and that is deleted soon after.
"""

import asyncio
import json
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import asdict
from typing import Any
from uuid import UUID

import structlog
from django.contrib.auth.models import User
from django.utils.translation import override

from chats import access
from chats.errors import NotFound, explain_notice
from chats.gateway import vectors
from chats.history import read_conversation
from chats.models.chat import make_title
from chats.runs import log
from chats.runs.writer import RunWriter
from chats.serializers import to_sources_json
from chats.services import search
from chats.services.assistants import find_assistant, to_persona
from chats.services.chats import add_tokens
from chats.services.turns import list_readable_documents
from documents import spaces
from documents.connected.choice import choose_config
from documents.errors import explain_code
from documents.search.store import ReleasingStore, ScopedStore
from jobs.connections import ANYBODY, KeptQuery, in_database
from rag.config import RagConfig
from rag.conversation import MemoryHistory, Persona, Question, Sampling
from rag.errors import NuraError
from rag.events import ANSWER_CUT, Delta, Finished, Reasoning, Replaced
from rag.factory import Engine, get_engine
from rag.ports import LLM, GenerationOptions, Usage
from rag.types import HistoryMessage, Scope, ScopeReason, Speaker

_FIRST_USER_LINE = re.compile(r"^(?:#+ *)?USER:\s*(.+)$", re.MULTILINE | re.IGNORECASE)
_EMPTY_REPLIES: Mapping[str, dict[str, Any]] = {
    "tags_generation": {"tags": []},
    "follow_up_generation": {"follow_ups": []},
    "query_generation": {"queries": []},
    "autocomplete_generation": {"text": ""},
    "image_prompt_generation": {"prompt": ""},
}
"""What clients take for "nothing to say", by job."""


async def run_side_job(request: dict[str, Any], say: Callable[[str, Any], None]) -> dict[str, Any]:
    """Run a side job with the light model, else the main one, else without any.

    Raises `LLMError`.
    """
    used = await in_database(spaces.get_space_in_use)
    messages = [HistoryMessage(Speaker(one["role"]), one["content"]) for one in request["messages"]]
    llm = _choose_job_model(get_engine(used.config))
    if llm is None:
        text = answer_without_model(request["job"], messages)
        say(log.DELTA, {"text": text})
        return {"message": {"content": text}}
    sampling = Sampling.from_stored(request["sampling"])
    defaults = GenerationOptions(used.config.temperature, used.config.max_tokens)
    message = await _ask_model(llm, messages, defaults.with_sampling(sampling), say)
    await in_database(add_tokens, request["user_id"], message["usage"])
    return {"message": message}


async def _ask_model(
    llm: LLM,
    turns: Sequence[HistoryMessage],
    options: GenerationOptions,
    say: Callable[[str, Any], None],
) -> dict[str, Any]:
    parts: list[str] = []
    usage: Usage | None = None
    is_cut = False
    async with aclosing(llm.stream(turns, options)) as pieces:
        async for piece in pieces:
            usage = piece.usage or usage
            is_cut = is_cut or piece.finish_reason == "length"
            if piece.text:
                parts.append(piece.text)
                say(log.DELTA, {"text": piece.text})
    return {
        "content": "".join(parts),
        "usage": asdict(usage) if usage else None,
        "notices": [{"code": ANSWER_CUT, "detail": explain_notice(ANSWER_CUT)}] if is_cut else [],
    }


def _choose_job_model(engine: Engine) -> LLM | None:
    if engine.light:
        return engine.light.llm
    writer = engine.pipeline.writer
    return writer.llm if writer else None


def answer_without_model(job: str, messages: Sequence[HistoryMessage]) -> str:
    """A reply without a model: the first question as a title, and nothing for all else."""
    if job != "title_generation":
        return json.dumps(_EMPTY_REPLIES[job]) if job in _EMPTY_REPLIES else ""
    question = next((m.content for m in reversed(messages) if m.role == Speaker.USER), "")
    match = _FIRST_USER_LINE.search(question)
    title = make_title(" ".join((match[1] if match else question).split()))
    return json.dumps({"title": title}, ensure_ascii=False)


logger = structlog.get_logger()

ALIVE = "alive"
"""The event that says that the worker is alive; it has no data."""
BEAT_SECONDS = 3.0
KEPT_SECONDS = 60
"""How long a log is kept that nobody reads to its end."""

Say = Callable[[str, Any], None]
"""Writes an event."""


async def answer_request(request_id: UUID, request: dict[str, Any]) -> None:
    """Do the work into the log of `request_id`, and nowhere else."""
    with structlog.contextvars.bound_contextvars(run_id=str(request_id)):
        writer = RunWriter(request_id, closed_seconds=KEPT_SECONDS)
        writer.begin()
        work = asyncio.create_task(_do_work(request, writer.add))
        beats = asyncio.create_task(_send_heartbeats(writer))
        try:
            await log.wait_unless_stopped(request_id, work)
            beats.cancel()
            writer.add(*((log.STOPPED, {}) if work.cancelled() else work.result()))
            await writer.close()
        finally:
            beats.cancel()
            await writer.abandon()


async def _send_heartbeats(writer: RunWriter) -> None:
    """Send heartbeats while the work is silent, so that the reader knows the worker is alive."""
    while True:
        await asyncio.sleep(BEAT_SECONDS)
        writer.add(ALIVE, {})


async def _do_work(request: dict[str, Any], say: Say) -> tuple[str, dict[str, Any]]:
    try:
        return log.COMPLETED, await WORK[request["kind"]](request, say)
    except NuraError as error:
        logger.warning("stateless_work_failed", code=error.code, error=str(error)[:300])
        return log.ERROR, describe_failure(error, request["language"])
    except Exception:  # whatever it was: the reader must learn that it ended
        logger.exception("stateless_work_failed")
        return log.ERROR, describe_failure(NuraError(), request["language"])


def describe_failure(error: NuraError, language: str) -> dict[str, Any]:
    """Data of the last event of work that failed."""
    with override(language):
        detail = explain_code(error.code, error.params)
    return {"code": error.code, "detail": detail}


async def _answer_question(request: dict[str, Any], say: Say) -> dict[str, Any]:
    """Answer a question whose history came with it."""
    question, store, config, libraries = await in_database(_load_question, request)
    if not libraries:
        return await _stream_answer(question, store, config, request, say)
    closed = asyncio.create_task(access.wait_until_any_closed(request["user_id"], libraries))
    answer = asyncio.create_task(_stream_answer(question, store, config, request, say))
    try:
        await asyncio.wait([closed, answer], return_when=asyncio.FIRST_COMPLETED)
        if not answer.done():  # he may no longer read a library
            raise NotFound
        return answer.result()
    finally:
        for task in (closed, answer):
            task.cancel()
        await asyncio.gather(closed, answer, return_exceptions=True)


async def _stream_answer(
    question: Question,
    store: ReleasingStore,
    config: RagConfig,
    request: Mapping[str, Any],
    say: Say,
) -> dict[str, Any]:
    finished: Finished | None = None
    answer_parts: list[str] = []
    reasoning_parts: list[str] = []
    history = MemoryHistory(question.conversation.turns)
    async with aclosing(get_engine(config).answer(question, store, history)) as events:
        async for event in events:
            match event:
                case Delta():
                    answer_parts.append(event.text)
                    say(log.DELTA, {"text": event.text})
                case Reasoning():
                    reasoning_parts.append(event.text)
                    say(log.REASONING, {"text": event.text})
                case Replaced():
                    answer_parts = [event.text]
                    say(log.REPLACE, {"text": event.text})
                case Finished():
                    finished = event
    fields = _to_message(finished, request["language"]) if finished else {}
    await in_database(add_tokens, request["user_id"], fields.get("usage"))
    if fields.get("usage") and config.llm:
        fields["usage"]["model"] = config.llm.model
    return {
        "message": {
            "content": "".join(answer_parts),
            "reasoning": "".join(reasoning_parts),
            **fields,
        }
    }


def _to_message(finished: Finished, language: str) -> dict[str, Any]:
    """An answer's fields as our own messages have them."""
    sources = finished.sources
    with override(language):
        notices = [{"code": code, "detail": explain_notice(code)} for code in finished.notices]
    return {
        "mode": finished.mode,
        "label": finished.label,
        "sources": None if sources is None else to_sources_json(sources),
        "usage": asdict(finished.usage) if finished.usage else None,
        "notices": notices,
    }


_active_user = KeptQuery(lambda pk: User.objects.filter(pk=pk, is_active=True), ANYBODY)


def _load_question(
    request: Mapping[str, Any],
) -> tuple[Question, ReleasingStore, RagConfig, set[UUID]]:
    """The question over those of its documents that its user may still read, and their libraries.

    Raises `NotFound` when the user is gone, `ModelNotAllowed`.
    """
    user = next(iter(_active_user.fetch(request["user_id"])), None)
    if user is None:
        raise NotFound
    used = spaces.get_space_in_use()
    readable = list_readable_documents(user.pk, [UUID(pk) for pk in request["document_ids"]])
    ids, libraries = tuple(readable), {pk for pk in readable.values() if pk is not None}
    question = Question(
        text=request["question"],
        scope=Scope(ids, ScopeReason(request["reason"])),
        conversation=read_conversation(request["history"]),
        sampling=Sampling.from_stored(request["sampling"]),
        persona=_find_persona(user, request.get("assistant_id")),
    )
    config = choose_config(used.config, user, request.get("model", ""))
    return question, ReleasingStore(ScopedStore(ids, space=used.space)), config, libraries


def _find_persona(user: User, assistant_id: str | None) -> Persona | None:
    """The assistant that is asked. Raises `NotFound` if the user may no longer use it."""
    key = UUID(assistant_id) if assistant_id else None
    assistant = find_assistant(user=user, assistant_id=key)
    return to_persona(assistant) if assistant else None


async def _search(request: dict[str, Any], _say: Say) -> dict[str, Any]:
    """Search for a web process that waits for the result."""
    return await in_database(search.run_search, request)


WORK: Mapping[str, Callable[[dict[str, Any], Say], Awaitable[dict[str, Any]]]] = {
    "question": _answer_question,
    "job": run_side_job,
    "embed": vectors.embed_request,
    "search": _search,
}
"""What can be asked for, by the `kind` of a request."""
