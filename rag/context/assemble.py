"""What of a brief goes into the prompt: each part within its share of the tokens."""

from collections import Counter as Tally
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from rag.config import ContextRules
from rag.context.plan import Layer, Shares, TokenPlan, shares
from rag.context.tokens import PER_MESSAGE, Counter, cut
from rag.conversation import Turn
from rag.generation import blocks
from rag.generation.brief import Assembled, Brief, Evidence
from rag.types import HistoryMessage, Role

SUMMARY = 0.5
"""Of the older turns' room, what their summary may take from what was picked for the question."""
LEAST = 48
"""Fewer tokens than that are not worth the beginning of a text."""
FAIR = 150
"""Tokens of a passage below which documents are left out rather than cut shorter still."""
SLACK = 2
"""Tokens by which a text may grow where it is joined to its label."""
LISTED = 8
"""Documents of the previous turn that are named."""
_ENDLESS = 10**9


def assemble(brief: Brief, counter: Counter, rules: ContextRules, *, system: str) -> Assembled:
    """The brief with what fits into `rules.tokens`, and the plan.

    What a part leaves goes to the documents, which never get less than their share. The evidence
    that stays is the beginning of what was given, its first passage cut if need be. The question
    and `system`, the instructions, go in whole, whatever they take.
    """
    split = _split(brief, counter, rules.tokens, system)
    packing = _Packing(counter)
    brief, recent = packing.recent(brief, split.recent)
    brief, long_term = packing.long_term(brief, split.long_term)
    room = split.documents_with(_size(system, counter), split.query, recent, long_term)
    brief, documents = packing.documents(brief, room)
    layers = {
        "system": Layer(split.system, _size(system, counter)),
        "query": Layer(split.query, split.query),
        "recent": Layer(split.recent, recent),
        "long_term": Layer(split.long_term, long_term),
        "documents": Layer(room, documents),
    }
    return Assembled(brief, TokenPlan(rules.tokens, layers, counter.name, dict(packing.dropped)))


def measure(brief: Brief, counter: Counter, rules: ContextRules) -> Assembled:
    """The whole brief, and what it would take of each share: no model reads it."""
    split = _split(brief, counter, rules.tokens, "")
    packing = _Packing(counter)
    layers = {
        "query": Layer(split.query, split.query),
        "recent": Layer(split.recent, packing.recent(brief, _ENDLESS)[1]),
        "long_term": Layer(split.long_term, packing.long_term(brief, _ENDLESS)[1]),
        "documents": Layer(split.documents, packing.documents(brief, _ENDLESS)[1]),
    }
    return Assembled(brief, TokenPlan(rules.tokens, layers, counter.name))


def trim(brief: Brief, counter: Counter, *, system: str) -> Assembled:
    """The brief with half of its conversation and of its documents: it was too long for a model."""
    packing = _Packing(counter)
    conversation = packing.recent(brief, _ENDLESS)[1] // 2
    older = packing.long_term(brief, _ENDLESS)[1]
    room = packing.documents(brief, _ENDLESS)[1] // 2
    brief, recent = packing.recent(brief, conversation)
    brief, documents = packing.documents(brief, room)
    query = _size(brief.question, counter)
    layers = {
        "system": Layer(_size(system, counter), _size(system, counter)),
        "query": Layer(query, query),
        "recent": Layer(conversation, recent),
        "long_term": Layer(older, older),
        "documents": Layer(room, documents),
    }
    total = sum(layer.planned for layer in layers.values())
    return Assembled(brief, TokenPlan(total, layers, counter.name, dict(packing.dropped)))


def _split(brief: Brief, counter: Counter, total: int, system: str) -> Shares:
    query = _size(brief.question, counter)
    return shares(total, system=_size(system, counter) if system else 0, query=query)


def _size(text: str, counter: Counter) -> int:
    return counter.count(text) + PER_MESSAGE


