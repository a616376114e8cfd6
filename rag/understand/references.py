"""Resolves references to documents by place: "이전 1번 문서", "방금 2번", "the second one".

Places count in the latest answer with documents, unless the question refers to the whole session.
Unclear references lead to a clarifying question, never to a guess; what may well not be a reference
is none. Replies to clarifying questions ("2번이요", "둘 다") and page turns ("다음", "3쪽") refer
to documents, too.
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
"""A part number beyond any document: the last part."""
MAX_BARE_PLACE = 20
"""A bare number above this is no place in an answer's list of documents."""
MAX_WISH_CHARACTERS = 400
"""A longer message is more than a wish to see a document."""
MAX_TURNING_CHARACTERS = 60
MAX_CHOICE_CHARACTERS = 120
"""A longer message is a new question and not a choice."""
MAX_ANSWER_CHARACTERS = 20_000
"""Characters of an answer that are searched for numbered lines."""
MAX_TURNS_BACK = 4
"""Turns that are searched for the question that "2번은?" repeats."""

_LAWS = ("법", "법률", "law", "act", "statute")

ListDocuments = Callable[[], tuple[DocRef, ...]]
"""The documents of all answers by first appearance."""


class Unclear(StrEnum):
    """Why a reference needs a clarifying question."""

    NOTHING = "nothing"
    OUT_OF_RANGE = "out_of_range"
    AMBIGUOUS = "ambiguous"


