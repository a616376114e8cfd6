"""Selects the passages for the prompt, and the sources that readers see.

Relevance decides how a passage is labelled, not whether it is included: everything that was found
goes in as long as there is room, under a heading that says how likely it is to be relevant.
"""

import re
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise
from uuid import UUID

from rag.conversation import DocRef
from rag.ports import PassageStore
from rag.retrieve.scope import MAX_SEPARATE_DOCUMENTS
from rag.types import (
    AnswerSource,
    Box,
    Evidence,
    Hit,
    Passage,
    QuestionType,
    Retrieval,
    ScopeReason,
    Span,
)

PREVIEW_CHARACTERS = 200
MIN_CHUNK_TOKENS = 40
"""Few chunks are shorter. A scope with more chunks than would fit at this size is not read."""
MAX_OPENING_CHUNKS = 400
"""Chunks that are read of documents with more than `MAX_CHUNKS_READ`."""
MAX_CHUNKS_READ = 4000
"""Chunks of whole documents that are read section by section."""
STRONG_RELEVANCE = 0.5
"""Passages with at least this relevance are presented as relevant to the question."""
NEIGHBOURS = (1, -1)
"""Offsets of the neighbours read with a strong passage; the text more often continues after it."""
MAX_AROUND = 10
"""Passages read on either side of the best one if there is room after everything found."""
_FRONT_OR_BACK = re.compile(
    r"부\s*칙|목\s*차|차\s*례|별지|서식|참고\s*문헌|머리말|표지|판권|"
    r"table of contents|contents|foreword|preface|references|bibliography|appendix|index|colophon",
    re.IGNORECASE,
)
"""Headings of sections that say least about the contents of a document."""

MAX_CHARACTERS_A_TOKEN = 8
"""No vocabulary averages more characters per token; longer texts need not be counted."""

Cost = Callable[[Evidence, Evidence | None], int]
"""Tokens that a passage takes in the prompt after another one, or (None) as the first."""


@dataclass(frozen=True, slots=True)
class Selection:
    """The evidence in the order of the prompt.

    `method` is "whole" (all of the scope), "best" (by rank), "documents" (an equal share of the
    room each) or "none". `tokens` is their size; `dropped_count` passages did not fit.
    `portions` are whole documents that do not fit, in pieces that do, to be read one by one;
    `incomplete`: the end of very long documents is left out. `noted` are passages represented in
    the prompt only by notes.
    """

    evidence: tuple[Evidence, ...] = ()
    method: str = "none"
    tokens: int = 0
    dropped_count: int = 0
    portions: tuple[tuple[Evidence, ...], ...] = ()
    incomplete: bool = False
    noted: tuple[Evidence, ...] = ()

    @property
    def citable(self) -> tuple[Evidence, ...]:
        """All passages that an answer may cite, by number."""
        return tuple(sorted((*self.evidence, *self.noted), key=lambda item: item.number))

    def describe(self) -> dict[str, object]:
        """The selected passages, for traces."""
        return {
            "by": self.method,
            "passages": [
                {"number": item.number, "chunk_id": item.passage.chunk_id, "weak": item.weak}
                for item in self.evidence
            ],
            "noted": [item.number for item in self.noted],
            "parts": len(self.portions),
        }

    def with_noted_passages(self, numbers: Collection[int], room: int, cost: Cost) -> "Selection":
        """The most informative passages of the portions that fit into `room`, and those noted.

        Passages that notes rest on come first; then each section in turn, from its beginning.
        """
        passages = [item for portion in self.portions for item in portion]
        turns = _assign_turns(passages)
        ordered = sorted(
            passages, key=lambda item: (item.number not in numbers, turns[item.number], item.number)
        )
        chosen: list[Evidence] = []
        used = 0
        for item in ordered:
            size = cost(item, _find_last_of_document(item.document_id, chosen))
            if used + size <= room:
                chosen.append(item)
                used += size
        shown_numbers = {item.number for item in chosen}
        noted = [
            item for item in passages if item.number in numbers and item.number not in shown_numbers
        ]
        return replace(
            self,
            evidence=tuple(sorted(chosen, key=lambda item: item.number)),
            tokens=used,
            dropped_count=len(passages) - len(chosen) - len(noted),
            noted=tuple(noted),
        )


