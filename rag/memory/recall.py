"""Recalls older turns for a question: by likeness, or by a search if the question asks for it.

How people refer to the conversation itself ("처음에 말한 예산", "아까 내가 뭐라고 했지?",
"what did I say about the budget?") is data: `rag/lexicon/recall.toml`.
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
"""Characters read at either end of a question, where people say what they want."""
MAX_SEARCHED_TURNS = 1000
"""The newest turns, which are searched."""
MAX_LISTED_CHARACTERS = 200
"""Characters of a turn in a list for a model."""
REPLY_TOKENS = 60


def is_recalling(text: str) -> bool:
    """Whether a question asks for something said in the conversation."""
    parts = (text[:MAX_READ_CHARACTERS], text[-MAX_READ_CHARACTERS:])
    patterns = (
        pattern
        for name, pattern in load_patterns("recall").named.items()
        if name.startswith("recalls_")
    )
    return any(pattern.search(part) for pattern in patterns for part in parts)


def strip_recall_frame(text: str) -> str:
    """The question's topic, without the words that refer to the conversation."""
    return " ".join(load_patterns("recall")["frame"].sub(" ", text[:MAX_READ_CHARACTERS]).split())


def find_turn_number(text: str) -> int | None:
    """The number of the turn that a question names: "3번째 질문", "first question"."""
    patterns, beginning = load_patterns("recall"), text[:MAX_READ_CHARACTERS]
    if match := patterns["place_nth"].search(beginning):
        return int(match[1] or match[2])
    return 1 if patterns["place_first"].search(beginning) else None


@dataclass(frozen=True, slots=True)
class RecallResult:
    """Older turns and findings for the prompt, and what goes into the trace."""

    turns: tuple[PastTurn, ...] = ()
    findings: tuple[str, ...] = ()
    trace: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Recaller:
    """Searches conversations, for one configuration.

    `caller` runs explorations. `windowed`: a model reads the last turns anyway; otherwise they are
    searched, too.
    """

    searcher: Searcher
    rules: ContextRules
    light: Light | None
    caller: ToolCaller | None
    windowed: bool
    model: str = ""
    """The name of the answering model, for counting tokens."""

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
        """What the turns before the last `recent` of `total` have on the question.

        `documents` are those that the question's search found. Turns before `since` do not count.
        `may_ask`: the light model may be asked to choose; a question that asks for something said
        is explored regardless, within the limits of the rules. Raises what the stores raise.
        """
        end = total + 1 - (recent if self.windowed else 0)
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
                before=end,
            )
            return await explorer.explore()
        if end <= since:
            return RecallResult()
        lines = await asyncio.to_thread(history.list_turns, MAX_SEARCHED_TURNS, end)
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
        """The turns that the light model chooses, or those with the best scores if it does not."""
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
    """The numbers of the turns that the light model chooses; may be empty.

    Raises `LLMError`, `BadReply`.
    """
    language = choose_reply_language(question)
    ordered = sorted(lines, key=lambda line: line.number)
    reply = await light.ask_text(  # no schema: many servers can only enforce objects, not arrays
        prompts.fill_prompt("select", language, limit=str(MAX_CHOSEN)),
        prompts.fill_prompt(
            "select_turns",
            language,
            turns="\n".join(render_turn_line(line) for line in ordered),
            question=neutralise_text(question[:MAX_QUERY_CHARACTERS]),
        ),
        max_tokens=REPLY_TOKENS,
    )
    known_numbers = {line.number for line in lines}
    reply_numbers = parse_json(reply, "[")
    if not isinstance(reply_numbers, list):
        raise BadReply(reply[:200])
    numbers = [
        number for number in reply_numbers if isinstance(number, int) and number in known_numbers
    ]
    if reply_numbers and not numbers:
        raise BadReply(reply[:200])
    return tuple(dict.fromkeys(numbers))[:MAX_CHOSEN]


def render_turn_line(line: TurnLine) -> str:
    """A turn in a list for a model: its number and its line."""
    return f"{line.number}: {to_one_line(line.summary or line.question, MAX_LISTED_CHARACTERS)}"


# How relevant turns are to a question. CPU-bound: to be called in a thread.

MAX_QUERY_CHARACTERS = 2000
COSINE_WEIGHT = 1.5
"""Weight of the cosine relative to BM25."""
MAX_CHOSEN = 3
MAX_CANDIDATES = 50
"""Turns that are compared with each other."""
SHARED_DOCUMENTS_WEIGHT = 1.0
"""Weight of documents that the question's search found and the turn showed."""
SPREAD_SHARE = 0.5
"""Share of a turn's score that comes from similar turns, so that a thread is found as one."""
LIKENESS_EXPONENT = 2
"""Exponent of the likeness of turns, because weak likeness is chance."""
SPREAD_STEPS = 8
MIN_SHARE_OF_BEST_TURN = 0.7
"""A further turn is chosen if its score is at least this share of the best one's."""
MIN_COVERED_SHARE = 0.2
"""Share of the question's weight that a relevant turn must contain, or ..."""
MIN_COSINE = 0.15
"""... the cosine that it must reach; otherwise the question is about something else."""


@dataclass(frozen=True, slots=True)
class FoundTurn:
    """A turn that has something in common with a query.

    `score` is the weighted sum of BM25 and cosine, each as a share of the best turn's.
    `is_relevant`: it has enough in common with the query to be about the same thing.
    """

    line: TurnLine
    score: float
    is_relevant: bool


