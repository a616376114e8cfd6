"""General conversation without a model: greetings and help, and an honest sentence for the rest."""

import asyncio
import re
from collections.abc import AsyncGenerator, Mapping

from rag import prompts
from rag.config import ContextRules
from rag.context.assemble import measure
from rag.context.tokens import counter
from rag.generation import recalled, topics
from rag.generation.brief import Assembled, Brief
from rag.pieces import Piece

_THANKS = re.compile(r"고마|고맙|감사|수고|땡큐|thank|thx", re.IGNORECASE)
_BYE = re.compile(
    r"안녕히|잘\s?(?:가|자|있어)|좋은\s?밤|\bbye\b|goodbye|good\s?night", re.IGNORECASE
)
_HELP = re.compile(
    r"도와|도움말|뭘?\s?할\s?수|무엇을\s?할|누구|\bhelp\b|\bwho\b|can you do", re.IGNORECASE
)


class PlainAnswerer:
    """Says what it can without a model, and which setting gives it one."""

    name = "plain"

    def assemble(self, brief: Brief, rules: ContextRules) -> Assembled:
        """Everything: no model's window limits it."""
        return measure(brief, counter(self.name), rules)

    def sizes(self, brief: Brief) -> Mapping[str, int]:
        """Nothing is sent anywhere."""
        return {"question": len(brief.question)}

    async def stream(self, brief: Brief) -> AsyncGenerator[Piece, None]:
        """The fitting sentence, word by word."""
        for piece in re.findall(r"\S+\s*", await asyncio.to_thread(_text, brief)):
            yield Piece(text=piece)
        yield Piece(finish_reason="stop")


def _text(brief: Brief) -> str:
    said = recalled.answer(brief.question, brief.recalled, brief.language) if brief.recalled else ""
    return said or prompts.text(_which(brief), brief.language)


def _which(brief: Brief) -> str:
    if not brief.smalltalk:
        if about := topics.of(brief.question):
            return f"plain_help_{about}"
        return "plain_no_model" if brief.documents else "plain_no_documents"
    kinds = ((_THANKS, "thanks"), (_BYE, "bye"), (_HELP, "help"))
    found = (name for says, name in kinds if says.search(brief.question))
    return f"plain_{next(found, 'greeting')}"
