"""What language models write: the answer, notes on whole documents, and a better draft.

An answer is tried once more, less long, where the prompt was too long. Whole documents that do not
fit a prompt are read part by part. Nothing that a draft said may be lost or added by a rewriting:
markers, figures and code are compared, and it is checked against the evidence again.
"""

import asyncio
import functools
import re
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace

import structlog

from rag import prompts
from rag.adapters.light import Light
from rag.config import StyleRules
from rag.context.budget import halve_context
from rag.context.prompt import AnswerContext, build_messages, render_passages
from rag.context.tokens import MESSAGE_TOKENS, TokenCounter, get_counter
from rag.conversation import Sampling
from rag.errors import ContextOverflow, LLMError
from rag.generate.citations import CitationFilter, to_numbered
from rag.generate.markdown import to_plain_text
from rag.ports import LLM, GenerationOptions, Piece, Usage
from rag.tokenize.text import choose_reply_language, neutralise_text, to_letters
from rag.types import CheckedSentence, Citation, Evidence, HistoryMessage, Verdict
from rag.verify import Verification

logger = structlog.get_logger()

MAX_PARTS = 12
"""Parts that are read for one question; of longer documents evenly many are left out, and told."""
NOTE_TOKENS = 500
MAX_NOTE_CHARACTERS = 400
SECONDS_A_PART = 60.0
_NUMBERS = re.compile(r"\[(\d{1,4})\]")


@dataclass(frozen=True, slots=True)
class Writer:
    """Asks the model for answers."""

    llm: LLM
    options: GenerationOptions

    @property
    def name(self) -> str:
        """The model's name."""
        return self.llm.name

    @property
    def counter(self) -> TokenCounter:
        """Counts as the model does."""
        return get_counter(self.llm.name)

    async def stream_answer(
        self,
        context: AnswerContext,
        messages: Sequence[HistoryMessage],
        sampling: Sampling,
        on_trim: Callable[[AnswerContext], None],
    ) -> AsyncGenerator[Piece, None]:
        """The model's pieces to `messages`, the prompt of `context`; usage at the end.

        A prompt that is too long for the model is halved once, and `on_trim` told. Raises
        `rag.errors.LLMError` and nothing else.
        """
        options = self.options.with_sampling(sampling)
        texts: list[str] = []
        usage: Usage | None = None
        is_trimmed = False
        while True:
            try:
                async with aclosing(self.llm.stream(messages, options)) as pieces:
                    async for piece in pieces:
                        texts.append(piece.text)
                        usage = piece.usage or usage
                        yield piece
                break
            except ContextOverflow:
                if is_trimmed or any(texts):
                    raise
                shorter = halve_context(context, self.counter)
                on_trim(shorter)
                messages, is_trimmed = build_messages(shorter), True
        # only now: whoever waits for the first word need not wait for that
        counted = sum(self.counter.count(message.content) + MESSAGE_TOKENS for message in messages)
        if usage:
            self.counter.learn(counted, usage.prompt_tokens)
        else:
            yield Piece(usage=Usage(counted, self.counter.count("".join(texts)), estimated=True))


@dataclass(frozen=True, slots=True)
class Note:
    """A point noted of a passage: its text, with the numbers of the passages that it rests on."""

    text: str
    numbers: tuple[int, ...]
    part: int = 0


