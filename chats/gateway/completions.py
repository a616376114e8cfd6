"""Chat completions: begin an answer, stored in a chat or not at all, and pass its events on.

Programs that use the gateway keep their own copy of a conversation and send all of it with every
question. From that we find the stored branch that the question continues.

When a client hangs up or its key becomes invalid, the run is stopped, and so is the request to the
language model.
"""

import asyncio
import json
import time
import unicodedata
from collections.abc import AsyncGenerator, Collection, Iterator, Mapping, Sequence
from contextlib import aclosing, contextmanager
from dataclasses import asdict, dataclass
from typing import Any
from uuid import UUID

import structlog
from django.contrib.auth.models import User
from django.db import models, transaction
from django.db.models import F, Func, Value
from django.utils.translation import get_language
from rest_framework.exceptions import AuthenticationFailed

from chats import access
from chats.access import Credential
from chats.errors import NotFound, OneAnswerOnly, Unavailable
from chats.gateway import catalogue
from chats.gateway.catalogue import AskableModel
from chats.gateway.schemas import (
    AskedQuestion,
    ChatKey,
    CompletionRequest,
    ErrorReply,
    Reply,
    read_chat_key,
    read_question,
)
from chats.models import Assistant, Chat, Message
from chats.models.chat import make_title
from chats.runs import dispatch, log, reader
from chats.runs.log import RunEvent
from chats.services.assistants import apply_temperature, choose_model
from chats.services.chats import check_tokens, count_question, find_documents, touch_chat
from chats.services.turns import (
    DEFAULT_SAMPLING,
    OpenedTurn,
    clean_content,
    make_question,
    open_answer,
)
from documents.libraries import find_libraries
from documents.models import Document
from jobs.connections import in_database
from rag.conversation import Sampling
from rag.types import HistoryMessage, Scope, ScopeReason, Speaker

JOB = "X-OpenWebUI-Task"
ROLES = {"user": Speaker.USER, "assistant": Speaker.ASSISTANT} | dict.fromkeys(
    ("system", "developer"), Speaker.SYSTEM
)
"""Roles read in a background task of Open WebUI; messages with other roles are left out."""


@dataclass(frozen=True, slots=True)
class PendingAnswer:
    """An answer being written; `chat_id` is None if it is not stored."""

    run_id: UUID
    model: str
    chat_id: UUID | None = None

    def stream_events(self) -> AsyncGenerator[RunEvent | None, None]:
        """Stream the events up to the last one; None: nothing happened for a while."""
        follow = dispatch.follow_request if self.chat_id is None else reader.follow_run
        return follow(self.run_id)


def begin_answer(
    user: User, headers: Mapping[str, str], body: CompletionRequest, *, asked_with: str = ""
) -> PendingAnswer:
    """Begin the answer to a request; `asked_with` is the digest of its key.

    Raises `ModelNotFound`, `ModelNotAllowed`, `NoQuestion`, `TooLong`, `OneAnswerOnly`,
    `WrongChatId`, `EmptyMessage`, `QuotaMessages`, `QuotaTokens`, `Unavailable`.
    """
    if (body.n or 1) != 1:
        raise OneAnswerOnly
    model = catalogue.find_model(user, body.model)
    if job := headers.get(JOB, ""):
        return PendingAnswer(_begin_job(user, job, body), model.id)
    asked = read_question(body.messages)
    key = read_chat_key(headers, body.metadata)
    if key is None:
        return PendingAnswer(_begin_unstored(user, model, asked, body), model.id)
    return _begin_in_chat(user, model, asked, body, key, asked_with)


def _begin_in_chat(  # noqa: PLR0913, PLR0917 - what `begin_answer` knows
    user: User,
    model: AskableModel,
    asked: AskedQuestion,
    body: CompletionRequest,
    key: ChatKey,
    asked_with: str,
) -> PendingAnswer:
    has_documents = model.reason is ScopeReason.EXPLICIT and model.library_id is None
    turn = ask_in_chat(
        user=user,
        key=key.value,
        content=asked.question,
        place=ChatPosition(asked.last_answer, asked.last_question, key.sends_whole_conversation),
        document_ids=model.scope.document_ids if has_documents else (),
        library_ids=[model.library_id] if model.library_id else (),
        language=get_language() or "ko",
        sampling=body.sampling,
        asked_with=asked_with,
        memory=bool(body.use_memory),
        model=model.language_model,
        assistant=model.assistant,
    )
    return PendingAnswer(turn.run.pk, model.id, turn.user_message.chat_id)


