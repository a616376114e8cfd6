"""Answers without a language model: found passages, quoted turns, a question back, a document.

Of a document stands the version that was shown; where that is gone, what was shown of it then
stands in its place, and that is said.
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
from rag.retrieve.evidence import to_evidence, to_sources
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
from rag.verify.sentences import to_span

MAX_CANDIDATES = 20
"""Candidates that a question back lists; more would not be read."""
PART_CHARACTERS = 3000
MAX_LOOK_CHARACTERS = 600
"""Characters beyond `PART_CHARACTERS` in which a part may look for its end."""
MAX_OTHERS = 5
"""Further documents that are named where several were asked for."""
MARKDOWN = (".md", ".markdown")
_BETWEEN = "\n\n…\n\n"
"""Stands between two passages of what was shown."""
_ENDS = (
    re.compile(r"\n[ \t]*\n\s*"),
    re.compile(r"\n\s*"),
    re.compile(r"[.!?。](?:[\"'”’」』)\]])*\s+"),
    re.compile(r"\s+"),
)
"""Where a part may end, best first: a paragraph, a line, a sentence, a word."""


@dataclass(frozen=True, slots=True)
class FixedAnswer:
    """A whole answer. `candidates` stand in a question back, `view` tells what was shown."""

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
    """The fixed answer that a question asks for; None where it must be searched."""
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
    """The answer to a message that only wishes something to be remembered or forgotten."""
    read = find_wish(question.text, packs) if packs.kinds else None
    if read is None:
        return None
    name = (
        "memory_off"
        if question.profile is None
        else _choose_wish_reply(read, question.profile, packs)
    )
    return FixedAnswer(get_reply(name, language), AnswerMode.GENERAL, AnswerLabel.CONVERSATION)


def _choose_wish_reply(read: Extraction, known: Sequence[Slot], packs: Packs) -> str:
    """The name of the reply that says what becomes of a wish."""
    held = [slot for slot in known if slot.status is not SlotStatus.PROPOSED]
    if read.everything:
        return "memory_forgot"
    if read.forgets:
        meant = [slot for wish in read.forgets for slot in find_forgotten(held, wish, packs)]
        if any(is_protected(slot, packs) for slot in meant):
            return "memory_asks"
        return "memory_forgot" if meant else "memory_unknown"
    changed = apply_statements(known, read.statements, packs, at=datetime.now(UTC))
    asks = any(slot.status is SlotStatus.PROPOSED for slot in changed)
    return "memory_asks" if asks else "memory_kept"


def render_clarification(reference: Reference, language: str) -> str:
    """What to ask back, in "ko" or "en", with numbered candidates. Raises `ValueError`."""
    if reference.unclear is None:
        raise ValueError("the reference is clear")
    shown = reference.documents[:MAX_CANDIDATES]
    listed = [f"{ref.slot}. {_get_title(ref)}" for ref in shown]
    if more := len(reference.documents) - len(shown):
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
    """Part `part` of a document, the last one where there are fewer.

    `readable` tells the present version of every document that may be read. `present`: as it is
    now, whatever was shown then. `others` were asked for as well: that their turn comes later is
    said. Raises what the store raises.
    """
    version = readable.get(ref.document_id)
    kept = _BETWEEN.join(ref.passages) or ref.snippet
    found, note = None, ""
    if version is not None:
        found = _cut_part(lambda start, length: store.read(ref.document_id, start, length), part)
    if version is None or found is None:
        found, note = _cut_kept_part(kept, part), "whole_gone" if kept else "whole_lost"
    elif not present and version != ref.version and kept:
        found, note = _cut_kept_part(kept, part), "whole_newer"
    else:
        note = "" if present or version == ref.version else "whole_present"
    versions = {"then": str(ref.version), "now": str(version)}
    if note in {"", "whole_present"}:
        ref = replace(ref, version=version or ref.version)
    pieces = [
        f"**『{_get_title(ref)}』 (v{ref.version}) {found.number}/{found.parts}**",
        get_reply(note, language, **versions) if note else "",
        get_reply("whole_beyond", language, part=str(part))
        if found.parts < part < LAST_PART
        else "",
        (
            markdown.sanitise_markdown
            if ref.source.casefold().endswith(MARKDOWN)
            else markdown.escape_lines
        )(found.text),
    ]
    if found.parts > 1:
        end = "whole_next" if found.number < found.parts else "whole_end"
        pieces.append(f"---\n\n{get_reply(end, language)}")
    if others:
        titles = ", ".join(f"『{_get_title(one)}』" for one in others[:MAX_OTHERS])
        pieces.append(get_reply("whole_others", language, titles=titles))
    text = "\n\n".join(piece for piece in pieces if piece)
    return ShownPart(text, View(ref.document_id, found.number, found.parts), ref)


def _get_title(ref: DocRef) -> str:
    return markdown.to_title(ref.title or ref.source)


@dataclass(frozen=True, slots=True)
class _Part:
    text: str
    number: int
    parts: int


def _cut_kept_part(text: str, part: int) -> _Part:
    """A part of what was shown then."""

    def read(start: int, length: int) -> Excerpt:
        return Excerpt(text[start : start + length], start, len(text))

    return _cut_part(read, part) or _Part("", 1, 1)


def _cut_part(read: Callable[[int, int], Excerpt | None], part: int) -> _Part | None:
    """The part with this number, or the last one; None where nothing can be read.

    `read` gives the text from an offset, of a length. Part n ends at the first end of a paragraph
    after n * `PART_CHARACTERS`, so that parts do not depend on which one was read before.
    """
    number = max(1, part)
    found = read((number - 1) * PART_CHARACTERS, PART_CHARACTERS + MAX_LOOK_CHARACTERS)
    if found is None:
        return None
    parts = 1 + max(0, found.total - MAX_LOOK_CHARACTERS - 1) // PART_CHARACTERS
    if number > parts:
        return _cut_part(read, parts)
    text = found.text
    first = _find_part_end(text[:MAX_LOOK_CHARACTERS]) if number > 1 else 0
    last = len(text)
    if number < parts:
        last = PART_CHARACTERS + _find_part_end(text[PART_CHARACTERS:])
    return _Part(text[first:last].strip("\n"), number, parts)


def _find_part_end(text: str) -> int:
    """Where a part ends within the text."""
    found = next((match for pattern in _ENDS if (match := pattern.search(text))), None)
    return found.end() if found else 0


# What is said before anything else: that somebody needs help now, and whom to call.
#
# By rules alone (`rag/lexicon/emergency.toml`), with and without a language model, and before the
# question is searched: whoever needs an ambulance does not wait for an index.

MAX_CHARACTERS = 2000
"""Of a message that are read: a longer one is a pasted text, and its beginning tells what it is."""
MAX_SENTENCES = 12


class Emergency(StrEnum):
    """Who is to be called: an ambulance, or a crisis line as well."""

    BODY = "body"
    SELF_HARM = "self_harm"


def find_emergency(text: str) -> Emergency | None:
    """The emergency that a user's message tells of, the crisis of a mind before one of the body."""
    known = load_patterns("emergency")
    found: Emergency | None = None
    if not known["hints"].search(text[:MAX_CHARACTERS]):
        return None
    for sentence in split_sentences(text[:MAX_CHARACTERS])[:MAX_SENTENCES]:
        kinds = {
            Emergency.SELF_HARM if name.startswith("self_harm") else Emergency.BODY
            for name, pattern in known.named.items()
            if name.startswith(("body_", "self_harm_")) and pattern.search(sentence)
        }
        if Emergency.SELF_HARM in kinds:
            return Emergency.SELF_HARM
        if kinds and (not known["informs"].search(sentence) or known["present"].search(sentence)):
            found = Emergency.BODY
    return found


