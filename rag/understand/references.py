"""Documents that a question names by their place: "이전 1번 문서", "방금 2번", "the second one".

Places are those of the latest answer with documents, unless the whole session is spoken of. What
is not clear is asked back, never guessed; what may well be no reference is none. Answers to a
question back ("2번이요", "둘 다") and turned pages ("다음", "3쪽") refer to documents, too.
"""

import itertools
import re
import unicodedata
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from uuid import UUID

from rag.conversation import Conversation, DocRef, PastTurn
from rag.lexicon import load_patterns
from rag.types import AnswerMode, QuestionType
from rag.understand.filters import to_name_key
from rag.understand.mentions import (
    MAX_END_CHARACTERS,
    Mention,
    find_mention,
    read_places,
    remove_spans,
    replace_with_pronoun,
)

_ANY, _KO, _EN = (
    load_patterns("references"),
    load_patterns("references.ko"),
    load_patterns("references.en"),
)
_CIRCLED = _ANY.pieces["circled"]
_LETTER = re.compile(r"[^\W_]")
_ITEM = re.compile(rf"(?m)^[ \t]*(?:[*_]{{2}})?(?:(\d{{1,2}})(?=[.)]|번)|([{_CIRCLED}]))")

LAST_PART = 1_000_000
"""A part beyond every end: the last one."""
MAX_BARE_PLACE = 20
"""A bare number above it is no place in an answer's list of documents."""
MAX_WISH_CHARACTERS = 400
"""Characters; a longer message holds more than a wish."""
MAX_TURNING_CHARACTERS = 60
MAX_CHOICE_CHARACTERS = 120
"""Characters of a choice; a longer message is a question of its own."""
MAX_ANSWER_CHARACTERS = 20_000
"""Characters of an answer in which numbered lines are looked for."""
MAX_TURNS_BACK = 4
"""Turns in which the question is looked for that "2번은?" repeats."""

_LAWS = ("법", "법률", "law", "act", "statute")

Session = Callable[[], tuple[DocRef, ...]]
"""The documents of all answers by first appearance."""


class Unclear(StrEnum):
    """Why a reference needs a clarifying question."""

    NOTHING = "nothing"
    OUT_OF_RANGE = "out_of_range"
    AMBIGUOUS = "ambiguous"


@dataclass(frozen=True, slots=True)
class Reference:
    """What a question refers to.

    `documents` are meant, in the order named; `rest` is the question without the reference,
    the one before for "2번은?", and all of it where nothing is left.
    `whole`: the document itself is to be shown, from part `part` on, `present`: as it is now.
    `unclear`: nothing is meant for sure; `documents` are the candidates then, numbered anew.
    `whole_session`: slots were counted over it. `counted`: documents were named by number, so that
    nothing but a document of that number can be meant.
    """

    documents: tuple[DocRef, ...]
    rest: str
    whole: bool = False
    part: int = 1
    unclear: Unclear | None = None
    whole_session: bool = False
    present: bool = False
    counted: bool = False


def resolve_reference(
    text: str, conversation: Conversation, session: Session, named: Collection[UUID] = ()
) -> Reference | None:
    """The reference in a question; None where there is none.

    `session` gives the documents of all answers by first appearance; it is asked only when needed.
    `named` are documents that the user picked for this question: they settle what is unclear.
    """
    said = unicodedata.normalize("NFC", text)
    if picked := _find_picked(said, conversation, named):
        return picked
    found = _find_reference(said, conversation, session)
    if found is None or not (named and found.unclear) or found.counted:
        return found
    refs = tuple(ref for ref in found.documents if ref.document_id in named)
    return replace(found, documents=refs, unclear=None) if refs else None


def _find_reference(text: str, conversation: Conversation, session: Session) -> Reference | None:
    if chosen := _find_chosen(text, conversation):
        return chosen
    if turned := _find_turned(text, conversation, session):
        return turned
    mention = find_mention(text)
    if mention is None:
        return _find_titled(text, conversation)
    rest = _remove_reference(text, mention, conversation)
    made = _resolve_mention(mention, rest, conversation, session)
    return made and _add_wish(replace(made, counted=bool(mention.places)), text)