def _begin_unstored(
    user: User, model: AskableModel, asked: AskedQuestion, body: CompletionRequest
) -> UUID:
    return send_question(
        user,
        asked.question,
        model.scope,
        history=asked.history,
        sampling=apply_temperature(body.sampling, model.assistant),
        model=model.language_model
        or (choose_model(model.assistant, user) if model.assistant else ""),
        assistant=model.assistant,
    )


def send_question(  # noqa: PLR0913 - the parts of a question, by name
    user: User,
    question: str,
    scope: Scope,
    *,
    history: Sequence[HistoryMessage] = (),
    sampling: Sampling = DEFAULT_SAMPLING,
    model: str = "",
    assistant: Assistant | None = None,
) -> UUID:
    """Ask a question without storing it or its answer; returns the id of the answer's log.

    `model` is the id of the language model. Raises `QuotaMessages`, `QuotaTokens`, `Unavailable`.
    """
    request = {
        "user_id": user.pk,
        "question": question,
        "history": [{"role": message.role, "content": message.content} for message in history],
        "document_ids": [str(pk) for pk in scope.document_ids],
        "reason": scope.reason,
        "sampling": asdict(sampling),
        "model": model,
        "assistant_id": str(assistant.pk) if assistant else None,
    }
    with transaction.atomic():  # a question that cannot be sent to a worker is not counted
        count_question(user.pk)
        return dispatch.send_request("question", request)


def _begin_job(user: User, job: str, body: CompletionRequest) -> UUID:
    check_tokens(user.pk)
    messages = [
        {"role": ROLES[message.role], "content": message.text}
        for message in body.messages
        if message.role in ROLES and message.text
    ]
    return dispatch.send_request(
        "job",
        {"user_id": user.pk, "job": job, "messages": messages, "sampling": asdict(body.sampling)},
    )


@dataclass(frozen=True, slots=True)
class ChatPosition:
    """The place of a question in its conversation, according to the program that sent it.

    `answer` is the text of the answer before it, None if there is none, and `question` the question
    that it answers. With `sends_whole_conversation`, no answer means that the conversation begins.
    """

    answer: str | None = None
    question: str = ""
    sends_whole_conversation: bool = False


@transaction.atomic
def ask_in_chat(  # noqa: PLR0913 - the parts of a question, by name
    *,
    user: User,
    key: str,
    content: str,
    place: ChatPosition,
    document_ids: Collection[UUID],
    library_ids: Collection[UUID] = (),
    language: str,
    sampling: Sampling,
    asked_with: str = "",
    memory: bool = False,
    model: str = "",
    assistant: Assistant | None = None,
) -> OpenedTurn:
    """Store a question in the chat named `key`, created with its first one, and begin its answer.

    If the same question is stored at that place already, it gets another answer. Raises `NotFound`,
    `EmptyMessage`.
    """
    text = clean_content(content)
    documents = find_documents(owner=user, document_ids=document_ids)
    chat, is_new = find_or_create_chat(user=user, key=key, title=make_title(text))
    parent_id = None if is_new else _find_parent(chat, place)
    libraries = find_libraries(user=user, library_ids=library_ids)
    earlier = None if is_new else _find_asked_before(chat, parent_id, text, documents, libraries)
    return open_answer(
        chat=chat,
        question=earlier or make_question(chat, parent_id, text, libraries),
        documents=None if earlier else documents,
        language=language,
        sampling=sampling,
        asked_with=asked_with,
        memory=memory,
        model=model,
        assistant=assistant,
    )


def find_or_create_chat(*, user: User, key: str, title: str) -> tuple[Chat, bool]:
    """The user's chat with this id, else the one that a program named so; True if it is new.

    Its row is locked. A deleted chat gives up its name.
    """
    own_id = _to_uuid(key)
    if chat := touch_chat(user, own_id, external_id=key):
        return chat, False
    Chat.objects.filter(owner=user, external_id=key).exclude(deleted_at=None).update(external_id="")
    created, is_new = Chat.objects.get_or_create(
        owner=user, external_id=key, defaults={"title": title}
    )
    if is_new:
        created.has_documents = False
        return created, True
    chat = touch_chat(user, created.pk)  # another request has just created it
    if chat is None:
        raise NotFound
    return chat, False


