"""Questions that may come next, as the light model sees them after an answer."""

from collections.abc import Sequence

from rag import prompts
from rag.adapters.light import Light
from rag.generate.markdown import to_plain_text
from rag.tokenize.text import choose_reply_language, neutralise_text, to_letters

MAX_FOLLOW_UPS = 3
MAX_FOLLOW_UP_CHARACTERS = 80
MAX_READ_QUESTION = 500
"""Characters of the question and ..."""
MAX_READ_ANSWER = 1500
"""... of the answer that the model reads, and ..."""
MAX_READ_HEADINGS = 10
"""... headings."""
REPLY_TOKENS = 200
SCHEMA = {
    "title": "follow_ups",
    "type": "object",
    "properties": {"questions": {"type": "array", "items": {"type": "string"}}},
    "required": ["questions"],
    "additionalProperties": False,
}


async def suggest_follow_ups(
    question: str, answer: str, headings: Sequence[str], light: Light
) -> tuple[str, ...]:
    """Up to three questions, in the language of the question; none that was asked just now.

    `headings` are those of the passages. Raises what `Light.ask_json` raises.
    """
    language = choose_reply_language(question)
    told = [
        f"Q: {question[:MAX_READ_QUESTION]}",
        f"A: {to_plain_text(answer)[:MAX_READ_ANSWER]}",
        *(f"- {heading}" for heading in headings[:MAX_READ_HEADINGS]),
    ]
    reply = await light.ask_json(
        prompts.load_prompt("follow_ups", language),
        neutralise_text("\n".join(told)),
        max_tokens=REPLY_TOKENS,
        schema=SCHEMA,
    )
    said = reply.get("questions") if isinstance(reply, dict) else None
    asked = {to_letters(question)}
    found: list[str] = []
    for one in said if isinstance(said, list) else ():
        text = " ".join(one.split()) if isinstance(one, str) else ""
        letters = to_letters(text)
        wanted = letters and letters not in asked and len(text) <= MAX_FOLLOW_UP_CHARACTERS
        if wanted and choose_reply_language(text) == language:
            asked.add(letters)
            found.append(text)
    return tuple(found[:MAX_FOLLOW_UPS])
