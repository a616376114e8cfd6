"""Which passages stand in the prompt, and the sources that readers see.

Relevance decides what is said of a passage, not whether it is supplied: what the search found goes
in as far as there is room, and the model reads it under a heading that says how likely it is to
bear on the question.
"""

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from uuid import UUID

from rag.conversation import DocRef
from rag.ports import PassageStore
from rag.retrieve.scope import MAX_HEARD_DOCUMENTS
from rag.types import AnswerSource, Evidence, Hit, Passage, QuestionType, Retrieval, ScopeReason

PREVIEW_CHARACTERS = 200
MIN_CHUNK_TOKENS = 40
"""Fewer a chunk seldom takes: a scope of more chunks than fit at that size is not even read."""
MAX_OPENING_CHUNKS = 400
"""Chunks that are read of documents with more than `MAX_CHUNKS_READ`."""
MAX_CHUNKS_READ = 4000
"""Chunks of whole documents that are read section by section."""
STRONG_RELEVANCE = 0.5
"""From that relevance on a passage stands among those that bear on the question."""
NEIGHBOURS = (1, -1)
"""Places beside a strong passage that are read with it: sentences go on behind it more often."""
MAX_AROUND = 10
"""Places on both sides of the best passage that are read where all that was found leaves room."""
_FRONT_OR_BACK = re.compile(
    r"부\s*칙|목\s*차|차\s*례|별지|서식|참고\s*문헌|머리말|표지|판권|"
    r"table of contents|contents|foreword|preface|references|bibliography|appendix|index|colophon",
    re.IGNORECASE,
)
"""Headings whose sections say least about what a document holds."""

MAX_CHARACTERS_A_TOKEN = 8
"""More characters no vocabulary puts into a token on average: a text beyond is not even counted."""

Cost = Callable[[Evidence, Evidence | None], int]
"""Tokens that a passage takes in the prompt behind another one, or as the first."""


@dataclass(frozen=True, slots=True)
class Selection:
    """The evidence in the order of the prompt.

    `by` is "whole" (all of the scope), "best" (by rank), "documents" (each document its share) or
    "none". `tokens` is what they take, `dropped` counts passages that were found and did not fit.
    `portions` are whole documents that do not fit, in pieces that do: to be read one after the
    other; `incomplete` says that they leave out the end of documents that are too long. `noted` are
    passages that stand in the prompt only by what was noted of them.
    """

    evidence: tuple[Evidence, ...] = ()
    by: str = "none"
    tokens: int = 0
    dropped: int = 0
    portions: tuple[tuple[Evidence, ...], ...] = ()
    incomplete: bool = False
    noted: tuple[Evidence, ...] = ()

    @property
    def citable(self) -> tuple[Evidence, ...]:
        """All passages that an answer may cite, by number."""
        return tuple(sorted((*self.evidence, *self.noted), key=lambda item: item.number))

    def describe(self) -> dict[str, object]:
        """What of the passages stands in the prompt, for traces."""
        return {
            "by": self.by,
            "passages": [
                {"number": item.number, "chunk_id": item.passage.chunk_id, "weak": item.weak}
                for item in self.evidence
            ],
            "noted": [item.number for item in self.noted],
            "parts": len(self.portions),
        }

    def with_noted(self, numbers: Collection[int], room: int, cost: Cost) -> "Selection":
        """The passages that tell most of the portions within `room`, and those noted.

        Passages that notes rest on come first; then each section has its turn, from its beginning.
        """
        passages = [item for portion in self.portions for item in portion]
        turns = _assign_turns(passages)
        ordered = sorted(
            passages, key=lambda item: (item.number not in numbers, turns[item.number], item.number)
        )
        kept: list[Evidence] = []
        used = 0
        for item in ordered:
            size = cost(item, _find_last_of_document(item.document_id, kept))
            if used + size <= room:
                kept.append(item)
                used += size
        shown = {item.number for item in kept}
        noted = [one for one in passages if one.number in numbers and one.number not in shown]
        return replace(
            self,
            evidence=tuple(sorted(kept, key=lambda item: item.number)),
            tokens=used,
            dropped=len(passages) - len(kept) - len(noted),
            noted=tuple(noted),
        )


