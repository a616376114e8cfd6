"""A finished draft once more by the light model: what is doubted anew, all of it in better words.

Nothing that the draft said may be lost or added by style: markers, figures and code are compared.
Every rewriting is checked against the evidence again; where that supports less, the draft stays.
"""

import asyncio
import functools
import logging
import re
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from rag import prompts
from rag.adapters.light import Light
from rag.config import StyleRules
from rag.context.prompt import AnswerContext
from rag.errors import LLMError
from rag.generate.citations import CitationFilter, to_numbered
from rag.tokenize.text import neutralise_text
from rag.types import Citation, Evidence
from rag.verify.label import Checked, Verdict
from rag.verify.verify import Verification

log = logging.getLogger(__name__)

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
class Written:
    """An answer as it is shown, with its citations and what the check found."""

    text: str
    citations: tuple[Citation, ...]
    found: Verification


@dataclass(frozen=True, slots=True)
class Revised:
    """What became of a draft: the better one, None where it stays, and why it does.

    `reason` is "", "length", "markers", "numbers", "code", "support", or the code of an error.
    """

    draft: Written | None = None
    reason: str = ""


Step = Callable[[Written, AnswerContext, Check], Awaitable[Revised]]


@dataclass(frozen=True, slots=True)
class Reviser:
    """Rewrites drafts with the light model. Never raises for what the model does.

    `style`: the rules to rewrite every draft to, None for none. `corrects`: sentences that nothing
    supports are rewritten from the passages.
    """

    light: Light
    style: StyleRules | None = None
    corrects: bool = False

    def steps(self, draft: Written) -> Iterator[tuple[str, Step]]:
        """What is to be done with a draft, by name, in order.

        General knowledge, which cites nothing, is not written anew from passages.
        """
        if self.corrects and draft.citations and any(_doubted(draft)):
            yield "revise", self.correct
        if self.style:
            yield "style", functools.partial(self.restyle, self.style)

    async def correct(self, draft: Written, context: AnswerContext, check: Check) -> Revised:
        """The draft with its doubted sentences said anew from the passages.

        What is no better than before stays, and is shown as doubted.
        """
        doubted = list(_doubted(draft))[:MAX_REWRITTEN_SENTENCES]
        system = prompts.load_prompt("revise", context.language)
        asked = _material(draft, doubted, context)
        try:
            patient = replace(self.light, seconds=CORRECT_SECONDS)
            said = await patient.read(system, asked, max_tokens=CORRECT_TOKENS, begins="[")
        except LLMError as error:
            log.warning("the light model did not correct an answer: %s", error.code)
            return Revised(reason=error.code)
        new = said if isinstance(said, list) else []
        better = [
            (item, text)
            for item, text in zip(doubted, new, strict=False)
            if isinstance(text, str) and await asyncio.to_thread(_holds, text, context, check)
        ]
        text, citations = _shown(_spliced(draft, better), context.evidence)
        found = await asyncio.to_thread(check, text, citations)
        if len(found.doubted) >= len(draft.found.doubted):
            return Revised(reason="support")
        return Revised(Written(text, citations, found))

    async def restyle(
        self, rules: StyleRules, draft: Written, context: AnswerContext, check: Check
    ) -> Revised:
        """The draft in the style of the rules."""
        if not draft.text.strip() or len(draft.text) > MAX_DRAFT_CHARACTERS:
            return Revised(reason="length")
        try:
            text = to_numbered(draft.text, draft.citations)
            said = await self._say_restyled(rules, text, context.language)
        except LLMError as error:
            log.warning("the light model did not rewrite an answer: %s", error.code)
            return Revised(reason=error.code)
        text, citations = _shown(said, context.evidence)
        if reason := _lost(draft, text, citations):
            return Revised(reason=reason)
        found = await asyncio.to_thread(check, text, citations)
        if len(found.doubted) > len(draft.found.doubted):
            return Revised(reason="support")
        return Revised(Written(text, citations, found))

    async def _say_restyled(self, rules: StyleRules, text: str, language: str) -> str:
        told = rules.text or prompts.load_prompt("style_rules", language)
        system = prompts.fill_prompt("style", language, rules=told)
        most = max(MIN_STYLE_TOKENS, round(len(text) * MAX_LENGTH_SHARE * TOKENS_PER_CHARACTER))
        patient = replace(self.light, seconds=rules.seconds)
        return await patient.say(system, neutralise_text(text), max_tokens=most)


def _doubted(draft: Written) -> Iterator[Checked]:
    """The sentences that nothing supports, rows of tables left out: they are no sentences."""
    return (item for item in draft.found.doubted if draft.text[item.start] != "|")


def _material(draft: Written, doubted: Sequence[Checked], context: AnswerContext) -> str:
    """Passages, question and sentences for the light model; those that are cited come first."""
    cited = {one.number for one in draft.citations}
    passages, room = [], MAX_MATERIAL_CHARACTERS
    for item in sorted(context.evidence, key=lambda item: item.number not in cited):
        passages.append(f"[{item.number}] {item.passage.document_name}\n{item.content[:room]}")
        room -= len(item.content)
        if room <= 0:
            break
    sentences = [
        f"{place}. {_between(draft, one.start, one.end)}" for place, one in enumerate(doubted, 1)
    ]
    return neutralise_text("\n\n".join([*passages, f"? {context.question}", "\n".join(sentences)]))


def _between(draft: Written, start: int, end: int) -> str:
    """A stretch of a draft as a model would have written it: with the numbers of passages."""
    inside = [
        Citation(one.offset - start, one.number)
        for one in draft.citations
        if start <= one.offset < end
    ]
    return to_numbered(draft.text[start:end], inside)


def _holds(sentence: str, context: AnswerContext, check: Check) -> bool:
    """Whether a sentence said anew cites passages that support it."""
    text, citations = _shown(sentence, context.evidence)
    verdicts = {item.verdict for item in check(text, citations).checks} if citations else set()
    return Verdict.SUPPORTED in verdicts and Verdict.UNSUPPORTED not in verdicts


def _spliced(draft: Written, better: Sequence[tuple[Checked, str]]) -> str:
    """The draft, with the numbers of its passages, with other sentences in some places."""
    parts, position = [], 0
    for item, text in better:
        parts += [_between(draft, position, item.start), " ".join(text.split())]
        position = item.end
    return "".join([*parts, _between(draft, position, len(draft.text))])


def _shown(said: str, evidence: Sequence[Evidence]) -> tuple[str, tuple[Citation, ...]]:
    """What of a reply may be shown: out of its fence, without markers that have no source."""
    fenced = _FENCED.match(said.strip())
    markers = CitationFilter(evidence)
    text = markers.feed((fenced[1] if fenced else said).strip()) + markers.flush()
    return text.rstrip(), markers.citations


def _lost(draft: Written, text: str, citations: Sequence[Citation]) -> str:
    """Which part of the draft did not survive; empty when all of it did."""
    if not MIN_LENGTH_SHARE * len(draft.text) <= len(text) <= MAX_LENGTH_SHARE * len(draft.text):
        return "length"
    if _codes(draft.text) != _codes(text):
        return "code"
    if {one.number for one in draft.citations} != {one.number for one in citations}:
        return "markers"
    plain, again = _CODE.sub(" ", draft.text), _CODE.sub(" ", text)
    return "" if _numbers(plain) == _numbers(again) else "numbers"


def _codes(text: str) -> Counter[str]:
    return Counter(_CODE.findall(text))


def _numbers(text: str) -> set[str]:
    return set(_NUMBER.findall(_MARKER.sub(" ", text)))