def _remove_reference(text: str, mention: Mention | None, conversation: Conversation) -> str:
    """The question without its reference; "2번은?" asks of it what was asked before."""
    if mention is None:
        return text
    rest = remove_spans(text, mention.spans)
    if _LETTER.search(rest) and not _LETTER.search(_ANY["empty"].sub("", rest)):
        return replace_with_pronoun(text, mention.spans)
    if rest.strip("?!. ") or not _ANY["same_of"].search(text):
        return rest
    for turn in reversed(conversation.turns[-MAX_TURNS_BACK:]):
        asked = unicodedata.normalize("NFC", turn.user_text)
        earlier = find_mention(asked)
        before = remove_spans(asked, earlier.spans) if earlier else asked
        if turn.mode == AnswerMode.DOCUMENTS and before.strip("?!. "):
            return before
    return rest


def _to_unclear(why: Unclear, candidates: Sequence[DocRef], rest: str) -> Reference:
    """The reference that is not clear, with its candidates numbered from 1."""
    numbered = tuple(replace(ref, slot=slot) for slot, ref in enumerate(candidates, 1))
    return Reference(numbered, rest, unclear=why)


def _resolve_mention(
    mention: Mention, rest: str, conversation: Conversation, session: Session
) -> Reference | None:
    """The documents meant, without what is wanted of them."""
    pool = _list_documents(mention, conversation, session)
    if not pool:
        explicit = _is_explicit(mention, rest, conversation)
        return _to_unclear(Unclear.NOTHING, session(), rest) if explicit else None
    if not mention.places:
        return _resolve_pronoun(mention, pool, conversation, session, rest)
    if mention.kind:
        return _resolve_kind(mention, pool, rest)
    sure = _is_document_meant(mention, conversation)
    if sure is None:
        # a number that no document has means a line of the answer
        beyond = max(mention.places) > len(pool)
        return None if beyond else _to_unclear(Unclear.AMBIGUOUS, pool, rest)
    return _resolve_places(mention, pool, rest) if sure else None


def _resolve_places(mention: Mention, pool: Sequence[DocRef], rest: str) -> Reference | None:
    """The documents at the places named."""
    found = [_get_document_at(place, pool) for place in mention.places]
    if mention.others:
        found = [ref for ref in pool if ref not in found]
    known = tuple(ref for ref in found if ref is not None)
    if not known or len(known) < len(found):
        bare = not (mention.noun or mention.session or mention.back)
        if bare and max(mention.places) > max(MAX_BARE_PLACE, len(pool)):
            return None
        return _to_unclear(Unclear.OUT_OF_RANGE, pool, rest)
    return Reference(known, rest, whole_session=mention.session)


def _get_document_at(place: int, documents: Sequence[DocRef]) -> DocRef | None:
    """The document at a place from 1, or from -1 at the end."""
    if place < 0:
        return documents[place] if -place <= len(documents) else None
    return next((ref for ref in documents if ref.slot == place), None)


def _resolve_kind(mention: Mention, pool: Sequence[DocRef], rest: str) -> Reference | None:
    """Such as "두 번째 법": sure where counting all documents and counting laws agree."""
    kinds = _LAWS if mention.kind in _LAWS else (mention.kind,)
    own = [ref for ref in pool if any(kind in ref.title.casefold() for kind in kinds)]
    if not own:
        return None
    among = [replace(ref, slot=slot) for slot, ref in enumerate(own, 1)]
    found, other = (_resolve_places(mention, documents, rest) for documents in (pool, among))
    if other and other.unclear:
        return _to_unclear(other.unclear, pool, rest)
    if found and other and not found.unclear:
        ids = [[ref.document_id for ref in one.documents] for one in (found, other)]
        if ids[0] == ids[1]:
            return found
    return _to_unclear(Unclear.AMBIGUOUS, pool, rest)


