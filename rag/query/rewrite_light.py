"""The light model's stand-alone question; the one made by rules where it has none."""

import logging
import re
from dataclasses import replace

from rag import prompts, tokenize
from rag.conversation import Conversation
from rag.errors import LLMError
from rag.language import reply_language
from rag.llms.light import BadReply, Light
from rag.query import laws, topic
from rag.query.rewrite import MOST_TERMS, Standalone

log = logging.getLogger(__name__)

TURNS = 3
CHARACTERS = 400
"""Of each message of the conversation."""
QUESTION_CHARACTERS = 1000
"""Longer messages are not rewritten: they lack nothing that would fit on a line."""
TOKENS = 160
LONGEST = 400
"""Characters of a question that stands alone."""
WEIGHT = 0.8
"""What a lexical term weighs that the model added, beside those of the question itself."""
LIKENESS = 0.5
"""What the model's question weighs at least where it is embedded beside the question itself."""

_NUMBER = re.compile(r"\d+(?:[.,:/-]\d+)*")
_MARKED = re.compile(r"(?<![^\W\d_])(?=[A-Za-z0-9._-]*[A-Z0-9])[A-Za-z0-9][A-Za-z0-9._-]+")
_QUOTES = "\"'“”‘’「」`"


async def by_model(
    text: str, conversation: Conversation, light: Light, fallback: Standalone
) -> Standalone:
    """The question as the light model completes it; never raises for what the model does.

    It is searched beside the question's own words and never instead of them.
    """
    if len(text) > QUESTION_CHARACTERS or not conversation.turns:
        return fallback
    told = _told(conversation)
    language = reply_language(text)
    shown = prompts.fill("classify_question", language, conversation=told, message=text)
    try:
        said = await light.say(prompts.text("rewrite", language), shown, max_tokens=TOKENS)
        return _beside(text, _read(said, text, told), conversation, fallback)
    except LLMError as error:
        log.warning("the light model did not complete a question: %s", error.code)
        return replace(fallback, failed=error.code)


def _read(said: str, text: str, told: str) -> str:
    """The question in a reply. Raises `BadReply` for what is none, or another one."""
    question = " ".join(said.strip().strip(_QUOTES).split())
    if not question or "\n" in said.strip() or len(question) > LONGEST:
        raise BadReply(said[:200])
    if not _marks(text) <= _marks(question) or not laws.named(text) <= laws.named(question):
        raise BadReply(said[:200])
    if not _numbers(question) <= _numbers(f"{text}\n{told}"):
        raise BadReply(said[:200])
    return question


def _marks(text: str) -> set[str]:
    """What must stay: numbers, and Latin words with capitals or digits."""
    clean = tokenize.normalise(text)
    words = {match[0].casefold() for match in _MARKED.finditer(clean) if not _opens(match)}
    return words | _numbers(clean)


def _opens(match: re.Match[str]) -> bool:
    """True for the first word of a sentence, which has a capital for no other reason."""
    return match.start() == 0 and match[0].isalpha() and match[0].istitle()


def _numbers(text: str) -> set[str]:
    return {match.replace(",", "") for match in _NUMBER.findall(tokenize.normalise(text))}


def _beside(
    text: str, question: str, conversation: Conversation, fallback: Standalone
) -> Standalone:
    """The model's question, with the terms that it adds and those that it leaves out."""
    asked = tokenize.query_terms(text)
    completed = topic.read(question, topic.titles(conversation))
    added = [term for word in completed.words if not word.document for term in word.terms]
    new = [term for term in dict.fromkeys(added) if term not in asked][:MOST_TERMS]
    return replace(
        fallback,
        text=question,
        context={**fallback.context, **dict.fromkeys(new, WEIGHT), **asked},
        by="light_llm",
        own_words=text,
        background=question,
        weight=max(LIKENESS, fallback.weight),
    )


def _told(conversation: Conversation) -> str:
    """The last turns, shortened."""
    return "\n".join(
        f"- {message.role.value}: {message.content[:CHARACTERS]}"
        for message in conversation.messages[-2 * TURNS :]
    )
