"""What older turns hold on a question: chosen by their notes, or explored where it asks so."""

import asyncio
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, field
from uuid import UUID

from rag.config import ContextRules
from rag.context.tokens import counter
from rag.conversation import Turn
from rag.generation import recalled
from rag.history import recall
from rag.llms.light import Light
from rag.ports import HistoryStore, PassageStore, ToolCaller
from rag.searching import Searcher


@dataclass(frozen=True, slots=True)
class LookedBack:
    """Older turns and findings for the prompt, and what the trace tells.

    `answers`: these turns alone answer a question that asks for what was said in them.
    """

    turns: tuple[Turn, ...] = ()
    findings: tuple[str, ...] = ()
    answers: bool = False
    trace: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class LookBack:
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

    async def look(  # noqa: PLR0913 - the question, its place, what it found, and the stores
        self,
        question: str,
        total: int,
        recent: int,
        history: HistoryStore,
        store: PassageStore,
        *,
        documents: Collection[UUID] = (),
    ) -> LookedBack:
        """What turns before the last `recent` of `total` hold. Raises what the stores raise.

        `documents` are those that the question's search found.
        """
        before = total + 1 - (recent if self.windowed else 0)
        if before <= 1:
            return LookedBack()
        if recall.recalls(question):
            return await self._explored(question, before, history, store)
        return await self._selected(question, before, history, documents)

    async def _explored(
        self, question: str, before: int, history: HistoryStore, store: PassageStore
    ) -> LookedBack:
        # here: processes that only make an engine stay small
        from rag.history.environment import Environment, chunk_search
        from rag.history.explore import explore

        embedder = self.searcher.embedder
        passages = chunk_search(self.searcher, store)
        place = Environment(history, store, passages, embedder, before=before)
        found = await explore(
            question,
            place,
            caller=self.caller,
            light=self.light,
            rules=self.rules,
            count=counter(self.model).count,
        )
        quotes = await asyncio.to_thread(recalled.quoted, question, found.turns)
        quoted = [turn for turn in found.turns if turn.number in {one.number for one in quotes}]
        trace = {
            "exploration": {
                "steps": [asdict(step) for step in found.steps],
                "stopped": found.stopped,
                "failure": found.failure,
                "turns": [turn.number for turn in found.turns],
            }
        }
        answers = bool(quoted) and not any(turn.doc_refs for turn in quoted)
        return LookedBack(found.turns, found.notes, answers, trace)

    async def _selected(
        self, question: str, before: int, history: HistoryStore, documents: Collection[UUID]
    ) -> LookedBack:
        from rag.history.environment import LINES
        from rag.history.select import select

        lines = await asyncio.to_thread(history.list_turns, LINES, before)
        chosen = await select(
            question,
            lines,
            history.get_turns,
            light=self.light,
            embedder=self.searcher.embedder,
            documents=documents,
        )
        trace = {
            "selection": {
                "turns": list(chosen.numbers),
                "candidates": len(chosen.candidates),
                "method": chosen.method,
                "failure": chosen.failure,
            }
        }
        return LookedBack(chosen.turns, trace=trace)