@dataclass(slots=True)
class SectionReader:
    """Reads portions one after the other with a model; one that fails is left out.

    `notes` hold what was noted so far, `unread` how many parts were not read.
    """

    light: Light
    language: str
    fence: str
    notes: list[Note] = field(default_factory=list)
    unread: int = 0

    async def read(
        self, question: str, portions: Sequence[Sequence[Evidence]]
    ) -> AsyncGenerator[int, None]:
        """Read at most `MAX_PARTS` portions; yields the number of each before, from 1."""
        chosen = _spread_evenly(len(portions), MAX_PARTS)
        self.unread = len(portions) - len(chosen)
        for place in chosen:
            yield place + 1
            try:
                self.notes += await self._take_notes(question, portions[place], place)
            except LLMError as error:
                logger.warning("document_part_not_read", code=error.code)
                self.unread += 1

    def fit_notes(self, room: int, counter: TokenCounter) -> list[Note]:
        """The notes that fit into `room` tokens: the first of each part before any second."""
        turns: Counter[int] = Counter()
        by_turns = []
        for place, note in enumerate(self.notes):
            by_turns.append((turns[note.part], place))
            turns[note.part] += 1
        kept: list[int] = []
        for _, place in sorted(by_turns):
            room -= counter.count(self.notes[place].text) + 1
            if room < 0:
                break
            kept.append(place)
        return [self.notes[place] for place in sorted(kept)]

    async def _take_notes(
        self, question: str, portion: Sequence[Evidence], part: int
    ) -> list[Note]:
        passages = render_passages(portion, self.language)
        prompt = prompts.fill_prompt(
            "read_section_text",
            self.language,
            question=neutralise_text(question),
            fence=f"=== {self.fence} ===",
            content=passages,
        )
        system = prompts.load_prompt("read_section", self.language)
        reply = await self.light.ask_text(system, prompt, max_tokens=NOTE_TOKENS)
        numbers = {item.number for item in portion}
        return [note for line in reply.splitlines() if (note := _to_note(line, numbers, part))]


def _to_note(line: str, known_numbers: set[int], part: int) -> Note | None:
    """A line of notes; None where it rests on none of the passages shown."""
    numbers = tuple(dict.fromkeys(int(number) for number in _NUMBERS.findall(line)))
    rests_on = tuple(number for number in numbers if number in known_numbers)
    text = _NUMBERS.sub("", line).strip(" -*•\t")[:MAX_NOTE_CHARACTERS]
    if not text or not rests_on:
        return None
    return Note(
        f"- {neutralise_text(text)} " + "".join(f"[{number}]" for number in rests_on),
        rests_on,
        part,
    )


def _spread_evenly(total: int, limit: int) -> list[int]:
    """At most `limit` places of `total`, the first and the last among them."""
    if total <= limit:
        return list(range(total))
    return [round(place * (total - 1) / (limit - 1)) for place in range(limit)]


# A finished draft once more: what is doubted anew, all of it in better words

MAX_DRAFT_CHARACTERS = 8000
"""Of a draft; a longer one stays: a small model would lose some of it."""
MIN_LENGTH_SHARE, MAX_LENGTH_SHARE = 0.4, 1.6
"""Shares of the draft's length that a rewriting may have: beyond it, it is another text."""
TOKENS_PER_CHARACTER = 1.2
"""Enough for Korean with any tokeniser, at the length that a rewriting may have."""
MIN_STYLE_TOKENS = 200
MAX_REWRITTEN_SENTENCES = 8
"""Doubted sentences that are rewritten; one with more of them is better read with its marks."""

MAX_MATERIAL_CHARACTERS = 8000
"""Of passages that the light model reads to correct sentences."""
CORRECT_SECONDS, CORRECT_TOKENS = 20.0, 1000

_MARKER = re.compile(r"\[(\d{1,4})\]")
_NUMBER = re.compile(r"\d+(?:[.,:/-]\d+)*")
_CODE = re.compile(r"```.*?(?:```|\Z)|`[^`\n]+`", re.DOTALL)
_FENCED = re.compile(r"\A```\w*\n(.*)\n```\Z", re.DOTALL)

Check = Callable[[str, Sequence[Citation]], Verification]
"""Holds a text with its citations against the evidence of the answer."""


@dataclass(frozen=True, slots=True)
class CheckedAnswer:
    """An answer as it is shown, with its citations and what the check found."""

    text: str
    citations: tuple[Citation, ...]
    verification: Verification


@dataclass(frozen=True, slots=True)
class Revision:
    """What became of a draft: the better one, None where it stays, and why it does.

    `reason` is "", "length", "markers", "numbers", "code", "support", or the code of an error.
    """

    draft: CheckedAnswer | None = None
    reason: str = ""


Step = Callable[[CheckedAnswer, AnswerContext, Check], Awaitable[Revision]]