def _resolve_pronoun(
    mention: Mention,
    pool: Sequence[DocRef],
    conversation: Conversation,
    session: Session,
    rest: str,
) -> Reference | None:
    """The only document, the one named, or the one that is being read: "그 문서"."""
    view = conversation.last.view if conversation.last else None
    if mention.named:
        named = _find_called(mention.named, pool) or _find_called(mention.named, session())
        if not named:
            return None if mention.soft else _to_unclear(Unclear.AMBIGUOUS, pool, rest)
        pool = named
    elif view:
        pool = [ref for ref in (*pool, *session()) if ref.document_id == view.document_id][:1]
    if len(pool) > 1:
        return _to_unclear(Unclear.AMBIGUOUS, pool, rest)
    return Reference(tuple(pool), rest) if pool else None


def _find_titled(text: str, conversation: Conversation) -> Reference | None:
    """A whole document by its title, where it was shown: "공탁법 전문 보여줘"."""
    spoken_of = (_KO["wish_all"], _EN["wish_all"], _ANY["wish_document"])
    if conversation.shown_turn is None or len(text) > MAX_END_CHARACTERS:
        return None
    if not any(pattern.search(text) for pattern in spoken_of):
        return None
    turns = (conversation.shown_turn, *reversed(conversation.current))
    shown = [ref for turn in turns for ref in turn.doc_refs]
    for ref in sorted(shown, key=lambda one: -len(one.title)):
        title = unicodedata.normalize("NFC", ref.title)
        at = text.casefold().find(title.casefold())
        if title and at >= 0:
            rest = remove_spans(text, [(at, at + len(title))])
            if _is_asking_to_show(rest):
                return _add_wish(Reference((ref,), rest), text)
    return None


# Among which documents places are counted, and whether a number may be meant otherwise


def _list_documents(
    mention: Mention, conversation: Conversation, session: Session
) -> tuple[DocRef, ...]:
    """The documents among which places are counted."""
    last, shown = conversation.last, conversation.shown_turn
    if mention.session:
        return session()
    if mention.answer is not None:
        answer = _find_answer(mention.answer, conversation)
        return answer.doc_refs if answer else ()
    if last and last.mode == AnswerMode.CLARIFY and last.candidates:
        return last.candidates
    if shown is None:
        return ()
    if shown.mode == AnswerMode.DOCUMENT and mention.places:
        # a whole document shown since then has not taken the places of the list
        lists = (turn for turn in reversed(conversation.current) if turn.doc_refs)
        earlier = (turn for turn in lists if turn.number < shown.number)
        shown = next((turn for turn in earlier if turn.mode != AnswerMode.DOCUMENT), shown)
    return shown.doc_refs


def _find_answer(number: int, conversation: Conversation) -> PastTurn | None:
    """The turn with this number; -2: the one before the last that has documents."""
    if number > 0:
        return next((turn for turn in conversation.turns if turn.number == number), None)
    shown = [turn for turn in conversation.turns if turn.doc_refs]
    return shown[number] if len(shown) >= -number else None


def _is_explicit(mention: Mention, rest: str, conversation: Conversation) -> bool:
    """Whether the words can be meant for nothing but documents, though none was shown."""
    if mention.soft or mention.kind:
        return False
    if mention.noun or mention.session or mention.answer is not None:
        return True
    if _find_line_numbers(conversation.last) & set(mention.places):
        return False
    # a number and nothing else may be meant for anything: "첫째"
    wish = rest.strip("?!., ")
    return mention.back or bool(wish and _ANY["wish_wishes"].fullmatch(wish))