def write_emergency_note(text: str) -> str:
    """What an answer to a message begins with, in the message's language; empty for none."""
    emergency = find_emergency(text)
    if emergency is None:
        return ""
    return get_reply(f"emergency_{emergency}", choose_reply_language(text))


MAX_PRODUCT_CHARACTERS = 80
"""Of a question about the product; longer ones tell of something else."""
MAX_REVIEWED = 8
"""Passages that an answer keeps beside those that it shows."""
MAX_QUOTES, MAX_QUOTE_CHARACTERS = 3, 300
MAX_TURN_CHARACTERS = 8000
"""Of a turn's texts."""
MIN_QUOTED_SHARE = 0.5
"""Share of the question's weight that a quoted sentence must hold; what stands elsewhere in its
text counts as half."""
MIN_SHARE_OF_BEST_QUOTE = 0.8
"""Further sentences are quoted that score at least this share of the best one."""
OWN_WORDS_WORTH = 1.3
"""What the user's own words are worth beside an answer's: the question is mostly after them."""
_MARKER = re.compile(r"(?<!\\)\[(\d{1,4})\]")
"""As `rag.generate.passages.MARKER`, with its number."""
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
    """A whole answer. `evidence` is what was looked at, the passages shown first.

    `cited` are the numbers of those shown, `spans` their decisive sentences by number, `citations`
    what each marker stands for.
    """

    text: str
    label: AnswerLabel
    evidence: tuple[Evidence, ...] = ()
    cited: frozenset[int] = frozenset()
    spans: Mapping[int, tuple[Span, ...]] = field(default_factory=dict)
    citations: tuple[Citation, ...] = ()


