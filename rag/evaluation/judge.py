"""A chat model's verdict on an answer."""

import secrets
from collections.abc import Mapping, Sequence

from rag import prompts
from rag.adapters.light import BadReply, Light
from rag.evaluation.measures import AnsweredTurn
from rag.tokenize.text import choose_reply_language, neutralise_text
from rag.types import Source

CRITERIA = ("relevance", "faithfulness", "support")
COHERENCE = "coherence"
"""Asked only of a turn that has others before it."""
SCHEMA: Mapping[str, object] = {
    "title": "verdict",
    "type": "object",
    "properties": {
        name: {"type": "number", "minimum": 0, "maximum": 1} for name in (*CRITERIA, COHERENCE)
    },
    "required": [*CRITERIA, COHERENCE],
    "additionalProperties": False,
}
MAX_TOKENS = 200
MAX_PASSAGES_CHARACTERS = 12_000
MAX_ANSWER_CHARACTERS = 6_000
MAX_EARLIER_CHARACTERS = 3_000


async def judge_turn(
    light: Light, question: str, answered: AnsweredTurn, earlier: Sequence[tuple[str, str]]
) -> dict[str, float]:
    """0..1 by criterion. `earlier` are the questions and answers before, oldest first.

    Raises `LLMError`, `BadReply` for a verdict that is none.
    """
    language = choose_reply_language(question)
    fence = f"=== {secrets.token_hex(6)} ==="
    passages = "\n\n".join(f"[{one.slot}] {one.text}" for one in _put_cited_first(answered))
    told = "\n".join(f"Q: {asked}\nA: {said}" for asked, said in earlier)
    case = prompts.fill_prompt(
        "judge_case",
        language,
        fence=fence,
        earlier=neutralise_text(told[-MAX_EARLIER_CHARACTERS:]) or "-",
        passages=neutralise_text(passages[:MAX_PASSAGES_CHARACTERS]) or "-",
        question=neutralise_text(question),
        answer=neutralise_text(answered.content[:MAX_ANSWER_CHARACTERS]) or "-",
    )
    system = prompts.fill_prompt("judge", language, fence=fence)
    reply = await light.read(system, case, max_tokens=MAX_TOKENS, schema=SCHEMA)
    return _parse_verdict(reply, (*CRITERIA, COHERENCE) if earlier else CRITERIA)


def _put_cited_first(answered: AnsweredTurn) -> list[Source]:
    """The evidence in an order in which what the answer rests on is not cut off."""
    cited = {one.chunk_id for one in answered.sources if one.cited}
    return sorted(answered.evidence, key=lambda one: one.chunk_id not in cited)


def _parse_verdict(reply: object, criteria: Sequence[str]) -> dict[str, float]:
    if not isinstance(reply, Mapping):
        raise BadReply("not an object")
    return {name: _parse_grade(name, reply.get(name)) for name in criteria}


def _parse_grade(name: str, value: object) -> float:
    if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= 1:
        return float(value)
    raise BadReply(f"{name}: {str(value)[:40]}")