@dataclass(frozen=True, slots=True)
class Reference:
    """What a question refers to.

    `documents` are those meant, in the order named. `rest` is the question without the reference,
    or the earlier question for "2번은?", or all of the question if nothing else is left. `whole`:
    the document itself is to be shown, from part `part` on; `present`: in its present version.
    `unclear`: why it is unclear what is meant; `documents` are then the candidates, renumbered.
    `whole_session`: places were counted over the session. `counted`: documents were named by
    number, so that no document of another number can be meant.
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
    text: str,
    conversation: Conversation,
    list_documents: ListDocuments,
    chosen_ids: Collection[UUID] = (),
) -> Reference | None:
    """The reference in a question; None if there is none.

    `list_documents` returns the documents of all answers by first appearance; it is called only if
    needed. `chosen_ids` are documents that the user picked for the question; they decide unclear
    cases.
    """
    question = unicodedata.normalize("NFC", text)
    if repeated := _find_repeated_question(question, conversation, chosen_ids):
        return repeated
    reference = _find_reference(question, conversation, list_documents)
    if reference is None or not (chosen_ids and reference.unclear) or reference.counted:
        return reference
    refs = tuple(ref for ref in reference.documents if ref.document_id in chosen_ids)
    return replace(reference, documents=refs, unclear=None) if refs else None


def _find_reference(
    text: str, conversation: Conversation, list_documents: ListDocuments
) -> Reference | None:
    if choice := _find_choice(text, conversation):
        return choice
    if page_reference := _find_page_reference(text, conversation, list_documents):
        return page_reference
    mention = find_mention(text)
    if mention is None:
        return _find_by_title(text, conversation)
    rest = _remove_reference(text, mention, conversation)
    reference = _resolve_mention(mention, rest, conversation, list_documents)
    return reference and _add_wish(replace(reference, counted=bool(mention.places)), text)


def _remove_reference(text: str, mention: Mention | None, conversation: Conversation) -> str:
    """The question without its reference; for "2번은?" the earlier question that it repeats."""
    if mention is None:
        return text
    rest = remove_spans(text, mention.spans)
    if _LETTER.search(rest) and not _LETTER.search(_ANY["empty"].sub("", rest)):
        return replace_with_pronoun(text, mention.spans)
    if rest.strip("?!. ") or not _ANY["same_of"].search(text):
        return rest
    for turn in reversed(conversation.turns[-MAX_TURNS_BACK:]):
        earlier_question = unicodedata.normalize("NFC", turn.user_text)
        earlier = find_mention(earlier_question)
        earlier_rest = (
            remove_spans(earlier_question, earlier.spans) if earlier else earlier_question
        )
        if turn.mode == AnswerMode.DOCUMENTS and earlier_rest.strip("?!. "):
            return earlier_rest
    return rest


def _to_unclear(reason: Unclear, candidates: Sequence[DocRef], rest: str) -> Reference:
    """An unclear reference with its candidates numbered from 1."""
    numbered = tuple(replace(ref, slot=slot) for slot, ref in enumerate(candidates, 1))
    return Reference(numbered, rest, unclear=reason)


def _resolve_mention(
    mention: Mention,
    rest: str,
    conversation: Conversation,
    list_documents: ListDocuments,
) -> Reference | None:
    """The documents that a mention means, before it is known what to do with them."""
    pool = _list_candidate_documents(mention, conversation, list_documents)
    if not pool:
        is_explicit = _is_explicit(mention, rest, conversation)
        return _to_unclear(Unclear.NOTHING, list_documents(), rest) if is_explicit else None
    if not mention.places:
        return _resolve_pronoun(mention, pool, conversation, list_documents, rest)
    if mention.kind:
        return _resolve_kind(mention, pool, rest)
    is_document = _is_document_meant(mention, conversation)
    if is_document is None:
        # a number without a document means a line of the answer
        is_out_of_range = max(mention.places) > len(pool)
        return None if is_out_of_range else _to_unclear(Unclear.AMBIGUOUS, pool, rest)
    return _resolve_places(mention, pool, rest) if is_document else None


def _resolve_places(mention: Mention, pool: Sequence[DocRef], rest: str) -> Reference | None:
    """The documents at the places of a mention."""
    refs = [_get_document_at(place, pool) for place in mention.places]
    if mention.others:
        refs = [ref for ref in pool if ref not in refs]
    known_refs = tuple(ref for ref in refs if ref is not None)
    if not known_refs or len(known_refs) < len(refs):
        is_bare = not (mention.has_noun or mention.counts_session or mention.refers_back)
        if is_bare and max(mention.places) > max(MAX_BARE_PLACE, len(pool)):
            return None
        return _to_unclear(Unclear.OUT_OF_RANGE, pool, rest)
    return Reference(known_refs, rest, whole_session=mention.counts_session)


def _get_document_at(place: int, documents: Sequence[DocRef]) -> DocRef | None:
    """The document at a place from 1, or from -1 at the end."""
    if place < 0:
        return documents[place] if -place <= len(documents) else None
    return next((ref for ref in documents if ref.slot == place), None)


def _resolve_kind(mention: Mention, pool: Sequence[DocRef], rest: str) -> Reference | None:
    """As in "두 번째 법": clear if counting all documents and counting laws agree."""
    kinds = _LAWS if mention.kind in _LAWS else (mention.kind,)
    of_kind = [ref for ref in pool if any(kind in ref.title.casefold() for kind in kinds)]
    if not of_kind:
        return None
    renumbered = [replace(ref, slot=slot) for slot, ref in enumerate(of_kind, 1)]
    by_all, by_kind = (
        _resolve_places(mention, documents, rest) for documents in (pool, renumbered)
    )
    if by_kind and by_kind.unclear:
        return _to_unclear(by_kind.unclear, pool, rest)
    if by_all and by_kind and not by_all.unclear:
        ids = [[ref.document_id for ref in reference.documents] for reference in (by_all, by_kind)]
        if ids[0] == ids[1]:
            return by_all
    return _to_unclear(Unclear.AMBIGUOUS, pool, rest)


def _resolve_pronoun(
    mention: Mention,
    pool: Sequence[DocRef],
    conversation: Conversation,
    list_documents: ListDocuments,
    rest: str,
) -> Reference | None:
    """What "그 문서" means: the one named, the one being read, or the only one."""
    view = conversation.last_turn.view if conversation.last_turn else None
    if mention.named:
        named_refs = _find_by_name(mention.named, pool) or _find_by_name(
            mention.named, list_documents()
        )
        if not named_refs:
            return None if mention.may_be_unshown else _to_unclear(Unclear.AMBIGUOUS, pool, rest)
        pool = named_refs
    elif view:
        pool = [ref for ref in (*pool, *list_documents()) if ref.document_id == view.document_id][
            :1
        ]
    if len(pool) > 1:
        return _to_unclear(Unclear.AMBIGUOUS, pool, rest)
    return Reference(tuple(pool), rest) if pool else None


def _find_by_title(text: str, conversation: Conversation) -> Reference | None:
    """A whole document that was shown before, by its title: "공탁법 전문 보여줘"."""
    wishes = (_KO["wish_all"], _EN["wish_all"], _ANY["wish_document"])
    if conversation.shown_turn is None or len(text) > MAX_END_CHARACTERS:
        return None
    if not any(pattern.search(text) for pattern in wishes):
        return None
    turns = (conversation.shown_turn, *reversed(conversation.current_turns))
    refs = [ref for turn in turns for ref in turn.doc_refs]
    for ref in sorted(refs, key=lambda ref: -len(ref.title)):
        title = unicodedata.normalize("NFC", ref.title)
        start = text.casefold().find(title.casefold())
        if title and start >= 0:
            rest = remove_spans(text, [(start, start + len(title))])
            if _is_asking_to_show(rest):
                return _add_wish(Reference((ref,), rest), text)
    return None


# Which documents places count among, and whether a number may mean something else


def _list_candidate_documents(
    mention: Mention, conversation: Conversation, list_documents: ListDocuments
) -> tuple[DocRef, ...]:
    """The documents that places count among."""
    last, shown_turn = conversation.last_turn, conversation.shown_turn
    if mention.counts_session:
        return list_documents()
    if mention.answer is not None:
        answer = _find_numbered_turn(mention.answer, conversation)
        return answer.doc_refs if answer else ()
    if last and last.mode == AnswerMode.CLARIFY and last.candidates:
        return last.candidates
    if shown_turn is None:
        return ()
    if shown_turn.mode == AnswerMode.DOCUMENT and mention.places:
        # a whole document shown since then does not replace the list
        lists = (turn for turn in reversed(conversation.current_turns) if turn.doc_refs)
        earlier = (turn for turn in lists if turn.number < shown_turn.number)
        shown_turn = next(
            (turn for turn in earlier if turn.mode != AnswerMode.DOCUMENT), shown_turn
        )
    return shown_turn.doc_refs


def _find_numbered_turn(number: int, conversation: Conversation) -> PastTurn | None:
    """The turn with this number; for -2 the last but one with documents."""
    if number > 0:
        return next((turn for turn in conversation.turns if turn.number == number), None)
    turns_with_documents = [turn for turn in conversation.turns if turn.doc_refs]
    return turns_with_documents[number] if len(turns_with_documents) >= -number else None


def _is_explicit(mention: Mention, rest: str, conversation: Conversation) -> bool:
    """Whether the words can only mean documents, even though none was shown."""
    if mention.may_be_unshown or mention.kind:
        return False
    if mention.has_noun or mention.counts_session or mention.answer is not None:
        return True
    if _find_line_numbers(conversation.last_turn) & set(mention.places):
        return False
    # a number alone may mean anything: "첫째"
    wish = rest.strip("?!., ")
    return mention.refers_back or bool(wish and _ANY["wish_wishes"].fullmatch(wish))


def _is_document_meant(mention: Mention, conversation: Conversation) -> bool | None:
    """Whether a number means a document and not a numbered line of the answer; None if unclear."""
    last, shown_turn = conversation.last_turn, conversation.shown_turn
    is_reply_to_clarification = (
        last is not None and last.mode == AnswerMode.CLARIFY and last.candidates
    )
    if (
        mention.has_noun
        or mention.counts_session
        or last is None
        or shown_turn is None
        or is_reply_to_clarification
    ):
        return True
    is_listed = bool(_find_line_numbers(last) & set(mention.places))
    if last.number == shown_turn.number:
        return None if is_listed else True
    if is_listed:
        return False
    is_idle = all(
        turn.question_type == QuestionType.SMALLTALK
        or turn.mode in {AnswerMode.DOCUMENT, AnswerMode.CLARIFY}
        for turn in conversation.turns
        if turn.number > shown_turn.number
    )
    return True if is_idle or mention.refers_back else None


def _find_line_numbers(turn: PastTurn | None) -> set[int]:
    """The numbers of an answer's numbered lines."""
    matches = _ITEM.finditer(turn.assistant_text[:MAX_ANSWER_CHARACTERS]) if turn else ()
    return {int(line[1]) if line[1] else _CIRCLED.index(line[2]) + 1 for line in matches}


