"""The question of a run with everything that the engine may know about its conversation."""

from dataclasses import dataclass, replace
from uuid import UUID

from django.conf import settings

from chats.errors import RunLost
from chats.history import Branch, BranchHistory, load_conversation
from chats.models import Chat, Run
from documents import spaces
from documents.search.store import ScopedStore
from rag.config import RagConfig
from rag.conversation import Memory, Question, Sampling
from rag.factory import model_name
from rag.types import Scope, ScopeReason, Topic


@dataclass(frozen=True, slots=True)
class Loaded:
    """A question, its two stores, and the configuration that goes with the vectors in them."""

    question: Question
    store: ScopedStore
    history: BranchHistory
    config: RagConfig


def load(run_id: UUID) -> Loaded:
    """The question of a run, with the scope that was fixed when it was asked.

    Raises `RunLost` for a run without a question.
    """
    rows = Run.objects.select_related("message__parent", "message__chat__owner")
    run = rows.get(pk=run_id)
    message = run.message
    if message.parent is None or message.scope is None:
        raise RunLost
    chat = message.parent.chat = message.chat
    used = spaces.get_space_in_use()
    branch = Branch.to_message(message.parent)
    pairs = window(chat)
    topic = Topic(message.scope.get("topic", Topic.AUTO))
    known = load_conversation(branch, pairs=pairs)
    if topic is Topic.NEW:
        known = replace(known, memory=Memory())
    ids = tuple(UUID(pk) for pk in message.scope["document_ids"])
    return Loaded(
        question=Question(
            text=message.parent.content,
            scope=Scope(ids, ScopeReason(message.scope["reason"])),
            conversation=known,
            topic=topic,
            history_pairs=pairs,
            sampling=Sampling.read(run.sampling),
        ),
        store=ScopedStore([*dict.fromkeys((*ids, *known.readable))], space=used.space),
        history=BranchHistory(branch, embedding=model_name(used.config)),
        config=used.config,
    )


def window(chat: Chat) -> int:
    """Pairs of a chat's history that may be read: its own number, else everybody's."""
    return settings.RAG.history_pairs if chat.history_pairs is None else chat.history_pairs
