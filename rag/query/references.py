"""Documents that a question names by their place: "이전 1번 문서", "방금 2번", "the second one".

Places are those of the latest answer with documents, unless the whole session is spoken of. What
is not clear is asked back, never guessed; what may well be no reference is none.
"""

import re
import unicodedata
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from uuid import UUID

from rag.conversation import Conversation, DocRef
from rag.query import (
    references_choice,
    references_en,
    references_ko,
    references_pool,
    references_reply,
    references_wish,
)
from rag.query.references_found import Mention, with_pronoun, without
from rag.query.references_meant import Reference, Unclear, asked_back, is_empty, wanting
from rag.query.references_numbers import CIRCLED
from rag.query.references_pool import Reading, Session
from rag.types import Mode

__all__ = ["Reference", "Unclear", "resolve"]

READ = 250
"""Characters at either end of a message in which a reference is looked for."""
FAR = 20
"""A bare number above it is no place in an answer's list of documents."""
_BACK = 4
"""Turns in which the question is looked for that "2번은?" repeats."""
_SAME_OF = re.compile(
    r"(?:은|는|도)요?\s*[?!.]*\s*$|^\s*(?:and|what\s+about|how\s+about)\b", re.IGNORECASE
)
_KOREAN = re.compile(rf"[가-힣{CIRCLED}]")
_LATIN = re.compile(r"[A-Za-z]{2}|[#\[]\s?\d")
_LAWS = ("법", "법률", "law", "act", "statute")


def resolve(
    text: str, conversation: Conversation, session: Session, named: Collection[UUID] = ()
) -> Reference | None:
    """The reference in a question; None where there is none.

    `session` gives the documents of all answers by first appearance; it is asked only when needed.
    `named` are documents that the user picked for this question: they settle what is unclear.
    """
    said = unicodedata.normalize("NFC", text)
    rest = _rest_of(conversation)
    if named and (picked := references_reply.picked(said, conversation, named, rest)):
        return picked
    found = _said(said, conversation, session)
    if found is None or not (named and found.unclear):
        return found
    refs = tuple(ref for ref in found.documents if ref.document_id in named)
    return replace(found, documents=refs, unclear=None) if refs else None


def _said(text: str, conversation: Conversation, session: Session) -> Reference | None:
    if chosen := references_reply.chosen(text, conversation, _rest_of(conversation)):
        return chosen
    if turned := references_reply.turned(text, conversation, session):
        return turned
    mention = _mention(text)
    if mention is None:
        return _titled(text, conversation)
    made = _resolved(mention, _rest(text, mention, conversation), conversation, session)
    return made and wanting(made, text)


def _rest_of(conversation: Conversation) -> Callable[[str], str]:
    """Takes the reference out of a message."""

    def rest(text: str) -> str:
        mention = _mention(text)
        return _rest(text, mention, conversation) if mention else text

    return rest


def _rest(text: str, mention: Mention, conversation: Conversation) -> str:
    """The question without the reference; "2번은?" asks of it what was asked before."""
    rest = without(text, mention.spans)
    if is_empty(rest):
        return with_pronoun(text, mention.spans)
    if rest.strip("?!. ") or not _SAME_OF.search(text):
        return rest
    for turn in reversed(conversation.turns[-_BACK:]):
        asked = unicodedata.normalize("NFC", turn.user_text)
        earlier = _mention(asked)
        before = without(asked, earlier.spans) if earlier else asked
        if turn.mode == Mode.DOCUMENTS and before.strip("?!. "):
            return before
    return rest


def _mention(text: str) -> Mention | None:
    """What the message says of places, looked for at its ends only."""
    if len(text) <= 2 * READ:
        return _found(text)
    if head := _found(text[:READ]):
        return head
    tail, shift = _found(text[-READ:]), len(text) - READ
    return tail and replace(
        tail, spans=tuple((start + shift, end + shift) for start, end in tail.spans)
    )


def _found(text: str) -> Mention | None:
    if _KOREAN.search(text) and (korean := references_ko.find(text)):
        return korean
    return references_en.find(text) if _LATIN.search(text) else None


