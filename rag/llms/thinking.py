"""Thinking that a server leaves in the answer, between `<think>` tags at its beginning.

Servers with a parser for the model send it apart; Ollama and llama.cpp may not.
"""

from enum import Enum, auto

OPENING = "<think>"
CLOSING = "</think>"


class _At(Enum):
    BEGINNING = auto()
    THINKING = auto()
    GAP = auto()
    """Behind the thinking: the blank lines before the answer."""
    ANSWER = auto()


class Thinking:
    """Tells thinking from answer in a text that comes in parts, tags cut anywhere."""

    def __init__(self) -> None:
        self._at = _At.BEGINNING
        self._held = ""

    def feed(self, text: str) -> tuple[str, str]:
        """What the next part adds to the thinking and to the answer."""
        if self._at is _At.ANSWER:
            return "", text
        text, self._held = self._held + text, ""
        thought = ""
        if self._at is _At.BEGINNING:
            text = self._beginning(text)
        if self._at is _At.THINKING:
            thought, text = self._thinking(text)
        if self._at is _At.GAP and (text := text.lstrip()):
            self._at = _At.ANSWER
        return thought, text

    def close(self) -> tuple[str, str]:
        """What was held back because it might have become a tag."""
        held, self._held = self._held, ""
        return (held, "") if self._at is _At.THINKING else ("", held)

    def _beginning(self, text: str) -> str:
        begun = text.lstrip()
        if begun.startswith(OPENING):
            self._at = _At.THINKING
            return begun[len(OPENING) :]
        if OPENING.startswith(begun):
            self._held = text
            return ""
        self._at = _At.ANSWER
        return text

    def _thinking(self, text: str) -> tuple[str, str]:
        thought, closed, rest = text.partition(CLOSING)
        if closed:
            self._at = _At.GAP
            return thought, rest
        kept = len(text) - _begun(text)
        self._held = text[kept:]
        return text[:kept], ""


def _begun(text: str) -> int:
    """How many of the last characters may begin the closing tag."""
    longest = min(len(text), len(CLOSING) - 1)
    return next((n for n in range(longest, 0, -1) if CLOSING.startswith(text[-n:])), 0)
