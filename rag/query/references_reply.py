"""Messages that answer what the last turn offered: a choice of documents, or a part to turn to."""

import unicodedata
from collections.abc import Callable, Collection
from uuid import UUID

from rag.conversation import Conversation, DocRef
from rag.query import references_choice, references_wish
from rag.query.references_meant import Reference, Unclear, asked_back, wanting
from rag.query.references_pool import Session
from rag.types import Mode

Rest = Callable[[str], str]
"""A message without its reference."""


def picked(
    text: str, conversation: Conversation, named: Collection[UUID], rest: Rest
) -> Reference | None:
    """The question asked again, with the documents that were picked for it."""
    refs = tuple(ref for ref in _offered(conversation) if ref.document_id in named)
    if refs and text in _asked(conversation):
        return wanting(Reference(refs, rest(text)), text)
    return None


def chosen(text: str, conversation: Conversation, rest: Rest) -> Reference | None:
    """The answer to a question back: what was asked first, of the documents now chosen."""
    candidates = _offered(conversation)
    found = references_choice.chosen(text, candidates) if candidates else None
    if found is None:
        return None
    asked = _asked(conversation)[-1]
    left = rest(asked)
    if not found.documents:
        made = asked_back(Unclear.OUT_OF_RANGE, candidates, left)
    elif not found.sure:
        made = asked_back(Unclear.AMBIGUOUS, found.documents, left)
    else:
        made = Reference(found.documents, left)
    return wanting(made, asked)


def _offered(conversation: Conversation) -> tuple[DocRef, ...]:
    last = conversation.last
    return last.candidates if last and last.mode == Mode.CLARIFY else ()


def _asked(conversation: Conversation) -> list[str]:
    """The messages that led to questions back, latest first; the last one is the question."""
    asked: list[str] = []
    for turn in reversed(conversation.turns):
        if turn.mode != Mode.CLARIFY:
            break
        asked.append(unicodedata.normalize("NFC", turn.user_text))
    return asked


def turned(text: str, conversation: Conversation, session: Session) -> Reference | None:
    """Another part of the document that was shown last: "다음", "3쪽"."""
    last = conversation.last
    if last is None or last.view is None:
        return None
    part = references_wish.turned(text, last.view.part)
    anew = part is None and references_wish.present(text) and references_wish.shows(text)
    if part is None and not anew:
        return None
    if part == references_wish.LAST:
        part = last.view.parts
    key = last.view.document_id
    found = _version_shown(key, conversation, session)
    if found is None:
        return None
    return Reference(
        (found,), text, whole=True, part=part or 1, present=anew or _present(conversation)
    )


def _version_shown(
    document_id: UUID, conversation: Conversation, session: Session
) -> DocRef | None:
    """The document as the last answer showed it that was not the document itself."""
    turns = [turn for turn in reversed(conversation.turns) if turn.mode != Mode.DOCUMENT]
    shown = [ref for turn in turns for ref in turn.doc_refs]
    own = conversation.shown.doc_refs if conversation.shown else ()
    return next((ref for ref in (*shown, *session(), *own) if ref.document_id == document_id), None)


def _present(conversation: Conversation) -> bool:
    """Whether the reading that goes on began with the present version."""
    key = conversation.last.view.document_id if conversation.last and conversation.last.view else ""
    for turn in reversed(conversation.turns):
        if turn.view is None or turn.view.document_id != key:
            break
        if references_wish.present(turn.user_text):
            return True
        if references_wish.turned(turn.user_text, 1) is None:
            break
    return False
