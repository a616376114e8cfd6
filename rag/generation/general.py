"""General conversation without a model: greetings and help, and an honest sentence for the rest."""

import asyncio
import re
from collections.abc import AsyncGenerator, Mapping

from rag import prompts
from rag.config import ContextRules
from rag.context.assemble import measure
from rag.context.tokens import counter
from rag.generation import recalled
from rag.generation.brief import Assembled, Brief
from rag.pieces import Piece

_THANKS = re.compile(r"고마|고맙|감사|수고|thank", re.IGNORECASE)
_HELP = re.compile(r"도와|도움|할\s?수|누구|help|who|can you do", re.IGNORECASE)


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
        return "plain_no_model" if brief.documents else "plain_no_documents"
    if _THANKS.search(brief.question):
        return "plain_thanks"
    return "plain_help" if _HELP.search(brief.question) else "plain_greeting"