def _resolved(
    mention: Mention, rest: str, conversation: Conversation, session: Session
) -> Reference | None:
    """The documents meant, without what is wanted of them."""
    pool = references_pool.pool(mention, conversation, session)
    if not pool:
        explicit = references_pool.explicit(mention, rest, conversation)
        return asked_back(Unclear.NOTHING, session(), rest) if explicit else None
    if not (mention.places or mention.others):
        return _that(mention, pool, conversation, session, rest)
    if mention.kind:
        return _of_kind(mention, pool, rest)
    reads = references_pool.reading(mention, conversation)
    if reads is Reading.UNSURE:
        return asked_back(Unclear.AMBIGUOUS, pool, rest)
    return None if reads is Reading.OTHER else _at(mention, pool, rest)


def _at(mention: Mention, pool: Sequence[DocRef], rest: str) -> Reference | None:
    """The documents at the places named."""
    by_slot = {ref.slot: ref for ref in pool}
    order = sorted(by_slot)
    slots = [
        place if place >= 0 else order[place] if -place <= len(order) else 0
        for place in mention.places
    ]
    if mention.others:
        slots = [slot for slot in order if slot not in slots]
    if not slots or any(slot not in by_slot for slot in slots):
        bare = not (mention.noun or mention.session or mention.back)
        if bare and max(slots, default=0) > max(FAR, len(order)):
            return None
        return asked_back(Unclear.OUT_OF_RANGE, pool, rest)
    return Reference(tuple(by_slot[slot] for slot in slots), rest, whole_session=mention.session)


def _of_kind(mention: Mention, pool: Sequence[DocRef], rest: str) -> Reference | None:
    """Such as "두 번째 법": sure where counting all documents and counting laws agree."""
    own = [ref for ref in pool if _is_kind(ref.title, mention.kind)]
    if not own:
        return None
    among = tuple(replace(ref, slot=slot) for slot, ref in enumerate(own, 1))
    found, other = _at(mention, pool, rest), _at(mention, among, rest)
    if found and other and not (found.unclear or other.unclear):
        ids = [ref.document_id for ref in found.documents]
        if ids == [ref.document_id for ref in other.documents]:
            return found
    if other and other.unclear:
        return asked_back(other.unclear, pool, rest)
    return asked_back(Unclear.AMBIGUOUS, pool, rest)


def _is_kind(title: str, kind: str) -> bool:
    kinds = _LAWS if kind in _LAWS else (kind,)
    return any(word in title.casefold() for word in kinds)


def _that(
    mention: Mention,
    pool: Sequence[DocRef],
    conversation: Conversation,
    session: Session,
    rest: str,
) -> Reference | None:
    """The only document, the one named, or the one that is being read: "그 문서"."""
    if mention.named:
        for documents in (pool, session()):
            if named := references_choice.called(mention.named, documents):
                return _one_of(named, rest)
        return None if mention.soft else asked_back(Unclear.AMBIGUOUS, pool, rest)
    view = conversation.last.view if conversation.last else None
    if view:
        reading = [ref for ref in (*pool, *session()) if ref.document_id == view.document_id]
        return Reference((reading[0],), rest) if reading else None
    return _one_of(pool, rest)


def _one_of(documents: Sequence[DocRef], rest: str) -> Reference:
    if len(documents) == 1:
        return Reference(tuple(documents), rest)
    return asked_back(Unclear.AMBIGUOUS, documents, rest)


def _titled(text: str, conversation: Conversation) -> Reference | None:
    """A whole document by its title, where it was shown: "공탁법 전문 보여줘"."""
    shown = references_pool.known(conversation)
    if not shown or len(text) > READ or not references_wish.speaks_of_whole(text):
        return None
    for ref in sorted(shown, key=lambda one: -len(one.title)):
        title = unicodedata.normalize("NFC", ref.title)
        at = text.casefold().find(title.casefold())
        if title and at >= 0:
            rest = without(text, ((at, at + len(title)),))
            if references_wish.shows(rest):
                return wanting(Reference((ref,), rest), text)
    return None