def select_evidence(
    retrieval: Retrieval, store: PassageStore, *, room: int, cost: Cost
) -> Selection:
    """Selects the passages for a prompt with `room` tokens for them.

    `store` holds the documents of `retrieval.plan.scope`. Raises what the store raises.
    """
    plan = retrieval.plan
    if not plan.scope.document_ids or plan.question_type is QuestionType.SMALLTALK:
        return Selection()
    if retrieval.named_documents:
        store = store.within(retrieval.named_documents)
    selector = _PassageSelector(room, cost, *_rank_relevance(retrieval))
    everything = store.read_all(max(1, room // MIN_CHUNK_TOKENS))
    if everything is not None:
        may_fit = sum(len(passage.text) for passage in everything) <= room * MAX_CHARACTERS_A_TOKEN
        if (
            may_fit
            and (whole := selector.make_selection("whole", everything, selector.strong)).tokens
            <= room
        ):
            return whole
    if retrieval.whole:
        return _split_into_portions(everything or store.read_all(MAX_CHUNKS_READ), store, selector)
    scope_documents = plan.scope.document_ids if plan.scope.reason is not ScopeReason.ALL else ()
    documents = retrieval.named_documents or scope_documents
    if plan.needs_multi_doc and 1 < len(documents) <= MAX_SEPARATE_DOCUMENTS:
        return _select_by_document(documents, retrieval, store, selector)
    return _select_best(retrieval, store, selector)


def select_passages(passages: Sequence[Passage], *, room: int, cost: Cost) -> Selection:
    """As many of these passages as fit."""
    selector = _PassageSelector(room, cost, {passage.key: 1.0 for passage in passages})
    chosen, _ = selector.fill_room(passages, room)
    evidence = _number_passages(chosen, selector.relevance, selector.relevance)
    return Selection(evidence, "best", _sum_costs(evidence, cost))


def restore_passages(refs: Iterable[DocRef], limit: int) -> tuple[Passage, ...]:
    """What earlier answers showed of documents that can no longer be read, in order."""
    return tuple(passage for ref in refs for passage in _restore_document(ref))[:limit]


def _restore_document(ref: DocRef) -> Iterator[Passage]:
    for place, text in enumerate(ref.passages or filter(None, (ref.snippet,))):
        chunk_id = ref.chunk_ids[place] if place < len(ref.chunk_ids) else ""
        index = chunk_id.rpartition("_")[2]
        yield Passage(
            key=-1 - place,  # no row of the store any more
            document_id=ref.document_id,
            document_name=ref.source or ref.title,
            index=int(index) if index.isascii() and index.isdigit() else place,
            text=text,
            page=None,
            page_end=None,
            section="",
        )


def to_sources(
    evidence: Sequence[Evidence], hits: Iterable[Hit], *, dense: bool
) -> tuple[AnswerSource, ...]:
    """The evidence as sources.

    `similarity` is the cosine where the embedder knows the language (`dense`), else the relevance.
    """
    cosines = {hit.passage.key: hit.scores.get("similarity") for hit in hits if dense}
    sources: list[AnswerSource] = []
    for item in evidence:
        passage, cosine = item.passage, cosines.get(item.passage.key)
        similarity = item.relevance if cosine is None else cosine
        sources.append(
            AnswerSource(
                slot=item.slot,
                document_id=passage.document_id,
                document_name=passage.document_name,
                chunk_id=passage.chunk_id,
                page=passage.page,
                similarity=round(min(1.0, max(0.0, similarity)), 4),
                content_preview=passage.text[:PREVIEW_CHARACTERS],
                section=passage.section,
                cited=False,
                boxes=passage.boxes,
                version=passage.version,
                text=passage.content,
                start=passage.start if passage.end else None,
                end=passage.end or None,
            )
        )
    return tuple(sources)


def to_evidence(
    passages: Sequence[Passage], relevance: Mapping[int, float]
) -> tuple[Evidence, ...]:
    """Passages as evidence in the order given; `relevance` by key, 0 where it is missing."""
    return _number_passages(passages, relevance, ())


def _number_passages(
    passages: Sequence[Passage], relevance: Mapping[int, float], strong: Collection[int]
) -> tuple[Evidence, ...]:
    """The passages as evidence, numbered in order, without text that repeats the previous one.

    Passages whose keys are not in `strong` come last.
    """
    slots: dict[UUID, int] = {}
    evidence: list[Evidence] = []
    for number, passage in enumerate(
        sorted(passages, key=lambda passage: passage.key not in strong), 1
    ):
        slot = slots.setdefault(passage.document_id, len(slots) + 1)
        score = relevance.get(passage.key, 0.0)
        weak = passage.key not in strong
        evidence.append(Evidence(number, slot, passage, passage.text, passage.start, score, weak))
    return (
        *evidence[:1],
        *(_remove_overlap(passage, after) for passage, after in pairwise(evidence)),
    )


def _remove_overlap(previous: Evidence, item: Evidence) -> Evidence:
    """The item without the beginning that repeats the end of the previous passage."""
    earlier, passage = previous.passage, item.passage
    follows = earlier.document_id == passage.document_id and earlier.index + 1 == passage.index
    shared = earlier.end - passage.start
    if not follows or not 0 < shared < len(passage.text):
        return item
    return replace(item, text=passage.text[shared:], start=passage.start + shared)


def _rank_relevance(retrieval: Retrieval) -> tuple[dict[int, float], frozenset[int]]:
    """Relevance by passage key, best first, and the keys of the passages that are relevant."""
    relevance = {hit.passage.key: hit.scores.get("relevance", 0.0) for hit in retrieval.hits}
    if not retrieval.gate.relevant:
        return relevance, frozenset()
    best = {hit.passage.key for hit in retrieval.hits[: min(1, retrieval.plan.top_k)]}
    return relevance, frozenset(
        best | {key for key, value in relevance.items() if value >= STRONG_RELEVANCE}
    )


@dataclass(frozen=True, slots=True)
class _PassageSelector:
    """Picks passages that fit into a prompt.

    `relevance` is by key, best first; `strong` are the keys of the relevant passages.
    """

    room: int
    cost: Cost
    relevance: Mapping[int, float]
    strong: frozenset[int] = frozenset()

    def fill_room(self, passages: Iterable[Passage], room: int) -> tuple[list[Passage], int]:
        """The passages that fit (the first always does), and how many found ones did not."""
        chosen: list[Evidence] = []
        used = dropped = 0
        for passage in dict.fromkeys(passages):
            size = self._measure_passage(passage, chosen, room - used)
            if size is None:
                dropped += passage.key in self.relevance
                continue
            chosen.append(_to_unscored_evidence(passage))
            used += size
        return [item.passage for item in chosen], dropped

    def _measure_passage(
        self, passage: Passage, chosen: Sequence[Evidence], room: int
    ) -> int | None:
        """Tokens of a passage after those chosen; None if too many. The first always fits."""
        if chosen and len(passage.text) > room * MAX_CHARACTERS_A_TOKEN:
            return None
        size = self.cost(
            _to_unscored_evidence(passage), _find_last_of_document(passage.document_id, chosen)
        )
        return None if chosen and size > room else size

    def sort_by_relevance(self, passages: Iterable[Passage]) -> list[Passage]:
        """Best first; passages that the search did not find come last."""
        ranks = {key: rank for rank, key in enumerate(self.relevance)}
        return sorted(passages, key=lambda passage: ranks.get(passage.key, len(ranks)))

    def sort_for_reading(self, passages: Sequence[Passage]) -> list[Passage]:
        """In reading order; documents in the order of their best passages."""
        ranks = {key: rank for rank, key in enumerate(self.relevance)}
        best: dict[UUID, tuple[int, int]] = {}
        for place, passage in enumerate(passages):
            rank = (ranks.get(passage.key, len(ranks)), place)
            best[passage.document_id] = min(best.get(passage.document_id, rank), rank)
        return sorted(passages, key=lambda passage: (best[passage.document_id], passage.index))

    def make_selection(
        self,
        method: str,
        passages: Sequence[Passage],
        strong: Collection[int],
        dropped_count: int = 0,
    ) -> Selection:
        """Makes a selection of these passages: in reading order, `strong` ones first."""
        evidence = _number_passages(self.sort_for_reading(passages), self.relevance, strong)
        tokens = _sum_costs(evidence, self.cost)
        return Selection(evidence, method if evidence else "none", tokens, dropped_count)


def _select_best(
    retrieval: Retrieval, store: PassageStore, selector: _PassageSelector
) -> Selection:
    """The best passages, with the neighbours of the first ones, as long as there is room."""
    top_k, passages = retrieval.plan.top_k, [hit.passage for hit in retrieval.hits]
    leading = passages[:top_k]
    neighbours = _read_neighbours(leading, store)
    chosen, dropped = selector.fill_room([*leading, *neighbours, *passages[top_k:]], selector.room)
    if chosen and not dropped:  # little was found: the text around the best passage may help
        chosen, _ = selector.fill_room(
            [*chosen, *_read_surroundings(chosen[0], store)], selector.room
        )
    if not chosen and retrieval.plan.scope.reason in (ScopeReason.EXPLICIT, ScopeReason.SLOT):
        chosen, dropped = selector.fill_room(store.read_openings(top_k), selector.room)
    # neighbours of a strong passage count as strong
    neighbour_places = set(
        _list_neighbour_places([passage for passage in leading if passage.key in selector.strong])
    )
    strong = {
        passage.key
        for passage in neighbours
        if (passage.document_id, passage.index) in neighbour_places
    }
    return selector.make_selection("best", chosen, strong | selector.strong, dropped)


def _select_by_document(
    documents: Sequence[UUID], retrieval: Retrieval, store: PassageStore, selector: _PassageSelector
) -> Selection:
    """Gives each of these documents an equal share of the room."""
    top_k, room = retrieval.plan.top_k, selector.room
    chosen: list[Passage] = []
    dropped = 0
    for place, document in enumerate(documents):
        passages = [hit.passage for hit in retrieval.hits if hit.passage.document_id == document]
        document_store = store.within([document])
        leading = passages[:top_k] or document_store.read_openings(2)
        ordered = [*leading, *_read_neighbours(leading, document_store), *passages[top_k:]]
        fitting, left_out = selector.fill_room(ordered, room // (len(documents) - place))
        room -= _sum_costs([_to_unscored_evidence(passage) for passage in fitting], selector.cost)
        chosen += fitting
        dropped += left_out
    if room < 0:  # each document keeps at least one passage; together they are too long
        chosen, left_out = selector.fill_room(selector.sort_by_relevance(chosen), selector.room)
        dropped += left_out
    strong = {passage.key for passage in chosen} if retrieval.gate.relevant else selector.strong
    return selector.make_selection("documents", chosen, strong, dropped)


def _split_into_portions(
    everything: Sequence[Passage] | None, store: PassageStore, selector: _PassageSelector
) -> Selection:
    """Splits documents into portions that fit; only their beginnings if `everything` is None."""
    passages = store.read_openings(MAX_OPENING_CHUNKS) if everything is None else everything
    ordered = selector.sort_for_reading(passages)
    portions: list[list[Evidence]] = []
    used = 0
    for item in _number_passages(ordered, selector.relevance, {passage.key for passage in ordered}):
        size = selector.cost(item, portions[-1][-1] if portions else None)
        if not portions or used + size > selector.room:
            portions.append([])
            used, size = 0, selector.cost(item, None)
        portions[-1].append(item)
        used += size
    finished = tuple(tuple(portion) for portion in portions)
    return Selection(method="whole", portions=finished, incomplete=everything is None)


def _assign_turns(passages: Sequence[Evidence]) -> dict[int, int]:
    """The turn of each passage by number: its place in its section, front and back matter last."""
    seen: Counter[tuple[UUID, str]] = Counter()
    turns: dict[int, int] = {}
    for item in passages:
        section = item.passage.section
        place = (item.document_id, section)
        is_late = bool(_FRONT_OR_BACK.search(section.rpartition(" > ")[2]))
        turns[item.number] = seen[place] + (len(passages) if is_late else 0)
        seen[place] += 1
    return turns


def _read_neighbours(passages: Sequence[Passage], store: PassageStore) -> list[Passage]:
    """The neighbours of these passages, those of the first one first."""
    known = {(passage.document_id, passage.index) for passage in passages}
    places = [place for place in _list_neighbour_places(passages) if place not in known]
    by_place = (
        {(passage.document_id, passage.index): passage for passage in store.read_places(places)}
        if places
        else {}
    )
    return [by_place[place] for place in places if place in by_place]


def _read_surroundings(passage: Passage, store: PassageStore) -> list[Passage]:
    """The passages around this one in its document, the nearest first."""
    first = max(0, passage.index - MAX_AROUND)
    places = range(first, passage.index + MAX_AROUND + 1)
    passages = store.read_places([(passage.document_id, place) for place in places])
    return sorted(passages, key=lambda other: (abs(other.index - passage.index), other.index))


def _list_neighbour_places(passages: Sequence[Passage]) -> list[tuple[UUID, int]]:
    places = (
        (passage.document_id, passage.index + step)
        for passage in passages
        for step in NEIGHBOURS
        if passage.key >= 0 and passage.index + step >= 0
    )
    return list(dict.fromkeys(places))


def _sum_costs(evidence: Sequence[Evidence], cost: Cost) -> int:
    """Tokens that the evidence takes in this order."""
    return sum(cost(item, before) for before, item in pairwise((None, *evidence)) if item)


def _find_last_of_document(document_id: UUID, evidence: Sequence[Evidence]) -> Evidence | None:
    """The last item of a document; the document's line is shown only once."""
    return next((item for item in reversed(evidence) if item.document_id == document_id), None)


def _to_unscored_evidence(passage: Passage) -> Evidence:
    return Evidence(99, 1, passage, passage.text, passage.start, 0.0)


# The place of a part of a passage: its offsets in the document, its page, its boxes there

BOX_SLACK = 0.1
"""Share of a line by which an estimated place is widened on either side."""
_LINE = re.compile(r"[^\n]*\S[^\n]*\n?")


def to_span(item: Evidence, start: int, end: int) -> Span:
    """The span from `start` to `end` of a piece of evidence, with the boxes around it."""
    passage, offset = item.passage, item.start - item.passage.start
    boxes = _find_boxes(passage, start + offset, end + offset)
    page = boxes[0].page if boxes else passage.page
    return Span(item.start + start, item.start + end, item.text[start:end], page, boxes)


def _find_boxes(passage: Passage, start: int, end: int) -> tuple[Box, ...]:
    """The boxes of a passage that contain the characters `start` to `end` of its text.

    Parsers give each printed line a box. If the text has as many lines, each line is in the box of
    the same number; else the place is estimated from the printed width of the text before it.
    """
    if len(passage.boxes) < 2:
        return passage.boxes
    lines = [line.span() for line in _LINE.finditer(passage.text)]
    if len(lines) == len(passage.boxes):
        pairs = zip(lines, passage.boxes, strict=True)
        return tuple(box for (first, last), box in pairs if first < end and start < last)
    widths = list(accumulate((box.x1 - box.x0 for box in passage.boxes), initial=0.0))
    letters = list(accumulate(map(_estimate_width, passage.text), initial=0))
    scale = widths[-1] / max(1, letters[-1])
    slack = BOX_SLACK * widths[-1] / len(passage.boxes)
    first = min(bisect_right(widths, letters[start] * scale + slack), len(passage.boxes)) - 1
    end_box = bisect_left(widths, letters[end] * scale - slack)
    return passage.boxes[first : max(first + 1, end_box)]


def _estimate_width(letter: str) -> int:
    """The printed width of a letter, a Latin one being 1; bars and line breaks are not printed."""
    return 0 if letter in "|\n" else 2 if letter >= "\u1100" else 1
