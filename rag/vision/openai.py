"""Vision models behind an OpenAI-compatible endpoint: Qwen3-VL on vLLM and others."""

import base64
import re
from typing import Any

from rag import prompts
from rag.config import Endpoint
from rag.errors import LLMEmptyAnswer
from rag.llms.openai import OpenAILLM
from rag.neutral import neutralise
from rag.ports import GenerationOptions

CHARACTERS_PER_TOKEN = 10
"""A reply beyond this ignores `max_tokens` and is cut."""
CUT = "…"
_NOTHING = re.compile(r"\W*(?:NOTHING|없음)\W*", re.IGNORECASE)
"""What the prompt asks for where a picture says nothing."""


class OpenAIVision:
    """Asks the model for all that a picture says."""

    def __init__(self, endpoint: Endpoint, max_tokens: int) -> None:
        self._model = OpenAILLM(endpoint)
        self._options = GenerationOptions(max_tokens=max_tokens)
        self.name = endpoint.model

    async def describe(self, picture: bytes, content_type: str, language: str) -> str:
        """What stands in the picture, "" where it says nothing.

        Retries refused connections, 429 and 5xx. Raises `LLMError` and nothing else.
        """
        try:
            reply = await self._model.whole(
                _messages(picture, content_type, language), self._options
            )
        except LLMEmptyAnswer as error:
            if error.params.get("reason") == "stop":
                return ""
            raise
        return self._read(reply.text, cut=reply.cut)

    def _read(self, said: str, *, cut: bool) -> str:
        """What the model said as text of a document: a picture gives no orders to other models."""
        most = self._options.max_tokens * CHARACTERS_PER_TOKEN
        text = neutralise(said[:most]).strip()
        if _NOTHING.fullmatch(text):
            return ""
        return f"{text} {CUT}" if cut or len(said) > most else text


def _messages(picture: bytes, content_type: str, language: str) -> list[dict[str, Any]]:
    address = f"data:{content_type};base64,{base64.b64encode(picture).decode()}"
    shown = {"type": "image_url", "image_url": {"url": address}}
    question = {"type": "text", "text": prompts.text("vision_question", language)}
    return [
        {"role": "system", "content": prompts.text("vision", language)},
        {"role": "user", "content": [shown, question]},
    ]