# What to do with the documents: show them, show a part, or answer from them


def _add_wish(reference: Reference, text: str) -> Reference:
    """The reference with what is wanted: the document itself, a part, or an answer from it."""
    if len(reference.rest) > MAX_WISH_CHARACTERS:
        return reference
    part_wish = _find_part(reference.rest)
    if part_wish and (not part_wish[1] or _is_asking_to_show(part_wish[1])):
        reference = replace(reference, whole=True, part=part_wish[0])
    elif _is_asking_to_show(reference.rest):
        reference = replace(reference, whole=True)
    reference = replace(reference, present=reference.whole and _is_asking_for_present_version(text))
    return reference if _LETTER.search(reference.rest) else replace(reference, rest=text)


def _is_asking_to_show(rest: str) -> bool:
    """Whether the document itself is asked for; `rest` is the question without the reference."""
    rest = _ANY["wish_not_an_answer"].sub("", rest.strip())
    return bool(_KO["wish_tell"].fullmatch(rest)) or any(
        patterns["wish_shown"].fullmatch(rest)
        and (patterns["wish_show"].search(rest) or patterns["wish_all"].search(rest))
        for patterns in (_KO, _EN)
    )


def _is_asking_for_present_version(text: str) -> bool:
    """Whether a question asks for the present version of a document."""
    return bool(_ANY["wish_present"].search(text))


