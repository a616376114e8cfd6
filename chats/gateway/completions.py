"""Opening what a request asks for: a turn of a chat, an answer that is stored nowhere, a job."""

from collections.abc import AsyncGenerator, Mapping
from dataclasses import asdict, dataclass
from uuid import UUID

from django.contrib.auth.models import User
from django.db import transaction
from django.utils.translation import get_language

from chats.errors import OneAnswerOnly
from chats.gateway import catalogue, chat_keys, spoken, unstored
from chats.gateway.catalogue import Model
from chats.gateway.chat_keys import ChatKey
from chats.gateway.schemas import ChatRequest
from chats.gateway.spoken import Spoken
from chats.runs import reader
from chats.runs.log import RunEvent
from chats.services import gateway_chats
from chats.services.chats import count_question
from chats.services.gateway_chats import Place
from rag.types import Role, ScopeReason

JOB = "X-OpenWebUI-Task"
ROLES = {"user": Role.USER, "assistant": Role.ASSISTANT} | dict.fromkeys(
    ("system", "developer"), Role.SYSTEM
)
"""Who speaks in a job; messages of others are left out."""


@dataclass(frozen=True, slots=True)
class Opened:
    """An answer on its way; `chat_id` is None where it is stored nowhere."""

    run_id: UUID
    model: str
    chat_id: UUID | None = None

    async def events(self) -> AsyncGenerator[RunEvent | None, None]:
        """What happens up to the last event; None: nothing for a while."""
        way = unstored.follow if self.chat_id is None else reader.follow_run
        async for event in way(self.run_id):
            yield event


def begin(user: User, headers: Mapping[str, str], body: ChatRequest) -> Opened:
    """Begin the answer to a request.

    Raises `ModelNotFound`, `NoQuestion`, `TooLong`, `OneAnswerOnly`, `WrongChatId`, `EmptyMessage`,
    `QuotaMessages`, `Unavailable`.
    """
    if (body.n or 1) != 1:
        raise OneAnswerOnly
    model = catalogue.find(user, body.model)
    if job := headers.get(JOB, ""):
        return Opened(_job(job, body), model.id)
    said = spoken.read(body.messages)
    key = chat_keys.of(headers, body.metadata)
    if key is None:
        return Opened(_unstored(user, model, said, body), model.id)
    return _in_chat(user, model, said, body, key)


def _in_chat(user: User, model: Model, said: Spoken, body: ChatRequest, key: ChatKey) -> Opened:
    named = model.scope.reason is ScopeReason.EXPLICIT
    turn = gateway_chats.ask(
        user=user,
        key=key.value,
        content=said.question,
        place=Place(said.last_answer, said.last_question, key.whole),
        document_ids=model.scope.document_ids if named else (),
        language=get_language() or "ko",
        sampling=body.sampling,
    )
    return Opened(turn.run.pk, model.id, turn.user_message.chat_id)


def _unstored(user: User, model: Model, said: Spoken, body: ChatRequest) -> UUID:
    request = {
        "user_id": user.pk,
        "question": said.question,
        "history": [{"role": one.role, "content": one.content} for one in said.history],
        "document_ids": [str(pk) for pk in model.scope.document_ids],
        "reason": model.scope.reason,
        "sampling": asdict(body.sampling),
    }
    with transaction.atomic():  # a question that no worker can be given is not counted
        count_question(user.pk)
        return unstored.begin("question", request)


def _job(job: str, body: ChatRequest) -> UUID:
    told = [
        {"role": ROLES[message.role], "content": message.text}
        for message in body.messages
        if message.role in ROLES and message.text
    ]
    return unstored.begin("job", {"job": job, "messages": told, "sampling": asdict(body.sampling)})