def select_evidence(found: Retrieval, store: PassageStore, *, room: int, cost: Cost) -> Selection:
    """The passages for a prompt with `room` tokens for them.

    `store` holds the documents of `found.plan.scope`. Raises what the store raises.
    """
    plan = found.plan
    if not plan.scope.document_ids or plan.question_type is QuestionType.SMALLTALK:
        return Selection()
    if found.named:
        store = store.within(found.named)
    selector = _PassageSelector(room, cost, *_rank_relevance(found))
    everything = store.read_all(max(1, room // MIN_CHUNK_TOKENS))
    if everything is not None:
        may_fit = sum(len(one.text) for one in everything) <= room * MAX_CHARACTERS_A_TOKEN
        if (
            may_fit
            and (whole := selector.make_selection("whole", everything, selector.strong)).tokens
            <= room
        ):
            return whole
    if found.whole:
        return _split_into_portions(everything or store.read_all(MAX_CHUNKS_READ), store, selector)
    heard = plan.scope.document_ids if plan.scope.reason is not ScopeReason.ALL else ()
    documents = found.named or heard
    if plan.needs_multi_doc and 1 < len(documents) <= MAX_HEARD_DOCUMENTS:
        return _select_by_document(documents, found, store, selector)
    return _select_best(found, store, selector)


def select_passages(passages: Sequence[Passage], *, room: int, cost: Cost) -> Selection:
    """These passages, as far as there is room."""
    selector = _PassageSelector(room, cost, {passage.key: 1.0 for passage in passages})
    kept, _ = selector.fill_room(passages, room)
    evidence = _number_passages(kept, selector.relevance, selector.relevance)
    return Selection(evidence, "best", _sum_costs(evidence, cost))


def restore_passages(refs: Iterable[DocRef], limit: int) -> tuple[Passage, ...]:
    """What earlier answers showed of documents that can no longer be read, in the order shown."""
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
    found: list[AnswerSource] = []
    for item in evidence:
        passage, cosine = item.passage, cosines.get(item.passage.key)
        similarity = item.relevance if cosine is None else cosine
        found.append(
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
    return tuple(found)


def to_evidence(
    passages: Sequence[Passage], relevance: Mapping[int, float]
) -> tuple[Evidence, ...]:
    """Passages as evidence in the order given; `relevance` by key, 0 where it is missing."""
    return _number_passages(passages, relevance, ())


def _number_passages(
    passages: Sequence[Passage], relevance: Mapping[int, float], strong: Collection[int]
) -> tuple[Evidence, ...]:
    """The passages as evidence, numbered as they stand, without what the one before has said.

    Those whose keys are not among the `strong` ones stand behind the others.
    """
    slots: dict[UUID, int] = {}
    made: list[Evidence] = []
    for number, one in enumerate(sorted(passages, key=lambda one: one.key not in strong), 1):
        slot = slots.setdefault(one.document_id, len(slots) + 1)
        bears = relevance.get(one.key, 0.0)
        weak = one.key not in strong
        made.append(Evidence(number, slot, one, one.text, one.start, bears, weak))
    return (*made[:1], *(_remove_overlap(one, after) for one, after in pairwise(made)))


def _remove_overlap(before: Evidence, item: Evidence) -> Evidence:
    """The item without the beginning that the passage before it ends with."""
    one, two = before.passage, item.passage
    follows = one.document_id == two.document_id and one.index + 1 == two.index
    shared = one.end - two.start
    if not follows or not 0 < shared < len(two.text):
        return item
    return replace(item, text=two.text[shared:], start=two.start + shared)


def _rank_relevance(found: Retrieval) -> tuple[dict[int, float], frozenset[int]]:
    """The relevance of what was found, best first, and what of it bears on the question, by key."""
    relevance = {hit.passage.key: hit.scores.get("relevance", 0.0) for hit in found.hits}
    if not found.gate.relevant:
        return relevance, frozenset()
    best = {hit.passage.key for hit in found.hits[: min(1, found.plan.top_k)]}
    return relevance, frozenset(
        best | {key for key, value in relevance.items() if value >= STRONG_RELEVANCE}
    )


@dataclass(frozen=True, slots=True)
class _PassageSelector:
    """What a prompt has room for, and what the search said of passages.

    `relevance` by key, best first; `strong` are the keys of those that bear on the question.
    """

    room: int
    cost: Cost
    relevance: Mapping[int, float]
    strong: frozenset[int] = frozenset()

    def fill_room(self, offered: Iterable[Passage], room: int) -> tuple[list[Passage], int]:
        """The passages that fit, best first; the first always does. And how many did not."""
        kept: list[Evidence] = []
        used = dropped = 0
        for passage in dict.fromkeys(offered):
            size = self._measure_passage(passage, kept, room - used)
            if size is None:
                dropped += passage.key in self.relevance
                continue
            kept.append(_to_unscored_evidence(passage))
            used += size
        return [item.passage for item in kept], dropped

    def _measure_passage(self, passage: Passage, kept: Sequence[Evidence], left: int) -> int | None:
        """Tokens of a passage behind those kept; None: no room. The first always has some."""
        if kept and len(passage.text) > left * MAX_CHARACTERS_A_TOKEN:
            return None
        size = self.cost(
            _to_unscored_evidence(passage), _find_last_of_document(passage.document_id, kept)
        )
        return None if kept and size > left else size

    def sort_by_relevance(self, passages: Iterable[Passage]) -> list[Passage]:
        """Best first; what the search did not find stands last."""
        ranks = {key: rank for rank, key in enumerate(self.relevance)}
        return sorted(passages, key=lambda one: ranks.get(one.key, len(ranks)))

    def sort_for_reading(self, passages: Sequence[Passage]) -> list[Passage]:
        """In reading order: documents by their best passage, those without one as they stand."""
        ranks = {key: rank for rank, key in enumerate(self.relevance)}
        best: dict[UUID, tuple[int, int]] = {}
        for place, passage in enumerate(passages):
            rank = (ranks.get(passage.key, len(ranks)), place)
            best[passage.document_id] = min(best.get(passage.document_id, rank), rank)
        return sorted(passages, key=lambda one: (best[one.document_id], one.index))

    def make_selection(
        self, by: str, passages: Sequence[Passage], strong: Collection[int], dropped: int = 0
    ) -> Selection:
        """These passages in reading order, the `strong` ones before the others."""
        evidence = _number_passages(self.sort_for_reading(passages), self.relevance, strong)
        tokens = _sum_costs(evidence, self.cost)
        return Selection(evidence, by if evidence else "none", tokens, dropped)


def _select_best(found: Retrieval, store: PassageStore, selector: _PassageSelector) -> Selection:
    """The best passages, neighbours of the first ones with them, as far as there is room."""
    top_k, passages = found.plan.top_k, [hit.passage for hit in found.hits]
    leading = passages[:top_k]
    beside = _read_neighbours(leading, store)
    chosen, dropped = selector.fill_room([*leading, *beside, *passages[top_k:]], selector.room)
    if chosen and not dropped:  # little was found: what stands around the best may say more
        chosen, _ = selector.fill_room(
            [*chosen, *_read_surroundings(chosen[0], store)], selector.room
        )
    if not chosen and found.plan.scope.reason in (ScopeReason.EXPLICIT, ScopeReason.SLOT):
        chosen, dropped = selector.fill_room(store.read_openings(top_k), selector.room)
    # what goes on from a strong passage stands with it
    near = set(_list_neighbour_places([one for one in leading if one.key in selector.strong]))
    strong = {one.key for one in beside if (one.document_id, one.index) in near}
    return selector.make_selection("best", chosen, strong | selector.strong, dropped)


def _select_by_document(
    documents: Sequence[UUID], found: Retrieval, store: PassageStore, selector: _PassageSelector
) -> Selection:
    """Each document its share of the room, and no other document any."""
    top_k, left = found.plan.top_k, selector.room
    chosen: list[Passage] = []
    dropped = 0
    for place, document in enumerate(documents):
        own = [hit.passage for hit in found.hits if hit.passage.document_id == document]
        inside = store.within([document])
        leading = own[:top_k] or inside.read_openings(2)
        offered = [*leading, *_read_neighbours(leading, inside), *own[top_k:]]
        kept, lost = selector.fill_room(offered, left // (len(documents) - place))
        left -= _sum_costs([_to_unscored_evidence(one) for one in kept], selector.cost)
        chosen += kept
        dropped += lost
    if left < 0:  # each document kept a passage, and together those are too long
        chosen, lost = selector.fill_room(selector.sort_by_relevance(chosen), selector.room)
        dropped += lost
    strong = {one.key for one in chosen} if found.gate.relevant else selector.strong
    return selector.make_selection("documents", chosen, strong, dropped)


def _split_into_portions(
    everything: Sequence[Passage] | None, store: PassageStore, selector: _PassageSelector
) -> Selection:
    """Whole documents that do not fit, in portions that do; their beginnings without them."""
    passages = store.read_openings(MAX_OPENING_CHUNKS) if everything is None else everything
    ordered = selector.sort_for_reading(passages)
    portions: list[list[Evidence]] = []
    used = 0
    for item in _number_passages(ordered, selector.relevance, {one.key for one in ordered}):
        size = selector.cost(item, portions[-1][-1] if portions else None)
        if not portions or used + size > selector.room:
            portions.append([])
            used, size = 0, selector.cost(item, None)
        portions[-1].append(item)
        used += size
    told = tuple(tuple(portion) for portion in portions)
    return Selection(by="whole", portions=told, incomplete=everything is None)


def _assign_turns(passages: Sequence[Evidence]) -> dict[int, int]:
    """When each passage has its turn, by number: places within the section, front and back last."""
    seen: Counter[tuple[UUID, str]] = Counter()
    turns: dict[int, int] = {}
    for item in passages:
        section = item.passage.section
        place = (item.document_id, section)
        late = bool(_FRONT_OR_BACK.search(section.rpartition(" > ")[2]))
        turns[item.number] = seen[place] + (len(passages) if late else 0)
        seen[place] += 1
    return turns


def _read_neighbours(passages: Sequence[Passage], store: PassageStore) -> list[Passage]:
    """The passages beside these, those of the first one first."""
    known = {(one.document_id, one.index) for one in passages}
    places = [place for place in _list_neighbour_places(passages) if place not in known]
    found = (
        {(one.document_id, one.index): one for one in store.read_places(places)} if places else {}
    )
    return [found[place] for place in places if place in found]


def _read_surroundings(passage: Passage, store: PassageStore) -> list[Passage]:
    """The passages of its document around one, the nearest first."""
    first = max(0, passage.index - MAX_AROUND)
    places = range(first, passage.index + MAX_AROUND + 1)
    found = store.read_places([(passage.document_id, place) for place in places])
    return sorted(found, key=lambda one: (abs(one.index - passage.index), one.index))


def _list_neighbour_places(passages: Sequence[Passage]) -> list[tuple[UUID, int]]:
    places = (
        (one.document_id, one.index + step)
        for one in passages
        for step in NEIGHBOURS
        if one.key >= 0 and one.index + step >= 0
    )
    return list(dict.fromkeys(places))


def _sum_costs(evidence: Sequence[Evidence], cost: Cost) -> int:
    """Tokens that the evidence takes as it stands."""
    return sum(cost(item, before) for before, item in pairwise((None, *evidence)) if item)


def _find_last_of_document(document_id: UUID, kept: Sequence[Evidence]) -> Evidence | None:
    """What is kept already of a document: its line stands there once."""
    return next((one for one in reversed(kept) if one.document_id == document_id), None)


def _to_unscored_evidence(passage: Passage) -> Evidence:
    return Evidence(99, 1, passage, passage.text, passage.start, 0.0)
