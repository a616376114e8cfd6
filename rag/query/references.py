"""Documents that a question names by their place: "이전 1번 문서", "방금 2번", "the second one".

Places are those of the latest answer with documents, unless the whole session is spoken of. What
is not clear is asked back, never guessed; what may well be no reference is none.
"""

import re
import unicodedata
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from uuid import UUID

from rag import surface
from rag.conversation import Conversation, DocRef
from rag.query import (
    references_choice,
    references_en,
    references_ko,
    references_pool,
    references_wish,
)
from rag.query.references_found import Mention, without
from rag.query.references_pool import Reading, Session
from rag.types import Mode

READ = 400
"""Characters at either end of a message in which a reference is looked for."""
FAR = 20
"""A bare number above it is no place in an answer's list of documents."""
_LETTER = re.compile(r"[^\W_]")
_LATIN = re.compile(r"[A-Za-z]{2}")
_LAWS = ("법", "법률", "law", "act", "statute")


class Unclear(StrEnum):
    """Why a reference must be asked back."""

    NOTHING = "nothing"
    OUT_OF_RANGE = "out_of_range"
    AMBIGUOUS = "ambiguous"


@dataclass(frozen=True, slots=True)
class Reference:
    """What a question refers to.

    `documents` are meant, in the order named; `rest` is the question without the reference.
    `whole`: the document itself is to be shown, from part `part` on, `present`: as it is now.
    `unclear`: nothing is meant for sure; `documents` are the candidates then, numbered anew.
    `whole_session`: slots were counted over it.
    """

    documents: tuple[DocRef, ...]
    rest: str
    whole: bool = False
    part: int = 1
    unclear: Unclear | None = None
    whole_session: bool = False
    present: bool = False


def resolve(text: str, conversation: Conversation, session: Session) -> Reference | None:
    """The reference in a question; None where there is none.

    `session` gives the documents of all answers by first appearance; it is asked only when needed.
    """
    last = conversation.last
    said = unicodedata.normalize("NFC", text)
    asked_back = last.candidates if last and last.mode == Mode.CLARIFY else ()
    if chosen := _chosen(said, conversation, asked_back):
        return chosen
    if last and last.view and (turned := _turned(said, conversation, session)):
        return turned
    mention = _mention(said)
    if mention is None:
        return _titled(said, conversation)
    made = _resolved(mention, without(said, mention.spans), conversation, session)
    return made and _wanting(made, said)


def settle(reference: Reference | None, document_ids: Collection[UUID]) -> Reference | None:
    """The reference once the user has named documents along with the question.

    What was unclear means those of its candidates that are named, and nothing where none is.
    """
    if reference is None or reference.unclear is None:
        return reference
    named = tuple(ref for ref in reference.documents if ref.document_id in document_ids)
    return replace(reference, documents=named, unclear=None) if named else None


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
    korean = references_ko.find(text)
    if korean or (surface.HANGUL.search(text) and not _LATIN.search(text)):
        return korean
    return references_en.find(text)


def _resolved(
    mention: Mention, rest: str, conversation: Conversation, session: Session
) -> Reference | None:
    """The documents meant, without what is wanted of them."""
    pool = references_pool.pool(mention, conversation, session)
    if not pool:
        explicit = references_pool.explicit(mention, rest, conversation)
        return _asked_back(Unclear.NOTHING, session(), rest) if explicit else None
    if not (mention.places or mention.others):
        return _that(mention, pool, conversation, session, rest)
    if mention.kind:
        return _of_kind(mention, pool, rest)
    reads = references_pool.reading(mention, conversation)
    if reads is Reading.UNSURE:
        return _asked_back(Unclear.AMBIGUOUS, pool, rest)
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
        return _asked_back(Unclear.OUT_OF_RANGE, pool, rest)
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
        return _asked_back(other.unclear, pool, rest)
    return _asked_back(Unclear.AMBIGUOUS, pool, rest)


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
        return None if mention.soft else _asked_back(Unclear.AMBIGUOUS, pool, rest)
    view = conversation.last.view if conversation.last else None
    if view:
        reading = [ref for ref in (*pool, *session()) if ref.document_id == view.document_id]
        return Reference((reading[0],), rest) if reading else None
    return _one_of(pool, rest)


