"""How a question is to be answered: by its own words, else as its assistant is set up.

What follows from an intent stands in `TEMPLATES`: how many passages are looked for, whether over
several documents, and which prompt says what shape the answer has (`rag/prompts/shape_*`). All
intents search by fusion, which was never worse than one leg (docs/notes/retrieval.md).
"""

from collections.abc import Mapping
from dataclasses import dataclass

from rag.lexicon import load_patterns
from rag.types import Intent
from rag.understand.kinds import Spoken, is_comparison

_IS = load_patterns("intents")
BY_WORDS, BY_ASSISTANT, USUAL = "words", "assistant", "usual"
"""What decided: the question's words, its assistant, or nothing."""


@dataclass(frozen=True, slots=True)
class IntentTemplate:
    """How a question with an intent is looked up and answered.

    `passages`: so many times as many as usual. `shape` names the prompt that the answer follows;
    empty: none.
    """

    passages: float = 1.0
    is_multi_document: bool = False
    shape: str = ""


TEMPLATES: Mapping[Intent, IntentTemplate] = {
    Intent.LOOKUP: IntentTemplate(),
    Intent.COMPARE: IntentTemplate(2.0, is_multi_document=True, shape="shape_compare"),
    Intent.SUMMARY: IntentTemplate(1.5, shape="shape_summary"),
    Intent.PROCEDURE: IntentTemplate(1.5, shape="shape_procedure"),
    Intent.TABLE: IntentTemplate(2.0, is_multi_document=True, shape="shape_table"),
}


def find_intent(said: Spoken, usual: Intent | None = None) -> tuple[Intent, str]:
    """The intent of a message, and what decided it; `usual` is that of its assistant."""
    for intent in (Intent.TABLE, Intent.SUMMARY, Intent.PROCEDURE):
        if _IS[intent.value].search(said.text):
            return intent, BY_WORDS
    if is_comparison(said):
        return Intent.COMPARE, BY_WORDS
    return (Intent.LOOKUP, USUAL) if usual is None else (usual, BY_ASSISTANT)
