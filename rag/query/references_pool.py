"""Among which documents places are counted, and whether a number may be meant otherwise."""

import re
from collections.abc import Callable
from enum import Enum, auto

from rag.conversation import Conversation, DocRef, Turn
from rag.query import references_wish
from rag.query.references_found import Mention
from rag.query.references_numbers import CIRCLED
from rag.types import Mode, QuestionType

Session = Callable[[], tuple[DocRef, ...]]
"""The documents of all answers by first appearance."""

_LONGEST_ANSWER = 20_000
_ITEM = re.compile(rf"(?m)^[ \t]*(?:[*_]{{2}})?(?:(\d{{1,2}})(?=[.)]|번)|([{CIRCLED}]))")


class Reading(Enum):
    """How a number without a noun reads."""

    DOCUMENT = auto()
    UNSURE = auto()
    OTHER = auto()


def pool(mention: Mention, conversation: Conversation, session: Session) -> tuple[DocRef, ...]:
    """The documents among which places are counted."""
    if mention.session:
        return session()
    if mention.answer is not None:
        answer = _answer(mention.answer, conversation)
        return answer.doc_refs if answer else ()
    last = conversation.last
    if last and last.mode == Mode.CLARIFY and last.candidates:
        return last.candidates
    return _list(mention, conversation)


def _list(mention: Mention, conversation: Conversation) -> tuple[DocRef, ...]:
    """The documents shown last; a whole document shown since then has not taken their places."""
    shown = conversation.shown
    if shown is None:
        return ()
    if shown.mode != Mode.DOCUMENT or not mention.places:
        return shown.doc_refs
    for turn in reversed(conversation.turns):
        if turn.question_type == QuestionType.RESET:
            break
        if turn.number < shown.number and turn.doc_refs and turn.mode != Mode.DOCUMENT:
            return turn.doc_refs
    return shown.doc_refs


def known(conversation: Conversation) -> tuple[DocRef, ...]:
    """The documents of the answers since the memory was cleared, latest first, each once."""
    if conversation.shown is None:
        return ()
    found = list(conversation.shown.doc_refs)
    for turn in reversed(conversation.turns):
        if turn.question_type == QuestionType.RESET:
            break
        found += turn.doc_refs
    return tuple({ref.document_id: ref for ref in reversed(found)}.values())[::-1]


def _answer(number: int, conversation: Conversation) -> Turn | None:
    """The turn with this number; -2: the one before the last that has documents."""
    if number > 0:
        return next((turn for turn in conversation.turns if turn.number == number), None)
    shown = [turn for turn in conversation.turns if turn.doc_refs]
    return shown[number] if len(shown) >= -number else None


def explicit(mention: Mention, rest: str, conversation: Conversation) -> bool:
    """Whether the words can be meant for nothing but documents, though none was shown."""
    if mention.soft or mention.kind:
        return False
    if mention.noun or mention.session or mention.answer is not None:
        return True
    if _listed(conversation.last) & set(mention.places):
        return False
    # a number and nothing else may be meant for anything: "첫째"
    wished = bool(rest.strip("?!., ")) and references_wish.only_wishes(rest)
    return mention.back or wished


def reading(mention: Mention, conversation: Conversation) -> Reading:
    """What a number alone means: a place, or a line of an answer that counts its lines."""
    if mention.noun or mention.session:
        return Reading.DOCUMENT
    last, shown = conversation.last, conversation.shown
    if last is None or shown is None or (last.mode == Mode.CLARIFY and last.candidates):
        return Reading.DOCUMENT
    listed = bool(_listed(last) & set(mention.places))
    if last.number == shown.number:
        return Reading.UNSURE if listed else Reading.DOCUMENT
    if listed:
        return Reading.OTHER
    since = [turn for turn in conversation.turns if turn.number > shown.number]
    idle = all(
        turn.question_type == QuestionType.SMALLTALK or turn.mode in {Mode.DOCUMENT, Mode.CLARIFY}
        for turn in since
    )
    return Reading.DOCUMENT if idle or mention.back else Reading.UNSURE


def _listed(turn: Turn | None) -> set[int]:
    """The numbers of the lines that an answer counts itself."""
    if turn is None:
        return set()
    found = _ITEM.finditer(turn.assistant_text[:_LONGEST_ANSWER])
    return {int(line[1]) if line[1] else CIRCLED.index(line[2]) + 1 for line in found}