def _to_uuid(text: str) -> UUID | None:
    try:
        return UUID(text)
    except ValueError:
        return None


def _find_parent(chat: Chat, place: ChatPosition) -> UUID | None:
    """The message that the question follows; None at the beginning of a chat."""
    if place.answer is None and place.sends_whole_conversation:
        return None
    messages = Message.objects.filter(chat=chat).order_by("-created_at", "-id")
    return _find_answer(messages, place) or messages.values_list("pk", flat=True).first()


def _find_answer(messages: models.QuerySet[Message], place: ChatPosition) -> UUID | None:
    """The newest answer with the text that was sent, preferably to the same question."""
    if place.answer is None:
        return None
    answers = messages.filter(role=Message.Role.ASSISTANT).annotate(
        bare=_build_trimmed("content"), asked=_build_trimmed("parent__content")
    )
    matching = answers.filter(bare=place.answer.strip()).values_list("pk", flat=True)
    question = unicodedata.normalize("NFC", place.question).strip()
    return matching.filter(asked=question).first() or matching.first()


def _build_trimmed(field: str) -> Func:
    blanks = Value(" \t\r\n")
    return Func(F(field), blanks, function="BTRIM", output_field=models.TextField())


def _find_asked_before(
    chat: Chat,
    parent_id: UUID | None,
    text: str,
    documents: list[Document],
    library_ids: list[UUID],
) -> Message | None:
    """The same question, stored at the same place for the same documents and libraries."""
    candidates = Message.objects.filter(
        chat=chat,
        parent_id=parent_id,
        role=Message.Role.USER,
        content=text,
        library_ids=library_ids or None,
    ).order_by("-created_at", "-id")
    document_ids = {document.pk for document in documents}
    for question in candidates.prefetch_related("document_links"):
        if {link.document_id for link in question.document_links.all()} == document_ids:
            return question
    return None


logger = structlog.get_logger()

HEARTBEAT_SECONDS = 8.0
"""A comment is due after this much silence; the clock is checked up to 2 s later."""
HEARTBEAT = b": still here\n\n"
DONE = b"data: [DONE]\n\n"
WORDS = log.FLOWING | log.TERMINAL | {log.REPLACE}
"""Events that give a client something to read."""


async def wait_for_last_event(opened: PendingAnswer, credential: Credential) -> RunEvent:
    """Wait for the end of the answer; the run is stopped if the wait is cancelled.

    Raises `AuthenticationFailed` if the credential becomes invalid first.
    """
    with stop_unless_ended(opened.run_id) as ended:
        async with aclosing(_stream_events_of(opened, credential)) as events:
            async for event in events:
                if event is not None and event.terminal:
                    ended.append(event)
                    return event
    raise AuthenticationFailed


