"""Odd jobs of clients: titles, tags, follow-up questions. Without retrieval, stored nowhere."""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import asdict
from typing import Any

from chats.calls import in_database
from chats.errors import explain_notice
from chats.models.chat import TITLE_CHARACTERS
from chats.runs import log
from chats.services.chats import add_tokens
from documents import spaces
from rag.conversation import Sampling
from rag.events import ANSWER_CUT
from rag.factory import Engine, get_engine
from rag.ports import LLM, GenerationOptions, Usage
from rag.types import HistoryMessage, Speaker

_FIRST_SAID = re.compile(r"^(?:#+ *)?USER:\s*(.+)$", re.MULTILINE | re.IGNORECASE)
_EMPTY: Mapping[str, dict[str, Any]] = {
    "tags_generation": {"tags": []},
    "follow_up_generation": {"follow_ups": []},
    "query_generation": {"queries": []},
    "autocomplete_generation": {"text": ""},
    "image_prompt_generation": {"prompt": ""},
}
"""What clients take for "nothing to say", by job."""


async def work(request: dict[str, Any], say: Callable[[str, Any], None]) -> dict[str, Any]:
    """Do a job by the light model, else by the main one, else as far as it goes without.

    Raises `LLMError`.
    """
    used = await in_database(spaces.get_space_in_use)
    asked = [HistoryMessage(Speaker(one["role"]), one["content"]) for one in request["messages"]]
    llm = _model(get_engine(used.config))
    if llm is None:
        text = plain(request["job"], asked)
        say(log.DELTA, {"text": text})
        return {"message": {"content": text}}
    wished = Sampling.from_stored(request["sampling"])
    usual = GenerationOptions(used.config.temperature, used.config.max_tokens)
    message = await _asked(llm, asked, usual.with_sampling(wished), say)
    await in_database(add_tokens, request["user_id"], message["usage"])
    return {"message": message}


async def _asked(
    llm: LLM,
    turns: Sequence[HistoryMessage],
    options: GenerationOptions,
    say: Callable[[str, Any], None],
) -> dict[str, Any]:
    said: list[str] = []
    usage: Usage | None = None
    cut = False
    async with aclosing(llm.stream(turns, options)) as pieces:
        async for piece in pieces:
            usage = piece.usage or usage
            cut = cut or piece.finish_reason == "length"
            if piece.text:
                said.append(piece.text)
                say(log.DELTA, {"text": piece.text})
    return {
        "content": "".join(said),
        "usage": asdict(usage) if usage else None,
        "notices": [{"code": ANSWER_CUT, "detail": explain_notice(ANSWER_CUT)}] if cut else [],
    }


def _model(made: Engine) -> LLM | None:
    if made.light:
        return made.light.llm
    writer = made.pipeline.writer
    return writer.llm if writer else None


def plain(job: str, messages: Sequence[HistoryMessage]) -> str:
    """A reply without a model: the first question as a title, and nothing for all else."""
    if job != "title_generation":
        return json.dumps(_EMPTY[job]) if job in _EMPTY else ""
    told = next((m.content for m in reversed(messages) if m.role == Speaker.USER), "")
    found = _FIRST_SAID.search(told)
    title = (found[1] if found else told).strip()[:TITLE_CHARACTERS]
    return json.dumps({"title": " ".join(title.split())}, ensure_ascii=False)
