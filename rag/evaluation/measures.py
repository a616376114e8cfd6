"""Measures of answers, by figures and by a chat model; their averages, and how two runs differ."""

import secrets
import statistics
import time
from collections.abc import AsyncGenerator, Collection, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from uuid import UUID

import numpy as np

from rag import prompts
from rag.adapters.light import BadReply, Light
from rag.context.tokens import MESSAGE_TOKENS, get_counter
from rag.evaluation.question_set import ExpectedTurn, measure_fact_share
from rag.events import measure_milliseconds_since
from rag.ports import LLM, Choice, GenerationOptions, Piece, Tool, ToolCaller, Usage
from rag.tokenize.text import choose_reply_language, neutralise_text
from rag.types import AnswerMode, AnswerSource, CheckedSentence, HistoryMessage, Verdict

RESAMPLES = 4000
CONFIDENCE = 0.95
SEED = 20260
MIN_LINES = 10
"""With fewer lines, resamples differ too little: with two, every second difference between amounts
would seem certain by chance."""
_QUESTION_MARKS = tuple(
    prompts.load_prompt("question", language).partition("{{")[0] for language in ("ko", "en")
)


# Recording of the calls to chat models while a question is answered


@dataclass(frozen=True, slots=True)
class Call:
    """A request to a chat model and its reply. `milliseconds` count to the end of the reply."""

    model: str
    messages: tuple[HistoryMessage, ...]
    reply: str
    usage: Usage
    milliseconds: float


@dataclass(slots=True)
class Recorder:
    """Records the calls to the models that it wraps, in the order in which they begin."""

    calls: list[Call] = field(default_factory=list)

    def wrap(self, model: LLM) -> LLM:
        """Wrap a model, so that its calls are recorded; one that can call tools still can."""
        return (
            _RecordedCaller(model, self)
            if isinstance(model, ToolCaller)
            else _Recorded(model, self)
        )

    def begin(self, model: str, messages: Sequence[HistoryMessage]) -> int:
        """Record a call that begins now and return its index; it counts even if it fails."""
        prompt_tokens = sum(
            get_counter(model).count(message.content) + MESSAGE_TOKENS for message in messages
        )
        usage = Usage(prompt_tokens, 0, estimated=True)
        self.calls.append(Call(model, tuple(messages), "", usage, 0.0))
        return len(self.calls) - 1

    def end(self, index: int, reply: str, usage: Usage | None, milliseconds: float) -> None:
        """Complete a call; its tokens are estimated if the server has not counted them."""
        call = self.calls[index]
        estimated_usage = Usage(
            call.usage.prompt_tokens, get_counter(call.model).count(reply), estimated=True
        )
        self.calls[index] = replace(
            call, reply=reply, usage=usage or estimated_usage, milliseconds=milliseconds
        )


class _Recorded:
    """Implements `rag.ports.LLM`."""

    def __init__(self, model: LLM, recorder: Recorder) -> None:
        self._model = model
        self._recorder = recorder

    @property
    def name(self) -> str:
        return self._model.name

    async def stream(
        self, turns: Sequence[HistoryMessage], options: GenerationOptions
    ) -> AsyncGenerator[Piece, None]:
        started, index = time.perf_counter(), self._recorder.begin(self.name, turns)
        texts: list[str] = []
        usage: Usage | None = None
        try:
            async with aclosing(self._model.stream(turns, options)) as pieces:
                async for piece in pieces:
                    texts.append(piece.text)
                    usage = piece.usage or usage
                    yield piece
        finally:
            self._recorder.end(index, "".join(texts), usage, measure_milliseconds_since(started))


class _RecordedCaller(_Recorded):
    """Implements `rag.ports.ToolCaller`, too."""

    async def choose(self, turns: Sequence[HistoryMessage], tools: Sequence[Tool]) -> Choice:
        started, index = time.perf_counter(), self._recorder.begin(self.name, turns)
        text = ""
        try:
            choice = await self._model.choose(turns, tools)  # type: ignore[attr-defined]
            text = choice.text
        finally:
            self._recorder.end(index, text, None, measure_milliseconds_since(started))
        return choice  # type: ignore[no-any-return]


# Figures


@dataclass(frozen=True, slots=True)
class Measure:
    """A figure of a turn. `is_share`: 0..1, averaged as a mean; else an amount, as a median.

    `better` is 1 if more is better, -1 if less is.
    """

    name: str
    better: int
    is_share: bool = True


MEASURES = (
    Measure("evidence_all", 1),
    Measure("evidence", 1),
    Measure("facts", 1),
    Measure("label", 1),
    Measure("citations", 1),
    Measure("false_abstention", -1),
    Measure("abstains", 1),
    Measure("evidence_share", 1),
    Measure("strangers", -1),
    Measure("relevance", 1),
    Measure("faithfulness", 1),
    Measure("support", 1),
    Measure("coherence", 1),
    Measure("failed", -1),
    Measure("characters", -1, is_share=False),
    Measure("prompt_tokens", -1, is_share=False),
    Measure("completion_tokens", -1, is_share=False),
    Measure("calls", -1, is_share=False),
    Measure("calls_before_first_word", -1, is_share=False),
    Measure("first_word_ms", -1, is_share=False),
    Measure("total_ms", -1, is_share=False),
)
"""`evidence` and `facts` are the shares of the turn's facts in the prompt and in the answer,
`evidence_all` is whether all are in the prompt. docs/evaluation.md explains all of them."""


