"""What language models write: answers, notes on whole documents, revised drafts, follow-ups.

If a prompt is too long, it is halved and tried once more. Whole documents that do not fit a prompt
are read part by part. A revision must neither lose nor add anything: its markers, figures and code
are compared with the draft's, and it is checked against the evidence again.
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
"""Parts read for one question; of more, some are skipped evenly, and readers are told so."""
NOTE_TOKENS = 500
MAX_NOTE_CHARACTERS = 400
SECONDS_PER_PART = 60.0
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
        """The counter for the model's tokens."""
        return get_counter(self.llm.name)

    async def stream_answer(
        self,
        context: AnswerContext,
        messages: Sequence[HistoryMessage],
        sampling: Sampling,
        on_trim: Callable[[AnswerContext], None],
    ) -> AsyncGenerator[Piece, None]:
        """Stream the model's answer to `messages`, the prompt of `context`; usage comes last.

        If the prompt is too long for the model, it is halved once, and `on_trim` is called. Raises
        only `rag.errors.LLMError`.
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
        # counted last, so that the first word need not wait for it
        prompt_tokens = sum(
            self.counter.count(message.content) + MESSAGE_TOKENS for message in messages
        )
        if usage:
            self.counter.learn(prompt_tokens, usage.prompt_tokens)
        else:
            yield Piece(
                usage=Usage(prompt_tokens, self.counter.count("".join(texts)), estimated=True)
            )


@dataclass(frozen=True, slots=True)
class Note:
    """A point noted from passages: its text with their numbers, `numbers`, and the part read."""

    text: str
    numbers: tuple[int, ...]
    part: int = 0


@dataclass(slots=True)
class SectionReader:
    """Reads portions of evidence one after the other with a model; failed ones are skipped.

    `notes` are the notes so far, `unread` is the number of portions not read.
    """

    light: Light
    language: str
    fence: str
    notes: list[Note] = field(default_factory=list)
    unread: int = 0

    async def read(
        self, question: str, portions: Sequence[Sequence[Evidence]]
    ) -> AsyncGenerator[int, None]:
        """Read at most `MAX_PARTS` portions; yields the number of each, from 1, before reading."""
        chosen = _spread_evenly(len(portions), MAX_PARTS)
        self.unread = len(portions) - len(chosen)
        for index in chosen:
            yield index + 1
            try:
                self.notes += await self._take_notes(question, portions[index], index)
            except LLMError as error:
                logger.warning("document_part_not_read", code=error.code)
                self.unread += 1

    def fit_notes(self, room: int, counter: TokenCounter) -> list[Note]:
        """The notes that fit into `room` tokens: the first of each part before any second."""
        rank_by_part: Counter[int] = Counter()
        ranked = []
        for index, note in enumerate(self.notes):
            ranked.append((rank_by_part[note.part], index))
            rank_by_part[note.part] += 1
        kept_indexes: list[int] = []
        for _, index in sorted(ranked):
            room -= counter.count(self.notes[index].text) + 1
            if room < 0:
                break
            kept_indexes.append(index)
        return [self.notes[index] for index in sorted(kept_indexes)]

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
    """A line of notes; None if it cites none of the passages shown."""
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
    """At most `limit` indexes below `total`, including the first and the last."""
    if total <= limit:
        return list(range(total))
    return [round(index * (total - 1) / (limit - 1)) for index in range(limit)]


# Revision of a finished draft: doubted sentences are corrected, the whole is restyled

MAX_DRAFT_CHARACTERS = 8000
"""Of a draft that is restyled; a small model would lose parts of a longer one."""
MIN_LENGTH_SHARE, MAX_LENGTH_SHARE = 0.4, 1.6
"""Length of a rewriting as a share of the draft's; outside this range it is a different text."""
TOKENS_PER_CHARACTER = 1.2
"""Enough for Korean with any tokeniser."""
MIN_STYLE_TOKENS = 200
MAX_REWRITTEN_SENTENCES = 8
"""Doubted sentences of a draft that are rewritten; any others stay marked as doubted."""

MAX_MATERIAL_CHARACTERS = 8000
"""Characters of passages that the light model reads to correct sentences."""
CORRECT_SECONDS, CORRECT_TOKENS = 20.0, 1000

_MARKER = re.compile(r"\[(\d{1,4})\]")
_NUMBER = re.compile(r"\d+(?:[.,:/-]\d+)*")
_CODE = re.compile(r"```.*?(?:```|\Z)|`[^`\n]+`", re.DOTALL)
_FENCED = re.compile(r"\A```\w*\n(.*)\n```\Z", re.DOTALL)

Check = Callable[[str, Sequence[Citation]], Verification]
"""Checks a text with its citations against the evidence of the answer."""


@dataclass(frozen=True, slots=True)
class CheckedAnswer:
    """An answer as shown, with its citations and its verification."""

    text: str
    citations: tuple[Citation, ...]
    verification: Verification


@dataclass(frozen=True, slots=True)
class Revision:
    """The result of a revision: the new draft, or None and the reason why the old one stays.

    `reason` is "", "length", "markers", "numbers", "code", "support", or the code of an error.
    """

    draft: CheckedAnswer | None = None
    reason: str = ""