def search_turns(
    query: str, lines: Sequence[TurnLine], embedder: Embedder | None = None
) -> list[FoundTurn]:
    """Turns that have something in common with a query, best first; of equal ones the later."""
    if not lines or not query.strip():
        return []
    query_terms = tokenize.weigh_query_terms(query[:MAX_QUERY_CHARACTERS])
    vector = _embed_query(query, embedder)
    terms = _count_line_terms(lines)
    lengths = [sum(line_terms.values()) for line_terms in terms]
    average, total = sum(lengths) / len(lines), len(lines)
    frequencies = Counter(term for line_terms in terms for term in line_terms)
    lexical = [
        sum(
            weight
            * indexing.compute_idf(frequencies[term], total)
            * indexing.compute_term_weight(line_terms[term], length, average)
            for term, weight in query_terms.items()
            if term in line_terms
        )
        for line_terms, length in zip(terms, lengths, strict=True)
    ]
    cosines = [_compute_cosine(vector, line.vector) for line in lines]
    weights = {
        term: weight * indexing.compute_coverage_weight(frequencies[term], total)
        for term, weight in query_terms.items()
        if weight >= 1
    }
    enough = MIN_COVERED_SHARE * sum(weights.values())
    turns = []
    for at, (one, other) in enumerate(zip(_to_shares(lexical), _to_shares(cosines), strict=True)):
        covered = sum(weights[term] for term in weights.keys() & terms[at])
        is_relevant = 0 < enough <= covered or cosines[at] >= MIN_COSINE
        if one or other:
            turns.append(FoundTurn(lines[at], one + COSINE_WEIGHT * other, is_relevant))
    return sorted(turns, key=lambda one: (-one.score, -one.line.number))


def choose_turns(
    question: str,
    lines: Sequence[TurnLine],
    embedder: Embedder | None,
    *,
    documents: Collection[UUID] = (),
    limit: int = MAX_CHOSEN,
) -> tuple[list[TurnLine], tuple[int, ...]]:
    """At most `MAX_CANDIDATES` turns, best first, and the numbers of those chosen by score.

    A turn's score combines its likeness to the question with that of similar turns.
    """
    turns = search_turns(question, lines, embedder)[:MAX_CANDIDATES]
    turn_lines = [turn.line for turn in turns]
    shared = _to_shares([len({*documents} & {*line.document_ids}) for line in turn_lines])
    own_scores = _to_shares(
        [
            turn.score + SHARED_DOCUMENTS_WEIGHT * shared_share
            for turn, shared_share in zip(turns, shared, strict=True)
        ]
    )
    scores = _spread_scores(own_scores, turn_lines)
    order = sorted(range(len(turn_lines)), key=lambda index: -scores[index])
    candidates = [turn_lines[index] for index in order]
    if not any(turn.is_relevant for turn in turns[:limit]):
        return candidates, ()
    chosen = [
        index
        for index in order[:limit]
        if scores[index] >= MIN_SHARE_OF_BEST_TURN * scores[order[0]]
    ]
    best = own_scores.index(max(own_scores))
    if best not in chosen:  # most like the question, though in a thread of its own
        chosen = [*chosen[: limit - 1], best]
    return candidates, tuple(turn_lines[index].number for index in chosen)


def _count_line_terms(lines: Sequence[TurnLine]) -> list[Mapping[str, int]]:
    """The terms of every line; those not stored yet are computed in one batch."""
    missing = [line for line in lines if not line.terms]
    new_counts = iter(
        list(
            tokenize.count_terms_per_text([f"{line.question}\n{line.summary}" for line in missing])
        )
    )
    return [line.terms or next(new_counts) for line in lines]


def _embed_query(query: str, embedder: Embedder | None) -> Sequence[float]:
    """The vector of a query; empty if the embedder is missing, fails, or lacks its language."""
    if embedder is None or estimate_dense_weight(query, embedder.languages) < MIN_KNOWN_SHARE:
        return ()
    try:
        return embedder.embed_query(query[:MAX_QUERY_CHARACTERS])
    except EmbedderFailed:
        return ()


def _compute_cosine(vector: Sequence[float] | None, other_vector: Sequence[float] | None) -> float:
    """The cosine of unit vectors, 0..1; 0 if one is missing or their lengths differ."""
    if not vector or not other_vector or len(vector) != len(other_vector):
        return 0.0
    return float(min(1.0, max(0.0, sum(map(operator.mul, vector, other_vector)))))


def _to_shares(scores: Sequence[float]) -> list[float]:
    """Scores as shares of the best one."""
    best = max(scores, default=0.0)
    return [score / best if best > 0 else 0.0 for score in scores]


def _spread_scores(own_scores: Sequence[float], lines: Sequence[TurnLine]) -> Sequence[float]:
    """Scores spread along the likeness of the turns' vectors, as in personalised PageRank."""
    likeness = [[0.0] * len(lines) for _ in lines]
    for a, b in itertools.combinations(range(len(lines)), 2):
        likeness[a][b] = likeness[b][a] = (
            _compute_cosine(lines[a].vector, lines[b].vector) ** LIKENESS_EXPONENT
        )
    scores = own_scores
    for _ in range(SPREAD_STEPS):
        neighbour_scores = [
            sum(map(operator.mul, row, scores)) / (sum(row) or 1.0) for row in likeness
        ]
        scores = [
            (1 - SPREAD_SHARE) * score + SPREAD_SHARE * neighbour_score
            for score, neighbour_score in zip(own_scores, neighbour_scores, strict=True)
        ]
    return scores
