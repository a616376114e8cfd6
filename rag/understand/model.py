"""What the light model reads in a question, and which of its words are believed.

What it says is checked against what was really said: a question that loses a number or a name, or
has one that nobody said, is no reading of this message.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from rag import prompts, tokenize
from rag.adapters.light import BadReply, Light
from rag.conversation import Conversation
from rag.tokenize.text import choose_reply_language, neutralise_text
from rag.types import QuestionType
from rag.understand.filters import find_names

MAX_TURNS = 3
MAX_MESSAGE_CHARACTERS = 300
"""Of each message of the conversation."""
MAX_QUESTION_CHARACTERS = 1000
"""Of the message itself; longer ones lack nothing that would fit on a line."""
MAX_TOKENS = 260
MAX_STANDALONE_CHARACTERS = 400
MAX_TERM_CHARACTERS = 40
MAX_TERMS = 8

SCHEMA: Mapping[str, object] = {
    "title": "question",
    "type": "object",
    "properties": {
        "type": {"type": "string", "enum": ["single", "multi", "compare"]},
        "follows": {"type": "boolean"},
        "references": {"type": "array", "items": {"type": "integer"}},
        "standalone": {"type": "string"},
        "search_terms": {"type": "array", "items": {"type": "string"}},
    },
    "required": ["type", "follows", "references", "standalone", "search_terms"],
    "additionalProperties": False,
}
_TYPES = {
    kind.value: kind for kind in (QuestionType.SINGLE, QuestionType.MULTI, QuestionType.COMPARE)
}
"""Small talk is left to the rules: a model must not be able to skip a search."""
_NUMBER = re.compile(r"\d+(?:[.,:/-]\d+)*")
_MARKED = re.compile(r"(?<![^\W\d_])(?=[A-Za-z0-9._-]*[A-Z0-9])[A-Za-z0-9][A-Za-z0-9._-]+")
_QUOTES = "\"'“”‘’「」`"


@dataclass(frozen=True, slots=True)
class Reading:
    """What a model makes of a question.

    `follows`: it is bound to the conversation, also where it names documents of an answer: which of
    them is the rules' matter, and never guessed. `standalone` (empty: nothing that could be
    believed) is the question with what it lacks from the conversation; `search_terms` are other
    words that a document may use for what is asked.
    """

    question_type: QuestionType
    follows: bool
    standalone: str = ""
    search_terms: tuple[str, ...] = ()


async def read_question_by_model(text: str, conversation: Conversation, light: Light) -> Reading:
    """What the model says of a question in its conversation.

    Raises `LLMError`, `BadReply` for anything that is no reading.
    """
    turns = _render_turns(conversation)
    language = choose_reply_language(text)
    prompt = prompts.fill_prompt(
        "analyse_question",
        language,
        conversation=turns,
        message=_sanitise(text, MAX_QUESTION_CHARACTERS),
    )
    reply = await light.ask_json(
        prompts.load_prompt("analyse", language), prompt, max_tokens=MAX_TOKENS, schema=SCHEMA
    )
    if not isinstance(reply, Mapping):
        raise BadReply(str(reply)[:200])
    kind, follows = reply.get("type"), reply.get("follows")
    if not isinstance(kind, str) or kind not in _TYPES or not isinstance(follows, bool):
        raise BadReply(str(reply)[:200])
    # numbers of documents only tell that it follows: which ones are meant is the rules' matter
    return Reading(
        question_type=_TYPES[kind],
        follows=(follows or bool(reply.get("references"))) and conversation.total > 0,
        standalone=_read_standalone(reply.get("standalone"), text, turns),
        search_terms=_read_terms(
            reply.get("search_terms"), f"{text[:MAX_QUESTION_CHARACTERS]}\n{turns}"
        ),
    )


def _read_standalone(value: object, text: str, turns: str) -> str:
    """The standalone question of a reply; empty where it is none, or says something else."""
    if not isinstance(value, str) or "\n" in value.strip() or len(text) > MAX_QUESTION_CHARACTERS:
        return ""
    question = " ".join(value.strip().strip(_QUOTES).split())
    if not question or len(question) > MAX_STANDALONE_CHARACTERS:
        return ""
    keeps_marks = _find_marks(text) <= _find_marks(question)
    keeps_names = find_names(text) <= find_names(question)
    adds_no_number = _find_numbers(question) <= _find_numbers(f"{text}\n{turns}")
    return question if keeps_marks and keeps_names and adds_no_number else ""


def _read_terms(value: object, context: str) -> tuple[str, ...]:
    """The model's search terms that may be used: short, without numbers or names that are new."""
    terms = value if isinstance(value, list) else []
    marks, names = _find_marks(context), find_names(context)
    usable: dict[str, None] = {}
    for term in terms[: 2 * MAX_TERMS]:
        if not isinstance(term, str) or not 0 < len(term.strip()) <= MAX_TERM_CHARACTERS:
            continue
        if _find_marks(term) <= marks and find_names(term) <= names:
            usable[term.strip()] = None
    return tuple(usable)[:MAX_TERMS]


def _find_marks(text: str) -> set[str]:
    """What must stay: numbers, and Latin words with capitals or digits."""
    clean = tokenize.normalise(text)
    words = {
        match[0].casefold() for match in _MARKED.finditer(clean) if not _is_sentence_opening(match)
    }
    return words | _find_numbers(clean)


def _is_sentence_opening(match: re.Match[str]) -> bool:
    """True for the first word of a sentence, which has a capital for no other reason."""
    return match.start() == 0 and match[0].isalpha() and match[0].istitle()


def _find_numbers(text: str) -> set[str]:
    return {match.replace(",", "") for match in _NUMBER.findall(tokenize.normalise(text))}


def _render_turns(conversation: Conversation) -> str:
    """The last turns, shortened."""
    return "\n".join(
        f"- {message.role.value}: {_sanitise(message.content, MAX_MESSAGE_CHARACTERS)}"
        for message in conversation.current_messages[-2 * MAX_TURNS :]
    )


def _sanitise(text: str, characters: int) -> str:
    """The beginning of a text that cannot close the marks around it."""
    return neutralise_text(text[:characters]).replace("<", "‹").replace(">", "›")
