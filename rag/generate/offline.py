"""Answers without a language model: passages, quoted turns, clarifying questions, documents.

A document is shown in the version that was shown before. If that version is gone, the answer shows
what earlier answers showed of it, and says so.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from enum import StrEnum
from uuid import UUID

from rag import tokenize
from rag.conversation import DocRef, PastTurn, Question, View
from rag.generate import markdown
from rag.generate.passages import PassagesAnswer, compose_passages
from rag.lexicon import load_patterns, load_rules
from rag.memory.extract import Extraction, find_wish
from rag.memory.profile import (
    Packs,
    Slot,
    SlotStatus,
    apply_statements,
    find_forgotten,
    is_protected,
)
from rag.memory.recall import find_turn_number, is_recalling, strip_recall_frame
from rag.memory.summary import shorten_text, strip_own_sentences
from rag.ports import PassageStore
from rag.prompts import get_reply
from rag.retrieve.evidence import to_evidence, to_sources, to_span
from rag.tokenize.text import choose_reply_language, neutralise_text, split_sentences
from rag.types import (
    AnswerLabel,
    AnswerMode,
    AnswerSource,
    Citation,
    Evidence,
    Excerpt,
    Passage,
    QuestionType,
    Span,
)
from rag.understand.analysis import QuestionAnalysis
from rag.understand.references import LAST_PART, Reference, Unclear

MAX_CANDIDATES = 20
"""Candidates in a clarifying question; nobody would read more."""
PART_CHARACTERS = 3000
MAX_LOOKAHEAD_CHARACTERS = 600
"""Characters beyond `PART_CHARACTERS` within which a part may end."""
MAX_OTHERS = 5
"""Further documents that are listed if several were asked for."""
MARKDOWN = (".md", ".markdown")
_BETWEEN = "\n\n…\n\n"
"""Separates two passages shown before."""
_ENDS = (
    re.compile(r"\n[ \t]*\n\s*"),
    re.compile(r"\n\s*"),
    re.compile(r"[.!?。](?:[\"'”’」』)\]])*\s+"),
    re.compile(r"\s+"),
)
"""Where a part may end, best first: a paragraph, a line, a sentence, a word."""


@dataclass(frozen=True, slots=True)
class FixedAnswer:
    """A complete answer; `candidates` of a clarifying question, `view` of a document shown."""

    text: str
    mode: AnswerMode
    label: AnswerLabel | None = None
    sources: tuple[AnswerSource, ...] = ()
    candidates: tuple[DocRef, ...] = ()
    view: View | None = None


@dataclass(frozen=True, slots=True)
class ShownPart:
    """A part of a document as Markdown; `ref` is the document in the version shown."""

    text: str
    view: View
    ref: DocRef


def find_fixed_answer(
    question: Question, analysis: QuestionAnalysis, store: PassageStore, language: str
) -> FixedAnswer | None:
    """The fixed answer to a question; None if documents must be searched."""
    reference = analysis.reference
    if reference is None:
        if analysis.question_type is QuestionType.RESET:
            return FixedAnswer(
                get_reply("reset", language), AnswerMode.GENERAL, AnswerLabel.GENERAL
            )
        return None
    if reference.unclear:
        text = render_clarification(reference, language)
        return FixedAnswer(text, AnswerMode.CLARIFY, candidates=reference.documents)
    return _answer_with_document(question, reference, store, language) if reference.whole else None


def answer_memory_wish(question: Question, packs: Packs, language: str) -> FixedAnswer | None:
    """The answer to a message that only asks to remember or forget something; else None."""
    extraction = find_wish(question.text, packs) if packs.kinds else None
    if extraction is None:
        return None
    name = (
        "memory_off"
        if question.profile is None
        else _choose_wish_reply(extraction, question.profile, packs)
    )
    return FixedAnswer(get_reply(name, language), AnswerMode.GENERAL, AnswerLabel.CONVERSATION)


def _choose_wish_reply(extraction: Extraction, slots: Sequence[Slot], packs: Packs) -> str:
    """The name of the reply that says how a wish is carried out."""
    confirmed = [slot for slot in slots if slot.status is not SlotStatus.PROPOSED]
    if extraction.forgets_everything:
        return "memory_forgot"
    if extraction.forgets:
        forgotten = [
            slot for wish in extraction.forgets for slot in find_forgotten(confirmed, wish, packs)
        ]
        if any(is_protected(slot, packs) for slot in forgotten):
            return "memory_asks"
        return "memory_forgot" if forgotten else "memory_unknown"
    changed = apply_statements(slots, extraction.statements, packs, at=datetime.now(UTC))
    asks = any(slot.status is SlotStatus.PROPOSED for slot in changed)
    return "memory_asks" if asks else "memory_kept"


def render_clarification(reference: Reference, language: str) -> str:
    """The clarifying question with numbered candidates, in "ko" or "en". Raises `ValueError`."""
    if reference.unclear is None:
        raise ValueError("the reference is clear")
    candidates = reference.documents[:MAX_CANDIDATES]
    listed = [f"{ref.slot}. {_get_title(ref)}" for ref in candidates]
    if more := len(reference.documents) - len(candidates):
        listed.append(f"\n… +{more}")
    forgotten = reference.unclear is Unclear.NOTHING and reference.documents
    name = "clarify_forgotten" if forgotten else f"clarify_{reference.unclear}"
    return get_reply(name, language, candidates="\n".join(listed))


def _answer_with_document(
    question: Question, reference: Reference, store: PassageStore, language: str
) -> FixedAnswer:
    first, *others = reference.documents
    shown = show_document(
        first,
        question.conversation.readable,
        reference.part,
        store,
        language,
        present=reference.present,
        others=others,
    )
    name = shown.ref.source or shown.ref.title
    # kept as shown, so that it can be shown again when the document is gone
    passage = Passage(
        -1, shown.ref.document_id, name, 0, shown.text, None, None, "", version=shown.ref.version
    )
    (source,) = to_sources(to_evidence([passage], {passage.key: 1.0}), (), dense=False)
    sources = (replace(source, cited=True),)
    return FixedAnswer(
        shown.text, AnswerMode.DOCUMENT, AnswerLabel.DOCUMENTS, sources, view=shown.view
    )


def show_document(  # noqa: PLR0913 - one request, by name
    ref: DocRef,
    readable: Mapping[UUID, int],
    part: int,
    store: PassageStore,
    language: str,
    *,
    present: bool = False,
    others: Sequence[DocRef] = (),
) -> ShownPart:
    """Part `part` of a document, or its last part if there are fewer.

    `readable` maps every document that may be read to its present version. `present`: show that
    version, whatever was shown before. `others` were asked for as well; the text says that they
    come later. Raises what the store raises.
    """
    version = readable.get(ref.document_id)
    shown_before = _BETWEEN.join(ref.passages) or ref.snippet
    cut, note = None, ""
    if version is not None:
        cut = _cut_part(lambda start, length: store.read(ref.document_id, start, length), part)
    if version is None or cut is None:
        cut, note = (
            _cut_kept_part(shown_before, part),
            "whole_gone" if shown_before else "whole_lost",
        )
    elif not present and version != ref.version and shown_before:
        cut, note = _cut_kept_part(shown_before, part), "whole_newer"
    else:
        note = "" if present or version == ref.version else "whole_present"
    versions = {"then": str(ref.version), "now": str(version)}
    if note in {"", "whole_present"}:
        ref = replace(ref, version=version or ref.version)
    pieces = [
        f"**『{_get_title(ref)}』 (v{ref.version}) {cut.number}/{cut.parts}**",
        get_reply(note, language, **versions) if note else "",
        get_reply("whole_beyond", language, part=str(part)) if cut.parts < part < LAST_PART else "",
        (
            markdown.sanitise_markdown
            if ref.source.casefold().endswith(MARKDOWN)
            else markdown.escape_lines
        )(cut.text),
    ]
    if cut.parts > 1:
        end = "whole_next" if cut.number < cut.parts else "whole_end"
        pieces.append(f"---\n\n{get_reply(end, language)}")
    if others:
        titles = ", ".join(f"『{_get_title(document)}』" for document in others[:MAX_OTHERS])
        pieces.append(get_reply("whole_others", language, titles=titles))
    text = "\n\n".join(piece for piece in pieces if piece)
    return ShownPart(text, View(ref.document_id, cut.number, cut.parts), ref)


def _get_title(ref: DocRef) -> str:
    return markdown.to_title(ref.title or ref.source)


@dataclass(frozen=True, slots=True)
class _Part:
    text: str
    number: int
    parts: int


def _cut_kept_part(text: str, part: int) -> _Part:
    """A part of what was shown before."""

    def read(start: int, length: int) -> Excerpt:
        return Excerpt(text[start : start + length], start, len(text))

    return _cut_part(read, part) or _Part("", 1, 1)


def _cut_part(read_excerpt: Callable[[int, int], Excerpt | None], part: int) -> _Part | None:
    """The part with this number, or the last one; None if nothing can be read.

    `read_excerpt` takes an offset and a length. Part n ends at the first end of a paragraph after
    n * `PART_CHARACTERS`, so that parts do not depend on which one was read before.
    """
    number = max(1, part)
    excerpt = read_excerpt(
        (number - 1) * PART_CHARACTERS, PART_CHARACTERS + MAX_LOOKAHEAD_CHARACTERS
    )
    if excerpt is None:
        return None
    parts = 1 + max(0, excerpt.total - MAX_LOOKAHEAD_CHARACTERS - 1) // PART_CHARACTERS
    if number > parts:
        return _cut_part(read_excerpt, parts)
    text = excerpt.text
    start = _find_part_end(text[:MAX_LOOKAHEAD_CHARACTERS]) if number > 1 else 0
    end = len(text)
    if number < parts:
        end = PART_CHARACTERS + _find_part_end(text[PART_CHARACTERS:])
    return _Part(text[start:end].strip("\n"), number, parts)


def _find_part_end(text: str) -> int:
    """The offset in the text where a part ends; 0 if there is no good place."""
    first_end = next((match for pattern in _ENDS if (match := pattern.search(text))), None)
    return first_end.end() if first_end else 0


# What comes before any answer: that somebody needs help now, and whom to call.
#
# By rules alone (`rag/lexicon/emergency.toml`), with or without a language model, and before the
# search: whoever needs an ambulance must not wait for an index.

MAX_CHARACTERS = 2000
"""Characters read of a message; a longer one is a pasted text, and its beginning is enough."""
MAX_SENTENCES = 12


class Emergency(StrEnum):
    """Whom to call: an ambulance, or a crisis line as well."""

    BODY = "body"
    SELF_HARM = "self_harm"


def find_emergency(text: str) -> Emergency | None:
    """The emergency in a user's message; self-harm comes before physical ones."""
    patterns = load_patterns("emergency")
    emergency: Emergency | None = None
    if not patterns["hints"].search(text[:MAX_CHARACTERS]):
        return None
    for sentence in split_sentences(text[:MAX_CHARACTERS])[:MAX_SENTENCES]:
        kinds = {
            Emergency.SELF_HARM if name.startswith("self_harm") else Emergency.BODY
            for name, pattern in patterns.named.items()
            if name.startswith(("body_", "self_harm_")) and pattern.search(sentence)
        }
        if Emergency.SELF_HARM in kinds:
            return Emergency.SELF_HARM
        if kinds and (
            not patterns["informs"].search(sentence) or patterns["present"].search(sentence)
        ):
            emergency = Emergency.BODY
    return emergency


