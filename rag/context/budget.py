"""A prompt's tokens: how many a model takes, how they are split, and what fits into each part.

The limit is the one set, else the one that the model's server reports, else the one known for the
model. Each server reports it in its own way; see docs/architecture.md.
"""

import asyncio
import functools
import math
import time
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import structlog

from rag.adapters.endpoint import get_client
from rag.adapters.openai import get_dialect
from rag.config import USUAL_TOKENS, ContextRules, Endpoint, RagConfig
from rag.context.prompt import (
    AnswerContext,
    is_same_document,
    render_document,
    render_head,
    render_system,
    render_text,
)
from rag.context.tokens import MESSAGE_TOKENS, TokenCounter, cut_to_tokens
from rag.conversation import PastTurn
from rag.ports import GenerationOptions
from rag.types import Evidence, HistoryMessage, Speaker

logger = structlog.get_logger()

QUERY_TOKENS = 200
"""Tokens kept free for the question, so that the window does not depend on its length."""
MIN_TEXT_TOKENS = 48
"""With fewer tokens left, even the beginning of a text is not worth including."""
OVERFLOW_STEP_TURNS = 3
"""The window advances by this many turns when it outgrows its tokens: each move costs the server
its cached prefix."""
SUMMARY_SHARE = 0.5
"""Largest share of the older turns' room that their summary may take."""
PROFILE_SHARE = 0.25
"""Share of the older turns' room for the user's profile; allergies may exceed it."""
MAX_ROOM_TOKENS = 16_000
"""Models read longer prompts less carefully and more slowly, and few prompts need more."""
MIN_ROOM_TOKENS = 1000
"""Less has no room for a question and a passage; smaller models are handled on refusal."""
FREE_SHARE = 0.08
"""Share of the length left free, because counts are estimates and chat templates add tokens."""
ASK_SECONDS = 1.0
"""Longest wait for a server to report its context length."""
ASK_AGAIN_SECONDS = 60.0
"""Wait before asking again a server that did not answer or is still loading its model."""
_LENGTH_FIELDS = ("max_model_len", "context_length", "max_context_length", "context_window")
"""Names of the length in `/v1/models`: vLLM, SGLang; OpenRouter, Together; Mistral; Groq."""
_LOCAL_SERVERS = {
    "library": ("/api/ps", "models", "context_length"),  # Ollama
    "organization_owner": ("/api/v0/models", "data", "loaded_context_length"),  # LM Studio
    "llamacpp": ("/props", "default_generation_settings", "n_ctx"),
}
"""Servers, by `owned_by`, that report elsewhere the length they were started with, which is often
less than the model's (Ollama: 4,096 on a small card, and it silently cuts prompts). Path, key,
name."""


@dataclass(frozen=True, slots=True)
class Budget:
    """A prompt's `total` tokens, and what each part of it may take.

    `system` and `documents` are reserved and `query` is for the question. Of the rest, `recent` is
    for the last messages and `long_term` for older turns, including `profile` for the user's
    profile. `used` holds what the parts took.
    """

    total: int
    system: int
    query: int
    recent: int
    long_term: int
    documents: int
    counter: TokenCounter
    used: Mapping[str, int] = field(default_factory=dict)

    @property
    def profile(self) -> int:
        """Tokens for the user's profile."""
        return int(self.long_term * PROFILE_SHARE)

    @property
    def room(self) -> int:
        """Tokens for the passages: what the other parts left, but at least their own share."""
        return max(self.documents, self.total - sum(self.used.values()))

    def with_used(self, **tokens: int) -> "Budget":
        """The same budget with what these parts used."""
        return replace(self, used={**self.used, **tokens})

    def make_cost_counter(self, language: str) -> Callable[[Evidence, Evidence | None], int]:
        """A function that counts the tokens of a passage after another one.

        The line of the document counts if the document changes.
        """

        def count_cost(item: Evidence, before: Evidence | None) -> int:
            head = render_head(item, language)
            if before is None or not is_same_document(before, item):
                head = f"{render_document(item.passage)}\n\n{head}"
            # separately, so that the count of the text is cached whatever precedes it
            return self.counter.count(f"{head}\n") + self.counter.count(render_text(item)) + 2

        return count_cost

    def describe(self, evidence_tokens: int, dropped: int) -> dict[str, object]:
        """For traces: planned and used tokens of each part, and passages left out."""
        used = {**self.used, "documents": evidence_tokens}
        planned = {
            "system": self.system,
            "query": self.query,
            "recent": self.recent,
            "profile": self.profile,
            "long_term": self.long_term,
            "documents": self.room,
        }
        return {
            "total": self.total,
            "used": sum(used.values()),
            "layers": {
                name: {"planned": planned[name], "used": used.get(name, 0)} for name in planned
            },
            "dropped": {"passages": dropped} if dropped else {},
            "counter": self.counter.name,
        }