@dataclass(frozen=True, slots=True)
class AnsweredTurn:
    """A turn as it was answered.

    `model` wrote it; None without a model. `sources` are those of the answer, `evidence` all that
    it could cite. `calls` are all requests to chat models, of which `calls_before_first_word` began
    before the first word. `prompt_characters` counts the prompt by part ("evidence", "total").
    `error` is the code of the error that ended it.
    """

    content: str = ""
    mode: str = ""
    label: str = ""
    model: str | None = None
    sources: tuple[AnswerSource, ...] = ()
    evidence: tuple[AnswerSource, ...] = ()
    checks: tuple[CheckedSentence, ...] = ()
    calls: tuple[Call, ...] = ()
    calls_before_first_word: int = 0
    prompt_characters: Mapping[str, int] | None = None
    first_word_ms: float | None = None
    total_ms: float = 0.0
    error: str = ""

    @property
    def evidence_text(self) -> str | None:
        """The text from which the answer was written; None if no model wrote it."""
        if self.model is None:
            return None
        call = self.calls[self.calls_before_first_word - 1]
        return read_evidence_text([message.content for message in call.messages])


@dataclass(frozen=True, slots=True)
class Interval:
    """An estimate from `lines` lines, with the bounds of 95 % of the resamples."""

    value: float
    low: float
    high: float
    lines: int

    @property
    def is_certain(self) -> bool:
        """Whether the interval excludes 0, and there are enough lines to say so."""
        return self.lines >= MIN_LINES and (self.low > 0 or self.high < 0)


def measure_turn(
    expected: ExpectedTurn, answered: AnsweredTurn, documents: Collection[UUID]
) -> dict[str, float]:
    """The measures that apply to the turn, by name.

    `documents` are the relevant ones; empty if all may be relevant.
    """
    if answered.error:
        return {"failed": 1.0}
    return {
        "failed": 0.0,
        **_measure_costs(answered),
        **_measure_facts(expected, answered),
        **_measure_label(expected, answered),
        **_measure_citations(expected, answered),
        **_measure_evidence(answered, documents),
    }


def read_evidence_text(contents: Sequence[str]) -> str:
    """The messages of an answer's prompt up to the question at their end, which is no evidence.

    The question's standalone form follows it and is cut off, too. The last such place is taken, as
    a passage may contain the same words.
    """
    text = "\n".join(contents)
    question_start = max(text.rfind(f"\n{mark}") for mark in _QUESTION_MARKS)
    return text if question_start < 0 else text[:question_start]


def is_abstention(mode: str, sources: Collection[object]) -> bool:
    """Whether an answer is based on no document."""
    return mode not in {AnswerMode.DOCUMENTS, AnswerMode.DOCUMENT} or not sources