def _find_part(rest: str) -> tuple[int, str] | None:
    """The part asked for, from 1 (`LAST_PART` for the last), and the rest without it."""
    match = _ANY["wish_part"].search(rest)
    if match is None:
        return None
    part = (*read_places(match[0]), 1)[0]
    remainder = f"{rest[: match.start()]} {rest[match.end() :]}".strip()
    return LAST_PART if part < 0 else part, remainder


def _find_page_turn(text: str, current_part: int) -> int | None:
    """The part that "다음", "back" or "3쪽" turns to from the current one; None for other texts."""
    text = _ANY["wish_polite"].sub("", text.strip())
    if len(text) > MAX_TURNING_CHARACTERS:
        return None
    for name, part in (
        ("wish_next", current_part + 1),
        ("wish_back", max(1, current_part - 1)),
        ("wish_again", 1),
    ):
        if _ANY[name].fullmatch(text):
            return part
    part_wish = _find_part(text)
    is_turning = part_wish and (
        not part_wish[1].strip(" .?!요") or _is_asking_to_show(part_wish[1])
    )
    return part_wish[0] if part_wish and is_turning else None


def _find_page_reference(
    text: str, conversation: Conversation, list_documents: ListDocuments
) -> Reference | None:
    """Another part of the document shown last: "다음", "3쪽"."""
    view = conversation.last_turn.view if conversation.last_turn else None
    if view is None:
        return None
    part = _find_page_turn(text, view.part)
    asks_for_present_version = (
        part is None and _is_asking_for_present_version(text) and _is_asking_to_show(text)
    )
    if part is None and not asks_for_present_version:
        return None
    turns = [turn for turn in reversed(conversation.turns) if turn.mode != AnswerMode.DOCUMENT]
    shown_refs = conversation.shown_turn.doc_refs if conversation.shown_turn else ()
    all_refs = (
        *(ref for turn in turns for ref in turn.doc_refs),
        *list_documents(),
        *shown_refs,
    )
    ref = next((ref for ref in all_refs if ref.document_id == view.document_id), None)
    present = asks_for_present_version or _is_reading_present(conversation, view.document_id)
    part = view.parts if part == LAST_PART else part or 1
    return Reference((ref,), text, whole=True, part=part, present=present) if ref else None