@dataclass(frozen=True, slots=True)
class Reviser:
    """Rewrites drafts with the light model. Never raises for what the model does.

    `style`: the rules to rewrite every draft to, None for none. `corrects`: sentences that nothing
    supports are rewritten from the passages.
    """

    light: Light
    style: StyleRules | None = None
    corrects: bool = False

    def list_steps(self, draft: CheckedAnswer) -> Iterator[tuple[str, Step]]:
        """What is to be done with a draft, by name, in order.

        General knowledge, which cites nothing, is not written anew from passages.
        """
        if self.corrects and draft.citations and any(_list_doubted(draft)):
            yield "revise", self.correct
        if self.style:
            yield "style", functools.partial(self.restyle, self.style)

    async def correct(self, draft: CheckedAnswer, context: AnswerContext, check: Check) -> Revision:
        """The draft with its doubted sentences said anew from the passages.

        What is no better than before stays, and is shown as doubted.
        """
        doubted = list(_list_doubted(draft))[:MAX_REWRITTEN_SENTENCES]
        system = prompts.load_prompt("revise", context.language)
        material = _render_material(draft, doubted, context)
        try:
            patient_light = replace(self.light, seconds=CORRECT_SECONDS)
            reply = await patient_light.ask_json(
                system, material, max_tokens=CORRECT_TOKENS, begins="["
            )
        except LLMError as error:
            logger.warning("answer_not_corrected", code=error.code)
            return Revision(reason=error.code)
        sentences = reply if isinstance(reply, list) else []
        replacements = [
            (item, text)
            for item, text in zip(doubted, sentences, strict=False)
            if isinstance(text, str)
            and await asyncio.to_thread(_is_supported, text, context, check)
        ]
        text, citations = _clean_reply(_replace_sentences(draft, replacements), context.evidence)
        verification = await asyncio.to_thread(check, text, citations)
        if len(verification.doubted) >= len(draft.verification.doubted):
            return Revision(reason="support")
        return Revision(CheckedAnswer(text, citations, verification))

    async def restyle(
        self, rules: StyleRules, draft: CheckedAnswer, context: AnswerContext, check: Check
    ) -> Revision:
        """The draft in the style of the rules."""
        if not draft.text.strip() or len(draft.text) > MAX_DRAFT_CHARACTERS:
            return Revision(reason="length")
        try:
            text = to_numbered(draft.text, draft.citations)
            reply = await self._ask_for_restyled(rules, text, context.language)
        except LLMError as error:
            logger.warning("answer_not_restyled", code=error.code)
            return Revision(reason=error.code)
        text, citations = _clean_reply(reply, context.evidence)
        if reason := _find_lost_part(draft, text, citations):
            return Revision(reason=reason)
        verification = await asyncio.to_thread(check, text, citations)
        if len(verification.doubted) > len(draft.verification.doubted):
            return Revision(reason="support")
        return Revision(CheckedAnswer(text, citations, verification))

    async def _ask_for_restyled(self, rules: StyleRules, text: str, language: str) -> str:
        rules_text = rules.text or prompts.load_prompt("style_rules", language)
        system = prompts.fill_prompt("style", language, rules=rules_text)
        max_tokens = max(
            MIN_STYLE_TOKENS, round(len(text) * MAX_LENGTH_SHARE * TOKENS_PER_CHARACTER)
        )
        patient_light = replace(self.light, seconds=rules.seconds)
        return await patient_light.ask_text(system, neutralise_text(text), max_tokens=max_tokens)


def _list_doubted(draft: CheckedAnswer) -> Iterator[CheckedSentence]:
    """The sentences that nothing supports, rows of tables left out: they are no sentences."""
    return (item for item in draft.verification.doubted if draft.text[item.start] != "|")


