"""What is kept of a turn for later: a line, its terms, its vector, and the running summary."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rag import prompts, tokenize
from rag.config import ContextRules
from rag.conversation import RunningSummary, Turn
from rag.errors import EmbedderFailed, LLMError
from rag.history import protected, said
from rag.language import dense_weight, reply_language
from rag.llms.light import Light
from rag.neutral import neutralise
from rag.ports import Embedder
from rag.retrieval.similarity import KNOWN

EXTRACTIVE = "extractive"
"""The model's name where no model was asked, or none answered."""
ANSWER = 500
"""Characters of an answer that the light model reads for a line."""
QUESTION = 1000
EMBEDDED = 1000
"""Characters of an answer that are embedded: models read little more."""
INDEXED = 20_000
"""Characters of a text whose terms are kept."""
RUNNING = 1200
"""Characters of a running summary, without what is put back into it."""
BATCH = 15
"""Turns that are folded at once."""
LEAST_LINE = 50
LINE_TOKENS = 120
FOLD_TOKENS = 900


@dataclass(frozen=True, slots=True)
class Noted:
    """What is stored of a turn.

    `model` wrote the summary; `embedding` is the embedder's name, empty without a `vector`.
    """

    summary: str
    model: str
    terms: Mapping[str, int]
    vector: tuple[float, ...] | None
    embedding: str
    running: RunningSummary | None


async def note(  # noqa: PLR0913 - the parts that a note is made with, by name
    turn: Turn,
    earlier: Sequence[Turn],
    running: RunningSummary | None,
    *,
    light: Light | None,
    embedder: Embedder,
    rules: ContextRules,
) -> Noted:
    """Note a turn; models that fail are done without.

    `earlier` are the whole turns that `to_fold` names; `running` is the newest running summary.
    """
    summary, model = await _line(turn, light)
    vector = await asyncio.to_thread(_vector, turn, embedder)
    wanted = to_fold(turn.number, running, rules)
    folding = [one for one in sorted(earlier, key=lambda one: one.number) if one.number in wanted]
    if folding:
        running = await _folded(folding, running, light, rules)
    return Noted(
        summary=summary,
        model=model,
        terms=await asyncio.to_thread(terms, turn),
        vector=vector,
        embedding=embedder.name if vector else "",
        running=running,
    )


def to_fold(number: int, running: RunningSummary | None, rules: ContextRules) -> range:
    """The numbers of the turns that are to be folded when turn `number` is noted."""
    begin = (running.through if running else 0) + 1
    end = number - rules.summary_keeps if number > rules.summary_after else 0
    return range(begin, end + 1)


def terms(turn: Turn) -> dict[str, int]:
    """The lexical terms of a whole turn: question, answer, titles of its documents."""
    titles = " ".join(ref.title for ref in turn.doc_refs)
    return tokenize.terms(f"{turn.user_text[:INDEXED]}\n{said.answer(turn)[:INDEXED]}\n{titles}")


async def _line(turn: Turn, light: Light | None) -> tuple[str, str]:
    if light is not None:
        language = reply_language(turn.user_text)
        asked = neutralise(f"Q: {turn.user_text[:QUESTION]}\nA: {said.answer(turn)[:ANSWER]}")
        try:
            told = await light.say(prompts.text("note", language), asked, max_tokens=LINE_TOKENS)
        except LLMError:
            told = ""
        if line := " ".join(neutralise(told).split()):
            return said.cut(line, said.LINE), light.name
    return await asyncio.to_thread(said.line, turn), EXTRACTIVE


def _vector(turn: Turn, embedder: Embedder) -> tuple[float, ...] | None:
    text = f"{turn.user_text[:QUESTION]}\n{said.answer(turn)[:EMBEDDED]}".strip()
    if dense_weight(text, embedder.languages) < KNOWN:
        return None
    try:
        return tuple(embedder.embed_passages([text])[0])
    except EmbedderFailed:
        return None


async def _folded(
    turns: Sequence[Turn],
    running: RunningSummary | None,
    light: Light | None,
    rules: ContextRules,
) -> RunningSummary:
    """The running summary with these turns, oldest first, folded in."""
    language = reply_language(" ".join(turn.user_text[:ANSWER] for turn in turns))
    before = running.text if running else ""
    text, model = before, EXTRACTIVE
    for start in range(0, len(turns), BATCH):
        batch = turns[start : start + BATCH]
        body, model = await _body(batch, text, light, language)
        found = await asyncio.to_thread(_to_keep, batch, text, rules)
        text = await asyncio.to_thread(protected.put_back, body, found, language)
    return RunningSummary(text, turns[-1].number, model)


def _to_keep(turns: Sequence[Turn], before: str, rules: ContextRules) -> list[protected.Item]:
    """What must be in the new summary, the latest turn first."""
    body, own, others = protected.split(before)
    return protected.items(
        [*(turn.user_text for turn in reversed(turns)), *own],
        [body, *(said.answer(turn) for turn in reversed(turns)), *others],
        rules.protected_terms,
    )


async def _body(
    turns: Sequence[Turn], before: str, light: Light | None, language: str
) -> tuple[str, str]:
    """The new summary without what is put back, and who wrote it."""
    if light is not None:
        told = "\n\n".join(
            f"Q{turn.number}: {turn.user_text[:QUESTION]}\nA: {said.answer(turn)[:ANSWER]}"
            for turn in turns
        )
        asked = prompts.fill(
            "fold_turns", language, summary=neutralise(before) or "-", turns=neutralise(told)
        )
        try:
            reply = await light.say(prompts.text("fold", language), asked, max_tokens=FOLD_TOKENS)
        except LLMError:
            reply = ""
        if body := protected.split(neutralise(reply).strip())[0]:
            return said.cut(body, RUNNING), light.name
    return await asyncio.to_thread(_lines, turns, before), EXTRACTIVE


def _lines(turns: Sequence[Turn], before: str) -> str:
    """One line a turn, all shorter the more there are; the oldest go when too many."""
    old = protected.split(before)[0].splitlines()
    new = [f"{turn.number}. {turn.summary or said.line(turn)}" for turn in turns]
    lines = [line for line in [*old, *new] if line.strip()]
    width = max(LEAST_LINE, RUNNING // max(1, len(lines)) - 1)
    lines = [said.cut(line, width) for line in lines]
    return "\n".join(lines[-(RUNNING // (width + 1)) :])
