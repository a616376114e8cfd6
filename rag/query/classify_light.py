"""The light model's word on a question's kind; the rules' verdict where it has none."""

import logging
from collections.abc import Mapping
from dataclasses import replace

from rag import prompts
from rag.conversation import Conversation
from rag.errors import LLMError
from rag.language import reply_language
from rag.llms.light import BadReply, Light
from rag.neutral import neutralise
from rag.query.classify import Verdict, bound
from rag.types import QuestionType, Topic

log = logging.getLogger(__name__)

TURNS = 2
CHARACTERS = 300
"""Of each message of the conversation."""
QUESTION_CHARACTERS = 1000
TOKENS = 60
CERTAINTY = 0.85
"""How sure a small model's word is taken to be: what is found may still outweigh it."""

_TYPES = {
    kind.value: kind
    for kind in (
        QuestionType.SINGLE,
        QuestionType.MULTI,
        QuestionType.COMPARE,
        QuestionType.SMALLTALK,
    )
}


async def by_model(
    text: str, conversation: Conversation, light: Light, rules_verdict: Verdict
) -> Verdict:
    """What the light model makes of a question; never raises for what the model does.

    Reset words and what the user said of the topic are not its matter.
    """
    if _settled(rules_verdict):
        return rules_verdict
    language = reply_language(text)
    shown = prompts.fill(
        "classify_question",
        language,
        conversation=_told(conversation),
        message=_tamed(rules_verdict.rest or text, QUESTION_CHARACTERS),
    )
    try:
        said = await light.read(prompts.text("classify", language), shown, max_tokens=TOKENS)
        return _read(said, conversation, rules_verdict)
    except LLMError as error:
        log.warning("the light model did not sort a question: %s", error.code)
        return replace(rules_verdict, failed=error.code)


def _settled(verdict: Verdict) -> bool:
    reset = verdict.forgets or verdict.question_type is QuestionType.RESET
    return reset or verdict.topic is not Topic.AUTO


def _read(said: object, conversation: Conversation, rules_verdict: Verdict) -> Verdict:
    """The verdict in a reply. Raises `BadReply` for any other shape."""
    if not isinstance(said, Mapping):
        raise BadReply(str(said)[:200])
    kind, follows = said.get("type"), said.get("follows")
    if not isinstance(kind, str) or kind not in _TYPES or not isinstance(follows, bool):
        raise BadReply(str(said)[:200])
    decided = replace(
        rules_verdict,
        question_type=_TYPES[kind],
        follows=False,
        certainty=CERTAINTY,
        by="light_llm",
    )
    talk = decided.question_type is QuestionType.SMALLTALK
    return bound(decided, CERTAINTY) if follows and conversation.total and not talk else decided


def _told(conversation: Conversation) -> str:
    """The last turns, shortened."""
    return "\n".join(
        f"- {message.role.value}: {_tamed(message.content, CHARACTERS)}"
        for message in conversation.messages[-2 * TURNS :]
    )


def _tamed(text: str, characters: int) -> str:
    """The beginning of a text that cannot close the marks around it."""
    return neutralise(text[:characters]).replace("<", "‹").replace(">", "›")