Step = Callable[[CheckedAnswer, AnswerContext, Check], Awaitable[Revision]]


@dataclass(frozen=True, slots=True)
class Reviser:
    """Rewrites drafts with the light model, whose failures are never raised.

    `style`: the rules by which every draft is restyled, if any. `corrects`: unsupported sentences
    are rewritten from the passages.
    """

    light: Light
    style: StyleRules | None = None
    corrects: bool = False

    def list_steps(self, draft: CheckedAnswer) -> Iterator[tuple[str, Step]]:
        """The steps to take with a draft, by name, in order.

        General knowledge, which cites nothing, is not rewritten from passages.
        """
        if self.corrects and draft.citations and any(_list_doubted(draft)):
            yield "revise", self.correct
        if self.style:
            yield "style", functools.partial(self.restyle, self.style)

    async def correct(self, draft: CheckedAnswer, context: AnswerContext, check: Check) -> Revision:
        """Rewrite the doubted sentences of a draft from the passages.

        Sentences that do not get better stay, marked as doubted.
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
        """Rewrite the draft in the style that the rules describe."""
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
    """The unsupported sentences, without table rows."""
    return (item for item in draft.verification.doubted if draft.text[item.start] != "|")


def _render_material(
    draft: CheckedAnswer, doubted: Sequence[CheckedSentence], context: AnswerContext
) -> str:
    """Passages, cited ones first, the question and the doubted sentences, for the light model."""
    cited_numbers = {citation.number for citation in draft.citations}
    passages, room = [], MAX_MATERIAL_CHARACTERS
    for item in sorted(context.evidence, key=lambda item: item.number not in cited_numbers):
        passages.append(f"[{item.number}] {item.passage.document_name}\n{item.content[:room]}")
        room -= len(item.content)
        if room <= 0:
            break
    sentences = [
        f"{number}. {_render_part(draft, sentence.start, sentence.end)}"
        for number, sentence in enumerate(doubted, 1)
    ]
    return neutralise_text("\n\n".join([*passages, f"? {context.question}", "\n".join(sentences)]))


def _render_part(draft: CheckedAnswer, start: int, end: int) -> str:
    """Part of a draft as a model would write it, with the numbers of passages in its markers."""
    citations = [
        Citation(citation.offset - start, citation.number)
        for citation in draft.citations
        if start <= citation.offset < end
    ]
    return to_numbered(draft.text[start:end], citations)


def _is_supported(sentence: str, context: AnswerContext, check: Check) -> bool:
    """Whether a rewritten sentence cites passages that support it."""
    text, citations = _clean_reply(sentence, context.evidence)
    verdicts = {item.verdict for item in check(text, citations).checks} if citations else set()
    return Verdict.SUPPORTED in verdicts and Verdict.UNSUPPORTED not in verdicts


def _replace_sentences(
    draft: CheckedAnswer, replacements: Sequence[tuple[CheckedSentence, str]]
) -> str:
    """The draft with some sentences replaced, and the numbers of passages in its markers."""
    parts, position = [], 0
    for item, text in replacements:
        parts += [_render_part(draft, position, item.start), " ".join(text.split())]
        position = item.end
    return "".join([*parts, _render_part(draft, position, len(draft.text))])


def _clean_reply(reply: str, evidence: Sequence[Evidence]) -> tuple[str, tuple[Citation, ...]]:
    """A reply without a fence around it and markers without a source, and its citations."""
    fenced = _FENCED.match(reply.strip())
    citation_filter = CitationFilter(evidence)
    text = citation_filter.feed((fenced[1] if fenced else reply).strip()) + citation_filter.flush()
    return text.rstrip(), citation_filter.citations


def _find_lost_part(draft: CheckedAnswer, text: str, citations: Sequence[Citation]) -> str:
    """Which part of the draft the new text has lost or changed; "" if none."""
    if not MIN_LENGTH_SHARE * len(draft.text) <= len(text) <= MAX_LENGTH_SHARE * len(draft.text):
        return "length"
    if _count_codes(draft.text) != _count_codes(text):
        return "code"
    if {citation.number for citation in draft.citations} != {
        citation.number for citation in citations
    }:
        return "markers"
    draft_text, new_text = _CODE.sub(" ", draft.text), _CODE.sub(" ", text)
    return "" if _find_numbers(draft_text) == _find_numbers(new_text) else "numbers"


def _count_codes(text: str) -> Counter[str]:
    return Counter(_CODE.findall(text))


def _find_numbers(text: str) -> set[str]:
    return set(_NUMBER.findall(_MARKER.sub(" ", text)))


MAX_FOLLOW_UPS = 3
MAX_FOLLOW_UP_CHARACTERS = 80
MAX_READ_QUESTION_CHARACTERS = 500
"""Characters of the question and ..."""
MAX_READ_ANSWER_CHARACTERS = 1500
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
    """Up to three further questions in the language of the question, which is not among them.

    `headings` are those of the passages. Raises as `Light.ask_json` does.
    """
    language = choose_reply_language(question)
    lines = [
        f"Q: {question[:MAX_READ_QUESTION_CHARACTERS]}",
        f"A: {to_plain_text(answer)[:MAX_READ_ANSWER_CHARACTERS]}",
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