class Stream:
    """The server-sent events of one answer, while its credential is valid."""

    def __init__(self, opened: PendingAnswer, credential: Credential, *, usage: bool) -> None:
        self._opened = opened
        self._reply = Reply(opened)
        self._usage = usage
        self._events = _stream_events_of(opened, credential)
        self._early: list[RunEvent] = []
        self._around = {name: self._split_chunk(name) for name in ("content", "reasoning_content")}
        self._said: list[str] = []
        """The parts of the answer streamed so far, as JSON strings."""
        self._spoke = time.monotonic()

    async def wait_for_first_words(self) -> ErrorReply | None:
        """Wait for the first words, or until a heartbeat is due; returns an error that came first.

        Raises `AuthenticationFailed` if the credential becomes invalid first.
        """
        with stop_unless_ended(self._opened.run_id) as ended:
            async for event in self._events:
                if event is not None and event.type in WORDS:
                    self._early.append(event)
                    break
                if self._is_late():
                    break
            else:
                raise AuthenticationFailed
            ended.append(True)  # from here on `stream_frames` stops the run
        first = self._early[0] if self._early else None
        if first is None or first.type != log.ERROR:
            return None
        await self._events.aclose()
        return ErrorReply.from_event_data(first.data)

    async def stream_frames(self) -> AsyncGenerator[bytes, None]:
        """Stream all frames; those that are ready together are sent in one piece."""
        opening = self._make_frame(self._reply.to_delta_chunk({"role": "assistant", "content": ""}))
        with stop_unless_ended(self._opened.run_id) as ended:
            if not self._early:
                yield opening
                opening = b""
            async with aclosing(self._stream_events()) as events:
                async for event in events:
                    if event is not None and event.terminal:
                        ended.append(event)
                        yield opening + b"".join(self._list_end_frames(event))
                        return
                    if event is not None and event.type in WORDS:
                        yield opening + self._make_text_chunk(event)
                        opening = b""
                    elif self._is_late():
                        self._spoke = time.monotonic()
                        yield HEARTBEAT

    async def _stream_events(self) -> AsyncGenerator[RunEvent | None, None]:
        for early in self._early:
            yield early
        async with aclosing(self._events) as events:
            async for event in events:
                yield event

    def _is_late(self) -> bool:
        return time.monotonic() - self._spoke >= HEARTBEAT_SECONDS

    def _make_text_chunk(self, event: RunEvent) -> bytes:
        """A chunk with the text of an event, passed on as JSON without parsing it."""
        name, text = "content", log.find_text_json(event.encoded)
        if event.type == log.REASONING:
            name = "reasoning_content"
        elif event.type == log.REPLACE:  # what was sent cannot be taken back, only continued
            whole, streamed = json.loads(text), self._read_streamed()
            text = log.to_json(whole[len(streamed) :] if whole.startswith(streamed) else "")
        if text == '""':
            return b""
        if name == "content":
            self._said.append(text)
        self._spoke = time.monotonic()
        opening, closing = self._around[name]
        return f"{opening}{text}{closing}".encode()

    def _split_chunk(self, name: str) -> tuple[str, str]:
        """The JSON before and after the text of a chunk, the same in all chunks."""
        chunk = log.to_json(self._reply.to_delta_chunk({name: ""}))
        opening, closing = chunk.split(f'"{name}": ""')
        return f'data: {opening}"{name}": ', f"{closing}\n\n"

    def _read_streamed(self) -> str:
        return "".join(map(json.loads, self._said))

    def _list_end_frames(self, event: RunEvent) -> Iterator[bytes]:
        if event.type == log.ERROR:
            yield self._make_frame(ErrorReply.from_event_data(event.data).body)
        else:
            message = event.data.get("message", {})
            yield self._make_frame(self._reply.to_last_chunk(message, self._read_streamed()))
            if self._usage:
                yield self._make_frame(self._reply.to_usage_chunk(message))
        yield DONE

    def _make_frame(self, data: Any) -> bytes:
        self._spoke = time.monotonic()
        return f"data: {log.to_json(data)}\n\n".encode()


async def _stream_events_of(
    opened: PendingAnswer, credential: Credential
) -> AsyncGenerator[RunEvent | None, None]:
    """All events; if the credential becomes invalid first, the run is stopped and the rest dropped.

    The run may notice that first and end as stopped; then that event is dropped, too.
    """
    events = access.stream_while_held(
        credential, opened.stream_events(), lambda: stop_soon(opened.run_id)
    )
    async with aclosing(events):
        async for event in events:
            if event is not None and event.type == log.STOPPED:
                (holder,) = await in_database(access.find_principals, [credential])
                if holder is None:
                    return
            yield event


@contextmanager
def stop_unless_ended(run_id: UUID) -> Iterator[list[Any]]:
    """Stop the run unless the block has added something to the yielded list."""
    ended: list[Any] = []
    try:
        yield ended
    finally:
        if not ended:
            stop_soon(run_id)


def stop_soon(run_id: UUID) -> None:
    """Request the run's stop in a thread, without waiting: the client has hung up."""
    asyncio.get_running_loop().run_in_executor(None, _stop, run_id)


def _stop(run_id: UUID) -> None:
    try:
        log.request_stop(run_id)
    except Unavailable as error:
        logger.warning("stop_not_asked", run_id=str(run_id), error=str(error)[:200])
