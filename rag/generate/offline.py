"""Answers where no language model is configured: found passages, quoted turns, or a plain word."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from rag import tokenize
from rag.conversation import PastTurn
from rag.generate.passages import PassagesAnswer, compose_passages
from rag.lexicon import load_rules
from rag.memory.recall import find_turn_number, is_recalling, strip_frame
from rag.memory.summary import shorten_text, strip_own_sentences
from rag.replies import get_reply
from rag.tokenize.text import neutralise_text, split_sentences
from rag.types import AnswerLabel, Citation, Evidence, QuestionType, Span
from rag.understand.analysis import QuestionAnalysis
from rag.verify.sentences import to_span

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
    named: Sequence[str],
    notices: Sequence[str],
    language: str,
) -> OfflineAnswer:
    """The answer from passages and older turns.

    `whole`: the evidence is whole documents, asked about as such. `named` are the documents asked
    about, `notices` names of replies that say how the passages were found.
    """
    question = analysis.text
    said = answer_from_turns(question, turns, language)
    if said and is_recalling(question):
        return OfflineAnswer(said, AnswerLabel.CONVERSATION)
    if name := find_ready_answer(analysis):
        return OfflineAnswer(get_reply(name, language), AnswerLabel.GENERAL)
    standalone = analysis.standalone or question
    found = compose_passages(
        # the words of a follow-up say what is asked now; what it lacks was asked before
        [question, standalone] if analysis.follows else [standalone],
        evidence,
        question_type=analysis.question_type,
        whole=whole,
        named=named,
        language=language,
    )
    if found.found:
        told = (get_reply(name, language) for name in notices)
        answer = _with_shown_first(found, evidence)
        text = "\n\n".join([*told, answer.text])
        before = len(text) - len(answer.text)
        citations = (replace(one, offset=one.offset + before) for one in answer.citations)
        return replace(answer, text=text, citations=tuple(citations))
    if said:
        return OfflineAnswer(said, AnswerLabel.CONVERSATION)
    return OfflineAnswer(
        found.text or get_reply("plain_no_model", language), AnswerLabel.INSUFFICIENT
    )


def _with_shown_first(found: PassagesAnswer, evidence: Sequence[Evidence]) -> OfflineAnswer:
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
    asked = tokenize.weigh_query_terms(strip_frame(question))
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