def _render_material(
    draft: CheckedAnswer, doubted: Sequence[CheckedSentence], context: AnswerContext
) -> str:
    """Passages, question and sentences for the light model; those that are cited come first."""
    cited_numbers = {one.number for one in draft.citations}
    passages, room = [], MAX_MATERIAL_CHARACTERS
    for item in sorted(context.evidence, key=lambda item: item.number not in cited_numbers):
        passages.append(f"[{item.number}] {item.passage.document_name}\n{item.content[:room]}")
        room -= len(item.content)
        if room <= 0:
            break
    sentences = [
        f"{place}. {_render_stretch(draft, one.start, one.end)}"
        for place, one in enumerate(doubted, 1)
    ]
    return neutralise_text("\n\n".join([*passages, f"? {context.question}", "\n".join(sentences)]))


def _render_stretch(draft: CheckedAnswer, start: int, end: int) -> str:
    """A stretch of a draft as a model would have written it: with the numbers of passages."""
    inside = [
        Citation(one.offset - start, one.number)
        for one in draft.citations
        if start <= one.offset < end
    ]
    return to_numbered(draft.text[start:end], inside)


def _is_supported(sentence: str, context: AnswerContext, check: Check) -> bool:
    """Whether a sentence said anew cites passages that support it."""
    text, citations = _clean_reply(sentence, context.evidence)
    verdicts = {item.verdict for item in check(text, citations).checks} if citations else set()
    return Verdict.SUPPORTED in verdicts and Verdict.UNSUPPORTED not in verdicts


def _replace_sentences(
    draft: CheckedAnswer, replacements: Sequence[tuple[CheckedSentence, str]]
) -> str:
    """The draft, with the numbers of its passages, with other sentences in some places."""
    parts, position = [], 0
    for item, text in replacements:
        parts += [_render_stretch(draft, position, item.start), " ".join(text.split())]
        position = item.end
    return "".join([*parts, _render_stretch(draft, position, len(draft.text))])


def _clean_reply(reply: str, evidence: Sequence[Evidence]) -> tuple[str, tuple[Citation, ...]]:
    """What of a reply may be shown: out of its fence, without markers that have no source."""
    fenced = _FENCED.match(reply.strip())
    citation_filter = CitationFilter(evidence)
    text = citation_filter.feed((fenced[1] if fenced else reply).strip()) + citation_filter.flush()
    return text.rstrip(), citation_filter.citations


def _find_lost_part(draft: CheckedAnswer, text: str, citations: Sequence[Citation]) -> str:
    """Which part of the draft did not survive; empty when all of it did."""
    if not MIN_LENGTH_SHARE * len(draft.text) <= len(text) <= MAX_LENGTH_SHARE * len(draft.text):
        return "length"
    if _count_codes(draft.text) != _count_codes(text):
        return "code"
    if {one.number for one in draft.citations} != {one.number for one in citations}:
        return "markers"
    plain, again = _CODE.sub(" ", draft.text), _CODE.sub(" ", text)
    return "" if _find_numbers(plain) == _find_numbers(again) else "numbers"


def _count_codes(text: str) -> Counter[str]:
    return Counter(_CODE.findall(text))


def _find_numbers(text: str) -> set[str]:
    return set(_NUMBER.findall(_MARKER.sub(" ", text)))


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
    lines = [
        f"Q: {question[:MAX_READ_QUESTION]}",
        f"A: {to_plain_text(answer)[:MAX_READ_ANSWER]}",
        *(f"- {heading}" for heading in headings[:MAX_READ_HEADINGS]),
    ]
    reply = await light.ask_json(
        prompts.load_prompt("follow_ups", language),
        neutralise_text("\n".join(lines)),
        max_tokens=REPLY_TOKENS,
        schema=SCHEMA,
    )
    questions = reply.get("questions") if isinstance(reply, dict) else None
    seen = {to_letters(question)}
    suggestions: list[str] = []
    for item in questions if isinstance(questions, list) else ():
        text = " ".join(item.split()) if isinstance(item, str) else ""
        letters = to_letters(text)
        is_new = letters and letters not in seen and len(text) <= MAX_FOLLOW_UP_CHARACTERS
        if is_new and choose_reply_language(text) == language:
            seen.add(letters)
            suggestions.append(text)
    return tuple(suggestions[:MAX_FOLLOW_UPS])