@dataclass(frozen=True, slots=True)
class _Packing:
    """Fits parts of a brief into rooms of tokens, and counts what stays out."""

    counter: Counter
    dropped: Tally[str] = field(default_factory=Tally)

    def recent(self, brief: Brief, room: int) -> tuple[Brief, int]:
        """The previous turn, then messages, newest first, as long as they fit."""
        brief = replace(brief, history=_before(brief.history, brief.previous))
        used = 0
        if brief.previous:
            turn = self._previous(brief.previous, brief.language, room)
            brief = replace(brief, previous=turn)
            used = self._block(blocks.previous(turn, brief.language, _FENCE)) if turn else 0
        kept: list[HistoryMessage] = []
        sizes: list[int] = []
        for message in reversed(brief.history):
            size = _size(message.content, self.counter)
            if used + sum(sizes) + size > room:
                break
            kept.append(message)
            sizes.append(size)
        while kept and kept[-1].role is not Role.USER:  # an answer without its question
            kept.pop()
            sizes.pop()
        self._drop("messages", len(brief.history) - len(kept))
        return replace(brief, history=tuple(reversed(kept))), used + sum(sizes)

    def long_term(self, brief: Brief, room: int) -> tuple[Brief, int]:
        """Findings, then older turns, newest first; half of the room is kept for the summary."""
        summary = brief.summary and blocks.summary(brief.summary, brief.language, _FENCE)
        reserved = min(self._block(summary), int(room * SUMMARY)) if summary else 0
        notes, used = self._notes(brief, room - reserved)
        turns, taken = self._turns(brief, room - reserved - used)
        used += taken
        text = self._summary(brief, room - used)
        if text:
            used += self._block(blocks.summary(text, brief.language, _FENCE))
        return replace(brief, findings=notes, recalled=turns, summary=text), used

    def documents(self, brief: Brief, room: int) -> tuple[Brief, int]:
        """The first passages that fit; the first of them always, cut if need be."""
        if not brief.evidence:
            return brief, 0
        used = self._block(blocks.excerpts((), brief.language, _FENCE))
        kept: list[Evidence] = []
        shared = self._shared(brief.evidence, room - used) if brief.several else brief.evidence
        for item in shared:
            size = self._block(blocks.one_excerpt(item))
            if used + size > room and not kept:
                item = self._shortened(item, room - used)  # noqa: PLW2901 - the first always goes in
                size = self._block(blocks.one_excerpt(item))
            elif used + size > room:
                break
            kept.append(item)
            used += size
        self._drop("passages", len(brief.evidence) - len(kept))
        return replace(brief, evidence=tuple(kept)), used

    def _previous(self, turn: Turn, language: str, room: int) -> Turn | None:
        turn = replace(turn, doc_refs=turn.doc_refs[:LISTED])
        if self._block(blocks.previous(turn, language, _FENCE)) <= room:
            return turn
        if room < LEAST:
            self._drop("messages", 2)
            return None
        asked = cut(turn.user_text, room // 4, self.counter)
        rest = self._block(
            blocks.previous(replace(turn, user_text=asked, assistant_text=""), language, _FENCE)
        )
        said = cut(turn.assistant_text, room - rest - SLACK, self.counter)
        cut_off = len(turn.user_text) - len(asked) + len(turn.assistant_text) - len(said)
        self._drop("characters", cut_off)
        return replace(turn, user_text=asked, assistant_text=said)

    def _notes(self, brief: Brief, room: int) -> tuple[tuple[str, ...], int]:
        used = self._block(blocks.findings((), brief.language, _FENCE)) if brief.findings else 0
        kept: list[str] = []
        for note in brief.findings:
            size = self._block(blocks.one_finding(note))
            if used + size > room:
                break
            kept.append(note)
            used += size
        self._drop("findings", len(brief.findings) - len(kept))
        return tuple(kept), used if kept else 0

    def _turns(self, brief: Brief, room: int) -> tuple[tuple[Turn, ...], int]:
        used = self._block(blocks.recalled((), brief.language, _FENCE)) if brief.recalled else 0
        kept: list[Turn] = []
        for turn in reversed(brief.recalled):
            size = self._block(blocks.one_recalled(turn, brief.language))
            if used + size > room:
                turn = self._beginning(turn, brief.language, room - used)  # noqa: PLW2901
                size = self._block(blocks.one_recalled(turn, brief.language))
                if used + size > room:
                    break
            kept.append(turn)
            used += size
        self._drop("turns", len(brief.recalled) - len(kept))
        return tuple(reversed(kept)), used if kept else 0

    def _beginning(self, turn: Turn, language: str, room: int) -> Turn:
        """The turn with as much of its answer as fits; as it is where that is too little."""
        rest = self._block(blocks.one_recalled(replace(turn, assistant_text=""), language))
        if room - rest < LEAST:
            return turn
        said = cut(turn.assistant_text, room - rest - SLACK, self.counter)
        self._drop("characters", len(turn.assistant_text) - len(said))
        return replace(turn, assistant_text=said)

    def _summary(self, brief: Brief, room: int) -> str:
        if not brief.summary:
            return ""
        room -= self._block(blocks.summary("", brief.language, _FENCE))
        text = cut(brief.summary, room - SLACK, self.counter) if room >= LEAST else ""
        self._drop("characters", len(brief.summary) - len(text))
        return text

    def _shortened(self, item: Evidence, room: int) -> Evidence:
        label = self._block(blocks.one_excerpt(replace(item, text="")))
        text = cut(item.text, max(LEAST, room - label - SLACK), self.counter)
        self._drop("characters", len(item.text) - len(text))
        return replace(item, text=text)

    def _shared(self, evidence: Sequence[Evidence], room: int) -> Sequence[Evidence]:
        """The evidence with its first passages cut evenly, so that every document is heard."""
        number = _covering(evidence)
        while number > 1 and room < number * FAIR:
            number -= 1
        first = evidence[:number]
        most = _level([self._block(blocks.one_excerpt(item)) for item in first], room)
        return [*(self._within(item, most) for item in first), *evidence[number:]]

    def _within(self, item: Evidence, room: int) -> Evidence:
        fits = self._block(blocks.one_excerpt(item)) <= room
        return item if fits else self._shortened(item, room)

    def _block(self, text: str) -> int:
        return self.counter.count(text) + 1  # and the line between it and the next

    def _drop(self, what: str, number: int) -> None:
        if number > 0:
            self.dropped[what] += number


_FENCE = blocks.SAMPLE_FENCE


def _before(history: Sequence[HistoryMessage], previous: Turn | None) -> tuple[HistoryMessage, ...]:
    """The messages before the previous turn, which goes in whole elsewhere."""
    rest = list(history)
    if previous is None:
        return tuple(rest)
    for role, text in ((Role.ASSISTANT, previous.assistant_text), (Role.USER, previous.user_text)):
        if rest and rest[-1].role is role and text.startswith(rest[-1].content):
            rest.pop()
    return tuple(rest)


def _covering(evidence: Sequence[Evidence]) -> int:
    """How many of the first passages hold one of each document."""
    seen = {item.document_id: place for place, item in reversed([*enumerate(evidence, 1)])}
    return max(seen.values(), default=0)


def _level(sizes: Sequence[int], room: int) -> int:
    """The size to which all must come down to fit together; the smaller leave theirs to others."""
    for place, size in enumerate(sorted(sizes)):
        share = room // (len(sizes) - place)
        if size > share:
            return share
        room -= size
    return max(sizes, default=0)
