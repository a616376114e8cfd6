"""What older turns hold on a question: chosen by likeness, or looked for where it asks so.

"처음에 말한 예산", "아까 내가 뭐라고 했지?", "what did I say about the budget?": how people ask for
something of the conversation itself is data, `rag/lexicon/recall.toml`.
"""

import asyncio
import itertools
import operator
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from uuid import UUID

from rag import indexing, prompts, tokenize
from rag.adapters.light import BadReply, Light, parse_json
from rag.config import ContextRules
from rag.context.tokens import get_counter
from rag.conversation import PastTurn, TurnLine
from rag.errors import EmbedderFailed, LLMError
from rag.lexicon import load_patterns
from rag.memory.summary import to_one_line
from rag.ports import Embedder, HistoryStore, PassageStore, ToolCaller
from rag.retrieve.candidates import MIN_KNOWN_SHARE
from rag.retrieve.search import Searcher
from rag.tokenize.text import choose_reply_language, estimate_dense_weight, neutralise_text

MAX_READ_CHARACTERS = 500
"""Of a question: what it asks for stands near an end of it."""
MAX_SEARCHED_TURNS = 1000
"""Turns that are searched, the newest ones."""
MAX_LISTED_CHARACTERS = 200
"""Of a turn as a model sees it in a list."""
REPLY_TOKENS = 60


def is_recalling(text: str) -> bool:
    """True when a question asks for something that was said in the conversation."""
    parts = (text[:MAX_READ_CHARACTERS], text[-MAX_READ_CHARACTERS:])
    found = (
        one for name, one in load_patterns("recall").named.items() if name.startswith("recalls_")
    )
    return any(one.search(part) for one in found for part in parts)


def strip_recall_frame(text: str) -> str:
    """The question without the words that only say that it recalls: what it is about."""
    return " ".join(load_patterns("recall")["frame"].sub(" ", text[:MAX_READ_CHARACTERS]).split())


def find_turn_number(text: str) -> int | None:
    """The number of the turn that a question names by its place: "3번째 질문", "first question"."""
    known, read = load_patterns("recall"), text[:MAX_READ_CHARACTERS]
    if match := known["place_nth"].search(read):
        return int(match[1] or match[2])
    return 1 if known["place_first"].search(read) else None


@dataclass(frozen=True, slots=True)
class RecallResult:
    """Older turns and findings for the prompt, and what the trace tells."""

    turns: tuple[PastTurn, ...] = ()
    findings: tuple[str, ...] = ()
    trace: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Recaller:
    """Looks through a conversation for one configuration.

    `caller` leads explorations. `windowed`: the answerer reads the last turns anyway; where no
    model does, they are looked at, too.
    """

    searcher: Searcher
    rules: ContextRules
    light: Light | None
    caller: ToolCaller | None
    windowed: bool
    model: str = ""
    """The name of the model that answers, for counting its tokens."""

    async def recall_turns(  # noqa: PLR0913 - the question, its place, what it found, and the stores
        self,
        question: str,
        total: int,
        recent: int,
        history: HistoryStore,
        store: PassageStore,
        *,
        documents: Collection[UUID] = (),
        since: int = 1,
        may_ask: bool = True,
    ) -> RecallResult:
        """What turns before the last `recent` of `total` hold. Raises what the stores raise.

        `documents` are those that the question's search found. Nothing from before turn `since`
        counts. `may_ask`: whether the light model may be asked to choose; a question that asks for
        what was said is explored within the limits of the rules.
        """
        before = total + 1 - (recent if self.windowed else 0)
        if since > total:
            return RecallResult()
        if is_recalling(question):
            # here: processes that only make an engine stay small
            from rag.memory.explore import Explorer

            explorer = Explorer(
                question,
                history,
                store,
                self.searcher,
                self.rules,
                get_counter(self.model).count,
                caller=self.caller,
                light=self.light,
                since=since,
                before=before,
            )
            return await explorer.explore()
        if before <= since:
            return RecallResult()
        lines = await asyncio.to_thread(history.list_turns, MAX_SEARCHED_TURNS, before)
        older = [line for line in lines if line.number >= since]
        light = self.light if may_ask else None
        return await self._select_turns(question, older, history, documents, light)

    async def _select_turns(
        self,
        question: str,
        lines: Sequence[TurnLine],
        history: HistoryStore,
        documents: Collection[UUID],
        light: Light | None,
    ) -> RecallResult:
        """The turns that the light model chooses; those of the best scores where it does not."""
        candidates, numbers = await asyncio.to_thread(
            choose_turns, question, lines, self.searcher.embedder, documents=documents
        )
        trace = {"candidates": len(candidates), "method": "scores", "failure": ""}
        if light is not None and candidates:
            try:
                numbers = await _ask_for_turns(question, candidates, light)
                trace["method"] = "light_llm"
            except LLMError as error:
                trace["failure"] = error.code
        turns = await asyncio.to_thread(history.get_turns, numbers) if numbers else []
        return RecallResult(tuple(turns), trace={"selection": trace | {"turns": list(numbers)}})


