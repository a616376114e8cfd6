"""A finished draft in better words: the light model rewrites it to the rules of style, or it stays.

Nothing that the draft said may be lost or added: markers, figures and code are compared, and the
evidence is asked again whether it still supports every sentence.
"""

import asyncio
import logging
import re
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, replace

from rag import prompts
from rag.config import StyleRules
from rag.errors import LLMError
from rag.generation.brief import Brief
from rag.grounding import support
from rag.grounding.markers import MarkerFilter
from rag.grounding.support import Checked, Verdict
from rag.llms.light import Light
from rag.neutral import neutralise

log = logging.getLogger(__name__)

LONGEST = 8000
"""Characters of a draft beyond which it stays: a small model would lose some of it."""
SHORTER, LONGER = 0.4, 1.6
"""Shares of the draft's length that a rewriting may have: beyond it, it is another text."""
TOKENS_PER_CHARACTER = 1.2
"""Enough for Korean with any tokeniser, at the length that a rewriting may have."""
SMALLEST_LIMIT = 200

_MARKER = re.compile(r"\[(\d{1,4})\]")
_NUMBER = re.compile(r"\d+(?:[.,:/-]\d+)*")
_CODE = re.compile(r"```.*?(?:```|\Z)|`[^`\n]+`", re.DOTALL)
_FENCED = re.compile(r"\A```\w*\n(.*)\n```\Z", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Styled:
    """What became of a draft: its new text, empty where it stays, and why it does.

    `reason` is "", "length", "markers", "numbers", "code", "support", or the code of an error.
    """

    text: str = ""
    checks: tuple[Checked, ...] = ()
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Stylist:
    """Rewrites drafts with the light model. Never raises for what the model does."""

    light: Light
    rules: StyleRules

    async def rewrite(
        self, draft: str, brief: Brief, slots: Collection[int], checks: tuple[Checked, ...]
    ) -> Styled:
        """The draft in the style of the rules; `checks` are those of the draft."""
        if not draft.strip() or len(draft) > LONGEST:
            return Styled(reason="length")
        try:
            said = await self._say(draft, brief.language)
        except LLMError as error:
            log.warning("the light model did not rewrite an answer: %s", error.code)
            return Styled(reason=error.code)
        text = _shown(said, slots)
        if reason := _lost(draft, text):
            return Styled(reason=reason)
        again = await asyncio.to_thread(support.check, text, brief.evidence) if checks else ()
        if _unsupported(again) > _unsupported(checks):
            return Styled(reason="support")
        return Styled(text, again)

    async def _say(self, draft: str, language: str) -> str:
        rules = self.rules.text or prompts.text("style_rules", language)
        system = prompts.fill("style", language, rules=rules)
        most = max(SMALLEST_LIMIT, round(len(draft) * LONGER * TOKENS_PER_CHARACTER))
        patient = replace(self.light, seconds=self.rules.seconds)
        return await patient.say(system, neutralise(draft), max_tokens=most)


def _shown(said: str, slots: Collection[int]) -> str:
    """What of a reply may be shown: out of its fence, without markers that have no source."""
    fenced = _FENCED.match(said.strip())
    markers = MarkerFilter(set(slots))
    return (markers.feed(fenced[1] if fenced else said) + markers.flush()).strip()


def _lost(draft: str, text: str) -> str:
    """Which part of the draft did not survive; empty when all of it did."""
    if not SHORTER * len(draft) <= len(text) <= LONGER * len(draft):
        return "length"
    if _codes(draft) != _codes(text):
        return "code"
    plain, again = _CODE.sub(" ", draft), _CODE.sub(" ", text)
    if set(_MARKER.findall(plain)) != set(_MARKER.findall(again)):
        return "markers"
    return "" if _numbers(plain) == _numbers(again) else "numbers"


def _codes(text: str) -> Counter[str]:
    return Counter(_CODE.findall(text))


def _numbers(text: str) -> set[str]:
    return set(_NUMBER.findall(_MARKER.sub(" ", text)))


def _unsupported(checks: Collection[Checked]) -> int:
    return sum(one.verdict is Verdict.UNSUPPORTED for one in checks)