def _is_document_meant(mention: Mention, conversation: Conversation) -> bool | None:
    """Whether a number means a place, and no line of an answer that counts its lines.

    None: it may be either.
    """
    last, shown = conversation.last, conversation.shown_turn
    asked_back = last is not None and last.mode == AnswerMode.CLARIFY and last.candidates
    if mention.noun or mention.session or last is None or shown is None or asked_back:
        return True
    listed = bool(_find_line_numbers(last) & set(mention.places))
    if last.number == shown.number:
        return None if listed else True
    if listed:
        return False
    idle = all(
        turn.question_type == QuestionType.SMALLTALK
        or turn.mode in {AnswerMode.DOCUMENT, AnswerMode.CLARIFY}
        for turn in conversation.turns
        if turn.number > shown.number
    )
    return True if idle or mention.back else None


def _find_line_numbers(turn: PastTurn | None) -> set[int]:
    """The numbers of the lines that an answer counts itself."""
    found = _ITEM.finditer(turn.assistant_text[:MAX_ANSWER_CHARACTERS]) if turn else ()
    return {int(line[1]) if line[1] else _CIRCLED.index(line[2]) + 1 for line in found}


# What is wanted of the documents: themselves, a part of them, or an answer from them


def _add_wish(made: Reference, text: str) -> Reference:
    """With what is wanted: the document itself, a part of it, or an answer from it."""
    if len(made.rest) > MAX_WISH_CHARACTERS:
        return made
    asked = _find_part(made.rest)
    if asked and (not asked[1] or _is_asking_to_show(asked[1])):
        made = replace(made, whole=True, part=asked[0])
    elif _is_asking_to_show(made.rest):
        made = replace(made, whole=True)
    made = replace(made, present=made.whole and _is_asking_for_present(text))
    return made if _LETTER.search(made.rest) else replace(made, rest=text)


def _is_asking_to_show(rest: str) -> bool:
    """Whether the document itself is asked for; `rest` is the question without the reference."""
    rest = _ANY["wish_not_an_answer"].sub("", rest.strip())
    return bool(_KO["wish_tell"].fullmatch(rest)) or any(
        known["wish_shown"].fullmatch(rest)
        and (known["wish_show"].search(rest) or known["wish_all"].search(rest))
        for known in (_KO, _EN)
    )


def _is_asking_for_present(text: str) -> bool:
    """Whether the present version is asked for where another was shown."""
    return bool(_ANY["wish_present"].search(text))


def _find_part(rest: str) -> tuple[int, str] | None:
    """The part asked for, from 1 (`LAST_PART` for the last), and the rest without it."""
    found = _ANY["wish_part"].search(rest)
    if found is None:
        return None
    part = (*read_places(found[0]), 1)[0]
    left = f"{rest[: found.start()]} {rest[found.end() :]}".strip()
    return LAST_PART if part < 0 else part, left


def _find_page_turn(text: str, at: int) -> int | None:
    """The part that "다음", "back" or "3쪽" turns to from part `at`; else None."""
    text = _ANY["wish_polite"].sub("", text.strip())
    if len(text) > MAX_TURNING_CHARACTERS:
        return None
    for name, part in (("wish_next", at + 1), ("wish_back", max(1, at - 1)), ("wish_again", 1)):
        if _ANY[name].fullmatch(text):
            return part
    found = _find_part(text)
    turns = found and (not found[1].strip(" .?!요") or _is_asking_to_show(found[1]))
    return found[0] if found and turns else None


def _find_turned(text: str, conversation: Conversation, session: Session) -> Reference | None:
    """Another part of the document that was shown last: "다음", "3쪽"."""
    view = conversation.last.view if conversation.last else None
    if view is None:
        return None
    part = _find_page_turn(text, view.part)
    anew = part is None and _is_asking_for_present(text) and _is_asking_to_show(text)
    if part is None and not anew:
        return None
    turns = [turn for turn in reversed(conversation.turns) if turn.mode != AnswerMode.DOCUMENT]
    own = conversation.shown_turn.doc_refs if conversation.shown_turn else ()
    shown = (*(ref for turn in turns for ref in turn.doc_refs), *session(), *own)
    ref = next((ref for ref in shown if ref.document_id == view.document_id), None)
    present = anew or _is_reading_present(conversation, view.document_id)
    part = view.parts if part == LAST_PART else part or 1
    return Reference((ref,), text, whole=True, part=part, present=present) if ref else None