async def _ask_for_turns(question: str, lines: Sequence[TurnLine], light: Light) -> tuple[int, ...]:
    """The numbers of turns that the light model names: a JSON array, which may be empty.

    Raises `LLMError`, `BadReply`.
    """
    language = choose_reply_language(question)
    ordered = sorted(lines, key=lambda line: line.number)
    said = await light.ask_text(  # no schema: many servers hold replies to objects, not to arrays
        prompts.fill_prompt("select", language, limit=str(MAX_CHOSEN)),
        prompts.fill_prompt(
            "select_turns",
            language,
            turns="\n".join(render_turn_line(line) for line in ordered),
            question=neutralise_text(question[:MAX_QUERY_CHARACTERS]),
        ),
        max_tokens=REPLY_TOKENS,
    )
    known = {line.number for line in lines}
    named = parse_json(said, "[")
    if not isinstance(named, list):
        raise BadReply(said[:200])
    numbers = [one for one in named if isinstance(one, int) and one in known]
    if named and not numbers:
        raise BadReply(said[:200])
    return tuple(dict.fromkeys(numbers))[:MAX_CHOSEN]


def render_turn_line(line: TurnLine) -> str:
    """A turn as a model sees it in a list: its number and its line."""
    return f"{line.number}: {to_one_line(line.summary or line.question, MAX_LISTED_CHARACTERS)}"


# How well turns bear on a question. CPU work without waiting: to be called in a thread.

MAX_QUERY_CHARACTERS = 2000
COSINE_WEIGHT = 1.5
"""What the cosine weighs beside BM25."""
MAX_CHOSEN = 3
MAX_CANDIDATES = 50
"""Turns that are compared with each other."""
SHARED_DOCUMENTS_WEIGHT = 1.0
"""What documents weigh that the question's search found and the turn showed."""
SPREAD_SHARE = 0.5
"""Share of a turn's score that it has from turns like it: a thread is found as one."""
LIKENESS_EXPONENT = 2
"""Exponent of the likeness of turns: weak likeness is chance."""
SPREAD_STEPS = 8
MIN_SHARE_OF_BEST_TURN = 0.7
"""A further turn is chosen when it scores at least this share of the best one."""
MIN_COVERED_SHARE = 0.2
"""Share of the question's weight that the best turn must hold, or ..."""
MIN_COSINE = 0.15
"""... the cosine it must have; else the question is on something else."""


@dataclass(frozen=True, slots=True)
class FoundTurn:
    """A turn that shares something with a query.

    `score` orders them: BM25 and cosine, each as a share of the best one's, summed with their
    weights. `is_relevant`: it holds enough of the query to be on the same.
    """

    line: TurnLine
    score: float
    is_relevant: bool


def search_turns(
    query: str, lines: Sequence[TurnLine], embedder: Embedder | None = None
) -> list[FoundTurn]:
    """The turns that share something with a query, best first, later ones before equal ones."""
    if not lines or not query.strip():
        return []
    wanted = tokenize.weigh_query_terms(query[:MAX_QUERY_CHARACTERS])
    vector = _embed_query(query, embedder)
    terms = _count_line_terms(lines)
    lengths = [sum(own.values()) for own in terms]
    average, total = sum(lengths) / len(lines), len(lines)
    frequencies = Counter(term for own in terms for term in own)
    lexical = [
        sum(
            weight
            * indexing.compute_idf(frequencies[term], total)
            * indexing.compute_term_weight(own[term], length, average)
            for term, weight in wanted.items()
            if term in own
        )
        for own, length in zip(terms, lengths, strict=True)
    ]
    cosines = [_compute_cosine(vector, line.vector) for line in lines]
    weights = {
        term: weight * indexing.compute_coverage_weight(frequencies[term], total)
        for term, weight in wanted.items()
        if weight >= 1
    }
    enough = MIN_COVERED_SHARE * sum(weights.values())
    found = []
    for at, (one, other) in enumerate(zip(_to_shares(lexical), _to_shares(cosines), strict=True)):
        held = sum(weights[term] for term in weights.keys() & terms[at])
        is_relevant = 0 < enough <= held or cosines[at] >= MIN_COSINE
        if one or other:
            found.append(FoundTurn(lines[at], one + COSINE_WEIGHT * other, is_relevant))
    return sorted(found, key=lambda one: (-one.score, -one.line.number))