@dataclass(frozen=True, slots=True)
class Quote:
    """A sentence of a turn. `score` is the share of the question that it holds."""

    number: int
    text: str
    score: float


def answer_offline(  # noqa: PLR0913 - all that decides what is said, by name
    analysis: QuestionAnalysis,
    evidence: Sequence[Evidence],
    turns: Sequence[PastTurn],
    *,
    whole: bool,
    named_titles: Sequence[str],
    notices: Sequence[str],
    language: str,
) -> OfflineAnswer:
    """The answer from passages and older turns.

    `whole`: the evidence is whole documents, asked about as such. `named_titles` are the documents
    asked about; `notices` are names of replies that say how the passages were found.
    """
    question = analysis.text
    said = answer_from_turns(question, turns, language)
    if said and is_recalling(question):
        return OfflineAnswer(said, AnswerLabel.CONVERSATION)
    if name := find_ready_answer(analysis):
        lacks = name == "plain_no_documents"
        label = AnswerLabel.INSUFFICIENT if lacks else AnswerLabel.GENERAL
        return OfflineAnswer(get_reply(name, language), label)
    standalone = analysis.standalone or question
    passages = compose_passages(
        # the words of a follow-up say what is asked now; what it lacks was asked before
        [question, standalone] if analysis.follows else [standalone],
        evidence,
        question_type=analysis.question_type,
        whole=whole,
        named_titles=named_titles,
        language=language,
    )
    if passages.has_answer:
        told = (get_reply(name, language) for name in notices)
        answer = _renumber_shown(passages, evidence)
        text = "\n\n".join([*told, answer.text])
        before = len(text) - len(answer.text)
        citations = (replace(one, offset=one.offset + before) for one in answer.citations)
        return replace(answer, text=text, citations=tuple(citations))
    if said:
        return OfflineAnswer(said, AnswerLabel.CONVERSATION)
    return OfflineAnswer(
        passages.text or get_reply("plain_no_model", language), AnswerLabel.INSUFFICIENT
    )


def _renumber_shown(found: PassagesAnswer, evidence: Sequence[Evidence]) -> OfflineAnswer:
    """The answer with its passages numbered as it shows them: slots count as they are read.

    Of what else was looked at only passages of the documents shown stay.
    """
    shown = [item for number in found.spans for item in evidence if item.number == number]
    documents = {item.document_id for item in shown}
    rest = [item for item in evidence if item not in shown and item.document_id in documents]
    slots: dict[object, int] = {}
    ordered = tuple(
        replace(item, number=number, slot=slots.setdefault(item.document_id, len(slots) + 1))
        for number, item in enumerate([*shown, *rest[:MAX_REVIEWED]], 1)
    )
    before = {item.slot: slots[item.document_id] for item in shown}
    now = {item.number: number for number, item in enumerate(shown, 1)}
    text, position = "", 0
    citations: list[Citation] = []
    for match, (number, place) in zip(_MARKER.finditer(found.text), found.cited, strict=True):
        text += found.text[position : match.start()]
        citations.append(Citation(len(text), now[number], (place,)))
        text += f"[{before.get(int(match[1]), match[1])}]"
        position = match.end()
    text += found.text[position:]
    spans = {
        number: tuple(_to_span(item, start, end) for start, end in found.spans[item.number])
        for number, item in enumerate(shown, 1)
    }
    return OfflineAnswer(
        text, AnswerLabel.PASSAGES, ordered, frozenset(spans), spans, tuple(citations)
    )