def _is_reading_present(conversation: Conversation, document_id: UUID) -> bool:
    """Whether the reading that goes on began with the present version."""
    for turn in reversed(conversation.turns):
        if turn.view is None or turn.view.document_id != document_id:
            return False
        if _is_asking_for_present(turn.user_text):
            return True
        if _find_page_turn(turn.user_text, 1) is None:
            return False
    return False


# Answers to a question back: "2번이요", "공탁법", "둘 다"


def _get_candidates(conversation: Conversation) -> tuple[DocRef, ...]:
    last = conversation.last
    return last.candidates if last and last.mode == AnswerMode.CLARIFY else ()


def _list_unclear_questions(conversation: Conversation) -> list[str]:
    """The messages that led to clarifying questions, latest first; the last is the question."""
    turns = itertools.takewhile(
        lambda turn: turn.mode == AnswerMode.CLARIFY, reversed(conversation.turns)
    )
    return [unicodedata.normalize("NFC", turn.user_text) for turn in turns]


def _find_picked(
    text: str, conversation: Conversation, named: Collection[UUID]
) -> Reference | None:
    """The question asked again, with the documents that were picked for it."""
    refs = tuple(ref for ref in _get_candidates(conversation) if ref.document_id in named)
    if refs and text in _list_unclear_questions(conversation):
        return _add_wish(
            Reference(refs, _remove_reference(text, find_mention(text), conversation)), text
        )
    return None


def _find_chosen(text: str, conversation: Conversation) -> Reference | None:
    """The reply to a clarifying question: the first question, for the documents now chosen."""
    candidates = _get_candidates(conversation)
    if not candidates or len(text.strip()) > MAX_CHOICE_CHARACTERS:
        return None
    asked = _list_unclear_questions(conversation)[-1]
    rest = _remove_reference(asked, find_mention(asked), conversation)
    made = _resolve_choice(text.strip(), candidates, rest)
    return made and _add_wish(made, asked)


def _resolve_choice(text: str, candidates: tuple[DocRef, ...], rest: str) -> Reference | None:
    """What a short message chooses; None where it chooses nothing."""
    if _ANY["choice_every"].fullmatch(text):
        return Reference(candidates, rest)
    if found := _ANY["choice_chosen"].fullmatch(text):
        refs = [_get_document_at(place, candidates) for place in read_places(found["said"])]
        known = tuple(dict.fromkeys(ref for ref in refs if ref is not None))
        if None in refs:
            return _to_unclear(Unclear.OUT_OF_RANGE, candidates, rest)
        return Reference(known, rest)
    found = _ANY["choice_name"].fullmatch(text)
    return _resolve_named_choice(found["name"], candidates, rest) if found else None


def _resolve_named_choice(name: str, candidates: Sequence[DocRef], rest: str) -> Reference | None:
    if refs := _find_called(name, candidates):
        one = len(refs) == 1
        return Reference(refs, rest) if one else _to_unclear(Unclear.AMBIGUOUS, refs, rest)
    parts = [_find_called(part, candidates) for part in _ANY["choice_and"].split(name)]
    if all(len(part) == 1 for part in parts):
        return Reference(tuple(dict.fromkeys(part[0] for part in parts)), rest)
    return None


def _find_called(name: str, documents: Sequence[DocRef]) -> tuple[DocRef, ...]:
    """The documents whose title the words name or are a part of; an exact title outranks others."""
    bare = (to_name_key(_ANY["between_names"].sub("", word)) for word in name.split())
    words = [word for word in bare if word]
    whole = "".join(words)
    if len(whole) < 2:
        return ()
    titles = [
        (ref, to_name_key(line))
        for ref in documents
        for line in (*ref.title.splitlines(), ref.source)
    ]
    found = [ref for ref, title in titles if title == whole] or [
        ref for ref, title in titles if whole in title or all(word in title for word in words)
    ]
    return tuple(dict.fromkeys(found))