def choose_turns(
    question: str,
    lines: Sequence[TurnLine],
    embedder: Embedder | None,
    *,
    documents: Collection[UUID] = (),
    limit: int = MAX_CHOSEN,
) -> tuple[list[TurnLine], tuple[int, ...]]:
    """At most `MAX_CANDIDATES` turns, best first, and the numbers of those that scores choose.

    A turn's score is its own likeness to the question and that of the turns like it.
    """
    found = search_turns(question, lines, embedder)[:MAX_CANDIDATES]
    near = [one.line for one in found]
    shared = _to_shares([len({*documents} & {*line.document_ids}) for line in near])
    own = _to_shares(
        [
            one.score + SHARED_DOCUMENTS_WEIGHT * also
            for one, also in zip(found, shared, strict=True)
        ]
    )
    scores = _spread_scores(own, near)
    order = sorted(range(len(near)), key=lambda at: -scores[at])
    candidates = [near[at] for at in order]
    if not any(one.is_relevant for one in found[:limit]):
        return candidates, ()
    chosen = [at for at in order[:limit] if scores[at] >= MIN_SHARE_OF_BEST_TURN * scores[order[0]]]
    best = own.index(max(own))
    if best not in chosen:  # the most like of all, though in a thread of its own
        chosen = [*chosen[: limit - 1], best]
    return candidates, tuple(near[at].number for at in chosen)


def _count_line_terms(lines: Sequence[TurnLine]) -> list[Mapping[str, int]]:
    """The terms of every line; all that are not stored yet are made in one batch."""
    missing = [line for line in lines if not line.terms]
    made = iter(
        list(tokenize.count_terms_of_all([f"{one.question}\n{one.summary}" for one in missing]))
    )
    return [line.terms or next(made) for line in lines]


def _embed_query(query: str, embedder: Embedder | None) -> Sequence[float]:
    """The vector of a query; empty where no embedder knows its language, or it fails."""
    if embedder is None or estimate_dense_weight(query, embedder.languages) < MIN_KNOWN_SHARE:
        return ()
    try:
        return embedder.embed_query(query[:MAX_QUERY_CHARACTERS])
    except EmbedderFailed:
        return ()


def _compute_cosine(one: Sequence[float] | None, other: Sequence[float] | None) -> float:
    """Of unit vectors, 0..1; 0 where one is missing, or they are of two embedders."""
    if not one or not other or len(one) != len(other):
        return 0.0
    return float(min(1.0, max(0.0, sum(map(operator.mul, one, other)))))


def _to_shares(scores: Sequence[float]) -> list[float]:
    """Scores as shares of the best one."""
    best = max(scores, default=0.0)
    return [score / best if best > 0 else 0.0 for score in scores]


def _spread_scores(own: Sequence[float], lines: Sequence[TurnLine]) -> Sequence[float]:
    """Scores that walk along the likeness of the turns' vectors, as in personalised PageRank."""
    ways = [[0.0] * len(lines) for _ in lines]
    for a, b in itertools.combinations(range(len(lines)), 2):
        ways[a][b] = ways[b][a] = (
            _compute_cosine(lines[a].vector, lines[b].vector) ** LIKENESS_EXPONENT
        )
    scores = own
    for _ in range(SPREAD_STEPS):
        near = [sum(map(operator.mul, row, scores)) / (sum(row) or 1.0) for row in ways]
        scores = [
            (1 - SPREAD_SHARE) * one + SPREAD_SHARE * other
            for one, other in zip(own, near, strict=True)
        ]
    return scores