def _to_span(item: Evidence, start: int, end: int) -> Span:
    """What of a sentence, told by offsets in the document, stands in its passage."""
    first, last = max(start, item.start), min(end, item.start + len(item.text))
    return to_span(item, first - item.start, last - item.start)


def find_ready_answer(analysis: QuestionAnalysis) -> str:
    """The name of a ready answer's reply; empty where passages are to be shown."""
    if analysis.question_type is QuestionType.SMALLTALK:
        return f"plain_{_find_pattern('smalltalk', analysis.text) or 'greeting'}"
    if name := find_product_topic(analysis.text):
        return f"plain_{name}"
    return "" if analysis.scope.document_ids else "plain_no_documents"


def find_product_topic(question: str) -> str:
    """What of the product itself is asked about, "help_files"; empty: about something else."""
    return "" if len(question) > MAX_PRODUCT_CHARACTERS else _find_pattern("product", question)


def _find_pattern(about: str, text: str) -> str:
    return next((name for name, says in _READY[about].items() if says.search(text)), "")


def answer_from_turns(question: str, turns: Sequence[PastTurn], language: str) -> str:
    """The sentences of these turns that hold what is asked for; empty where none does."""
    lines = [
        get_reply("recalled_quote", language, number=str(one.number), text=one.text)
        for one in quote_turns(question, turns)
    ]
    return get_reply("recalled", language, quotes="\n".join(lines)) if lines else ""


def quote_turns(question: str, turns: Sequence[PastTurn]) -> list[Quote]:
    """At most `MAX_QUOTES` sentences, in the order of the conversation; of equal ones the latest.

    A turn that the question names by its place is quoted itself; otherwise no questions are.
    """
    number = find_turn_number(question)
    if named := [turn for turn in turns if turn.number == number]:
        texts = (" ".join(neutralise_text(turn.user_text).split()) for turn in named)
        cut = (shorten_text(text[:MAX_TURN_CHARACTERS], MAX_QUOTE_CHARACTERS) for text in texts)
        return [Quote(turn.number, text, 1.0) for turn, text in zip(named, cut, strict=True)]
    asked = tokenize.weigh_query_terms(strip_recall_frame(question))
    wanted = {term: weight for term, weight in asked.items() if weight >= 1}
    found = [one for turn in turns for one in _quote_turn(turn, wanted)]
    best = max((one.score for one in found), default=0.0)
    if best < MIN_QUOTED_SHARE:
        return []
    near = [
        one for one in found if one.score >= max(MIN_QUOTED_SHARE, MIN_SHARE_OF_BEST_QUOTE * best)
    ]
    latest = {one.text: one for one in sorted(near, key=lambda one: one.number)}
    chosen = sorted(latest.values(), key=lambda one: (-one.score, -one.number))[:MAX_QUOTES]
    return sorted(chosen, key=lambda one: one.number)


def _quote_turn(turn: PastTurn, wanted: Mapping[str, float]) -> Iterator[Quote]:
    """The sentences of a turn that hold some of the terms and more, questions left out."""
    for text, worth in ((turn.user_text, OWN_WORDS_WORTH), (strip_own_sentences(turn), 1.0)):
        parts = split_sentences(neutralise_text(text[:MAX_TURN_CHARACTERS]))
        held = [set(terms) for terms in tokenize.count_terms_of_all(parts)]
        around = set[str]().union(*held)
        for part, own in zip(parts, held, strict=True):
            if not _QUESTION.search(part) and own - wanted.keys() and own & wanted.keys():
                shares = ((one in own) + (one in around) for one in wanted)
                told = sum(w * share / 2 for w, share in zip(wanted.values(), shares, strict=True))
                score = worth * told / sum(wanted.values())
                yield Quote(turn.number, shorten_text(part, MAX_QUOTE_CHARACTERS), score)