def _is_reading_present(conversation: Conversation, document_id: UUID) -> bool:
    """Whether the user began reading the document in its present version."""
    for turn in reversed(conversation.turns):
        if turn.view is None or turn.view.document_id != document_id:
            return False
        if _is_asking_for_present_version(turn.user_text):
            return True
        if _find_page_turn(turn.user_text, 1) is None:
            return False
    return False


# Replies to clarifying questions: "2번이요", "공탁법", "둘 다"


def _get_candidates(conversation: Conversation) -> tuple[DocRef, ...]:
    last = conversation.last_turn
    return last.candidates if last and last.mode == AnswerMode.CLARIFY else ()


def _list_unclear_questions(conversation: Conversation) -> list[str]:
    """The messages that led to clarifying questions, latest first; the last is the original."""
    turns = itertools.takewhile(
        lambda turn: turn.mode == AnswerMode.CLARIFY, reversed(conversation.turns)
    )
    return [unicodedata.normalize("NFC", turn.user_text) for turn in turns]


def _find_repeated_question(
    text: str, conversation: Conversation, chosen_ids: Collection[UUID]
) -> Reference | None:
    """The reference of a question that is repeated with documents picked for it."""
    refs = tuple(ref for ref in _get_candidates(conversation) if ref.document_id in chosen_ids)
    if refs and text in _list_unclear_questions(conversation):
        return _add_wish(
            Reference(refs, _remove_reference(text, find_mention(text), conversation)), text
        )
    return None


def _find_choice(text: str, conversation: Conversation) -> Reference | None:
    """The reference of a reply to a clarifying question: the original question with its choice."""
    candidates = _get_candidates(conversation)
    if not candidates or len(text.strip()) > MAX_CHOICE_CHARACTERS:
        return None
    question = _list_unclear_questions(conversation)[-1]
    rest = _remove_reference(question, find_mention(question), conversation)
    reference = _resolve_choice(text.strip(), candidates, rest)
    return reference and _add_wish(reference, question)


def _resolve_choice(text: str, candidates: tuple[DocRef, ...], rest: str) -> Reference | None:
    """The candidates that a short message chooses; None if it chooses none."""
    if _ANY["choice_every"].fullmatch(text):
        return Reference(candidates, rest)
    if match := _ANY["choice_chosen"].fullmatch(text):
        refs = [_get_document_at(place, candidates) for place in read_places(match["said"])]
        known_refs = tuple(dict.fromkeys(ref for ref in refs if ref is not None))
        if None in refs:
            return _to_unclear(Unclear.OUT_OF_RANGE, candidates, rest)
        return Reference(known_refs, rest)
    match = _ANY["choice_name"].fullmatch(text)
    return _resolve_named_choice(match["name"], candidates, rest) if match else None


def _resolve_named_choice(name: str, candidates: Sequence[DocRef], rest: str) -> Reference | None:
    if refs := _find_by_name(name, candidates):
        is_single = len(refs) == 1
        return Reference(refs, rest) if is_single else _to_unclear(Unclear.AMBIGUOUS, refs, rest)
    parts = [_find_by_name(part, candidates) for part in _ANY["choice_and"].split(name)]
    if all(len(part) == 1 for part in parts):
        return Reference(tuple(dict.fromkeys(part[0] for part in parts)), rest)
    return None


def _find_by_name(name: str, documents: Sequence[DocRef]) -> tuple[DocRef, ...]:
    """The documents whose title is the name, or else those whose title contains it."""
    bare = (to_name_key(_ANY["between_names"].sub("", word)) for word in name.split())
    words = [word for word in bare if word]
    joined = "".join(words)
    if len(joined) < 2:
        return ()
    titles = [
        (ref, to_name_key(line))
        for ref in documents
        for line in (*ref.title.splitlines(), ref.source)
    ]
    matching = [ref for ref, title in titles if title == joined] or [
        ref for ref, title in titles if joined in title or all(word in title for word in words)
    ]
    return tuple(dict.fromkeys(matching))
