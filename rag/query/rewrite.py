"""From a follow-up to a question that stands alone."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from rag.conversation import Conversation
from rag.query.classify import Verdict


@dataclass(frozen=True, slots=True)
class Standalone:
    """A question as it is searched.

    `text` is shown and embedded; `context` are lexical terms of the conversation with what they
    weigh beside the text's own. `by` is "" (as asked), "terms" or "light_llm".
    """

    text: str
    context: Mapping[str, float] = field(default_factory=dict)
    by: str = ""


def standalone(text: str, conversation: Conversation, verdict: Verdict) -> Standalone:
    """The question with what it lacks from the conversation; as it is, unless it follows."""
    del conversation, verdict
    return Standalone(text)