def make_budget(context: AnswerContext, rules: ContextRules, counter: TokenCounter) -> Budget:
    """The budget while only instructions and question are known."""
    system = _count_tokens(render_system(context.language, context.fence), counter)
    system += sum(_count_tokens(text, counter) for text in context.persona_texts)
    query = _count_tokens(context.question, counter) + _count_tokens(context.standalone, counter)
    query += sum(_count_tokens(result.text, counter) for result in context.tool_results)
    budget = split_tokens(rules, counter, system=system, query=max(QUERY_TOKENS, query))
    return budget.with_used(system=system, query=query)


def split_tokens(rules: ContextRules, counter: TokenCounter, *, system: int, query: int) -> Budget:
    """Split the tokens of a prompt; `system` and `query` are what these two parts need.

    What they and the documents leave is divided between the last messages and older turns.
    """
    total = rules.tokens or USUAL_TOKENS
    reserved = int(total * rules.system_share)
    documents = int(total * rules.documents_share)
    rest = max(0, total - max(reserved, system) - query - documents)
    recent = int(rest * rules.recent_share)
    return Budget(total, reserved, query, recent, rest - recent, documents, counter)


def fit_conversation(context: AnswerContext, budget: Budget) -> tuple[AnswerContext, Budget]:
    """The context with the last messages that fit, and its budget.

    The window begins where it did for the previous question unless it outgrew its room: then it
    advances by `OVERFLOW_STEP_TURNS`. The last turn always stays, cut if necessary.
    """
    room, counter = budget.recent, budget.counter
    turns = _group_by_turn(context.window)
    sizes = [sum(_count_tokens(message.content, counter) for message in turn) for turn in turns]
    first = 0
    while first < len(turns) - 1 and sum(sizes[first:]) > room:
        first = min(first + OVERFLOW_STEP_TURNS, len(turns) - 1)
    kept = turns[first:]
    if len(kept) == 1 and sizes[-1] > room:
        kept = [tuple(_cut_message(message, room // len(kept[0]), counter) for message in kept[0])]
    window = tuple(message for turn in kept for message in turn)
    used = sum(_count_tokens(message.content, counter) for message in window)
    return replace(context, window=window), budget.with_used(recent=used)


def fit_profile(context: AnswerContext, budget: Budget) -> tuple[AnswerContext, Budget]:
    """The context with as much of the user's profile as fits, and its budget.

    The first `protected_count` lines always stay.
    """
    used, kept = 0, list[str]()
    for place, line in enumerate(context.profile):
        size = _count_tokens(line, budget.counter)
        if place >= context.protected_count and used + size > budget.profile:
            break
        kept.append(line)
        used += size
    return replace(context, profile=tuple(kept)), budget.with_used(profile=used)


def fit_earlier_conversation(
    context: AnswerContext, budget: Budget
) -> tuple[AnswerContext, Budget]:
    """The context with as much of older turns, findings and summary as fits, and its budget."""
    room = max(0, budget.long_term - budget.used.get("profile", 0))
    counter = budget.counter
    summary_size = _count_tokens(context.summary, counter)
    reserved_for_summary = min(summary_size, int(room * SUMMARY_SHARE))
    used = 0
    findings: list[str] = []
    for note in context.findings:
        size = _count_tokens(note, counter)
        if used + size > room - reserved_for_summary:
            break
        findings.append(note)
        used += size
    recalled: list[PastTurn] = []
    for turn in reversed(context.recalled_turns):
        fitted = _fit_turn(turn, room - reserved_for_summary - used, counter)
        if fitted is None:
            break
        recalled.insert(0, fitted)
        used += _count_turn_tokens(fitted, counter)
    summary = context.summary
    if summary_size > room - used:
        left = room - used - MESSAGE_TOKENS
        summary = cut_to_tokens(summary, left, counter) if left >= MIN_TEXT_TOKENS else ""
    used += _count_tokens(summary, counter)
    fitted_context = replace(
        context, findings=tuple(findings), recalled_turns=tuple(recalled), summary=summary
    )
    return fitted_context, budget.with_used(long_term=used)


def halve_context(context: AnswerContext, counter: TokenCounter) -> AnswerContext:
    """The context with half of its passages, notes and messages, after the model refused it."""
    sizes = [counter.count(item.content) for item in context.evidence]
    room, kept_count = sum(sizes) // 2, 0
    while kept_count < len(sizes) and (kept_count == 0 or room >= sizes[kept_count]):
        room -= sizes[kept_count]
        kept_count += 1
    turns = _group_by_turn(context.window)
    window = tuple(message for turn in turns[(len(turns) + 1) // 2 :] for message in turn)
    return replace(
        context,
        evidence=context.evidence[:kept_count],
        notes=context.notes[: len(context.notes) // 2],
        profile=context.profile[: context.protected_count],
        window=window,
        recalled_turns=(),
        findings=(),
        summary="",
    )


def _group_by_turn(messages: Sequence[HistoryMessage]) -> list[tuple[HistoryMessage, ...]]:
    """The messages grouped by turn, each beginning with the user's."""
    turns: list[tuple[HistoryMessage, ...]] = []
    for message in messages:
        if message.role is Speaker.USER or not turns:
            turns.append((message,))
        else:
            turns[-1] = (*turns[-1], message)
    return turns


def _cut_message(message: HistoryMessage, room: int, counter: TokenCounter) -> HistoryMessage:
    return replace(
        message, content=cut_to_tokens(message.content, max(room - MESSAGE_TOKENS, 0), counter)
    )


def _fit_turn(turn: PastTurn, room: int, counter: TokenCounter) -> PastTurn | None:
    """The turn with as much of its answer as fits; None if that is too little."""
    if _count_turn_tokens(turn, counter) <= room:
        return turn
    bare = _count_turn_tokens(replace(turn, assistant_text=""), counter)
    if room - bare < MIN_TEXT_TOKENS:
        return None
    return replace(turn, assistant_text=cut_to_tokens(turn.assistant_text, room - bare, counter))


def _count_turn_tokens(turn: PastTurn, counter: TokenCounter) -> int:
    return _count_tokens(turn.user_text, counter) + _count_tokens(turn.assistant_text, counter)


def _count_tokens(text: str, counter: TokenCounter) -> int:
    return counter.count(text) + MESSAGE_TOKENS if text else 0


async def resolve_context_tokens(config: RagConfig) -> int:
    """The tokens of a whole prompt, with room left for the answer.

    Asks the server at the first question, for `ASK_SECONDS` at most; `USUAL_TOKENS` as long as
    nothing is known. Raises nothing.
    """
    if config.context.tokens is not None:
        return config.context.tokens
    if config.llm is None:
        return USUAL_TOKENS
    length = await find_context_length(config.llm)
    if length is None:
        return USUAL_TOKENS
    options = GenerationOptions(max_tokens=config.max_tokens, thinking=config.thinking)
    reply = options.max_tokens + get_dialect(config.llm).count_thinking_tokens(options)
    return max(MIN_ROOM_TOKENS, min(MAX_ROOM_TOKENS, int(length * (1 - FREE_SHARE)) - reply))


_reported_lengths: dict[Endpoint, tuple[int | None, float]] = {}
"""What servers reported, and the monotonic time after which to ask again."""


async def find_context_length(endpoint: Endpoint) -> int | None:
    """Tokens for prompt and reply together; None if unknown."""
    length, ask_again = _reported_lengths.get(endpoint, (None, 0.0))
    if ask_again <= time.monotonic():
        # concurrent callers do not wait
        retry_at = time.monotonic() + ASK_AGAIN_SECONDS
        _reported_lengths[endpoint] = None, retry_at
        length, is_final = await _ask_server(endpoint)
        _reported_lengths[endpoint] = length, math.inf if is_final else retry_at
    return length or find_known_context_length(endpoint.model)


def reset_context_lengths() -> None:
    """Forget what every server reported."""
    _reported_lengths.clear()


def find_known_context_length(model: str) -> int | None:
    """The context length of a known hosted model."""
    name = model.casefold().rpartition("/")[2]
    return next(
        (tokens for prefixes, tokens in _load_known_models() if name.startswith(prefixes)), None
    )


@functools.cache
def _load_known_models() -> tuple[tuple[tuple[str, ...], int], ...]:
    toml_text = Path(__file__).with_name("known_models.toml").read_text(encoding="utf-8")
    return tuple(
        (tuple(model["begins"]), model["tokens"]) for model in tomllib.loads(toml_text)["model"]
    )


async def _ask_server(endpoint: Endpoint) -> tuple[int | None, bool]:
    """What the server reports, and whether that can be relied on to stay the same."""
    get_client(endpoint)  # loading the library takes longer than the server may
    try:
        async with asyncio.timeout(ASK_SECONDS):
            model = _find_model(await _fetch_key(endpoint, "/models", "data"), endpoint.model)
            length = _find_first_number(model, _LENGTH_FIELDS)
            local_server = _LOCAL_SERVERS.get(str(model.get("owned_by")))
            if length is not None or local_server is None:
                return length, True
            path, key, name = local_server
            loaded_model = _find_model(await _fetch_key(endpoint, path, key), endpoint.model)
            length = _find_first_number(loaded_model, (name,))
            return length, length is not None
    except Exception as error:  # noqa: BLE001 - whatever a server does, the question goes on
        logger.info("context_length_not_told", model=endpoint.model, error=repr(error))
        return None, hasattr(error, "status_code")


async def _fetch_key(endpoint: Endpoint, path: str, key: str) -> Any:
    """A key of a JSON response; paths other than "/models" are outside "/v1"."""
    client = get_client(endpoint)
    if path != "/models":
        client = client.with_options(base_url=endpoint.base_url.rstrip("/").removesuffix("/v1"))
    body = await client.get(path, cast_to=object)
    return body.get(key) if isinstance(body, dict) else None


def _find_model(listing: Any, name: str) -> Mapping[str, Any]:
    """The model with this name (Ollama adds ":latest"), or the only one there is."""
    if isinstance(listing, dict):
        return listing
    models = [
        model for model in (listing if isinstance(listing, list) else ()) if isinstance(model, dict)
    ]
    for model in models:
        names = {model.get(field) for field in ("id", "name", "model")}
        if names & {name, f"{name}:latest"} or model.get("root") == name:
            return model
    return models[0] if len(models) == 1 else {}


def _find_first_number(fields: Mapping[str, Any], names: Iterable[str]) -> int | None:
    values = (fields.get(name) for name in names)
    return next(
        (int(value) for value in values if isinstance(value, int | float) and value >= 1), None
    )