def _one_of(documents: Sequence[DocRef], rest: str) -> Reference:
    if len(documents) == 1:
        return Reference(tuple(documents), rest)
    return _asked_back(Unclear.AMBIGUOUS, documents, rest)


def _asked_back(why: Unclear, candidates: Sequence[DocRef], rest: str) -> Reference:
    numbered = tuple(replace(ref, slot=slot) for slot, ref in enumerate(candidates, 1))
    return Reference(numbered, rest, unclear=why)


def _wanting(made: Reference, text: str) -> Reference:
    """With what is wanted: the document itself, a part of it, or an answer from it."""
    asked = references_wish.part(made.rest)
    if asked and (not asked[1] or references_wish.shows(asked[1])):
        made = replace(made, whole=True, part=asked[0])
    elif references_wish.shows(made.rest):
        made = replace(made, whole=True)
    made = replace(made, present=made.whole and references_wish.present(text))
    return made if _LETTER.search(made.rest) else replace(made, rest=text)


def _chosen(
    text: str, conversation: Conversation, candidates: Sequence[DocRef]
) -> Reference | None:
    """The answer to a question back: what was asked first, of the documents now chosen."""
    found = references_choice.chosen(text, candidates)
    if found is None:
        return None
    asked = _first_asked(conversation)
    mention = _mention(asked)
    rest = without(asked, mention.spans) if mention else asked
    if not found:
        made = _asked_back(Unclear.OUT_OF_RANGE, candidates, rest)
    elif len(found) > 1 and not references_choice.several(text):
        made = _asked_back(Unclear.AMBIGUOUS, found, rest)
    else:
        made = Reference(found, rest)
    return _wanting(made, asked)


def _first_asked(conversation: Conversation) -> str:
    """The question that led to the questions back."""
    asked = ""
    for turn in reversed(conversation.turns):
        if turn.mode != Mode.CLARIFY:
            break
        asked = unicodedata.normalize("NFC", turn.user_text)
    return asked


def _turned(text: str, conversation: Conversation, session: Session) -> Reference | None:
    """Another part of the document that was shown last: "다음", "3쪽"."""
    last = conversation.last
    if last is None or last.view is None:
        return None
    part = references_wish.turned(text, last.view.part)
    anew = part is None and references_wish.present(text) and references_wish.shows(text)
    if part is None and not anew:
        return None
    key = last.view.document_id
    shown = (ref for turn in reversed(conversation.turns) for ref in turn.doc_refs)
    found = next((ref for ref in (*shown, *session()) if ref.document_id == key), None)
    if found is None:
        return None
    return Reference(
        (found,), text, whole=True, part=part or 1, present=anew or _present(conversation)
    )


def _present(conversation: Conversation) -> bool:
    """Whether the reading that goes on began with the present version."""
    last = conversation.last
    for turn in reversed(conversation.turns):
        same = turn.view and last and last.view
        if not same or turn.view.document_id != last.view.document_id:  # type: ignore[union-attr]
            return False
        if references_wish.present(turn.user_text):
            return True
        if references_wish.turned(turn.user_text, 1) is None:
            return False
    return False


def _titled(text: str, conversation: Conversation) -> Reference | None:
    """A whole document by its title, where it was shown: "공탁법 전문 보여줘"."""
    shown = conversation.shown.doc_refs if conversation.shown else ()
    if not references_wish.speaks_of_whole(text) or len(text) > READ:
        return None
    for ref in sorted(shown, key=lambda one: -len(one.title)):
        title = unicodedata.normalize("NFC", ref.title)
        at = text.casefold().find(title.casefold())
        if title and at >= 0:
            rest = without(text, ((at, at + len(title)),))
            if references_wish.shows(rest):
                return _wanting(Reference((ref,), rest), text)
    return None