def summarise_turns(turns: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """The mean or median of every measure that applies to any of the turns."""
    summary = {}
    for measure in MEASURES:
        if values := [turn[measure.name] for turn in turns if measure.name in turn]:
            average = statistics.fmean if measure.is_share else statistics.median
            summary[measure.name] = round(float(average(values)), 4)
    return summary


def compare_runs(
    first: Sequence[Sequence[Mapping[str, float]]], second: Sequence[Sequence[Mapping[str, float]]]
) -> dict[str, Interval]:
    """By how much the second run differs from the first, by measure.

    Both contain the same turns in the same order, by line. Differences are paired turn by turn;
    their mean (or median, for amounts) is estimated from whole lines drawn with replacement, as the
    turns of a conversation depend on each other (percentile bootstrap, fixed seed).
    """
    intervals = {}
    for measure in MEASURES:
        pairs = [
            (line_index, second_measures[measure.name] - first_measures[measure.name])
            for line_index, (old, new) in enumerate(zip(first, second, strict=True))
            for first_measures, second_measures in zip(old, new, strict=True)
            if measure.name in first_measures and measure.name in second_measures
        ]
        if pairs:
            intervals[measure.name] = _estimate(pairs, is_share=measure.is_share)
    return intervals


def _estimate(pairs: Sequence[tuple[int, float]], *, is_share: bool) -> Interval:
    """Estimate the average of differences, each given with the index of its line."""
    _, lines = np.unique([line_index for line_index, _ in pairs], return_inverse=True)
    differences = np.array([value for _, value in pairs])
    average = np.mean if is_share else np.median
    count = int(lines.max()) + 1
    random = np.random.default_rng(SEED)
    resamples = random.multinomial(count, np.full(count, 1 / count), size=RESAMPLES)
    values = [average(np.repeat(differences, times[lines])) for times in resamples]
    low, high = np.quantile(values, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
    value, low, high = (round(float(bound), 4) for bound in (average(differences), low, high))
    return Interval(value, low, high, count)


def _measure_facts(expected: ExpectedTurn, answered: AnsweredTurn) -> dict[str, float]:
    if not expected.facts:
        return {}
    measures = {"facts": measure_fact_share(expected.facts, answered.content, in_answer=True)}
    if (text := answered.evidence_text) is not None:
        share = measure_fact_share(expected.facts, text, in_answer=False)
        measures |= {"evidence": share, "evidence_all": float(share == 1)}
    return measures


def _measure_label(expected: ExpectedTurn, answered: AnsweredTurn) -> dict[str, float]:
    measures = {}
    if expected.labels and answered.label:
        measures["label"] = float(answered.label in expected.labels)
    if expected.answerable is not None:
        name = "false_abstention" if expected.answerable else "abstains"
        measures[name] = float(is_abstention(answered.mode, answered.sources))
    return measures


def _measure_citations(expected: ExpectedTurn, answered: AnsweredTurn) -> dict[str, float]:
    """The share of cited passages that contain a fact or support the sentence that cites them."""
    cited = [source for source in answered.sources if source.cited]
    if not cited:
        return {}
    correct_count = sum(
        _is_borne_out(source.slot, answered.checks) or _has_fact(expected, source.text)
        for source in cited
    )
    return {"citations": correct_count / len(cited)}


def _is_borne_out(slot: int, checks: Sequence[CheckedSentence]) -> bool:
    """Whether sentences cite the slot, and none of them is unsupported."""
    verdicts = {check.verdict for check in checks if slot in check.slots}
    return Verdict.SUPPORTED in verdicts and Verdict.UNSUPPORTED not in verdicts


def _has_fact(expected: ExpectedTurn, text: str) -> bool:
    return any(measure_fact_share([fact], text, in_answer=False) == 1 for fact in expected.facts)


def _measure_evidence(answered: AnsweredTurn, documents: Collection[UUID]) -> dict[str, float]:
    measures = {}
    sizes = answered.prompt_characters or {}
    if sizes.get("total"):
        measures["evidence_share"] = sizes.get("evidence", 0) / sizes["total"]
    total = sum(len(source.text) for source in answered.evidence)
    if documents and total:
        unrelated = (source for source in answered.evidence if source.document_id not in documents)
        measures["strangers"] = sum(len(source.text) for source in unrelated) / total
    return measures


def _measure_costs(answered: AnsweredTurn) -> dict[str, float]:
    measures = {
        "characters": float(len(answered.content)),
        "prompt_tokens": float(sum(call.usage.prompt_tokens for call in answered.calls)),
        "completion_tokens": float(sum(call.usage.completion_tokens for call in answered.calls)),
        "calls": float(len(answered.calls)),
        "calls_before_first_word": float(answered.calls_before_first_word),
        "total_ms": answered.total_ms,
    }
    if answered.first_word_ms is not None:
        measures["first_word_ms"] = answered.first_word_ms
    return measures


# A chat model's verdict on an answer

CRITERIA = ("relevance", "faithfulness", "support")
COHERENCE = "coherence"
"""Judged only if there are earlier turns."""
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
    """A chat model's grades, 0..1 by criterion. `earlier` are questions and answers, oldest first.

    Raises `LLMError`, or `BadReply` for an invalid verdict.
    """
    language = choose_reply_language(question)
    fence = f"=== {secrets.token_hex(6)} ==="
    passages = "\n\n".join(
        f"[{source.slot}] {source.text}" for source in _put_cited_first(answered)
    )
    history = "\n".join(
        f"Q: {earlier_question}\nA: {earlier_answer}"
        for earlier_question, earlier_answer in earlier
    )
    case = prompts.fill_prompt(
        "judge_case",
        language,
        fence=fence,
        earlier=neutralise_text(history[-MAX_EARLIER_CHARACTERS:]) or "-",
        passages=neutralise_text(passages[:MAX_PASSAGES_CHARACTERS]) or "-",
        question=neutralise_text(question),
        answer=neutralise_text(answered.content[:MAX_ANSWER_CHARACTERS]) or "-",
    )
    system = prompts.fill_prompt("judge", language, fence=fence)
    reply = await light.ask_json(system, case, max_tokens=MAX_TOKENS, schema=SCHEMA)
    return _parse_verdict(reply, (*CRITERIA, COHERENCE) if earlier else CRITERIA)


def _put_cited_first(answered: AnsweredTurn) -> list[AnswerSource]:
    """The evidence with cited passages first, so that they are not cut off."""
    cited_ids = {source.chunk_id for source in answered.sources if source.cited}
    return sorted(answered.evidence, key=lambda source: source.chunk_id not in cited_ids)


def _parse_verdict(reply: object, criteria: Sequence[str]) -> dict[str, float]:
    if not isinstance(reply, Mapping):
        raise BadReply("not an object")
    return {name: _parse_grade(name, reply.get(name)) for name in criteria}


def _parse_grade(name: str, value: object) -> float:
    if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= 1:
        return float(value)
    raise BadReply(f"{name}: {str(value)[:40]}")
