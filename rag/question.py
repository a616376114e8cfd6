"""What is asked of the engine."""

from dataclasses import dataclass, field

from rag.conversation import Conversation
from rag.pieces import Sampling
from rag.types import Scope, Topic


@dataclass(frozen=True, slots=True)
class Question:
    """One question with everything the engine may know about its conversation.

    The store that comes with it holds the documents of `scope` and of `conversation.readable`.
    """

    text: str
    scope: Scope
    conversation: Conversation = field(default_factory=Conversation)
    topic: Topic = Topic.AUTO
    history_pairs: int | None = None
    """Pairs of the history that may be read; None: as configured."""
    sampling: Sampling = field(default_factory=Sampling)