def write_emergency_note(text: str) -> str:
    """The beginning of the answer to an emergency, in the message's language; else empty."""
    emergency = find_emergency(text)
    if emergency is None:
        return ""
    return get_reply(f"emergency_{emergency}", choose_reply_language(text))


MAX_PRODUCT_CHARACTERS = 80
"""Characters of a question about the product; longer ones are about something else."""
MAX_UNSHOWN_PASSAGES = 8
"""Passages that an answer keeps besides those that it shows."""
MAX_QUOTES, MAX_QUOTE_CHARACTERS = 3, 300
MAX_TURN_CHARACTERS = 8000
"""Characters read of each text of a turn."""
MIN_QUOTED_SHARE = 0.5
"""Share of the question's weight that a quoted sentence must contain; words elsewhere in its text
count half."""
MIN_SHARE_OF_BEST_QUOTE = 0.8
"""Further sentences are quoted if their score is at least this share of the best one's."""
OWN_WORDS_FACTOR = 1.3
"""Factor for the user's own words, which such questions mostly look for."""
_MARKER = re.compile(r"(?<!\\)\[(\d{1,4})\]")
"""`rag.generate.passages.MARKER` with its number as a group."""
_READY = {
    about: {name: re.compile("|".join(found), re.IGNORECASE) for name, found in group.items()}
    for about, group in load_rules("ready").items()
}
_QUESTION = re.compile(
    r"[?？]\s*$|"
    r"(?:나요|까요|인가요|니까|는지요?|던가요?|뭐야|누구야|언제야|어디야|얼마야)[.!\s]*$|"
    r"(?:알려|말해|설명해|보여)\s?(?:줘|주세요|줄래)[.!\s]*$|"
    r"^(?:what|who|when|where|why|which|how|is|are|do|does|did|can|could|tell me)\b",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class OfflineAnswer:
    """A complete answer. `evidence` are the passages considered; those shown come first.

    `cited` are the numbers of those shown, `spans` their decisive sentences by number, and
    `citations` what each marker refers to.
    """

    text: str
    label: AnswerLabel
    evidence: tuple[Evidence, ...] = ()
    cited: frozenset[int] = frozenset()
    spans: Mapping[int, tuple[Span, ...]] = field(default_factory=dict)
    citations: tuple[Citation, ...] = ()


@dataclass(frozen=True, slots=True)
class Quote:
    """A sentence of a turn. `score` is the share of the question that it contains."""

    number: int
    text: str
    score: float


def answer_offline(  # noqa: PLR0913 - everything that decides what is said, by name
    analysis: QuestionAnalysis,
    evidence: Sequence[Evidence],
    turns: Sequence[PastTurn],
    *,
    is_whole_document: bool,
    named_titles: Sequence[str],
    notices: Sequence[str],
    language: str,
) -> OfflineAnswer:
    """The answer from passages and older turns.

    `is_whole_document`: the evidence is whole documents, asked about as such. `named_titles` are
    the documents asked about; `notices` are names of replies that say how the passages were found.
    """
    question = analysis.text
    quoted = answer_from_turns(question, turns, language)
    if quoted and is_recalling(question):
        return OfflineAnswer(quoted, AnswerLabel.CONVERSATION)
    if name := find_ready_answer(analysis):
        has_no_documents = name == "plain_no_documents"
        label = AnswerLabel.INSUFFICIENT if has_no_documents else AnswerLabel.GENERAL
        return OfflineAnswer(get_reply(name, language), label)
    standalone = analysis.standalone or question
    is_exchanged = bool(analysis.completed_by) and not analysis.own_words  # "그럼 2분기는?"
    passages = compose_passages(
        # a follow-up's own words first, then those completed from earlier questions
        [standalone] if is_exchanged or not analysis.follows else [question, standalone],
        evidence,
        question_type=analysis.question_type,
        is_whole_document=is_whole_document,
        named_titles=named_titles,
        language=language,
    )
    if passages.has_answer:
        notes = (get_reply(name, language) for name in notices)
        answer = _renumber_shown(passages, evidence)
        text = "\n\n".join([*notes, answer.text])
        shift = len(text) - len(answer.text)
        citations = (
            replace(citation, offset=citation.offset + shift) for citation in answer.citations
        )
        return replace(answer, text=text, citations=tuple(citations))
    # of a document that was named, what others said before is no answer
    if quoted and analysis.reference is None:
        return OfflineAnswer(quoted, AnswerLabel.CONVERSATION)
    return OfflineAnswer(
        passages.text or get_reply("plain_no_model", language), AnswerLabel.INSUFFICIENT
    )


def _renumber_shown(answer: PassagesAnswer, evidence: Sequence[Evidence]) -> OfflineAnswer:
    """The answer with passages and slots renumbered in the order in which it shows them.

    Of the other evidence, only passages of the documents shown are kept.
    """
    shown = [item for number in answer.spans for item in evidence if item.number == number]
    documents = {item.document_id for item in shown}
    rest = [item for item in evidence if item not in shown and item.document_id in documents]
    slots: dict[object, int] = {}
    ordered = tuple(
        replace(item, number=number, slot=slots.setdefault(item.document_id, len(slots) + 1))
        for number, item in enumerate([*shown, *rest[:MAX_UNSHOWN_PASSAGES]], 1)
    )
    new_slots = {item.slot: slots[item.document_id] for item in shown}
    new_numbers = {item.number: number for number, item in enumerate(shown, 1)}
    text, position = "", 0
    citations: list[Citation] = []
    for match, (number, span_index) in zip(
        _MARKER.finditer(answer.text), answer.cited, strict=True
    ):
        text += answer.text[position : match.start()]
        citations.append(Citation(len(text), new_numbers[number], (span_index,)))
        text += f"[{new_slots.get(int(match[1]), match[1])}]"
        position = match.end()
    text += answer.text[position:]
    spans = {
        number: tuple(_to_span(item, start, end) for start, end in answer.spans[item.number])
        for number, item in enumerate(shown, 1)
    }
    return OfflineAnswer(
        text, AnswerLabel.PASSAGES, ordered, frozenset(spans), spans, tuple(citations)
    )


def _to_span(item: Evidence, start: int, end: int) -> Span:
    """The part of a sentence, given by document offsets, that is in a passage."""
    first, last = max(start, item.start), min(end, item.start + len(item.text))
    return to_span(item, first - item.start, last - item.start)


def find_ready_answer(analysis: QuestionAnalysis) -> str:
    """The name of the reply that answers a question; empty if passages should."""
    if analysis.question_type is QuestionType.SMALLTALK:
        return f"plain_{_find_pattern('smalltalk', analysis.text) or 'greeting'}"
    if name := find_product_topic(analysis.text):
        return f"plain_{name}"
    return "" if analysis.scope.document_ids else "plain_no_documents"


def find_product_topic(question: str) -> str:
    """The topic of a question about the product ("help_files"); empty for other questions."""
    return "" if len(question) > MAX_PRODUCT_CHARACTERS else _find_pattern("product", question)


def _find_pattern(about: str, text: str) -> str:
    return next((name for name, pattern in _READY[about].items() if pattern.search(text)), "")


def answer_from_turns(question: str, turns: Sequence[PastTurn], language: str) -> str:
    """The sentences of these turns that answer a question; empty if none does."""
    lines = [
        get_reply("recalled_quote", language, number=str(quote.number), text=quote.text)
        for quote in quote_turns(question, turns)
    ]
    return get_reply("recalled", language, quotes="\n".join(lines)) if lines else ""


def quote_turns(question: str, turns: Sequence[PastTurn]) -> list[Quote]:
    """At most `MAX_QUOTES` sentences in conversation order; of equal ones the latest.

    If the question names a turn by number, that turn's question is quoted; otherwise no questions
    are.
    """
    number = find_turn_number(question)
    if named := [turn for turn in turns if turn.number == number]:
        texts = (" ".join(neutralise_text(turn.user_text).split()) for turn in named)
        shortened = (
            shorten_text(text[:MAX_TURN_CHARACTERS], MAX_QUOTE_CHARACTERS) for text in texts
        )
        return [Quote(turn.number, text, 1.0) for turn, text in zip(named, shortened, strict=True)]
    weights = tokenize.weigh_query_terms(strip_recall_frame(question))
    question_terms = {term: weight for term, weight in weights.items() if weight >= 1}
    quotes = [quote for turn in turns for quote in _quote_turn(turn, question_terms)]
    best_score = max((quote.score for quote in quotes), default=0.0)
    if best_score < MIN_QUOTED_SHARE:
        return []
    best_quotes = [
        quote
        for quote in quotes
        if quote.score >= max(MIN_QUOTED_SHARE, MIN_SHARE_OF_BEST_QUOTE * best_score)
    ]
    latest = {quote.text: quote for quote in sorted(best_quotes, key=lambda quote: quote.number)}
    chosen = sorted(latest.values(), key=lambda quote: (-quote.score, -quote.number))[:MAX_QUOTES]
    return sorted(chosen, key=lambda quote: quote.number)


def _quote_turn(turn: PastTurn, question_terms: Mapping[str, float]) -> Iterator[Quote]:
    """The sentences of a turn with some of the terms and new ones, except questions."""
    for text, factor in ((turn.user_text, OWN_WORDS_FACTOR), (strip_own_sentences(turn), 1.0)):
        parts = split_sentences(neutralise_text(text[:MAX_TURN_CHARACTERS]))
        terms_by_part = [set(terms) for terms in tokenize.count_terms_per_text(parts)]
        all_terms = set[str]().union(*terms_by_part)
        for part, part_terms in zip(parts, terms_by_part, strict=True):
            if (
                not _QUESTION.search(part)
                and part_terms - question_terms.keys()
                and part_terms & question_terms.keys()
            ):
                shares = ((term in part_terms) + (term in all_terms) for term in question_terms)
                covered = sum(
                    weight * share / 2
                    for weight, share in zip(question_terms.values(), shares, strict=True)
                )
                score = factor * covered / sum(question_terms.values())
                yield Quote(turn.number, shorten_text(part, MAX_QUOTE_CHARACTERS), score)
