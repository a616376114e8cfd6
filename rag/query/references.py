"""Documents that a question names by their place: "이전 1번 문서", "방금 2번", "the second one"."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from rag.conversation import Conversation, DocRef


class Unclear(StrEnum):
    """Why a reference must be asked back."""

    NOTHING = "nothing"
    OUT_OF_RANGE = "out_of_range"
    AMBIGUOUS = "ambiguous"


@dataclass(frozen=True, slots=True)
class Reference:
    """What a question refers to.

    `documents` are meant, in the order named; `rest` is the question without the reference.
    `whole`: the document itself is to be shown, from part `part` on. `unclear`: nothing is meant
    for sure, `documents` are the candidates then. `whole_session`: slots were counted over it.
    """

    documents: tuple[DocRef, ...]
    rest: str
    whole: bool = False
    part: int = 1
    unclear: Unclear | None = None
    whole_session: bool = False


def resolve(
    text: str, conversation: Conversation, session: Callable[[], tuple[DocRef, ...]]
) -> Reference | None:
    """The reference in a question; None where there is none.

    `session` gives the documents of all answers by first appearance; it is asked only when needed.
    """
    del text, conversation, session
    return None
